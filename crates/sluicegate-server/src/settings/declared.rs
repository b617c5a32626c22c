//! The declarations of the settings: one [`Setting`] per value that the command line, the environment or the top of the
//! configuration file can set.
//!
//! Everything that names a setting derives from its declaration: the flag and its help, the variable, the key and default
//! of the file, the origin in error texts, and the table of `docs/configuration.md`. To add one, declare it and list it in
//! [`SETTINGS`]; then read its value through [`super::SettingValues`].

use std::fmt::Write as _;

/// One setting of the server.
#[derive(Debug)]
pub(crate) struct Setting {
    /// The name: `--NAME` on the command line, and `NAME` or `listen.NAME` in the configuration file if it has such a key.
    pub(crate) name: &'static str,
    /// The variable: `SLUICEGATE_` and the name in upper case.
    pub(crate) variable: &'static str,
    /// The placeholder of the value in the help. `None` means that there is no flag.
    pub(crate) flag: Option<&'static str>,
    /// The documentation: Markdown, one sentence.
    pub(crate) doc: &'static str,
    /// More for the long help and the reference page; may be empty.
    pub(crate) details: &'static str,
    /// The value if no source sets one. `None` means that the setting is then absent.
    pub(crate) default: Option<&'static str>,
    /// A valid value, for error texts.
    pub(crate) example: &'static str,
    /// The form of the value.
    pub(crate) form: SettingForm,
}

/// The form of a value before it is parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SettingForm {
    /// UTF-8.
    Text,
    /// A path, which need not be UTF-8.
    Path,
    /// UTF-8 that no output may contain. A secret has no flag, because all users of a machine can read command lines.
    Secret,
}

/// All settings, in the order of the help and the reference page.
pub(crate) static SETTINGS: &[&Setting] = &[
    &CONFIG,
    &STORE,
    &DATABASE,
    &GATEWAY,
    &API,
    &ADMIN,
    &RESP,
    &ENVOY_RATELIMIT,
    &ENVOY_XDS,
    &ADMIN_TOKEN,
    &LOG,
    &LOG_FORMAT,
];

/// The addresses of the listeners.
pub(crate) const LISTENERS: [&Setting; 4] = [&GATEWAY, &API, &ADMIN, &RESP];

pub(crate) static CONFIG: Setting = Setting {
    name: "config",
    variable: "SLUICEGATE_CONFIG",
    flag: Some("FILE"),
    doc: "Configuration file; without one, the built-in demo.",
    details: "",
    default: None,
    example: "sluicegate.yaml",
    form: SettingForm::Path,
};

pub(crate) static STORE: Setting = Setting {
    name: "store",
    variable: "SLUICEGATE_STORE",
    flag: Some("URL"),
    doc: "Where state is kept: `memory` is this process; the URL of Redis or Valkey is shared with other servers.",
    details: "",
    default: Some("memory"),
    example: "redis://127.0.0.1:6379",
    form: SettingForm::Text,
};

pub(crate) static DATABASE: Setting = Setting {
    name: "database",
    variable: "SLUICEGATE_DATABASE",
    flag: None,
    doc: "Keeps rules, tenants, overrides and API keys [in a database](database.md) instead of the file.",
    details: "",
    default: None,
    example: "sqlite:///var/lib/sluicegate/rules.db",
    form: SettingForm::Text,
};

pub(crate) static GATEWAY: Setting = Setting {
    name: "gateway",
    variable: "SLUICEGATE_GATEWAY",
    flag: Some("ADDR|off"),
    doc: "Reverse proxy, or the demo application without routes.",
    details: "",
    default: Some("127.0.0.1:8080"),
    example: "127.0.0.1:8080",
    form: SettingForm::Text,
};

pub(crate) static API: Setting = Setting {
    name: "api",
    variable: "SLUICEGATE_API",
    flag: Some("ADDR|off"),
    doc: "Decision API.",
    details: "",
    default: Some("127.0.0.1:8081"),
    example: "127.0.0.1:8081",
    form: SettingForm::Text,
};

pub(crate) static ADMIN: Setting = Setting {
    name: "admin",
    variable: "SLUICEGATE_ADMIN",
    flag: Some("ADDR|off"),
    doc: "Dashboard, admin API, metrics and health.",
    details: "An address that other machines can reach needs a token in SLUICEGATE_ADMIN_TOKEN or `admin.tokens`.",
    default: Some("127.0.0.1:8082"),
    example: "127.0.0.1:8082",
    form: SettingForm::Text,
};

pub(crate) static RESP: Setting = Setting {
    name: "resp",
    variable: "SLUICEGATE_RESP",
    flag: Some("ADDR|off"),
    doc: "Redis protocol with [`CL.THROTTLE`](coming-from-redis-cell.md).",
    details: "",
    default: Some("off"),
    example: "127.0.0.1:6379",
    form: SettingForm::Text,
};

pub(crate) static ENVOY_RATELIMIT: Setting = Setting {
    name: "envoy-ratelimit",
    variable: "SLUICEGATE_ENVOY_RATELIMIT",
    flag: Some("DIR"),
    doc: "Directory of [envoyproxy/ratelimit's](coming-from-envoyproxy-ratelimit.md) files for decisions over gRPC and /json.",
    details: "",
    default: None,
    example: "/data/ratelimit/config",
    form: SettingForm::Path,
};

pub(crate) static ENVOY_XDS: Setting = Setting {
    name: "envoy-xds",
    variable: "SLUICEGATE_ENVOY_XDS",
    flag: Some("HOST:PORT"),
    doc: "Control plane of [envoyproxy/ratelimit's](envoy-gateway.md) configuration, which is fetched over xDS.",
    details: "",
    default: None,
    example: "127.0.0.1:18000",
    form: SettingForm::Text,
};

pub(crate) static ADMIN_TOKEN: Setting = Setting {
    name: "admin-token",
    variable: "SLUICEGATE_ADMIN_TOKEN",
    flag: None,
    doc: "Token with the role `admin`: at least 16 characters.",
    details: "",
    default: None,
    example: "the output of `openssl rand -hex 32`",
    form: SettingForm::Secret,
};

pub(crate) static LOG: Setting = Setting {
    name: "log",
    variable: "SLUICEGATE_LOG",
    flag: None,
    doc: "Log filter: a level, or `target=level` pairs separated by commas.",
    details: "",
    // Libraries log errors only: some of them warn about single frames or requests, so a client could fill the log.
    default: Some("error,sluicegate=info,decisions=info"),
    example: "debug",
    form: SettingForm::Text,
};

pub(crate) static LOG_FORMAT: Setting = Setting {
    name: "log-format",
    variable: "SLUICEGATE_LOG_FORMAT",
    flag: None,
    doc: "Log format, `text` or `json`; without one, text on a terminal and JSON elsewhere.",
    details: "",
    default: None,
    example: "json",
    form: SettingForm::Text,
};

impl Setting {
    /// The documentation without Markdown, and the default.
    fn summary(&self) -> String {
        let doc = plain(self.doc);
        let doc = doc.trim_end_matches('.');
        self.default.map_or_else(|| doc.to_owned(), |default| format!("{doc} (default: {default})"))
    }

    /// The short help of the flag.
    pub(crate) fn help(&self) -> String {
        format!("{} [env: {}]", self.summary(), self.variable)
    }

    /// The long help of the flag, if it differs from the short one.
    pub(crate) fn long_help(&self) -> Option<String> {
        (!self.details.is_empty()).then(|| format!("{}\n\n{}", self.help(), plain(self.details)))
    }
}

/// The part of the help that lists the settings without a flag.
pub(crate) fn variables_help() -> String {
    let without_flag = || SETTINGS.iter().filter(|setting| setting.flag.is_none());
    let width = without_flag().map(|setting| setting.variable.len()).max().unwrap_or_default();
    without_flag().fold("Environment:".to_owned(), |mut text, setting| {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n  {:width$}  {}", setting.variable, setting.summary());
        text
    })
}

/// Markdown without the targets of its links.
pub(crate) fn without_links(markdown: &str) -> String {
    let mut text = String::new();
    let mut rest = markdown;
    while let Some((before, after)) = rest.split_once("](") {
        let (lead, label) = before.rsplit_once('[').unwrap_or((before, ""));
        text.extend([lead, label]);
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    text + rest
}

/// Markdown as plain text.
fn plain(markdown: &str) -> String {
    without_links(markdown).replace('`', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_follow_from_names_and_all_are_unique() {
        for (index, setting) in SETTINGS.iter().enumerate() {
            let variable = format!("SLUICEGATE_{}", setting.name.replace('-', "_").to_ascii_uppercase());
            assert_eq!(setting.variable, variable);
            assert!(SETTINGS[..index].iter().all(|other| other.name != setting.name), "{}", setting.name);
        }
    }

    #[test]
    fn documentation_is_one_sentence_and_secrets_have_no_flag() {
        for setting in SETTINGS {
            assert!(setting.doc.ends_with('.') && !setting.doc.contains(". "), "{}", setting.doc);
            assert!(setting.form != SettingForm::Secret || setting.flag.is_none(), "{}", setting.name);
        }
    }

    #[test]
    fn the_help_lists_every_setting_once() {
        let flags: String =
            SETTINGS.iter().filter(|setting| setting.flag.is_some()).map(|each| each.help()).collect();
        let help = flags + &variables_help();
        for setting in SETTINGS {
            let found = help.match_indices(setting.variable);
            // The name of a variable may begin another one.
            let whole = found.filter(|(at, name)| {
                !help[at + name.len()..].starts_with(|next: char| next == '_' || next.is_ascii_uppercase())
            });
            assert_eq!(whole.count(), 1, "{}: {help}", setting.variable);
        }
    }
}
