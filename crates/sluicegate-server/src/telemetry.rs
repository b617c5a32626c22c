//! Logging, and the observer of decisions.
//!
//! Events go to stderr: as text if that is a terminal, else as one JSON object per line. `SLUICEGATE_LOG_FORMAT` overrides this
//! choice. A [separate thread](async_writer) writes them, so a slow reader of the log blocks no request. [`escape`] sees every
//! event, so no byte of a logged value can act on a terminal or forge a line. A panic becomes an ordinary event with its
//! location.

mod async_writer;
pub(crate) mod decision_log;
mod degradation;
pub(crate) mod escape;
pub(crate) mod history;
pub(crate) mod identities;
pub(crate) mod identity_events;
pub(crate) mod observer;
mod repeats;
pub(crate) mod tally;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::IsTerminal as _;
use std::panic::PanicHookInfo;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};

use crate::settings::declared::LOG;
use escape::EscapedStderr;

/// The reason why logging cannot be set up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TelemetryError {
    /// `SLUICEGATE_LOG` is not a valid filter.
    #[error(
        "SLUICEGATE_LOG: `{}` is not a log filter ({source}); \
         give a level such as `info` or `debug`, or `target=level` pairs separated by commas",
        value.escape_debug()
    )]
    Filter {
        /// The value of the variable.
        value: String,
        /// The parser's error.
        source: tracing_subscriber::filter::ParseError,
    },
    /// `SLUICEGATE_LOG_FORMAT` is not a log format.
    #[error("SLUICEGATE_LOG_FORMAT: `{}` is not a log format; give `text` or `json`", .0.escape_debug())]
    Format(String),
    /// The thread that writes the log cannot be started.
    #[error("the thread that writes the log cannot be started: {0}; raise the limit of threads, or free some")]
    Thread(#[from] std::io::Error),
    /// Another logger is installed.
    #[error("logging is already set up: {0}")]
    Installed(#[from] TryInitError),
}

/// Sets up logging for the process. `filter` is the value of `SLUICEGATE_LOG`, if set, and `format` that of
/// `SLUICEGATE_LOG_FORMAT`.
pub(crate) fn init(filter: Option<&str>, format: Option<&str>) -> Result<(), TelemetryError> {
    let is_text = match format {
        None => std::io::stderr().is_terminal(),
        Some("text") => true,
        Some("json") => false,
        Some(other) => return Err(TelemetryError::Format(other.to_owned())),
    };
    let value = filter.or(LOG.default).unwrap_or_default();
    let filter = EnvFilter::builder()
        .parse(value)
        .map_err(|source| TelemetryError::Filter { value: value.to_owned(), source })?;
    let registry = tracing_subscriber::registry().with(filter).with(repeats::RepeatLimit);
    // Colours are escape sequences, and `EscapedStderr` would escape them.
    let format = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(EscapedStderr);
    if is_text {
        registry.with(format).try_init()?;
    } else {
        registry.with(format.json().flatten_event(true)).try_init()?;
    }
    std::panic::set_hook(Box::new(log_panic));
    Ok(async_writer::start()?)
}

/// Waits until all lines are written, for at most five seconds.
pub(crate) fn flush() {
    async_writer::LOG.flush();
}

/// The number of log lines that were lost because the reader of the log did not keep up.
pub(crate) fn lost_lines() -> u64 {
    async_writer::LOG.lost_total()
}

/// Logs the numbers of lines that were lost or suppressed since the last call, if there are any.
pub(crate) fn log_lost_lines() {
    repeats::log_suppressed();
    if let Some(lost) = async_writer::LOG.take_lost() {
        tracing::warn!(lost, "log lines were lost, because the reader of the log did not keep up");
    }
}

fn log_panic(panic: &PanicHookInfo<'_>) {
    let message = panic.payload_as_str().unwrap_or("(not text)");
    let place = panic.location().map(ToString::to_string);
    let backtrace = Backtrace::capture();
    let backtrace = match backtrace.status() {
        BacktraceStatus::Captured => Some(backtrace.to_string()),
        _ => None,
    };
    tracing::error!(panic = message, place, backtrace, "panicked");
    // The process may end with this thread.
    flush();
}
