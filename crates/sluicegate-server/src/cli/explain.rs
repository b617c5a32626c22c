//! `sluicegate explain`: which rules match a request, which do not and why, and what it would be charged. Asks nobody: it
//! reads the settings that a server would read.
//!
//! 0 says that rules match, or that what none matches passes; 1 that no rule matches and such requests are denied; 2 that
//! there is nothing to explain, because the arguments or the settings are wrong.

mod descriptor;
mod question;
pub(super) mod words;

use std::io::Write as _;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use sluicegate::clock::{Clock as _, SystemClock};

use super::Error;
use crate::config::Config;
use crate::config::load::{self, LoadError};
use crate::config::redis::INSTANCES_MAX;
use crate::envoy_ratelimit::EnvoyRatelimit;
use crate::explain::{Outcome, Report, Surroundings};
use crate::settings::{self, Env, Flags, StoreUrl};
use descriptor::DescriptorArgs;
use question::Selectors;

/// The exit code when no rule matches and such requests are denied.
const DENIED: u8 = 1;
/// The exit code when there is nothing to explain.
const WRONG: u8 = 2;

#[derive(Debug, Args)]
pub(super) struct ExplainArgs {
    /// Configuration file; without one, the built-in demo [env: SLUICEGATE_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    selectors: Selectors,
    #[command(flatten)]
    descriptor: DescriptorArgs,
    /// Directory of envoyproxy/ratelimit's files, for --descriptor [env: SLUICEGATE_ENVOY_RATELIMIT]
    #[arg(long, value_name = "DIR")]
    envoy_ratelimit: Option<PathBuf>,
    /// Where state would live (default: memory) [env: SLUICEGATE_STORE]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// How many servers share the limits (default: `redis.min_instances`, or 1)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=INSTANCES_MAX as i64))]
    instances: Option<u32>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Explains, prints, and turns the outcome into the exit code.
pub(super) fn run(args: &ExplainArgs, read_env: impl FnOnce() -> Result<Env, Error>) -> ExitCode {
    match read_env().and_then(|env| explain(args, &env)) {
        Ok((text, outcome)) => {
            // A reader that has gone away changes nothing about the explanation.
            let _ = write!(std::io::stdout(), "{text}");
            if outcome == Outcome::Denied { ExitCode::from(DENIED) } else { ExitCode::SUCCESS }
        }
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {error}");
            ExitCode::from(WRONG)
        }
    }
}

/// The explanation as it is printed.
fn explain(args: &ExplainArgs, env: &Env) -> Result<(String, Outcome), Error> {
    let flags = Flags {
        config: args.config.clone(),
        store: args.store.clone(),
        envoy_ratelimit: args.envoy_ratelimit.clone(),
        ..Flags::default()
    };
    let config = config(&flags, env)?;
    let store = settings::store(&flags, env, &config.settings)?;
    let instances = args.instances.and_then(NonZeroU32::new).unwrap_or(config.redis.min_instances);
    if let Some(text) = args.descriptor.explain(&config, &store, instances, args.json)? {
        // What nothing limits passes there, whatever happens to other requests.
        return Ok((text, Outcome::Allowed));
    }
    let question = args.selectors.question(&config, env).map_err(Box::new)?;
    let surroundings = surroundings(&config, &store, instances);
    let report = Report::new(surroundings, &question.request(), SystemClock::new().now())?;
    let text =
        if args.json { format!("{}\n", serde_json::to_string_pretty(&report)?) } else { words::text(&report) };
    Ok((text, report.outcome))
}

/// What a server with this configuration and store would decide by.
fn surroundings<'c>(config: &'c Config, store: &StoreUrl, instances: NonZeroU32) -> Surroundings<'c> {
    let is_shared = matches!(store, StoreUrl::Redis(_));
    Surroundings { rules: &config.rules, is_shared, instances, encoder: &config.redis.encoder }
}

/// The configuration that a server would run by.
fn config(flags: &Flags, env: &Env) -> Result<Config, Error> {
    let envoy = EnvoyRatelimit::chosen(flags, env)?;
    let mut config = match settings::config_path(flags, env) {
        Some(path) => load::config(path, env.variables())?,
        None if envoy.is_some() => Config::without_file().map_err(LoadError::Mistakes)?,
        None => Config::demo().map_err(LoadError::Mistakes)?,
    };
    if let Some(envoy) = envoy {
        config.rules = envoy.directory.load(config.rules)?;
        envoy.complete(&mut config);
    }
    Ok(config)
}

#[cfg(test)]
mod tests;
