//! `sluicegate validate` and `sluicegate schema`.

use super::Error;
use crate::config::{self, Config, load, schema};
use crate::envoy_ratelimit::EnvoyRatelimit;
use clap::Args;
use sluicegate::rules::RuleSet;
use sluicegate::rules::file::Environment;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Debug, Args)]
pub(super) struct ValidateArgs {
    /// Configuration file
    #[arg(required_unless_present = "envoy_ratelimit")]
    file: Option<PathBuf>,
    /// Directory of envoyproxy/ratelimit's files, alone or together with the file
    #[arg(long, value_name = "DIR")]
    envoy_ratelimit: Option<PathBuf>,
}

/// Validates the file and the directory. Prints a line for each valid one and all problems of the others.
pub(super) fn validate(args: &ValidateArgs, environment: &Environment) -> Result<ExitCode, Error> {
    let rules = match &args.file {
        Some(file) => validate_file(file, environment)?,
        None => Some(RuleSet::default()),
    };
    let is_valid = match &args.envoy_ratelimit {
        Some(directory) => validate_directory(directory, rules, environment)?,
        None => rules.is_some(),
    };
    Ok(if is_valid { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn validate_file(path: &Path, environment: &Environment) -> Result<Option<RuleSet>, Error> {
    let text = load::text(path)?;
    let name = load::shown(path);
    match config::validate_command(&name, &text, environment) {
        Ok(line) => {
            writeln!(io::stdout(), "{line}")?;
            Ok(Config::parse(&text, &name, environment).ok().map(|config| config.rules))
        }
        Err(problems) => {
            writeln!(io::stderr(), "{problems}")?;
            Ok(None)
        }
    }
}

/// Validates the directory even if the file is invalid, so that all problems appear at once.
fn validate_directory(path: &Path, rules: Option<RuleSet>, environment: &Environment) -> Result<bool, Error> {
    let envoy = EnvoyRatelimit::at(Some(path), environment)?;
    let Some(directory) = envoy.as_ref().and_then(EnvoyRatelimit::directory) else { return Ok(rules.is_some()) };
    let is_valid = rules.is_some();
    match directory.load(rules.unwrap_or_default()) {
        Ok(rules) => {
            let domains = rules.envoy().map_or(0, |envoy| envoy.domains().len());
            let limits = rules.rules().iter().filter(|rule| rule.selector.only_by_place).count();
            let counts = [config::counted(domains, "domain"), config::counted(limits, "limit")];
            writeln!(io::stdout(), "{}: ok, {}", load::shown(path), counts.join(", "))?;
            Ok(is_valid)
        }
        Err(error) => {
            error.lines().iter().try_for_each(|line| writeln!(io::stderr(), "{line}"))?;
            Ok(false)
        }
    }
}

/// Prints the JSON Schema of the configuration file.
pub(super) fn print_schema() -> Result<ExitCode, Error> {
    writeln!(io::stdout(), "{:#}", schema::json_schema())?;
    Ok(ExitCode::SUCCESS)
}
