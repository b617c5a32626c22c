//! `LOG_LEVEL` and `LOG_FORMAT`. They are read before everything else, so that all errors are logged as they say.

use super::source;
use super::variables::text;
use crate::settings::declared::{ENVOY_RATELIMIT, ENVOY_XDS};
use crate::settings::{Env, Flags};

/// The log settings of the variables; both are absent if no limits of `envoyproxy/ratelimit` are in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogVariables {
    /// The filter.
    pub(crate) level: Option<String>,
    /// `text` or `json`.
    pub(crate) format: Option<&'static str>,
}

/// Their levels, and the corresponding ones here.
const LEVELS: &[(&str, &str)] = &[
    ("trace", "trace"),
    ("debug", "debug"),
    ("info", "info"),
    ("warn", "warn"),
    ("warning", "warn"),
    ("error", "error"),
    ("fatal", "error"),
    ("panic", "error"),
];

/// The settings of the variables. An unknown value counts as absent: a log must not keep a server from starting.
pub(crate) fn log_variables(flags: &Flags, env: &Env) -> LogVariables {
    let environment = env.variables();
    let named = source(flags.path(&ENVOY_RATELIMIT), flags.text(&ENVOY_XDS), environment);
    if !matches!(named, Ok(Some(_))) {
        return LogVariables::default();
    }
    let level = text(environment, "LOG_LEVEL").map(str::to_ascii_lowercase);
    let level = level.and_then(|level| LEVELS.iter().find(|(theirs, _)| *theirs == level));
    let format = match text(environment, "LOG_FORMAT") {
        Some("json") => Some("json"),
        Some("text") => Some("text"),
        _ => None,
    };
    // Libraries log errors only, as by default.
    let filter = |(_, level): &(&str, &str)| format!("error,sluicegate={level},decisions={level}");
    LogVariables { level: level.map(filter), format }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> (Option<String>, Option<&'static str>) {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let flags = Flags::default().with(&ENVOY_RATELIMIT, Some("rules"));
        let read = log_variables(&flags, &Env::default().with_variables(variables));
        (read.level, read.format)
    }

    #[test]
    fn levels_and_formats_are_translated_and_unknown_ones_are_ignored() {
        let filter = |level: &str| Some(format!("error,sluicegate={level},decisions={level}"));
        assert_eq!(read(&[("LOG_LEVEL", "INFO"), ("LOG_FORMAT", "json")]), (filter("info"), Some("json")));
        assert_eq!(read(&[("LOG_LEVEL", "fatal")]), (filter("error"), None));
        assert_eq!(read(&[("LOG_LEVEL", "loud"), ("LOG_FORMAT", "xml")]), (None, None));
        let unused = Env::default().with_variables([("LOG_LEVEL".to_owned(), "debug".to_owned())].into());
        assert_eq!(log_variables(&Flags::default(), &unused), LogVariables::default());
    }
}
