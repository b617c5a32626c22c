//! The configuration file: from text to a [`Config`] that cannot be wrong, or to everything that is wrong.
//!
//! It takes texts, never a path or the environment of the process, so every case can be tested. Rules, tiers
//! and what belongs to them are read by the library; here are the keys that only a server has. What the
//! command line or the environment may say too is kept as it was typed, checked for its form alone: which
//! of the three wins is not decided here.

pub(crate) mod admin;
pub(crate) mod database;
pub(crate) mod gateway;
pub(crate) mod identity;
pub(crate) mod listeners;
pub(crate) mod load;
pub(crate) mod log;
pub(crate) mod redis;
pub(crate) mod schema;
pub(crate) mod share;
#[cfg(test)]
mod tests;
pub(crate) mod traces;

use crate::content::{self, Compiled, Content, compose};
use crate::envoy_ratelimit::headers::EnvoyHeaders;
use crate::secret::Secret;
use crate::settings::{FileSettings, StoreUrl};
use admin::TokenSettings;
use gateway::GatewaySettings;
use identity::{IdentitySettings, TRUSTED_HEADERS};
use listeners::{ListenSettings, Listeners};
use log::LogSettings;
use redis::RedisSettings;
use sluicegate::headers::{HeaderOptions, ResetStyle};
use sluicegate::identify::Principal;
use sluicegate::identify::address::{TrustedHeader, TrustedProxies};
use sluicegate::identify::api_key::KeyHash;
use sluicegate::rules::DEADLINE_DEFAULT;
use sluicegate::rules::file::problem::shown;
use sluicegate::rules::file::tree::Kind;
use sluicegate::rules::file::{self, Document, Environment, Problems, Reader, Section, Wrong};
use sluicegate::rules::{Limits, Rule, RuleSet};
use sluicegate::store::memory::MemoryOptions;
use std::time::Duration;
use traces::TraceSettings;

/// The top-level keys that only a server has.
pub(crate) const KEYS: &[&str] = &[
    "store",
    "memory",
    "redis",
    "listen",
    "resp",
    "headers",
    "trusted_proxies",
    "trusted_header",
    "identity",
    "gateway",
    "database",
    "tenants",
    "overrides",
    "keys",
    "admin",
    "log",
    "traces",
];
/// The keys of `memory`.
pub(crate) const MEMORY_KEYS: &[&str] = &["max_keys"];
/// The keys of `resp`.
pub(crate) const RESP_KEYS: &[&str] = &["password", "deadline"];
/// The longest password of the RESP listener, in bytes.
pub(crate) const PASSWORD_BYTES_MAX: usize = 512;
/// The keys of `headers`.
pub(crate) const HEADERS_KEYS: &[&str] = &["styles", "x_ratelimit_reset", "degraded"];
/// The most keys the embedded store may be told to hold: a thousand million, at least 45 GB.
pub(crate) const MAX_KEYS_MAX: u64 = 1_000_000_000;

/// The families of header fields that tell a client how it stands.
pub(crate) const STYLES: &[(&str, Style)] = &[("x-ratelimit", Style::XRateLimit), ("ietf", Style::Ietf)];
/// What `X-RateLimit-Reset` may count.
pub(crate) const RESETS: &[(&str, ResetStyle)] = &[("epoch", ResetStyle::Epoch), ("delta", ResetStyle::Delta)];

/// The text of a configuration that says nothing.
pub(crate) const NO_FILE: &str = "rules: []\n";

const DEMO: &str = include_str!("config/demo.yaml");

/// Everything a configuration file says.
#[derive(Debug)]
pub(crate) struct Config {
    /// What the command line and the environment may say too.
    pub(crate) settings: FileSettings,
    /// How the listeners let connections in.
    pub(crate) listeners: Listeners,
    /// How large the embedded store may grow.
    pub(crate) memory: MemoryOptions,
    /// How a shared store is used.
    pub(crate) redis: RedisSettings,
    /// How the RESP listener answers.
    pub(crate) resp: RespSettings,
    /// Which header fields answers carry.
    pub(crate) headers: HeaderOptions,
    /// Which of them Envoy is told to add.
    pub(crate) envoy_headers: EnvoyHeaders,
    /// Where requests go.
    pub(crate) gateway: GatewaySettings,
    /// Who may speak for others.
    pub(crate) proxies: TrustedProxies,
    /// How callers are known, if the file says it.
    pub(crate) identity: Option<IdentitySettings>,
    /// Who may read and change what on the admin listener.
    pub(crate) admin: Vec<TokenSettings>,
    /// What is written down of decisions.
    pub(crate) log: LogSettings,
    /// Where spans are sent, if the file says it.
    pub(crate) traces: Option<TraceSettings>,
    /// The rules.
    pub(crate) rules: RuleSet,
    /// The API keys that stand apart from `identity`.
    pub(crate) keys: Vec<(KeyHash, Principal)>,
    /// The rules and what belongs to them, as a database would hold them.
    pub(crate) content: Content,
}

/// How the RESP listener answers.
#[derive(Debug)]
pub(crate) struct RespSettings {
    /// What clients must know, if anything.
    pub(crate) password: Option<Secret>,
    /// How long the store may take where no rule says it.
    pub(crate) deadline: Duration,
}

impl Default for RespSettings {
    fn default() -> Self {
        Self { password: None, deadline: DEADLINE_DEFAULT }
    }
}

/// A family of header fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// The old custom.
    XRateLimit,
    /// The draft of the IETF.
    Ietf,
}

impl Config {
    /// Reads the text of a configuration file. `name` is what problems call it; `${NAME}` in a value is
    /// replaced from `environment`.
    pub(crate) fn parse(text: impl AsRef<[u8]>, name: &str, environment: &Environment) -> Result<Self, Problems> {
        let document = Document::parse(text, name, environment);
        let top = document.root().and_then(|root| root.section(&[KEYS, file::KEYS].concat()));
        let config = top.and_then(|top| read(&top));
        document.finish(config)
    }

    /// The configuration of a server that has only the files of `envoyproxy/ratelimit`.
    pub(crate) fn without_file() -> Result<Self, Problems> {
        Self::parse(NO_FILE, "built-in configuration", &Environment::new())
    }

    /// The text of the configuration of a server that was given none.
    pub(crate) fn demo_text() -> &'static str {
        DEMO
    }

    /// The configuration of a server that was given none. It is part of the program, so only a mistake in
    /// the program makes it fail; a test looks at it.
    pub(crate) fn demo() -> Result<Self, Problems> {
        Self::parse(DEMO, "built-in demo configuration", &Environment::new())
    }
}

/// `sluicegate validate FILE`: one line if the file is good.
pub(crate) fn validate_command(
    path: &str,
    text: impl AsRef<[u8]>,
    environment: &Environment,
) -> Result<String, Problems> {
    let rules = Config::parse(text, path, environment)?.rules;
    let limits = rules.rules().iter().map(limit_count).sum();
    let counts =
        [counted(rules.rules().len(), "rule"), counted(limits, "limit"), counted(rules.tiers().len(), "tier")];
    Ok(format!("{path}: ok, {}", counts.join(", ")))
}

/// All limits of a rule, those of tiers and overrides included.
fn limit_count(rule: &Rule) -> usize {
    let tiers = rule.tiers.iter().map(|(_, limits)| limits);
    let overrides = rule.overrides.iter().map(|each| &each.limits);
    let count = |limits: &Limits| match limits {
        Limits::Unlimited => 0,
        Limits::All { quotas, .. } => quotas.len(),
    };
    tiers.chain(overrides).chain([&rule.limits]).map(count).sum()
}

/// `1 rule`, `2 rules`.
pub(crate) fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

fn read(top: &Section<'_>) -> Option<Config> {
    let store = top.optional("store", None, |store| read_store(store).map(Some));
    let database = top.optional("database", None, |database| database::read(database).map(Some));
    let memory = top.optional("memory", MemoryOptions::default(), read_memory);
    let redis = top.optional("redis", RedisSettings::default(), redis::read);
    let listen = top.optional("listen", ListenSettings::default(), listeners::read);
    let resp = top.optional("resp", RespSettings::default(), read_resp);
    let headers = top.optional("headers", HeaderOptions::default(), read_headers);
    let gateway = top.optional("gateway", GatewaySettings::default(), gateway::read);
    let proxies = top.optional("trusted_proxies", TrustedProxies::default(), identity::read_proxies);
    let header = top.optional("trusted_header", TrustedHeader::default(), |each| each.choice(TRUSTED_HEADERS));
    let has_more_keys = top.get("database").is_some() || top.get("keys").is_some();
    let identity = top.optional("identity", None, |identity| identity::read(identity, has_more_keys).map(Some));
    let admin = top.optional("admin", Vec::new(), admin::read);
    let log = top.optional("log", LogSettings::default(), log::read);
    let traces = top.optional("traces", None, |traces| traces::read(traces).map(Some));
    let compiled = compose::read(top);
    let ListenSettings { addresses, listeners } = listen?;
    let admin = admin?;
    let has_admin_tokens = !admin.is_empty();
    let settings = FileSettings { store: store?, database: database?, has_admin_tokens, ..addresses };
    let Compiled { rules, keys } = compiled?;
    Some(Config {
        settings,
        listeners,
        memory: memory?,
        redis: redis?,
        resp: resp?,
        headers: headers?,
        envoy_headers: EnvoyHeaders::default(),
        gateway: gateway?,
        proxies: proxies?.header(header?),
        identity: identity?,
        admin,
        log: log?,
        traces: traces?,
        rules,
        keys,
        content: content::of_file(top)?,
    })
}

fn read_store(reader: &Reader<'_>) -> Option<String> {
    let store = reader.text()?;
    match StoreUrl::parse(&store) {
        Ok(_) => Some(store),
        Err(problem) => {
            reader.report_as(Wrong::new("unknown store", problem), Some(without_secret(reader)));
            None
        }
    }
}

/// A URL may hold a password: of anything like one, only the scheme is shown.
fn without_secret(reader: &Reader<'_>) -> String {
    let Kind::Scalar(scalar) = &reader.node().kind else { return String::new() };
    match scalar.text.split_once("://") {
        Some((scheme, _)) => shown(&format!("{scheme}://…"), scalar.quoted),
        None if scalar.text.contains('@') => "…".to_owned(),
        None => shown(&scalar.text, scalar.quoted),
    }
}

fn read_memory(reader: &Reader<'_>) -> Option<MemoryOptions> {
    let section = reader.section(MEMORY_KEYS)?;
    let default = MemoryOptions::default();
    let max_keys = section.optional("max_keys", default.max_keys, |max_keys| {
        usize::try_from(max_keys.integer(1..=MAX_KEYS_MAX)?).ok()
    });
    Some(MemoryOptions { max_keys: max_keys?, ..default })
}

fn read_resp(reader: &Reader<'_>) -> Option<RespSettings> {
    let section = reader.section(RESP_KEYS)?;
    let deadline = section.optional("deadline", DEADLINE_DEFAULT, Reader::deadline);
    let password = section.optional("password", None, |password| {
        let text = password.secret()?;
        if (1..=PASSWORD_BYTES_MAX).contains(&text.len()) {
            return Some(Some(Secret::new(text)));
        }
        let remedy = format!("use 1 to {PASSWORD_BYTES_MAX} bytes, or leave the key out");
        password.report_as(Wrong::new("a password of this length", remedy), None);
        None
    });
    Some(RespSettings { password: password?, deadline: deadline? })
}

fn read_headers(reader: &Reader<'_>) -> Option<HeaderOptions> {
    let section = reader.section(HEADERS_KEYS)?;
    let default = HeaderOptions::default();
    let reset = section.optional("x_ratelimit_reset", default.reset, |reset| reset.choice(RESETS));
    let degraded = section.optional("degraded", default.degraded, Reader::boolean);
    let options = section.optional("styles", default, read_styles);
    Some(HeaderOptions { reset: reset?, degraded: degraded?, ..options? })
}

fn read_styles(reader: &Reader<'_>) -> Option<HeaderOptions> {
    let remedy = "write a list, for example [x-ratelimit, ietf], or [] for no header fields";
    let styles = reader.choices(STYLES, remedy)?;
    Some(HeaderOptions {
        x_ratelimit: styles.contains(&Style::XRateLimit),
        ietf: styles.contains(&Style::Ietf),
        ..HeaderOptions::default()
    })
}
