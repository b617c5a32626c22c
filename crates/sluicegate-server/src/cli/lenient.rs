//! The command line, also under the name of `envoyproxy/ratelimit`.
//!
//! Deployments of that project start `/bin/ratelimit`, some with arguments that it has never read. Under a name that ends in
//! `ratelimit`, arguments that are unknown here are therefore ignored, and the log lists them. Known ones keep their meaning.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, Parser as _};

use super::Cli;

/// The end of the name of `envoyproxy/ratelimit`'s binary.
const NAME: &str = "ratelimit";

/// A parsed command line.
#[derive(Debug)]
pub(crate) struct CommandLine {
    pub(crate) cli: Cli,
    /// The names of the arguments that were ignored. A value may be a secret, so it is not part of them.
    pub(crate) ignored: Vec<String>,
}

impl CommandLine {
    /// Parses the arguments, of which the first is the name of the program.
    pub(crate) fn parse(mut arguments: Vec<OsString>) -> Result<Self, clap::Error> {
        let is_lenient = arguments.first().is_some_and(|name| is_ratelimit(name));
        let mut ignored = Vec::new();
        loop {
            let error = match Cli::try_parse_from(&arguments) {
                Ok(cli) => return Ok(Self { cli, ignored }),
                Err(error) => error,
            };
            let Some(place) = unknown(&error, &arguments).filter(|_| is_lenient) else {
                return Err(error);
            };
            let argument = arguments.remove(place);
            let text = argument.to_string_lossy();
            ignored.push(text.split('=').next().unwrap_or_default().to_owned());
        }
    }
}

fn is_ratelimit(name: &OsStr) -> bool {
    let stem = Path::new(name).file_name().map(OsStr::to_string_lossy);
    stem.is_some_and(|stem| stem.ends_with(NAME))
}

/// The index of the unknown argument that the error is about; `None` for any other error.
fn unknown(error: &clap::Error, arguments: &[OsString]) -> Option<usize> {
    let of = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let word = of(ContextKind::InvalidSubcommand);
    let wanted = match error.kind() {
        ErrorKind::UnknownArgument => of(ContextKind::InvalidArg).or(word)?,
        ErrorKind::InvalidSubcommand => word?,
        // A word after a flag counts as a command there, even if there is no such command.
        ErrorKind::ArgumentConflict => word.filter(|word| Cli::command().find_subcommand(word).is_none())?,
        _ => return None,
    };
    let is_letter = !wanted.starts_with("--") && wanted.starts_with('-');
    let is_it = |argument: &OsString| {
        let argument = argument.to_string_lossy();
        let rest = argument.strip_prefix(wanted);
        // `-config` begins with the unknown letter `-c`.
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('=') || is_letter)
    };
    arguments.iter().skip(1).position(is_it).map(|place| place + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Flags;
    use crate::settings::declared::API;

    fn parse(arguments: &[&str]) -> Result<(Flags, Vec<String>), String> {
        let parsed = CommandLine::parse(arguments.iter().map(OsString::from).collect());
        let CommandLine { cli, ignored } = parsed.map_err(|error| error.to_string())?;
        assert!(cli.command.is_none());
        Ok((cli.serve.flags.values().clone(), ignored))
    }

    #[test]
    fn unknown_arguments_are_ignored_under_the_name_of_the_original() {
        for name in ["/bin/ratelimit", "ratelimit", "./my-ratelimit"] {
            let (flags, ignored) = parse(&[
                name,
                "--quotaRateLimitServiceAddr=canary:1",
                "--api",
                "off",
                "-config",
                "/etc/x.yaml",
                "more",
            ])
            .expect("lenient");
            assert_eq!(flags.text(&API), Some("off"));
            assert_eq!(ignored, ["--quotaRateLimitServiceAddr", "-config", "/etc/x.yaml", "more"]);
        }
        assert_eq!(parse(&["/bin/ratelimit"]).expect("nothing to ignore").1, Vec::<String>::new());
        // Known arguments keep their errors.
        assert!(parse(&["ratelimit", "--api"]).is_err());
        assert!(parse(&["ratelimit", "--api", "off", "schema"]).is_err());
        assert!(parse(&["ratelimit", "--envoy-xds", "a:1", "--envoy-ratelimit", "b"]).is_err());
        assert!(parse(&["ratelimit", "--help"]).is_err_and(|help| help.contains("Usage")));
    }

    #[test]
    fn unknown_arguments_are_errors_under_any_other_name() {
        for name in ["sluicegate", "/ratelimit/sluicegate", "ratelimiter"] {
            assert!(parse(&[name, "--quotaRateLimitServiceAddr=x"]).is_err(), "{name}");
        }
    }
}
