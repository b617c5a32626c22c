//! `sluicegate explain`: the rules that match a request, the reasons why others do not, and the keys, costs and limits. It reads
//! the settings of a server and contacts no other machine.
//!
//! The exit code is 0 if rules match or unmatched requests are allowed, 1 if no rule matches and unmatched requests are denied,
//! and 2 if the arguments or settings are invalid.

mod descriptor;
mod selected_request;
mod text;

use std::io::Write as _;
use std::num::NonZeroU32;
use std::process::ExitCode;

use clap::Args;
use sluicegate::clock::{Clock as _, SystemClock};

use super::Error;
use super::flags::{FlagSelection, SettingFlags};
use crate::config::Config;
use crate::config::load::{self, LoadError};
use crate::config::redis::INSTANCES_MAX;
use crate::envoy_ratelimit::EnvoyRatelimit;
use crate::explain::{ExplainContext, ExplainOutcome, ExplainReport};
use crate::settings::declared::{CONFIG, ENVOY_RATELIMIT, STORE, Setting};
use crate::settings::{self, Env, Flags, StoreUrl};
use descriptor::DescriptorArgs;
use selected_request::ExplainSelectors;

/// The exit code if no rule matches and unmatched requests are denied.
const DENIED: u8 = 1;
/// The exit code for invalid arguments or settings.
const INVALID: u8 = 2;

#[derive(Debug, Args)]
pub(super) struct ExplainArgs {
    #[command(flatten)]
    flags: SettingFlags<ExplainFlags>,
    #[command(flatten)]
    selectors: ExplainSelectors,
    #[command(flatten)]
    descriptor: DescriptorArgs,
    /// Number of servers that share the limits (default: `redis.min_instances`, or 1)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=INSTANCES_MAX as i64))]
    instances: Option<u32>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The settings that change an explanation.
#[derive(Clone, Copy, Debug)]
struct ExplainFlags;

impl FlagSelection for ExplainFlags {
    fn includes(setting: &'static Setting) -> bool {
        [&CONFIG, &STORE, &ENVOY_RATELIMIT].iter().any(|each| each.name == setting.name)
    }
}

/// Runs the command and returns its exit code.
pub(super) fn run(args: &ExplainArgs, read_env: impl FnOnce() -> Result<Env, Error>) -> ExitCode {
    match read_env().and_then(|env| explain(args, &env)) {
        Ok((text, outcome)) => {
            // A closed pipe does not change the explanation.
            let _ = write!(std::io::stdout(), "{text}");
            if outcome == ExplainOutcome::Denied { ExitCode::from(DENIED) } else { ExitCode::SUCCESS }
        }
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {error}");
            ExitCode::from(INVALID)
        }
    }
}

/// The output.
fn explain(args: &ExplainArgs, env: &Env) -> Result<(String, ExplainOutcome), Error> {
    let flags = args.flags.values();
    let config = config(flags, env)?;
    let store = settings::store(flags, env, &config.settings)?;
    let instances = args.instances.and_then(NonZeroU32::new).unwrap_or(config.redis.min_instances);
    if let Some(text) = args.descriptor.explain(&config, &store, instances, args.json)? {
        // A descriptor without a limit is allowed, independently of `unmatched`.
        return Ok((text, ExplainOutcome::Allowed));
    }
    let selected = args.selectors.resolve(&config, env).map_err(Box::new)?;
    let context = context(&config, &store, instances);
    let report = ExplainReport::new(context, &selected.request(), SystemClock::new().now())?;
    let text =
        if args.json { format!("{}\n", serde_json::to_string_pretty(&report)?) } else { text::text(&report) };
    Ok((text, report.outcome))
}

/// The context of a server with this configuration and store.
fn context<'c>(config: &'c Config, store: &StoreUrl, instances: NonZeroU32) -> ExplainContext<'c> {
    let is_shared = store.is_shared();
    ExplainContext { rules: &config.rules, is_shared, instances, encoder: &config.redis.encoder }
}

/// The configuration of a server with these flags.
fn config(flags: &Flags, env: &Env) -> Result<Config, Error> {
    let envoy = EnvoyRatelimit::chosen(flags, env)?;
    let mut config = match settings::config_path(flags, env) {
        Some(path) => load::config(path, env.variables())?,
        None if envoy.is_some() => Config::without_file().map_err(LoadError::Mistakes)?,
        None => Config::demo().map_err(LoadError::Mistakes)?,
    };
    if let Some(envoy) = envoy {
        if let Some(directory) = envoy.directory() {
            config.rules = directory.load(config.rules)?;
        }
        envoy.complete(&mut config);
    }
    Ok(config)
}

#[cfg(test)]
mod tests;
