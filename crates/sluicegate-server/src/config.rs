//! The configuration file: from text to a valid [`Config`], or to all of its problems.
//!
//! The input is text, never a path or the environment of the process, so every case can be tested. The library reads
//! rules and tiers; this module declares and reads the keys that only a server has. Settings that the command line or
//! the environment can also set stay text here, and only their form is checked. [`crate::settings`] decides which of
//! the three sources takes precedence.
//!
//! Each key has one declaration, a [`Field`]. The reader, the JSON Schema and
//! the tables of `docs/configuration.md` are rendered from it.

pub(crate) mod admin;
pub(crate) mod api;
pub(crate) mod database;
pub(crate) mod envoy_headers;
pub(crate) mod gateway;
pub(crate) mod identity;
pub(crate) mod listeners;
pub(crate) mod load;
pub(crate) mod log;
mod networks;
pub(crate) mod redis;
pub(crate) mod schema;
pub(crate) mod share;
#[cfg(test)]
mod tests;
pub(crate) mod traces;

use crate::rule_documents::{self, CompiledRules, RuleDocuments, compose};
use crate::secret::Secret;
use crate::settings::declared::Setting;
use crate::settings::{FileSettings, StoreUrl, declared};
use admin::AdminSettings;
use api::ApiSettings;
use envoy_headers::EnvoyHeaders;
use gateway::GatewaySettings;
use identity::IdentitySettings;
use listeners::{ListenSettings, Listeners};
use log::LogSettings;
use redis::RedisSettings;
use sluicegate::headers::{HeaderOptions, ResetStyle};
use sluicegate::identify::Principal;
use sluicegate::identify::address::{TrustedHeader, TrustedProxies};
use sluicegate::identify::api_key::KeyHash;
use sluicegate::rules::DEADLINE_DEFAULT;
use sluicegate::rules::file::field::{
    Absent, Boolean, Choice, Custom, Described, Field, Form, Integer, Mapping, Nested, Shape, words,
};
use sluicegate::rules::file::problem::shown;
use sluicegate::rules::file::tree::Kind;
use sluicegate::rules::file::{self, Document, Environment, Problems, Reader, Section, ValueError};
use sluicegate::rules::{Limits, Rule, RuleSet};
use sluicegate::store::memory::MemoryOptions;
use std::path::PathBuf;
use std::time::Duration;
use traces::TraceSettings;

/// The top level of the file.
pub(crate) static TOP: Mapping = Mapping {
    doc: "A configuration file of Sluicegate.",
    fields: &[
        &STORE,
        &MEMORY,
        &REDIS_SECTION,
        &LISTEN_SECTION,
        &RESP,
        &HEADERS,
        &TRUSTED_PROXIES,
        &TRUSTED_HEADER,
        &IDENTITY,
        &GATEWAY_SECTION,
        &DATABASE,
        &DEMO,
        &rule_documents::TENANTS,
        &rule_documents::OVERRIDES,
        &rule_documents::KEYS,
        &ADMIN_SECTION,
        &API_SECTION,
        &LOG_SECTION,
        &TRACES_SECTION,
        &file::TIERS,
        &file::UNMATCHED,
        &file::RULES,
    ],
    constraints: &[],
};

static STORE: Field<Custom<String>> = Field {
    key: declared::STORE.name,
    doc: declared::STORE.doc,
    kind: Custom {
        read: read_store,
        form: || {
            let url = Shape::matching("[URL](#redis)", "^rediss?(\\+sentinel|\\+cluster)?://.");
            Form::Any(vec![Form::Literal(vec!["memory"]), Form::Text(url)])
        },
    },
    absent: absent(&declared::STORE),
    examples: &[declared::STORE.example],
};

static MEMORY: Field<Nested<MemoryOptions>> = Field {
    key: "memory",
    doc: "The embedded store: see [memory](#memory).",
    kind: Nested { mapping: &MEMORY_FIELDS, read: read_memory },
    absent: Absent::Nothing("the defaults"),
    examples: &[],
};

static REDIS_SECTION: Field<Nested<RedisSettings>> = Field {
    key: "redis",
    doc: "The shared store: see [redis](#redis).",
    kind: Nested { mapping: &redis::REDIS, read: redis::read },
    absent: Absent::Nothing("the defaults"),
    examples: &[],
};

static LISTEN_SECTION: Field<Nested<ListenSettings>> = Field {
    key: "listen",
    doc: "Addresses of the listeners: see [listen](#listen).",
    kind: Nested { mapping: &listeners::LISTEN, read: listeners::read },
    absent: Absent::Nothing("the defaults"),
    examples: &[],
};

static RESP: Field<Nested<RespSettings>> = Field {
    key: "resp",
    doc: "The RESP listener: see [resp](#resp).",
    kind: Nested { mapping: &RESP_FIELDS, read: read_resp },
    absent: Absent::Nothing("the defaults"),
    examples: &[],
};

static HEADERS: Field<Nested<HeaderOptions>> = Field {
    key: "headers",
    doc: "Rate limit header fields of responses: see [headers](#headers).",
    kind: Nested { mapping: &HEADERS_FIELDS, read: read_headers },
    absent: Absent::Nothing("the defaults"),
    examples: &[],
};

static TRUSTED_PROXIES: Field<Custom<TrustedProxies>> = Field {
    key: "trusted_proxies",
    doc: "Proxies from which the server accepts `X-Forwarded-For` and `Forwarded`: see [the address of the client](identity.md#the-clients-address).",
    kind: networks::NETWORKS,
    absent: Absent::Default("[]"),
    examples: &["[10.0.0.0/8, \"2001:db8::/32\"]"],
};

static TRUSTED_HEADER: Field<Choice<TrustedHeader>> = Field {
    key: "trusted_header",
    doc: "The header field in which trusted proxies report the address of the client. If both are present, they must agree.",
    kind: Choice(&[
        ("either", TrustedHeader::Either),
        ("x-forwarded-for", TrustedHeader::XForwardedFor),
        ("forwarded", TrustedHeader::Forwarded),
    ]),
    absent: Absent::Default("either"),
    examples: &[],
};

static IDENTITY: Field<Described> = Field {
    key: "identity",
    doc: "[How clients are identified](identity.md): by `jwt`, `api_key` or `ip`, in this order. The first entry that applies decides.",
    kind: Described(|| Form::List {
        noun: "entries",
        item: Box::new(Form::Mapping(&identity::SOURCE)),
        min: 1,
        max: Some(identity::SOURCES_MAX),
        is_unique: false,
    }),
    absent: Absent::Nothing("`[{ ip: {} }]`; with `demo: true` also the key `demo-key`"),
    examples: &["[{ ip: { ipv6_prefix: 64 } }]"],
};

static GATEWAY_SECTION: Field<Nested<GatewaySettings>> = Field {
    key: "gateway",
    doc: "The reverse proxy: see [gateway](#gateway).",
    kind: Nested { mapping: &gateway::GATEWAY, read: gateway::read },
    absent: Absent::Nothing("the defaults"),
    examples: &[],
};

static DATABASE: Field<Custom<String>> = Field {
    key: declared::DATABASE.name,
    doc: declared::DATABASE.doc,
    kind: Custom {
        read: database::read,
        form: || {
            let file = "^sqlite://[^?:/]";
            let path = "^sqlite:///[^?]*[^?/]$".to_owned();
            let server = "^postgres(ql)?://.".to_owned();
            let mut shape = Shape::matching("`sqlite://PATH` or `postgres://…`", file);
            shape.patterns.extend([path, server]);
            Form::Text(shape)
        },
    },
    absent: absent(&declared::DATABASE),
    examples: &[declared::DATABASE.example, "postgres://sluicegate@db.internal/sluicegate"],
};

static DEMO: Field<Boolean> = Field {
    key: "demo",
    doc: "Whether the gateway serves the demo application. The key `demo-key` is then valid unless `identity` is present. Not together with `gateway.routes`. A server without a file serves the demo.",
    kind: Boolean,
    absent: Absent::Default("false"),
    examples: &[],
};

static ADMIN_SECTION: Field<Nested<AdminSettings>> = Field {
    key: "admin",
    doc: "Access to the admin API: see [admin](#admin).",
    kind: Nested { mapping: &admin::ADMIN, read: admin::read },
    absent: Absent::Nothing("the defaults"),
    examples: &[],
};

static API_SECTION: Field<Nested<ApiSettings>> = Field {
    key: "api",
    doc: "Access to the decision API: see [api](#api).",
    kind: Nested { mapping: &api::API, read: api::read },
    absent: Absent::Nothing("the defaults"),
    examples: &[],
};

static LOG_SECTION: Field<Nested<LogSettings>> = Field {
    key: "log",
    doc: "Which decisions the log records, and how it shows identities: see [decisions](observability.md#decisions).",
    kind: Nested { mapping: &log::LOG, read: log::read },
    absent: Absent::Nothing("the defaults"),
    examples: &[],
};

static TRACES_SECTION: Field<Nested<TraceSettings>> = Field {
    key: "traces",
    doc: "Sends spans to an OpenTelemetry collector: see [traces](observability.md#traces).",
    kind: Nested { mapping: &traces::TRACES, read: traces::read },
    absent: Absent::Nothing("no traces"),
    examples: &[],
};

/// The section `memory`.
pub(super) static MEMORY_FIELDS: Mapping =
    Mapping { doc: "The embedded store.", fields: &[&MAX_KEYS], constraints: &[] };

static MAX_KEYS: Field<Integer<usize>> = Field {
    key: "max_keys",
    doc: "The most keys that the embedded store tracks: one per limit of an identity, and one more per entry in the log of a sliding window. A key takes about 45 bytes for a token bucket or a fixed window, 130 to 200 for others. Keys with addresses use at most half of them, keys of unverified names (`verify: false`) a quarter, so that [made-up names cannot fill the store](operations.md#the-embedded-store). New keys beyond the bound share one state per rule and kind of identity; state that still counts is never dropped. The same number bounds the state of `on_store_failure: local`.",
    kind: Integer { min: 1, max: 1_000_000_000, convert: |count| usize::try_from(count).ok() },
    absent: Absent::Default("10000000"),
    examples: &["10000000"],
};

/// The section `resp`.
pub(super) static RESP_FIELDS: Mapping =
    Mapping { doc: "The RESP listener.", fields: &[&PASSWORD, &DEADLINE], constraints: &[] };

static PASSWORD: Field<Custom<Secret>> = Field {
    key: "password",
    doc: "The password that clients must send with `AUTH`. Without it the listener accepts every client.",
    kind: Custom {
        read: read_password,
        form: || Form::Text(Shape::new("1 to 512 bytes").bounded(1, PASSWORD_BYTES_MAX)),
    },
    absent: Absent::Nothing("none"),
    examples: &["\"${RESP_PASSWORD}\""],
};

static DEADLINE: Field<Custom<Duration>> = Field {
    key: "deadline",
    doc: "The longest time for a store call of `CL.THROTTLE` or `DEL`, after which the reply is an error. No rule has a `deadline` for them.",
    kind: Custom { read: |reader| reader.deadline(), form: || Form::Duration { min: "1ms", max: "10s" } },
    absent: Absent::Default("15ms"),
    examples: &["15ms"],
};

/// The longest password of the RESP listener, in bytes.
const PASSWORD_BYTES_MAX: usize = 512;

/// The section `headers`.
pub(super) static HEADERS_FIELDS: Mapping = Mapping {
    doc: "Rate limit header fields of responses.",
    fields: &[&STYLES, &X_RATELIMIT_RESET, &DEGRADED],
    constraints: &[],
};

static STYLES: Field<Custom<Vec<Style>>> = Field {
    key: "styles",
    doc: "The header fields of responses: `x-ratelimit` for `X-RateLimit-Limit`, `-Remaining` and `-Reset`; `ietf` for `RateLimit-Policy` and `RateLimit`; `[]` for none.",
    kind: Custom {
        read: |reader| {
            let remedy = "write a list, for example [x-ratelimit, ietf], or [] for no header fields";
            reader.choices(STYLE_WORDS, remedy)
        },
        form: || Form::List {
            noun: "`x-ratelimit`, `ietf`",
            item: Box::new(Form::Words(words(STYLE_WORDS))),
            min: 0,
            max: None,
            is_unique: true,
        },
    },
    absent: Absent::Default("[x-ratelimit, ietf]"),
    examples: &[],
};

const STYLE_WORDS: &[(&str, Style)] = &[("x-ratelimit", Style::XRateLimit), ("ietf", Style::Ietf)];

static X_RATELIMIT_RESET: Field<Choice<ResetStyle>> = Field {
    key: "x_ratelimit_reset",
    doc: "Whether `X-RateLimit-Reset` counts seconds since 1970 or from now.",
    kind: Choice(&[("epoch", ResetStyle::Epoch), ("delta", ResetStyle::Delta)]),
    absent: Absent::Default("epoch"),
    examples: &[],
};

static DEGRADED: Field<Boolean> = Field {
    key: "degraded",
    doc: "Whether responses carry `X-RateLimit-Degraded: true` if the store took no part in the decision. It also shows clients when limits may be less strict than usual.",
    kind: Boolean,
    absent: Absent::Default("false"),
    examples: &[],
};

/// The consequence of an absent key that flags and variables can set, too.
const fn absent(setting: &Setting) -> Absent {
    match setting.default {
        Some(default) => Absent::Default(default),
        None => Absent::Nothing("none"),
    }
}

/// A path of a file.
const PATH: Custom<PathBuf> =
    Custom { read: |reader| reader.text().map(PathBuf::from), form: || Form::Text(Shape::new("path")) };
/// Any text.
const PLAIN_TEXT: Custom<String> =
    Custom { read: |reader| reader.text(), form: || Form::Text(Shape::new("text")) };
/// A secret: messages never contain it.
const SECRET_TEXT: Custom<String> =
    Custom { read: |reader| reader.secret(), form: || Form::Text(Shape::new("text")) };

/// The smallest valid configuration.
pub(crate) const NO_FILE: &str = "rules: []\n";

const DEMO_FILE: &str = include_str!("config/demo.yaml");

/// A valid configuration file.
#[derive(Debug)]
pub(crate) struct Config {
    /// Settings that flags and environment variables can override.
    pub(crate) settings: FileSettings,
    /// TLS, PROXY protocol and connection caps of the listeners.
    pub(crate) listeners: Listeners,
    /// The bounds of the embedded store.
    pub(crate) memory: MemoryOptions,
    /// The options of a shared store.
    pub(crate) redis: RedisSettings,
    /// The options of the RESP listener.
    pub(crate) resp: RespSettings,
    /// The rate limit header fields of responses.
    pub(crate) headers: HeaderOptions,
    /// The rate limit header fields that Envoy adds to its responses.
    pub(crate) envoy_headers: EnvoyHeaders,
    /// The routes of the gateway and its other options.
    pub(crate) gateway: GatewaySettings,
    /// The trusted forwarding proxies.
    pub(crate) proxies: TrustedProxies,
    /// Whether the gateway serves the demo application.
    pub(crate) demo: bool,
    /// How clients are identified; `None` if the key is absent.
    pub(crate) identity: Option<IdentitySettings>,
    /// Tokens and roles of the admin API.
    pub(crate) admin: AdminSettings,
    /// Token, origins and hosts of the decision API.
    pub(crate) api: ApiSettings,
    /// The decision log.
    pub(crate) log: LogSettings,
    /// The trace exporter; `None` if the key is absent.
    pub(crate) traces: Option<TraceSettings>,
    /// The rules.
    pub(crate) rules: RuleSet,
    /// The API keys of the top-level `keys`.
    pub(crate) keys: Vec<(KeyHash, Principal)>,
    /// The rules, tenants, overrides and API keys in the form of a database.
    pub(crate) content: RuleDocuments,
}

/// The options of the RESP listener.
#[derive(Debug)]
pub(crate) struct RespSettings {
    /// The password for `AUTH`; `None` accepts every client.
    pub(crate) password: Option<Secret>,
    /// The longest time for a store call that no rule bounds.
    pub(crate) deadline: Duration,
}

impl Default for RespSettings {
    fn default() -> Self {
        Self { password: None, deadline: DEADLINE_DEFAULT }
    }
}

/// A family of rate limit header fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`.
    XRateLimit,
    /// `RateLimit` and `RateLimit-Policy` of the IETF draft.
    Ietf,
}

impl Config {
    /// Reads the text of a configuration file. `name` is the file name in problems; `${NAME}` in a value is
    /// replaced from `environment`.
    pub(crate) fn parse(text: impl AsRef<[u8]>, name: &str, environment: &Environment) -> Result<Self, Problems> {
        let document = Document::parse(text, name, environment);
        let top = document.root().and_then(|root| root.mapping(&TOP));
        let config = top.and_then(|top| read(&top));
        document.finish(config)
    }

    /// The configuration of a server with only a directory of `envoyproxy/ratelimit` files.
    pub(crate) fn without_file() -> Result<Self, Problems> {
        Self::parse(NO_FILE, "built-in configuration", &Environment::new())
    }

    /// The text of the configuration of a server without a file.
    pub(crate) fn demo_text() -> &'static str {
        DEMO_FILE
    }

    /// The configuration of a server without a file. It is part of the program, so only a bug makes this fail; a
    /// test covers it.
    pub(crate) fn demo() -> Result<Self, Problems> {
        Self::parse(DEMO_FILE, "built-in demo configuration", &Environment::new())
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
    let store = top.read_optional(&STORE);
    let database = top.read_optional(&DATABASE);
    let memory = top.read_optional(&MEMORY);
    let redis = top.read_optional(&REDIS_SECTION);
    let listen = top.read_optional(&LISTEN_SECTION);
    let resp = top.read_optional(&RESP);
    let headers = top.read_optional(&HEADERS);
    let gateway = top.read_optional(&GATEWAY_SECTION);
    let proxies = top.read(&TRUSTED_PROXIES);
    let header = top.read(&TRUSTED_HEADER);
    let has_more_keys = top.find(&DATABASE).is_some() || top.find(&rule_documents::KEYS).is_some();
    let identity = top.optional(IDENTITY.key, None, |identity| identity::read(identity, has_more_keys).map(Some));
    let demo = top.read(&DEMO);
    let admin = top.read_optional(&ADMIN_SECTION);
    let api = top.read_optional(&API_SECTION);
    let log = top.read_optional(&LOG_SECTION);
    let traces = top.read_optional(&TRACES_SECTION);
    let compiled = compose::read(top);
    let ListenSettings { addresses, listeners } = listen?.unwrap_or_default();
    let admin = admin?.unwrap_or_default();
    let has_admin_tokens = !admin.tokens.is_empty();
    let requires_admin_token = admin.require_token;
    let values = addresses.with(&declared::STORE, store?).with(&declared::DATABASE, database?);
    let settings = FileSettings { values, has_admin_tokens, requires_admin_token };
    let CompiledRules { rules, keys } = compiled?;
    let (gateway, demo) = (gateway?.unwrap_or_default(), demo?);
    if demo && !gateway.routes.is_empty() {
        let remedy = "remove `demo`, or `gateway.routes`";
        let wrong = ValueError::new("the gateway has routes, so it serves no demo application", remedy);
        return top.find(&DEMO).and_then(|demo| demo.refuse(wrong));
    }
    Some(Config {
        settings,
        listeners,
        memory: memory?.unwrap_or_default(),
        redis: redis?.unwrap_or_default(),
        resp: resp?.unwrap_or_default(),
        headers: headers?.unwrap_or_default(),
        envoy_headers: EnvoyHeaders::default(),
        gateway,
        proxies: proxies?.header(header?),
        identity: identity?,
        demo,
        admin,
        api: api?.unwrap_or_default(),
        log: log?.unwrap_or_default(),
        traces: traces?,
        rules,
        keys,
        content: rule_documents::of_file(top)?,
    })
}

fn read_store(reader: &Reader<'_>) -> Option<String> {
    let store = reader.text()?;
    match StoreUrl::parse(&store) {
        Ok(_) => Some(store),
        Err(problem) => {
            reader.report_as(ValueError::new("unknown store", problem), Some(without_secret(reader)));
            None
        }
    }
}

/// The value for an error message. A URL may contain a password, so only its scheme is shown.
fn without_secret(reader: &Reader<'_>) -> String {
    let Kind::Scalar(scalar) = &reader.node().kind else { return String::new() };
    match scalar.text.split_once("://") {
        Some((scheme, _)) => shown(&format!("{scheme}://…"), scalar.quoted),
        None if scalar.text.contains('@') => "…".to_owned(),
        None => shown(&scalar.text, scalar.quoted),
    }
}

fn read_memory(section: &Section<'_>) -> Option<MemoryOptions> {
    Some(MemoryOptions { max_keys: section.read(&MAX_KEYS)?, ..MemoryOptions::default() })
}

fn read_resp(section: &Section<'_>) -> Option<RespSettings> {
    let (deadline, password) = (section.read(&DEADLINE), section.read_optional(&PASSWORD));
    Some(RespSettings { password: password?, deadline: deadline? })
}

fn read_password(reader: &Reader<'_>) -> Option<Secret> {
    let text = reader.secret()?;
    if (1..=PASSWORD_BYTES_MAX).contains(&text.len()) {
        return Some(Secret::new(text));
    }
    let remedy = format!("use 1 to {PASSWORD_BYTES_MAX} bytes, or leave the key out");
    reader.report_as(ValueError::new("a password of this length", remedy), None);
    None
}

fn read_headers(section: &Section<'_>) -> Option<HeaderOptions> {
    let (reset, degraded) = (section.read(&X_RATELIMIT_RESET), section.read(&DEGRADED));
    let styles = section.read(&STYLES)?;
    Some(HeaderOptions {
        x_ratelimit: styles.contains(&Style::XRateLimit),
        ietf: styles.contains(&Style::Ietf),
        reset: reset?,
        degraded: degraded?,
    })
}
