//! The Sluicegate server and its command line.
//!
//! This file parses the command line, runs the command, and turns the outcome into an exit code. It is the only place that
//! reads the environment.
//!
//! # Layers
//!
//! A module imports only modules above it in this list. `cargo xtask lint` rejects other imports.
//!
//! - configuration: `secret`, `brute_force`, `keyed_cap`, `tls_client`, `jwks`, `rule_documents`, `database`, `settings`, `config`,
//!   `identify`, `envoy_ratelimit`
//! - store: `store`
//! - telemetry: `metrics`, `telemetry`, `traces`
//! - answers: `problem`, `forwarding_headers`, `wire`, `admin_api`, `api_response`, `body`
//! - engine: `limiter`, `admin_tokens`, `admit`, `rule_source`, `envoy_xds`, `reload`, `explain`, `engine`, `health`, `fleet`, `sweeper`
//! - listeners: `net`
//! - front doors: `grpc`, `http`, `resp`
//! - command line: `shutdown`, `cli`

mod admin_api;
mod admin_tokens;
mod admit;
mod api_response;
mod body;
mod brute_force;
mod cli;
mod config;
mod database;
mod engine;
mod envoy_ratelimit;
mod envoy_xds;
mod explain;
mod fleet;
mod forwarding_headers;
mod grpc;
mod health;
mod http;
mod identify;
mod jwks;
mod keyed_cap;
mod limiter;
mod metrics;
mod net;
mod problem;
mod reload;
mod resp;
mod rule_documents;
mod rule_source;
mod secret;
mod settings;
mod shutdown;
mod store;
mod sweeper;
mod telemetry;
#[cfg(test)]
mod testing;
mod tls_client;
mod traces;
mod wire;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use cli::CommandLine;
use settings::Env;

fn main() -> ExitCode {
    let line = match CommandLine::parse(std::env::args_os().collect()) {
        Ok(line) => line,
        Err(error) => {
            // Help and version come this way too and have their own code; a closed stream is no
            // error.
            let _ = error.print();
            return u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from);
        }
    };
    cli::run(line, read_env).unwrap_or_else(|error| {
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
