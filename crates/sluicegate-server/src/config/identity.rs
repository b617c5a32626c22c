//! `identity`: the identification of clients.
//!
//! This module reads no file and no environment variable that the section names; the server does at its start.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use axum::http::header::{AUTHORIZATION, HeaderName};
use sluicegate::core::Micros;
use sluicegate::identify::Principal;
use sluicegate::identify::address::IPV6_PREFIX_BITS;
use sluicegate::identify::api_key::{KEYS_MAX, KeyHash};
use sluicegate::identify::token::{NAMESPACE_END, namespace_problem};
use sluicegate::identity::NAME_BYTES_MAX;
use sluicegate::rules::file::field::{
    Absent, Boolean, Constraint, Custom, Field, Form, Integer, Kind as _, Mapping, Nested, Shape, Text,
};
use sluicegate::rules::file::{Place, Reader, Section, ValueError};

use crate::jwks::{JwksUrl, UrlProblem};
use crate::rule_documents::read::{API_KEY_ENTRY, key_of};

/// One entry of `identity`.
pub(super) static SOURCE: Mapping = Mapping {
    doc: "One way to identify clients.",
    fields: &[&JWT, &API_KEY, &IP],
    constraints: &[Constraint::OneField],
};

static JWT: Field<Nested<JwtSettings>> = Field {
    key: "jwt",
    doc: "By a signed token in `Authorization: Bearer …`.",
    kind: Nested { mapping: &JWT_FIELDS, read: read_jwt },
    absent: Absent::Nothing("none"),
    examples: &[],
};

static API_KEY: Field<Custom<ApiKeySettings>> = Field {
    key: "api_key",
    doc: "By an API key in a header field.",
    kind: Custom { read: |reader| read_api_key(reader, true), form: || Form::Mapping(&API_KEY_FIELDS) },
    absent: Absent::Nothing("none"),
    examples: &[],
};

static IP: Field<Nested<u8>> = Field {
    key: "ip",
    doc: "By the address of the client.",
    kind: Nested { mapping: &IP_FIELDS, read: |section| section.read(&IPV6_PREFIX) },
    absent: Absent::Nothing("none"),
    examples: &[],
};

/// The keys of `jwt`.
pub(super) static JWT_FIELDS: Mapping = Mapping {
    doc: "By a signed token in `Authorization: Bearer …`.",
    fields: &[
        &ISSUER,
        &AUDIENCE,
        &JWKS_URL,
        &JWKS_FILE,
        &SECRET_ENV,
        &PUBLIC_KEY_FILE,
        &CLAIM,
        &TIER_CLAIM,
        &TENANT_CLAIM,
        &NAMESPACE,
        &LEEWAY,
        &REFRESH,
        &KEEP,
        &CA_FILE,
    ],
    constraints: &[Constraint::OneOf(&["jwks_url", "jwks_file", "secret_env", "public_key_file"])],
};

static ISSUER: Field<Text<String>> = Field {
    key: "issuer",
    doc: "The `iss` of its tokens, exactly: a slash at the end is a difference.",
    kind: SOME_TEXT,
    absent: Absent::Required("name the issuer of the tokens, for example issuer: https://id.example"),
    examples: &["https://id.example"],
};

static AUDIENCE: Field<Custom<Vec<String>>> = Field {
    key: "audience",
    doc: "The intended recipients of its tokens: `aud` must contain one of these. Without it, tokens for other services of the issuer would be valid here.",
    kind: Custom {
        read: read_audience,
        form: || {
            let text = SOME_TEXT.form();
            let item = Box::new(SOME_TEXT.form());
            let list = Form::List { noun: "texts", item, min: 1, max: Some(SOURCES_MAX), is_unique: false };
            Form::Any(vec![text, list])
        },
    },
    absent: Absent::Required("name the recipient of the tokens, for example audience: api"),
    examples: &[],
};

static JWKS_URL: Field<Custom<JwksUrl>> = Field {
    key: "jwks_url",
    doc: "The URL of its public keys: https, or http on this machine.",
    kind: Custom {
        read: jwks_url,
        form: || {
            let local = "^http://(localhost|127\\.0\\.0\\.1|\\[::1\\])([:/]|$)".to_owned();
            let mut shape = Shape::matching("URL", "^https://[^/]");
            shape.patterns.push(local);
            Form::Text(shape)
        },
    },
    absent: Absent::Nothing("none"),
    examples: &["https://id.example/.well-known/jwks.json"],
};

static JWKS_FILE: Field<Text<String>> = Field {
    key: "jwks_file",
    doc: "A file with its public keys, as a JSON Web Key Set.",
    kind: SOME_TEXT,
    absent: Absent::Nothing("none"),
    examples: &["keys.json"],
};

static SECRET_ENV: Field<Text<String>> = Field {
    key: "secret_env",
    doc: "The environment variable with the secret that it shares with this server.",
    kind: SOME_TEXT,
    absent: Absent::Nothing("none"),
    examples: &["JWT_SECRET"],
};

static PUBLIC_KEY_FILE: Field<Text<String>> = Field {
    key: "public_key_file",
    doc: "A file with its public key, in PEM.",
    kind: SOME_TEXT,
    absent: Absent::Nothing("none"),
    examples: &["issuer.pem"],
};

static CLAIM: Field<Text<String>> = Field {
    key: "claim",
    doc: "The claim with the identifier.",
    kind: SOME_TEXT,
    absent: Absent::Default("sub"),
    examples: &["sub"],
};

static TIER_CLAIM: Field<Text<String>> = Field {
    key: "tier_claim",
    doc: "The claim with the tier. A token without it has no tier.",
    kind: SOME_TEXT,
    absent: Absent::Nothing("none"),
    examples: &["tier"],
};

static TENANT_CLAIM: Field<Text<String>> = Field {
    key: "tenant_claim",
    doc: "The claim with the tenant. A token without it has the tenant `default`.",
    kind: SOME_TEXT,
    absent: Absent::Nothing("none"),
    examples: &["org"],
};

static NAMESPACE: Field<Text<String>> = Field {
    key: "namespace",
    doc: "The beginning of the identifiers of its tokens, before a `|`. Issuers with the same namespace share identities. With several `jwt` entries the issuer is the default.",
    kind: Text {
        parse: namespace,
        form: || {
            let shape =
                Shape::matching("1 to 256 bytes without a vertical bar", "^[^|\\u0000-\\u001f\\u007f-\\u009f]+$");
            Form::Text(shape.literally().bounded(1, NAME_BYTES_MAX))
        },
    },
    absent: Absent::Nothing("none"),
    examples: &["staff"],
};

static LEEWAY: Field<Custom<Duration>> = Field {
    key: "leeway",
    doc: "The largest difference between its clock and that of this server.",
    kind: Custom {
        read: |reader| length(reader, 0, 60),
        form: || Form::Any(vec![Form::Duration { min: "0s", max: "60s" }, Form::Literal(vec!["0s"])]),
    },
    absent: Absent::Default("0s"),
    examples: &[],
};

static REFRESH: Field<Custom<Duration>> = Field {
    key: "refresh",
    doc: "How often the server fetches its keys.",
    kind: Custom { read: |reader| length(reader, 10, 86_400), form: || Form::Duration { min: "10s", max: "1d" } },
    absent: Absent::Default("300s"),
    examples: &["5min"],
};

static KEEP: Field<Custom<Duration>> = Field {
    key: "keep",
    doc: "How long keys stay valid that the server cannot fetch again.",
    kind: Custom {
        read: |reader| length(reader, 10, 7 * 86_400),
        form: || Form::Duration { min: "10s", max: "7d" },
    },
    absent: Absent::Default("24h"),
    examples: &["24h"],
};

static CA_FILE: Field<Text<String>> = Field {
    key: "ca_file",
    doc: "Certificates that the server trusts for `jwks_url` instead of the system's, in PEM.",
    kind: SOME_TEXT,
    absent: Absent::Nothing("the system's"),
    examples: &["ca.pem"],
};

/// The keys of `api_key`.
pub(super) static API_KEY_FIELDS: Mapping =
    Mapping { doc: "By an API key in a header field.", fields: &[&HEADER, &KEYS, &VERIFY], constraints: &[] };

static HEADER: Field<Text<HeaderName>> = Field {
    key: "header",
    doc: "The header field with the key. `Authorization` is for tokens.",
    kind: Text {
        parse: header,
        form: || Form::Text(Shape::matching("header field", "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")),
    },
    absent: Absent::Default("X-API-Key"),
    examples: &[],
};

static KEYS: Field<Custom<Vec<(KeyHash, Principal)>>> = Field {
    key: "keys",
    doc: "The keys and their owners.",
    kind: Custom {
        read: read_keys,
        form: || Form::List {
            noun: "keys",
            item: Box::new(Form::Mapping(&API_KEY_ENTRY)),
            min: 0,
            max: Some(KEYS_MAX),
            is_unique: false,
        },
    },
    absent: Absent::Default("[]"),
    examples: &[],
};

static VERIFY: Field<Boolean> = Field {
    key: "verify",
    doc: "Whether a key must be among `keys`. Without verification any key is the name of its client: pair it with a rule per `ip`.",
    kind: Boolean,
    absent: Absent::Default("true"),
    examples: &[],
};

/// The keys of `ip`.
pub(super) static IP_FIELDS: Mapping =
    Mapping { doc: "By the address of the client.", fields: &[&IPV6_PREFIX], constraints: &[] };

static IPV6_PREFIX: Field<Integer<u8>> = Field {
    key: "ipv6_prefix",
    doc: "The bits of an IPv6 address that identify a client: a client usually controls at least a /64.",
    kind: Integer { min: 32, max: 128, convert: |bits| u8::try_from(bits).ok() },
    absent: Absent::Default("64"),
    examples: &["64"],
};

/// A text of at least one character.
const SOME_TEXT: Text<String> =
    Text { parse: some_text, form: || Form::Text(Shape { min_length: Some(1), ..Shape::new("text") }) };

/// The fields of `jwt` that locate its keys: exactly one of them is present.
const KEY_LOCATIONS: [&str; 4] = [JWKS_URL.key, JWKS_FILE.key, SECRET_ENV.key, PUBLIC_KEY_FILE.key];
/// The most sources of identity: a handful of issuers and fields.
pub(super) const SOURCES_MAX: usize = 64;
/// How clients are identified.
#[derive(Clone, Debug)]
pub(crate) struct IdentitySettings {
    /// The sources; the first that applies to a request decides.
    pub(crate) sources: Vec<SourceSettings>,
    /// The bits of an IPv6 address that count.
    pub(crate) ipv6_prefix: u8,
}

/// One source of identities.
#[derive(Clone, Debug)]
pub(crate) enum SourceSettings {
    Jwt(Box<JwtSettings>),
    ApiKey(ApiKeySettings),
    Ip,
}

/// An issuer of tokens.
#[derive(Clone, Debug)]
pub(crate) struct JwtSettings {
    pub(crate) issuer: String,
    pub(crate) audience: Vec<String>,
    pub(crate) keys: KeyLocation,
    pub(crate) claim: String,
    pub(crate) tier_claim: Option<String>,
    pub(crate) tenant_claim: Option<String>,
    /// The prefix of its identifiers. With several issuers, the default is the name of the issuer.
    pub(crate) namespace: Option<String>,
    pub(crate) leeway: Duration,
}

/// The location of the keys of an issuer.
#[derive(Clone, Debug)]
pub(crate) enum KeyLocation {
    JwksUrl { url: JwksUrl, refresh: Duration, keep: Duration, ca_file: Option<PathBuf> },
    JwksFile(PathBuf),
    SecretEnv(String),
    PublicKeyFile(PathBuf),
}

/// API keys in a header field.
#[derive(Clone, Debug)]
pub(crate) struct ApiKeySettings {
    pub(crate) header: HeaderName,
    pub(crate) keys: Vec<(KeyHash, Principal)>,
    pub(crate) is_verified: bool,
}

impl Default for IdentitySettings {
    fn default() -> Self {
        Self { sources: vec![SourceSettings::Ip], ipv6_prefix: IPV6_PREFIX_BITS }
    }
}

impl IdentitySettings {
    /// The default without an `identity` key: by address, and for the demo application also by API key.
    pub(crate) fn usual(is_demo: bool) -> Self {
        if is_demo { Self::demo() } else { Self::default() }
    }

    /// The sources of the demo application: the key `demo-key`, then the address.
    pub(crate) fn demo() -> Self {
        let owner = Principal { identifier: "demo".into(), tier: None, tenant: None };
        let keys = ApiKeySettings {
            header: HeaderName::from_static("x-api-key"),
            keys: vec![(KeyHash::of(b"demo-key"), owner)],
            is_verified: true,
        };
        Self { sources: vec![SourceSettings::ApiKey(keys), SourceSettings::Ip], ..Self::default() }
    }
}

/// Reads `identity`. With `has_more_keys` there are API keys outside this section, too.
pub(crate) fn read(reader: &Reader<'_>, has_more_keys: bool) -> Option<IdentitySettings> {
    let items = reader.list("write a list, for example [{ ip: {} }]")?;
    if !(1..=SOURCES_MAX).contains(&items.len()) {
        let remedy =
            format!("name 1 to {SOURCES_MAX} ways to know callers, or leave the key out to know them by ip");
        return reader.refuse(ValueError::new(format!("{} entries", items.len()), remedy));
    }
    let mut ipv6_prefix = None;
    let sources: Vec<Option<SourceSettings>> =
        items.iter().map(|item| read_source(item, &mut ipv6_prefix, has_more_keys)).collect();
    let (is_ordered, are_apart) = (check_order(&items, &sources), check_namespaces(&items, &sources));
    is_ordered.and(are_apart)?;
    let sources = sources.into_iter().collect::<Option<_>>()?;
    Some(IdentitySettings { sources, ipv6_prefix: ipv6_prefix.unwrap_or(IPV6_PREFIX_BITS) })
}

/// Rejects entries after `ip`, which never apply because every request has an address, and second entries for an issuer.
fn check_order(items: &[Reader<'_>], sources: &[Option<SourceSettings>]) -> Option<()> {
    let mut issuers: HashMap<&str, Place> = HashMap::new();
    let mut is_fine = true;
    for (item, source) in items.iter().zip(sources) {
        if let Some(SourceSettings::Jwt(jwt)) = source
            && let Some(place) = issuers.insert(&jwt.issuer, item.place())
        {
            let message = format!("a second entry for the issuer at {place}");
            item.report(ValueError::new(message, "keep one of the two: a token could not tell which is meant"));
            is_fine = false;
        }
    }
    let ip = sources.iter().position(|source| matches!(source, Some(SourceSettings::Ip)));
    if let Some(after) = ip.and_then(|ip| items.get(ip + 1)) {
        let remedy = "move `ip` to the end: every request has an address, so nothing after it ever applies";
        after.report(ValueError::new("never applies", remedy));
        is_fine = false;
    }
    is_fine.then_some(())
}

/// With several issuers, the name of an issuer without a `namespace` must be a valid namespace.
fn check_namespaces(items: &[Reader<'_>], sources: &[Option<SourceSettings>]) -> Option<()> {
    if sources.iter().filter(|source| matches!(source, Some(SourceSettings::Jwt(_)))).count() < 2 {
        return Some(());
    }
    let mut is_fine = true;
    for (item, source) in items.iter().zip(sources) {
        if let Some(SourceSettings::Jwt(jwt)) = source
            && jwt.namespace.is_none()
            && namespace(&jwt.issuer).is_err()
        {
            let message = "one of several issuers, and its name is no namespace: it is too long, or holds a `|`";
            item.report(ValueError::new(message, "give it a namespace, for example namespace: staff"));
            is_fine = false;
        }
    }
    is_fine.then_some(())
}

fn read_source(reader: &Reader<'_>, ipv6_prefix: &mut Option<u8>, has_more_keys: bool) -> Option<SourceSettings> {
    let section = reader.mapping(&SOURCE)?;
    let present: Vec<&str> = SOURCE.keys().into_iter().filter(|key| section.get(key).is_some()).collect();
    let [kind] = present.as_slice() else {
        let message = if present.is_empty() { "no kind of identity" } else { "several kinds of identity" };
        return reader
            .refuse(ValueError::new(message, "write one of jwt, api_key and ip for each entry of the list"));
    };
    let value = section.get(kind)?;
    if *kind == JWT.key {
        JWT.kind.read(value).map(|jwt| SourceSettings::Jwt(Box::new(jwt)))
    } else if *kind == API_KEY.key {
        read_api_key(value, has_more_keys).map(SourceSettings::ApiKey)
    } else {
        let fields = value.mapping(&IP_FIELDS)?;
        *ipv6_prefix = fields.read(&IPV6_PREFIX);
        Some(SourceSettings::Ip)
    }
}

fn read_jwt(section: &Section<'_>) -> Option<JwtSettings> {
    let issuer = section.read(&ISSUER);
    let audience = section.read(&AUDIENCE);
    let keys = read_keys_from(section);
    let claim = section.read(&CLAIM);
    let (tier_claim, tenant_claim) = (section.read_optional(&TIER_CLAIM), section.read_optional(&TENANT_CLAIM));
    let namespace = section.read_optional(&NAMESPACE);
    let leeway = section.read(&LEEWAY);
    Some(JwtSettings {
        issuer: issuer?,
        audience: audience?,
        keys: keys?,
        claim: claim?,
        tier_claim: tier_claim?,
        tenant_claim: tenant_claim?,
        namespace: namespace?,
        leeway: leeway?,
    })
}

fn namespace(text: &str) -> Result<String, ValueError> {
    match namespace_problem(text) {
        None => Ok(text.to_owned()),
        Some(_) => {
            let message =
                format!("not 1 to {NAME_BYTES_MAX} bytes without `{NAMESPACE_END}` and control characters");
            Err(ValueError::new(message, "write a short name, for example namespace: staff"))
        }
    }
}

fn read_audience(reader: &Reader<'_>) -> Option<Vec<String>> {
    if !reader.is_list() {
        return reader.text_as(some_text).map(|audience| vec![audience]);
    }
    let items = reader.list("write a text or a list of texts")?;
    if !(1..=SOURCES_MAX).contains(&items.len()) {
        return reader
            .refuse(ValueError::new(format!("{} audiences", items.len()), "name at least one, at most 64"));
    }
    let texts: Vec<Option<String>> = items.iter().map(|item| item.text_as(some_text)).collect();
    texts.into_iter().collect()
}

fn read_keys_from(section: &Section<'_>) -> Option<KeyLocation> {
    let (refresh, keep) = (section.read(&REFRESH), section.read(&KEEP));
    let path = |field| Some(section.read_optional(field)?.map(PathBuf::from));
    let (ca_file, jwks_file, public_key_file) = (path(&CA_FILE), path(&JWKS_FILE), path(&PUBLIC_KEY_FILE));
    let url = section.read_optional(&JWKS_URL);
    let variable = section.read_optional(&SECRET_ENV);
    if keep.zip(refresh).is_some_and(|(keep, refresh)| keep < refresh) {
        let remedy = "let keys be kept at least until they are refreshed";
        let place = section.get("keep").unwrap_or(section.reader());
        place.report(ValueError::new("shorter than `refresh`", remedy));
    }
    let present: Vec<&str> = KEY_LOCATIONS.into_iter().filter(|key| section.get(key).is_some()).collect();
    if present.len() != 1 {
        let message = if present.is_empty() { "no keys" } else { "several places of keys" };
        let remedy = "give one of jwks_url, jwks_file, secret_env and public_key_file";
        return section.reader().refuse(ValueError::new(message, remedy));
    }
    let (refresh, keep, ca_file) = (refresh?, keep?, ca_file?);
    let (jwks_file, public_key_file) =
        (jwks_file?.map(KeyLocation::JwksFile), public_key_file?.map(KeyLocation::PublicKeyFile));
    let url = url?.map(|url| KeyLocation::JwksUrl { url, refresh, keep, ca_file });
    url.or(jwks_file).or(public_key_file).or(variable?.map(KeyLocation::SecretEnv))
}

fn jwks_url(reader: &Reader<'_>) -> Option<JwksUrl> {
    let text = reader.text()?;
    let problem = match JwksUrl::parse(&text) {
        Ok(url) => return Some(url),
        Err(problem) => problem,
    };
    let remedy = "write an https:// URL; http:// is for 127.0.0.1, [::1] and localhost only";
    let wrong = ValueError::new(problem.to_string(), remedy);
    // A password written here by mistake must not appear in a log.
    if problem == UrlProblem::Credentials {
        reader.report_as(wrong, None)
    } else {
        reader.report(wrong)
    }
    None
}

fn read_api_key(reader: &Reader<'_>, has_more_keys: bool) -> Option<ApiKeySettings> {
    let section = reader.mapping(&API_KEY_FIELDS)?;
    let header = section.read(&HEADER);
    let is_verified = section.read(&VERIFY);
    let keys = section.read(&KEYS);
    if is_verified == Some(true) && keys.as_ref().is_some_and(Vec::is_empty) && !has_more_keys {
        let remedy = "list the keys, or name a database that holds them, or write verify: false to take any key for the name of its sender";
        reader.report(ValueError::new("no keys, so no credential could ever be valid", remedy));
    }
    Some(ApiKeySettings { header: header?, keys: keys?, is_verified: is_verified? })
}

fn read_keys(reader: &Reader<'_>) -> Option<Vec<(KeyHash, Principal)>> {
    let items = reader.list("write a list of keys, each with `sha256` and `identifier`")?;
    if items.len() > KEYS_MAX {
        return reader.refuse(ValueError::new(format!("{} keys", items.len()), format!("use at most {KEYS_MAX}")));
    }
    let mut hashes: HashMap<KeyHash, Place> = HashMap::new();
    let keys: Vec<Option<(KeyHash, Principal)>> = items.iter().map(|item| read_key(item, &mut hashes)).collect();
    keys.into_iter().collect()
}

fn read_key(reader: &Reader<'_>, hashes: &mut HashMap<KeyHash, Place>) -> Option<(KeyHash, Principal)> {
    key_of(&reader.mapping(&API_KEY_ENTRY)?, hashes)
}

/// Reads the name of the header field with the API key. `Authorization` is for tokens.
fn header(text: &str) -> Result<HeaderName, ValueError> {
    match HeaderName::from_bytes(text.as_bytes()) {
        Ok(name) if name == AUTHORIZATION => {
            Err(ValueError::new("the field of tokens", "use a field of its own, for example X-API-Key"))
        }
        Ok(name) if is_of_the_way(name.as_str()) => {
            let message = "a field about the way of a request, not about its sender";
            Err(ValueError::new(message, "use a field of its own, for example X-API-Key"))
        }
        Ok(name) => Ok(name),
        Err(_) => Err(ValueError::new("not a header field", "write its name, for example X-API-Key")),
    }
}

/// Header fields that proxies add and remove.
fn is_of_the_way(name: &str) -> bool {
    const NAMES: [&str; 10] = [
        "connection",
        "content-length",
        "forwarded",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "via",
    ];
    NAMES.contains(&name)
        || ["proxy-", "x-forwarded-", "x-sluicegate-"].iter().any(|start| name.starts_with(start))
}

fn some_text(text: &str) -> Result<String, ValueError> {
    match text {
        "" => Err(ValueError::new("empty", "write at least one character")),
        text => Ok(text.to_owned()),
    }
}

/// Reads a duration of `low` to `high` seconds.
fn length(reader: &Reader<'_>, low: u64, high: u64) -> Option<Duration> {
    // A duration of zero is valid only here.
    if low == 0 && reader.is_word("0s") {
        return Some(Duration::ZERO);
    }
    let length = reader.duration()?;
    if (Micros::from_secs(low)..=Micros::from_secs(high)).contains(&length) {
        return Some(Duration::from_micros(length.as_micros()));
    }
    reader.refuse(ValueError::new("out of range", format!("use at least {low}s and at most {high}s")))
}
