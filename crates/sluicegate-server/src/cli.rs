//! The command line.
//!
//! `sluicegate` without a command means `sluicegate serve`. This module takes flags as text. [`crate::settings`] parses them
//! together with the environment and the file, so all three have the same error texts.

mod check;
mod client;
mod explain;
mod files;
mod flags;
mod format;
mod lenient;
mod rules;
mod selectors;
mod serve;
mod simulate;
mod top;

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::settings::Env;
use crate::settings::declared::variables_help;
use flags::{AllFlags, SettingFlags};
pub(crate) use lenient::CommandLine;

/// An error after the command line was parsed.
pub(crate) type Error = Box<dyn std::error::Error + Send + Sync>;

/// A distributed rate limiter: exact limits, all or nothing, bounded memory.
#[derive(Debug, Parser)]
#[command(name = "sluicegate", version, args_conflicts_with_subcommands = true, after_help = variables_help())]
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
    /// Check a request against a running server: exit code 0 allowed, 1 denied, 2 could not decide
    Check(check::CheckArgs),
    /// Explain which rules match a request, which do not and why, and the resulting keys, costs and limits
    Explain(Box<explain::ExplainArgs>),
    /// Replay an access log through a configuration, and show allowed and denied requests by rule and client
    Simulate(Box<simulate::SimulateArgs>),
    /// Show live decisions of a running server: rates, latencies, rules and top clients
    Top(top::TopArgs),
    /// Check a configuration file: exit code 0 if it is valid, else 1 and all problems
    Validate(files::ValidateArgs),
    /// Print the JSON Schema of the configuration file
    Schema,
    /// Import rules, tenants, overrides and API keys from a file to a database, and export them
    #[command(subcommand)]
    Rules(rules::RulesCommand),
}

#[derive(Debug, Args)]
#[command(after_help = variables_help())]
struct ServeArgs {
    #[command(flatten)]
    flags: SettingFlags<AllFlags>,
}

/// Runs the command. It reads the environment only if the command uses it, so invalid settings of a server cannot change the
/// exit code of `check`.
pub(crate) fn run(line: CommandLine, read_env: impl FnOnce() -> Result<Env, Error>) -> Result<ExitCode, Error> {
    let CommandLine { cli, ignored } = line;
    match cli.command {
        Some(Command::Check(args)) => Ok(check::run(&args)),
        Some(Command::Explain(args)) => Ok(explain::run(&args, read_env)),
        Some(Command::Simulate(args)) => Ok(simulate::run(&args, read_env)),
        Some(Command::Top(args)) => top::run(&args, &read_env()?),
        Some(Command::Serve(args)) => serve::run(args.flags.values(), &read_env()?, &ignored),
        None => serve::run(cli.serve.flags.values(), &read_env()?, &ignored),
        Some(Command::Validate(args)) => files::validate(&args, read_env()?.variables()),
        Some(Command::Schema) => files::print_schema(),
        Some(Command::Rules(command)) => rules::run(&command, &read_env()?),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::settings::Flags;
    use crate::settings::declared::API;

    fn flags(arguments: &[&str]) -> Result<Flags, clap::Error> {
        let cli = Cli::try_parse_from([&["sluicegate"], arguments].concat())?;
        Ok(match cli.command {
            Some(Command::Serve(args)) => args.flags.values().clone(),
            Some(other) => panic!("not serve: {other:?}"),
            None => cli.serve.flags.values().clone(),
        })
    }

    #[test]
    fn the_definition_is_valid() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_alone_mean_serve() {
        assert_eq!(flags(&[]).expect("valid").text(&API), None);
        for arguments in [&["--api", "off"][..], &["serve", "--api", "off"], &["--api=off"]] {
            assert_eq!(flags(arguments).expect("valid").text(&API), Some("off"), "{arguments:?}");
        }
    }

    const EXPLAIN_PATH: [&str; 7] = ["explain", "--resource", "r", "--identifier", "i", "--path", "/"];

    #[test]
    fn unknown_flags_are_rejected() {
        for arguments in [&["--admin-token", "x"][..], &EXPLAIN_PATH] {
            assert!(flags(arguments).is_err(), "{arguments:?}");
        }
    }
}
