//! The Sluicegate server and its command line.
//!
//! This file parses, runs, and turns the outcome into an exit code; nothing else. It is the only
//! place that reads the environment.

mod admit;
mod app;
mod authorities;
mod body;
mod cli;
mod config;
mod content;
mod database;
mod envoy_ratelimit;
mod explain;
mod fleet;
mod grpc;
mod http;
mod identify;
mod jwks;
mod metrics;
mod net;
mod problem;
mod reload;
mod resp;
mod respond;
mod rule_source;
mod secret;
mod settings;
mod shutdown;
mod store;
mod sweeper;
mod telemetry;
#[cfg(test)]
mod testing;
mod traces;
mod wire;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;

use cli::Cli;
use settings::Env;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version come this way too and have their own code; a closed stream is no
            // error.
            let _ = error.print();
            return u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from);
        }
    };
    cli::run(cli, read_env).unwrap_or_else(|error| {
        let _ = writeln!(std::io::stderr(), "error: {error}");
        ExitCode::FAILURE
    })
}

#[expect(clippy::disallowed_methods, reason = "this is the place that reads the environment")]
fn read_env() -> Result<Env, cli::Error> {
    // A variable that is not text cannot stand in a file of text.
    let text = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    let variables = std::env::vars_os().filter_map(text).collect();
    Ok(Env::read(|name| std::env::var_os(name))?.with_variables(variables))
}
