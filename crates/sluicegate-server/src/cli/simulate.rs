//! `sluicegate simulate`: what a configuration would have done to the requests of an access log. Asks nobody: the time is
//! the log's, and the code is that of a server with its state in memory.
//!
//! One thread reads, this one decides, strictly in the order of the lines. 0 says that the log was read to its end,
//! whatever was denied and however many lines were no requests; 2 that it was not.

mod batch;
mod faults;
mod format;
mod judge;
mod lines;
mod order;
mod progress;
mod reader;
mod replay;
mod report;
mod source;
mod summary;
mod tally;
mod words;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use sluicegate::core::Micros;
use sluicegate::rules::file::value;

use super::Error;
use crate::config::Config;
use crate::config::load::{self, LoadError};
use crate::settings::{self, Env, Flags};
use format::Format;
use format::fields::FieldMap;
use judge::Judge;
use reader::Logs;
use replay::Replayed;
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
    #[arg(long, value_name = "ACCESS_LOG", required = true, num_args = 1..)]
    log: Vec<PathBuf>,
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
    let flags = Flags { config: args.config.clone(), ..Flags::default() };
    let config = match settings::config_path(&flags, env) {
        Some(path) => load::config(path, env.variables())?,
        None => Config::demo().map_err(LoadError::Mistakes)?,
    };
    let (logs, is_named) = args.logs()?;
    Judge::check(&config, is_named)?;
    let Replayed { read, tally, faults } = replay::replay(&logs, |now| Judge::new(&config, env, is_named, now))?;
    let faults = read.faults.and(faults);
    let names: Vec<String> = args.log.iter().map(|path| source::name(path)).collect();
    let summary = Summary::new(&names, read.lines, read.late, &faults, &tally);
    if let Some(path) = &args.report {
        let shown = settings::config_path(&flags, env).map_or_else(|| "built-in demo".to_owned(), load::shown);
        write_report(path, &report::html(&summary, &tally, &shown, &names))?;
    }
    Ok(if args.json { format!("{}\n", serde_json::to_string_pretty(&summary)?) } else { words::text(&summary) })
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
