//! The command line.
//!
//! `sluicegate` alone, or with flags only, means `sluicegate serve`. Flags are taken as text here;
//! [`crate::settings`] gives them their meaning together with the environment and the file, so that
//! one error text serves all three.

mod check;
mod client;
mod explain;
mod files;
mod rules;
mod selectors;
mod serve;
mod simulate;
mod top;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::settings::{Env, Flags};

/// Everything that can go wrong after the command line was understood.
pub(crate) type Error = Box<dyn std::error::Error + Send + Sync>;

/// A distributed rate limiter: exact limits, all or nothing, bounded memory.
#[derive(Debug, Parser)]
#[command(name = "sluicegate", version, args_conflicts_with_subcommands = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: ServeArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server (the default)
    Serve(ServeArgs),
    /// Ask a running server: exit code 0 allowed, 1 denied, 2 could not decide
    Check(check::CheckArgs),
    /// Say which rules match a request, which do not and why, and what it would be charged
    Explain(Box<explain::ExplainArgs>),
    /// Replay an access log through a configuration: what it would have allowed and denied, and to whom
    Simulate(Box<simulate::SimulateArgs>),
    /// Watch a running server: what is decided now, how fast, by which rules, and for whom
    Top(top::TopArgs),
    /// Check a configuration file: 0 if it is good, 1 and every problem if not
    Validate(files::ValidateArgs),
    /// Print the JSON Schema of the configuration file
    Schema,
    /// Bring rules, tenants, overrides and API keys from a file to a database, and back
    #[command(subcommand)]
    Rules(rules::RulesCommand),
}

#[derive(Debug, Args)]
struct ServeArgs {
    /// Configuration file; without one, the built-in demo [env: SLUICEGATE_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where state lives: memory, or the URL of Redis or Valkey (default: memory) [env: SLUICEGATE_STORE]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Reverse proxy, or the demo application without routes (default: 127.0.0.1:8080) [env: SLUICEGATE_GATEWAY]
    #[arg(long, value_name = "ADDR|off")]
    gateway: Option<String>,
    /// Decision API (default: 127.0.0.1:8081) [env: SLUICEGATE_API]
    #[arg(long, value_name = "ADDR|off")]
    api: Option<String>,
    /// Health (default: 127.0.0.1:8082) [env: SLUICEGATE_ADMIN]
    ///
    /// An address that other machines can reach needs a token in SLUICEGATE_ADMIN_TOKEN.
    #[arg(long, value_name = "ADDR|off")]
    admin: Option<String>,
    /// Redis protocol with CL.THROTTLE (default: off) [env: SLUICEGATE_RESP]
    #[arg(long, value_name = "ADDR|off")]
    resp: Option<String>,
    /// Directory of envoyproxy/ratelimit's files, by which gRPC and /json decide [env: SLUICEGATE_ENVOY_RATELIMIT]
    #[arg(long, value_name = "DIR")]
    envoy_ratelimit: Option<PathBuf>,
}

impl From<ServeArgs> for Flags {
    fn from(args: ServeArgs) -> Self {
        let ServeArgs { config, store, gateway, api, admin, resp, envoy_ratelimit } = args;
        Self { config, store, gateway, api, admin, resp, envoy_ratelimit }
    }
}

/// Does what the command line asks for. The environment is read only where it has a say: what is wrong in the
/// settings of a server must not be taken for an answer to a check.
pub(crate) fn run(cli: Cli, read_env: impl FnOnce() -> Result<Env, Error>) -> Result<ExitCode, Error> {
    match cli.command {
        Some(Command::Check(args)) => Ok(check::run(&args)),
        Some(Command::Explain(args)) => Ok(explain::run(&args, read_env)),
        Some(Command::Simulate(args)) => Ok(simulate::run(&args, read_env)),
        Some(Command::Top(args)) => top::run(&args, &read_env()?),
        Some(Command::Serve(args)) => serve::run(&args.into(), &read_env()?),
        None => serve::run(&cli.serve.into(), &read_env()?),
        Some(Command::Validate(args)) => files::validate(&args, read_env()?.variables()),
        Some(Command::Schema) => files::print_schema(),
        Some(Command::Rules(command)) => rules::run(&command, &read_env()?),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn flags(arguments: &[&str]) -> Result<Flags, clap::Error> {
        let cli = Cli::try_parse_from([&["sluicegate"], arguments].concat())?;
        Ok(match cli.command {
            Some(Command::Serve(args)) => args.into(),
            Some(other) => panic!("not serve: {other:?}"),
            None => cli.serve.into(),
        })
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_alone_mean_serve() {
        assert_eq!(flags(&[]).expect("valid").api, None);
        for arguments in [&["--api", "off"][..], &["serve", "--api", "off"], &["--api=off"]] {
            assert_eq!(flags(arguments).expect("valid").api.as_deref(), Some("off"), "{arguments:?}");
        }
    }

    const EXPLAIN_PATH: [&str; 7] = ["explain", "--resource", "r", "--identifier", "i", "--path", "/"];

    #[test]
    fn what_is_not_built_yet_is_unknown() {
        for arguments in [&["--admin-token", "x"][..], &EXPLAIN_PATH] {
            assert!(flags(arguments).is_err(), "{arguments:?}");
        }
    }
}
