//! `sluicegate simulate`: replays the requests of an access log through a configuration. The replay is offline: its clock
//! shows the time of the log, and its code is that of a server with the embedded store. With `--from-admin`, it instead shows
//! the last hour of a running server in the same form.
//!
//! The exit code is 0 if the log was read to its end, whatever was denied and however many lines were malformed, and 2 if not.

mod batch;
mod chart;
mod clients;
mod compare;
mod format;
mod from_admin;
mod reader;
mod rejected_lines;
mod replay;
mod report;
mod rules;
mod source;
mod suggest;
mod summary;
mod tally;
mod time_order;
mod timeline;
mod weekly_heatmap;
mod worst_minute;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde::Serialize;
use sluicegate::core::Micros;
use sluicegate::rules::file::value;

use super::Error;
use crate::config::Config;
use crate::config::load::{self, LoadError};
use crate::settings::Env;
use crate::settings::declared::CONFIG;
use crate::telemetry::escape;
use compare::ConfigComparison;
use format::Format;
use format::json::FieldMap;
use from_admin::LastHour;
use reader::LogFiles;
use replay::{Gates, ReplayGate, ReplayResult};
use suggest::{DenialShare, DenialTargets, LimitSearch, RuleTexts, SuggestObserver};
use summary::Summary;

/// The exit code if the log was not read to its end.
const FAILED: u8 = 2;
/// The name of the user of the combined format in `--identity`.
const USER: &str = "user";

#[derive(Debug, Args)]
pub(super) struct SimulateArgs {
    #[arg(long, value_name = CONFIG.flag, help = CONFIG.help())]
    config: Option<PathBuf>,
    /// Access log, plain or gzip; several are read in the given order, and - is standard input
    #[arg(long, value_name = "ACCESS_LOG", required_unless_present = "from_admin", num_args = 1..)]
    log: Vec<PathBuf>,
    /// Show the last hour of the server with this admin listener instead of a log
    #[arg(long, value_name = "URL", conflicts_with_all = ["config", "log", "format", "fields", "identity", "window", "suggest", "compare"])]
    from_admin: Option<String>,
    /// Format of the log; combined includes the common format
    #[arg(long, value_name = "FORMAT", default_value = "combined", value_parser = formats())]
    format: Format,
    /// Names of the fields in JSON lines, for example time=ts,ip=client.ip
    #[arg(long, value_name = "FIELD=NAME,...")]
    fields: Option<FieldMap>,
    /// Field with the client's identity: user for combined, any field for JSON (default: the client's address)
    #[arg(long, value_name = "FIELD")]
    identity: Option<String>,
    /// How far the time of a line may be behind the lines before it
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = window)]
    window: Micros,
    /// Also write an HTML report with pictures to this file
    #[arg(long, value_name = "OUT.HTML")]
    report: Option<PathBuf>,
    /// Test every limit in many sizes, and suggest one
    #[arg(long)]
    suggest: bool,
    /// Largest share of identities with denied requests under a suggested limit (default: 1%, unless --deny-requests is given)
    #[arg(long, value_name = "PERCENT", requires = "suggest")]
    deny_identities: Option<DenialShare>,
    /// Largest share of requests that a suggested limit may deny
    #[arg(long, value_name = "PERCENT", requires = "suggest")]
    deny_requests: Option<DenialShare>,
    /// Second configuration file: show the clients with a changed outcome
    #[arg(long, value_name = "OTHER.YAML")]
    compare: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Arguments that cannot be combined.
#[derive(Debug, thiserror::Error)]
enum ArgumentError {
    #[error("--fields applies to JSON lines: add --format json")]
    FieldsWithoutJson,
    #[error("--identity {0}: the combined format has no such field; use user, or leave it out")]
    NoSuchField(String),
    #[error("cannot write the report {path}: {source}; check the folder and its permissions")]
    Report { path: String, source: std::io::Error },
    #[error("--identity {0}: Envoy's default format has no identity; leave it out, or log JSON")]
    NoIdentityField(String),
}

/// Runs the command and returns its exit code.
pub(super) fn run(args: &SimulateArgs, read_env: impl FnOnce() -> Result<Env, Error>) -> ExitCode {
    match read_env().and_then(|env| simulate(args, &env)) {
        Ok(text) => {
            // A closed pipe does not change the result.
            let _ = write!(std::io::stdout(), "{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {error}");
            ExitCode::from(FAILED)
        }
    }
}

/// The output.
fn simulate(args: &SimulateArgs, env: &Env) -> Result<String, Error> {
    match &args.from_admin {
        Some(url) => last_hour(args, url, env),
        None => replay(args, env),
    }
}

/// The last hour of a running server.
fn last_hour(args: &SimulateArgs, url: &str, env: &Env) -> Result<String, Error> {
    let last_hour: LastHour = from_admin::fetch(url, env.admin_token())?;
    if let Some(path) = &args.report {
        write_report(path, &last_hour.html())?;
    }
    if args.json { Ok(json(&last_hour.summary)?) } else { Ok(last_hour.text()) }
}

/// The outcome of a log under a configuration.
fn replay(args: &SimulateArgs, env: &Env) -> Result<String, Error> {
    let first = TestedConfig::load(args.config.as_deref().or(env.path(&CONFIG)), env)?;
    let second = args.compare.as_deref().map(|path| TestedConfig::load(Some(path), env)).transpose()?;
    let (logs, is_named) = args.logs()?;
    for tested in [Some(&first), second.as_ref()].into_iter().flatten() {
        ReplayGate::check(&tested.config, is_named)?;
    }
    let mut observer = SuggestObserver::default();
    let gates_at = |now| {
        if args.suggest {
            observer =
                SuggestObserver::new(LimitSearch::new(&first.config.rules, &first.texts, env.variables(), now));
        }
        let gate = ReplayGate::new(&first.config, env, is_named, now, observer.clone())?;
        let second = second
            .as_ref()
            .map(|second| ReplayGate::new(&second.config, env, is_named, now, SuggestObserver::default()));
        Ok(Gates { gate, comparison: second.transpose()?.map(ConfigComparison::new) })
    };
    let ReplayResult { read, tally, comparison, rejected } = replay::replay(&logs, gates_at)?;
    let rejected = read.rejected.and(rejected);
    let names: Vec<String> = args.log.iter().map(|path| source::name(path)).collect();
    let mut summary = Summary::new(&names, read.lines, read.late, &rejected, &tally);
    summary.untried = rules::untested(&first.config.rules);
    let targets = DenialTargets { identities: args.deny_identities, requests: args.deny_requests };
    summary.suggestions = observer.suggestions(&first.texts, targets);
    let compared = comparison.as_ref().zip(second.as_ref());
    summary.compare = compared.map(|(comparison, second)| comparison.summary(second.name.clone()));
    if let Some(path) = &args.report {
        let changes = comparison.as_ref().map(|comparison| &comparison.timeline);
        write_report(path, &report::html(&summary, &tally, changes, &first.name, &names))?;
    }
    if args.json { Ok(json(&summary)?) } else { Ok(summary.text()) }
}

/// JSON with escapes for all characters that act on a terminal. A JSON parser restores them.
fn json(summary: &impl Serialize) -> Result<String, serde_json::Error> {
    let text = serde_json::to_string_pretty(summary)?;
    Ok(text.lines().map(|line| escape::escape(line) + "\n").collect())
}

/// A configuration under test.
#[derive(Debug)]
struct TestedConfig {
    name: String,
    config: Config,
    texts: RuleTexts,
}

impl TestedConfig {
    /// Loads a file, or the built-in demo.
    fn load(path: Option<&Path>, env: &Env) -> Result<Self, Error> {
        let (name, text) = match path {
            Some(path) => (load::shown(path), load::text(path)?),
            None => ("the built-in demo".to_owned(), Config::demo_text().as_bytes().to_vec()),
        };
        let config = Config::parse(&text, &name, env.variables()).map_err(LoadError::Mistakes)?;
        let texts = RuleTexts::read(&text, &name)?;
        Ok(Self { name, config, texts })
    }
}

impl SimulateArgs {
    /// The logs to read, and whether a name in them identifies the client.
    fn logs(&self) -> Result<(LogFiles, bool), ArgumentError> {
        if self.fields.is_some() && self.format != Format::Json {
            return Err(ArgumentError::FieldsWithoutJson);
        }
        let fields = self.fields.clone().unwrap_or_default();
        let (fields, is_named) = match (&self.identity, self.format) {
            (Some(name), Format::Json) => (fields.with_identity(name), true),
            (Some(name), Format::Combined) if name == USER => (fields, true),
            (Some(name), Format::Combined) => return Err(ArgumentError::NoSuchField(name.clone())),
            (Some(name), Format::Envoy) => return Err(ArgumentError::NoIdentityField(name.clone())),
            (None, _) => {
                let is_named = fields.names_identity();
                (fields, is_named)
            }
        };
        let (paths, format, window_micros) = (self.log.clone(), self.format, self.window.as_micros());
        Ok((LogFiles { paths, format, fields, window_micros }, is_named))
    }
}

fn write_report(path: &Path, html: &str) -> Result<(), ArgumentError> {
    let failed = |source| ArgumentError::Report { path: load::shown(path), source };
    std::fs::write(path, html).map_err(failed)
}

/// Parses the name of a format on the command line.
fn formats() -> impl TypedValueParser<Value = Format> {
    let named = |name: String| {
        let format = Format::ALL.iter().find(|(known, _)| *known == name);
        // `PossibleValuesParser` has rejected unknown names.
        format.map_or(Format::Combined, |(_, format)| *format)
    };
    PossibleValuesParser::new(Format::ALL.map(|(name, _)| name)).map(named)
}

fn window(text: &str) -> Result<Micros, String> {
    value::duration(text).map_err(|error| format!("{}: {}", error.message, error.remedy))
}
