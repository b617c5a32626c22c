//! `sluicegate simulate`: what a configuration would have done to the requests of an access log. Asks nobody: the time is
//! the log's, and the code is that of a server with its state in memory. With `--from-admin` it asks a running server for
//! what it did, and says that in the same words and pictures.
//!
//! One thread reads, this one decides, strictly in the order of the lines. 0 says that the log was read to its end,
//! whatever was denied and however many lines were no requests; 2 that it was not.

mod batch;
mod compare;
mod faults;
mod format;
mod judge;
mod lines;
mod live;
mod order;
mod progress;
mod reader;
mod replay;
mod report;
mod source;
mod suggest;
mod summary;
mod tally;
mod words;

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
use crate::telemetry::escape;
use compare::Comparison;
use format::Format;
use format::fields::FieldMap;
use judge::Judge;
use reader::Logs;
use replay::{Judges, Replayed};
use suggest::{Ladders, RuleTexts, Share, Targets, Watch};
use summary::Summary;

/// The exit code when the log was not read to its end.
const WRONG: u8 = 2;
/// The name by which `--identity` knows the user of the combined format.
const USER: &str = "user";

#[derive(Debug, Args)]
pub(super) struct SimulateArgs {
    /// Configuration file; without one, the built-in demo [env: SLUICEGATE_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Access log, plain or gzip; several are read one after the other, and - is standard input
    #[arg(long, value_name = "ACCESS_LOG", required_unless_present = "from_admin", num_args = 1..)]
    log: Vec<PathBuf>,
    /// Instead of a log: what the server whose admin listener this is counted within the last hour
    #[arg(long, value_name = "URL", conflicts_with_all = ["config", "log", "format", "fields", "identity", "window", "suggest", "compare"])]
    from_admin: Option<String>,
    /// How the log is written; combined is common, too
    #[arg(long, value_name = "FORMAT", default_value = "combined", value_parser = formats())]
    format: Format,
    /// What the fields of JSON lines are called, for example time=ts,ip=client.ip
    #[arg(long, value_name = "FIELD=NAME,...")]
    fields: Option<FieldMap>,
    /// Which field names the caller: user for combined, any field for JSON (default: callers are known by ip)
    #[arg(long, value_name = "FIELD")]
    identity: Option<String>,
    /// How far back a line may be behind those before it
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = window)]
    window: Micros,
    /// Also write a report with pictures to this file
    #[arg(long, value_name = "OUT.HTML")]
    report: Option<PathBuf>,
    /// Try every limit in many sizes, and suggest one
    #[arg(long)]
    suggest: bool,
    /// The most identities that a suggested limit may deny anything (default: 1%, unless --deny-requests is given)
    #[arg(long, value_name = "PERCENT", requires = "suggest")]
    deny_identities: Option<Share>,
    /// The most requests that a suggested limit may deny
    #[arg(long, value_name = "PERCENT", requires = "suggest")]
    deny_requests: Option<Share>,
    /// Another configuration file: say who changes sides
    #[arg(long, value_name = "OTHER.YAML")]
    compare: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Arguments that do not go together.
#[derive(Debug, thiserror::Error)]
enum ArgumentError {
    #[error("--fields is for JSON lines: add --format json")]
    FieldsWithoutJson,
    #[error("--identity {0}: the combined format has no such field; use user, or leave it out")]
    NoSuchField(String),
    #[error("cannot write the report {path}: {source}; check the folder and its permissions")]
    Report { path: String, source: std::io::Error },
    #[error("--identity {0}: the format of Envoy names no callers; leave it out, or log JSON")]
    NoNames(String),
}

/// Replays the log, prints, and turns the outcome into the exit code.
pub(super) fn run(args: &SimulateArgs, read_env: impl FnOnce() -> Result<Env, Error>) -> ExitCode {
    match read_env().and_then(|env| simulate(args, &env)) {
        Ok(text) => {
            // A reader that has gone away changes nothing about the result.
            let _ = write!(std::io::stdout(), "{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {error}");
            ExitCode::from(WRONG)
        }
    }
}

/// The result as it is printed.
fn simulate(args: &SimulateArgs, env: &Env) -> Result<String, Error> {
    match &args.from_admin {
        Some(url) => live(args, url, env),
        None => replayed(args, env),
    }
}

/// What a running server did.
fn live(args: &SimulateArgs, url: &str, env: &Env) -> Result<String, Error> {
    let live = live::fetch(url, env.admin_token())?;
    if let Some(path) = &args.report {
        write_report(path, &live.html())?;
    }
    if args.json { Ok(json(&live.summary)?) } else { Ok(live::text(&live)) }
}

/// What a configuration would have done.
fn replayed(args: &SimulateArgs, env: &Env) -> Result<String, Error> {
    let first = Tried::load(args.config.as_deref().or(env.config_path()), env)?;
    let other = args.compare.as_deref().map(|path| Tried::load(Some(path), env)).transpose()?;
    let (logs, is_named) = args.logs()?;
    for tried in [Some(&first), other.as_ref()].into_iter().flatten() {
        Judge::check(&tried.config, is_named)?;
    }
    let mut watch = Watch::default();
    let judges_at = |now| {
        if args.suggest {
            watch = Watch::new(Ladders::new(&first.config.rules, &first.texts, env.variables(), now));
        }
        let judge = Judge::new(&first.config, env, is_named, now, watch.clone())?;
        let other = other.as_ref().map(|other| Judge::new(&other.config, env, is_named, now, Watch::default()));
        Ok(Judges { judge, comparison: other.transpose()?.map(Comparison::new) })
    };
    let Replayed { read, tally, comparison, faults } = replay::replay(&logs, judges_at)?;
    let faults = read.faults.and(faults);
    let names: Vec<String> = args.log.iter().map(|path| source::name(path)).collect();
    let mut summary = Summary::new(&names, read.lines, read.late, &faults, &tally);
    summary.untried = summary::untried(&first.config.rules);
    let targets = Targets { identities: args.deny_identities, requests: args.deny_requests };
    summary.suggestions = watch.suggestions(&first.texts, targets);
    let named = comparison.as_ref().zip(other.as_ref());
    summary.compare = named.map(|(comparison, other)| comparison.compared(other.name.clone()));
    if let Some(path) = &args.report {
        let changes = comparison.as_ref().map(|comparison| &comparison.timeline);
        write_report(path, &report::html(&summary, &tally, changes, &first.name, &names))?;
    }
    if args.json { Ok(json(&summary)?) } else { Ok(words::text(&summary)) }
}

/// The same JSON whoever reads it, and nothing in it that acts on a terminal.
fn json(summary: &impl Serialize) -> Result<String, serde_json::Error> {
    let text = serde_json::to_string_pretty(summary)?;
    Ok(text.lines().map(|line| escape::escape(line) + "\n").collect())
}

/// A configuration that is tried.
#[derive(Debug)]
struct Tried {
    name: String,
    config: Config,
    texts: RuleTexts,
}

impl Tried {
    /// Reads a file, or the built-in demo.
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
    /// What is read, and whether callers are known by the names in it.
    fn logs(&self) -> Result<(Logs, bool), ArgumentError> {
        if self.fields.is_some() && self.format != Format::Json {
            return Err(ArgumentError::FieldsWithoutJson);
        }
        let fields = self.fields.clone().unwrap_or_default();
        let (fields, is_named) = match (&self.identity, self.format) {
            (Some(name), Format::Json) => (fields.with_identity(name), true),
            (Some(name), Format::Combined) if name == USER => (fields, true),
            (Some(name), Format::Combined) => return Err(ArgumentError::NoSuchField(name.clone())),
            (Some(name), Format::Envoy) => return Err(ArgumentError::NoNames(name.clone())),
            (None, _) => {
                let is_named = fields.names_identity();
                (fields, is_named)
            }
        };
        let (paths, format, window_micros) = (self.log.clone(), self.format, self.window.as_micros());
        Ok((Logs { paths, format, fields, window_micros }, is_named))
    }
}

fn write_report(path: &Path, html: &str) -> Result<(), ArgumentError> {
    let failed = |source| ArgumentError::Report { path: load::shown(path), source };
    std::fs::write(path, html).map_err(failed)
}

/// The names of formats, for the command line.
fn formats() -> impl TypedValueParser<Value = Format> {
    let named = |name: String| {
        let format = Format::ALL.iter().find(|(known, _)| *known == name);
        // Only known names come here.
        format.map_or(Format::Combined, |(_, format)| *format)
    };
    PossibleValuesParser::new(Format::ALL.map(|(name, _)| name)).map(named)
}

fn window(text: &str) -> Result<Micros, String> {
    value::duration(text).map_err(|wrong| format!("{}: {}", wrong.message, wrong.remedy))
}
