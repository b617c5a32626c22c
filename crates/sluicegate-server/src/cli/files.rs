//! `sluicegate validate FILE` and `sluicegate schema`: what needs no server.

use super::Error;
use crate::config::{self, load, schema};
use sluicegate::rules::file::Environment;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

/// One line and 0 if the file is good; otherwise every problem, and 1.
pub(super) fn validate(path: &Path, environment: &Environment) -> Result<ExitCode, Error> {
    let text = load::text(path)?;
    match config::validate_command(&load::shown(path), text, environment) {
        Ok(line) => {
            writeln!(io::stdout(), "{line}")?;
            Ok(ExitCode::SUCCESS)
        }
        Err(problems) => {
            writeln!(io::stderr(), "{problems}")?;
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Prints the JSON Schema of the configuration file.
pub(super) fn print_schema() -> Result<ExitCode, Error> {
    writeln!(io::stdout(), "{:#}", schema::json_schema())?;
    Ok(ExitCode::SUCCESS)
}
