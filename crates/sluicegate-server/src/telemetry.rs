//! The log: where it goes, in which form, and what may be in it.
//!
//! Events go to stderr, for people when that is a terminal and as one JSON object per line
//! otherwise, unless `SLUICEGATE_LOG_FORMAT` says which. A thread of its own [writes them](lines): nobody waits for whoever
//! reads the log. No byte of a logged value can act on the reader's terminal or forge a line:
//! [`escape`] sees every event on its way out. A panic anywhere becomes an ordinary event with its
//! place.

pub(crate) mod callers;
pub(crate) mod decision_log;
mod degradation;
pub(crate) mod escape;
pub(crate) mod history;
pub(crate) mod identities;
mod lines;
pub(crate) mod tally;
pub(crate) mod watch;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::IsTerminal as _;
use std::panic::PanicHookInfo;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};

use escape::EscapedStderr;

/// What is logged unless `SLUICEGATE_LOG` says otherwise.
const DEFAULT_FILTER: &str = "info";

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TelemetryError {
    /// `SLUICEGATE_LOG` is not a filter.
    #[error(
        "SLUICEGATE_LOG: `{}` is not a log filter ({source}); \
         give a level such as `info` or `debug`, or `target=level` pairs separated by commas",
        value.escape_debug()
    )]
    Filter {
        /// What it said.
        value: String,
        /// What is wrong with it.
        source: tracing_subscriber::filter::ParseError,
    },
    /// `SLUICEGATE_LOG_FORMAT` is not a form of the log.
    #[error("SLUICEGATE_LOG_FORMAT: `{}` is not a form of the log; give `text` or `json`", .0.escape_debug())]
    Format(String),
    /// No thread for the log.
    #[error("the thread that writes the log cannot be started: {0}; raise the limit of threads, or free some")]
    Thread(#[from] std::io::Error),
    /// There is a logger already.
    #[error("logging is set up already: {0}")]
    Installed(#[from] TryInitError),
}

/// Sets up logging for the process. `filter` is the value of `SLUICEGATE_LOG`, if set, and `format` that of
/// `SLUICEGATE_LOG_FORMAT`.
pub(crate) fn init(filter: Option<&str>, format: Option<&str>) -> Result<(), TelemetryError> {
    let is_for_people = match format {
        None => std::io::stderr().is_terminal(),
        Some("text") => true,
        Some("json") => false,
        Some(other) => return Err(TelemetryError::Format(other.to_owned())),
    };
    let value = filter.unwrap_or(DEFAULT_FILTER);
    let filter = EnvFilter::builder()
        .parse(value)
        .map_err(|source| TelemetryError::Filter { value: value.to_owned(), source })?;
    let registry = tracing_subscriber::registry().with(filter);
    // Colours are escape sequences, and those are what must not get through.
    let format = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(EscapedStderr);
    if is_for_people {
        registry.with(format).try_init()?;
    } else {
        registry.with(format.json().flatten_event(true)).try_init()?;
    }
    std::panic::set_hook(Box::new(log_panic));
    Ok(lines::start()?)
}

/// Waits a moment until all lines are written.
pub(crate) fn flush() {
    lines::LINES.flush();
}

/// How many lines of the log were lost because nobody read it.
pub(crate) fn lost_lines() -> u64 {
    lines::LINES.lost_total()
}

/// Tells of lines that were lost, if any were since this was last told.
pub(crate) fn tell_lost_lines() {
    if let Some(lost) = lines::LINES.take_lost() {
        tracing::warn!(lost, "lines of the log were lost, because nobody read it");
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
    // It may have been the thread that everything ends with.
    flush();
}
