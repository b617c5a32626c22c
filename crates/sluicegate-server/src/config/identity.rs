//! `trusted_proxies` and `identity`: who may speak for others, and how callers are known. Files and environment
//! variables that are named here are read at the start, not here.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use axum::http::header::{AUTHORIZATION, HeaderName};
use sluicegate::core::Micros;
use sluicegate::identify::Principal;
use sluicegate::identify::address::{IPV6_PREFIX_BITS, NETWORKS_MAX, TrustedHeader, TrustedProxies};
use sluicegate::identify::api_key::{KEYS_MAX, KeyHash};
use sluicegate::identity::{IDENTIFIER_BYTES_MAX, NAME_BYTES_MAX};
use sluicegate::rules::file::{Place, Reader, Section, Wrong};

use crate::jwks::{JwksUrl, UrlProblem};

/// The kinds of identity.
pub(crate) const SOURCE_KEYS: &[&str] = &["jwt", "api_key", "ip"];
/// The keys of `jwt`.
pub(crate) const JWT_KEYS: &[&str] = &[
    "issuer",
    "audience",
    "jwks_url",
    "jwks_file",
    "secret_env",
    "public_key_file",
    "claim",
    "tier_claim",
    "tenant_claim",
    "leeway",
    "refresh",
    "keep",
    "ca_file",
];
/// The keys of `jwt` that say where its keys are: exactly one of them is there.
pub(crate) const KEYS_FROM: &[&str] = &["jwks_url", "jwks_file", "secret_env", "public_key_file"];
/// The keys of `api_key`.
pub(crate) const API_KEY_KEYS: &[&str] = &["header", "keys", "verify"];
/// The keys of one API key.
pub(crate) const KEY_KEYS: &[&str] = &["sha256", "identifier", "tier", "tenant"];
/// The keys of `ip`.
pub(crate) const IP_KEYS: &[&str] = &["ipv6_prefix"];
/// The field that carries an API key unless somebody says otherwise.
pub(crate) const API_KEY_HEADER: &str = "X-API-Key";
/// Which field trusted proxies write.
pub(crate) const TRUSTED_HEADERS: &[(&str, TrustedHeader)] = &[
    ("either", TrustedHeader::Either),
    ("x-forwarded-for", TrustedHeader::XForwardedFor),
    ("forwarded", TrustedHeader::Forwarded),
];
/// The most sources of identity: a handful of issuers and fields.
pub(crate) const SOURCES_MAX: usize = 64;
/// The shortest and the longest IPv6 network that counts as one client: what a provider has, and one address.
pub(crate) const IPV6_PREFIXES: (u64, u64) = (32, 128);

/// How callers are known.
#[derive(Clone, Debug)]
pub(crate) struct IdentitySettings {
    /// In order.
    pub(crate) sources: Vec<SourceSettings>,
    /// The bits of an IPv6 address that count.
    pub(crate) ipv6_prefix: u8,
}

/// One way to know a caller.
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
    pub(crate) keys: KeysFrom,
    pub(crate) claim: String,
    pub(crate) tier_claim: Option<String>,
    pub(crate) tenant_claim: Option<String>,
    pub(crate) leeway: Duration,
}

/// Where the keys of an issuer are.
#[derive(Clone, Debug)]
pub(crate) enum KeysFrom {
    JwksUrl { url: JwksUrl, refresh: Duration, keep: Duration, ca_file: Option<PathBuf> },
    JwksFile(PathBuf),
    SecretEnv(String),
    PublicKeyFile(PathBuf),
}

/// Keys in a header field.
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
    /// How callers are known where nobody says it: by their address, and by a key where the demo application answers.
    pub(crate) fn usual(is_demo: bool) -> Self {
        if is_demo { Self::demo() } else { Self::default() }
    }

    /// How callers of the demo application are known: by the key `demo-key`, or else by their address.
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

/// Reads `trusted_proxies`.
pub(crate) fn read_proxies(reader: &Reader<'_>) -> Option<TrustedProxies> {
    let items = reader.list("write a list of networks, for example [10.0.0.0/8], or [] to trust nobody")?;
    if items.len() > NETWORKS_MAX {
        let remedy = format!("use at most {NETWORKS_MAX}");
        return reader.refuse(Wrong::new(format!("{} networks", items.len()), remedy));
    }
    let remedy = "write an address or a network, for example 10.0.0.0/8 or 2001:db8::/32";
    let network = |text: &str| match TrustedProxies::parse([text]) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err(Wrong::new("not a network", remedy)),
    };
    let networks: Vec<Option<String>> = items.iter().map(|item| item.text_as(network)).collect();
    let networks: Vec<String> = networks.into_iter().collect::<Option<_>>()?;
    TrustedProxies::parse(networks.iter().map(String::as_str)).ok()
}

/// Reads `identity`; there may be API keys elsewhere, too.
pub(crate) fn read(reader: &Reader<'_>, has_more_keys: bool) -> Option<IdentitySettings> {
    let items = reader.list("write a list, for example [{ ip: {} }]")?;
    if !(1..=SOURCES_MAX).contains(&items.len()) {
        let remedy =
            format!("name 1 to {SOURCES_MAX} ways to know callers, or leave the key out to know them by ip");
        return reader.refuse(Wrong::new(format!("{} entries", items.len()), remedy));
    }
    let mut ipv6_prefix = None;
    let sources: Vec<Option<SourceSettings>> =
        items.iter().map(|item| read_source(item, &mut ipv6_prefix, has_more_keys)).collect();
    check_order(&items, &sources)?;
    let sources = sources.into_iter().collect::<Option<_>>()?;
    Some(IdentitySettings { sources, ipv6_prefix: ipv6_prefix.unwrap_or(IPV6_PREFIX_BITS) })
}

/// What comes after `ip` is never asked, since every request has an address; and every issuer has one entry.
fn check_order(items: &[Reader<'_>], sources: &[Option<SourceSettings>]) -> Option<()> {
    let mut issuers: HashMap<&str, Place> = HashMap::new();
    let mut is_fine = true;
    for (item, source) in items.iter().zip(sources) {
        if let Some(SourceSettings::Jwt(jwt)) = source
            && let Some(place) = issuers.insert(&jwt.issuer, item.place())
        {
            let message = format!("a second entry for the issuer at {place}");
            item.report(Wrong::new(message, "keep one of the two: a token could not tell which is meant"));
            is_fine = false;
        }
    }
    let ip = sources.iter().position(|source| matches!(source, Some(SourceSettings::Ip)));
    if let Some(after) = ip.and_then(|ip| items.get(ip + 1)) {
        let remedy = "move `ip` to the end: every request has an address, so nothing after it is asked";
        after.report(Wrong::new("never applies", remedy));
        is_fine = false;
    }
    is_fine.then_some(())
}

fn read_source(reader: &Reader<'_>, ipv6_prefix: &mut Option<u8>, has_more_keys: bool) -> Option<SourceSettings> {
    let section = reader.section(SOURCE_KEYS)?;
    let given: Vec<&str> = SOURCE_KEYS.iter().copied().filter(|key| section.get(key).is_some()).collect();
    let [kind] = given.as_slice() else {
        let message = if given.is_empty() { "no kind of identity" } else { "several kinds of identity" };
        return reader.refuse(Wrong::new(message, "write one of jwt, api_key and ip for each entry of the list"));
    };
    let value = section.get(kind)?;
    match *kind {
        "jwt" => read_jwt(value).map(|jwt| SourceSettings::Jwt(Box::new(jwt))),
        "api_key" => read_api_key(value, has_more_keys).map(SourceSettings::ApiKey),
        _ => {
            let section = value.section(IP_KEYS)?;
            let (low, high) = IPV6_PREFIXES;
            let bits = section.optional("ipv6_prefix", IPV6_PREFIX_BITS.into(), |bits| bits.integer(low..=high));
            *ipv6_prefix = bits.and_then(|bits| u8::try_from(bits).ok());
            Some(SourceSettings::Ip)
        }
    }
}

fn read_jwt(reader: &Reader<'_>) -> Option<JwtSettings> {
    let section = reader.section(JWT_KEYS)?;
    let remedy = "say who signs the tokens, for example issuer: https://id.example";
    let issuer = section.required("issuer", remedy).and_then(|issuer| issuer.text_as(some_text));
    let remedy = "say whom the tokens are for, for example audience: api";
    let audience = section.required("audience", remedy).and_then(read_audience);
    let keys = read_keys_from(&section);
    let claim = section.optional("claim", "sub".to_owned(), |claim| claim.text_as(some_text));
    let named = |key| section.optional(key, None, |claim| claim.text_as(some_text).map(Some));
    let (tier_claim, tenant_claim) = (named("tier_claim"), named("tenant_claim"));
    let leeway = section.optional("leeway", Duration::ZERO, |leeway| length(leeway, 0, 60));
    Some(JwtSettings {
        issuer: issuer?,
        audience: audience?,
        keys: keys?,
        claim: claim?,
        tier_claim: tier_claim?,
        tenant_claim: tenant_claim?,
        leeway: leeway?,
    })
}

fn read_audience(reader: &Reader<'_>) -> Option<Vec<String>> {
    if !reader.is_list() {
        return reader.text_as(some_text).map(|audience| vec![audience]);
    }
    let items = reader.list("write a text or a list of texts")?;
    if !(1..=SOURCES_MAX).contains(&items.len()) {
        return reader.refuse(Wrong::new(format!("{} audiences", items.len()), "name at least one, at most 64"));
    }
    let texts: Vec<Option<String>> = items.iter().map(|item| item.text_as(some_text)).collect();
    texts.into_iter().collect()
}

fn read_keys_from(section: &Section<'_>) -> Option<KeysFrom> {
    let refresh = section.optional("refresh", Duration::from_secs(300), |each| length(each, 10, 86_400));
    let keep = section.optional("keep", Duration::from_secs(86_400), |each| length(each, 10, 7 * 86_400));
    let file = |key| section.optional(key, None, |path| path.text_as(some_text).map(|path| Some(path.into())));
    let (ca_file, jwks_file, public_key_file) = (file("ca_file"), file("jwks_file"), file("public_key_file"));
    let url = section.optional("jwks_url", None, |url| jwks_url(url).map(Some));
    let variable = section.optional("secret_env", None, |name| name.text_as(some_text).map(Some));
    if keep.zip(refresh).is_some_and(|(keep, refresh)| keep < refresh) {
        let remedy = "let keys be kept at least until they are refreshed";
        let place = section.get("keep").unwrap_or(section.reader());
        place.report(Wrong::new("shorter than `refresh`", remedy));
    }
    let given: Vec<&str> = KEYS_FROM.iter().copied().filter(|key| section.get(key).is_some()).collect();
    if given.len() != 1 {
        let message = if given.is_empty() { "no keys" } else { "several places of keys" };
        let remedy = "give one of jwks_url, jwks_file, secret_env and public_key_file";
        return section.reader().refuse(Wrong::new(message, remedy));
    }
    let (refresh, keep, ca_file) = (refresh?, keep?, ca_file?);
    let (jwks_file, public_key_file) =
        (jwks_file?.map(KeysFrom::JwksFile), public_key_file?.map(KeysFrom::PublicKeyFile));
    let url = url?.map(|url| KeysFrom::JwksUrl { url, refresh, keep, ca_file });
    url.or(jwks_file).or(public_key_file).or(variable?.map(KeysFrom::SecretEnv))
}

fn jwks_url(reader: &Reader<'_>) -> Option<JwksUrl> {
    let text = reader.text()?;
    let problem = match JwksUrl::parse(&text) {
        Ok(url) => return Some(url),
        Err(problem) => problem,
    };
    let remedy = "write an https:// URL; http:// is for 127.0.0.1, [::1] and localhost only";
    let wrong = Wrong::new(problem.to_string(), remedy);
    // Whoever writes a password by mistake does not want to see it in a log.
    if problem == UrlProblem::Credentials {
        reader.report_as(wrong, None)
    } else {
        reader.report(wrong)
    }
    None
}

fn read_api_key(reader: &Reader<'_>, has_more_keys: bool) -> Option<ApiKeySettings> {
    let section = reader.section(API_KEY_KEYS)?;
    let header = section.optional("header", HeaderName::from_static("x-api-key"), |name| name.text_as(header));
    let is_verified = section.optional("verify", true, Reader::boolean);
    let keys = section.optional("keys", Vec::new(), read_keys);
    if is_verified == Some(true) && keys.as_ref().is_some_and(Vec::is_empty) && !has_more_keys {
        let remedy = "list the keys, or name a database that holds them, or write verify: false to take any key for the name of its sender";
        reader.report(Wrong::new("no keys, so nobody could ever be let in", remedy));
    }
    Some(ApiKeySettings { header: header?, keys: keys?, is_verified: is_verified? })
}

fn read_keys(reader: &Reader<'_>) -> Option<Vec<(KeyHash, Principal)>> {
    let items = reader.list("write a list of keys, each with `sha256` and `identifier`")?;
    if items.len() > KEYS_MAX {
        return reader.refuse(Wrong::new(format!("{} keys", items.len()), format!("use at most {KEYS_MAX}")));
    }
    let mut hashes: HashMap<KeyHash, Place> = HashMap::new();
    let keys: Vec<Option<(KeyHash, Principal)>> = items.iter().map(|item| read_key(item, &mut hashes)).collect();
    keys.into_iter().collect()
}

fn read_key(reader: &Reader<'_>, hashes: &mut HashMap<KeyHash, Place>) -> Option<(KeyHash, Principal)> {
    key_of(&reader.section(KEY_KEYS)?, hashes)
}

/// The key in a section that was opened with [`KEY_KEYS`], and perhaps more.
pub(crate) fn key_of(section: &Section<'_>, hashes: &mut HashMap<KeyHash, Place>) -> Option<(KeyHash, Principal)> {
    let remedy = "give the SHA-256 of the key, for example from `printf %s KEY | sha256sum`";
    let hash = section.required("sha256", remedy).and_then(|reader| {
        // Whoever writes the key itself by mistake does not want to see it in a log.
        let Some(hash) = KeyHash::from_hex(&reader.secret()?) else {
            reader.report_as(Wrong::new("not 64 hexadecimal digits", remedy), None);
            return None;
        };
        if let Some(place) = hashes.insert(hash, reader.place()) {
            reader.report_as(Wrong::new(format!("a second one of that key, first at {place}"), "keep one"), None);
            return None;
        }
        Some(hash)
    });
    let remedy = "say whose key it is, for example identifier: demo";
    let identifier = section
        .required("identifier", remedy)
        .and_then(|text| text.text_as(|text| name(text, IDENTIFIER_BYTES_MAX)));
    let named =
        |key| section.optional(key, None, |text| text.text_as(|text| name(text, NAME_BYTES_MAX)).map(Some));
    let (tier, tenant) = (named("tier"), named("tenant"));
    Some((hash?, Principal { identifier: identifier?, tier: tier?, tenant: tenant? }))
}

fn name(text: &str, bytes_max: usize) -> Result<Box<str>, Wrong> {
    if (1..=bytes_max).contains(&text.len()) && !text.contains(char::is_control) {
        return Ok(text.into());
    }
    Err(Wrong::new("not a name", format!("use 1 to {bytes_max} bytes without control characters")))
}

/// A field that carries a key; `Authorization` carries tokens.
fn header(text: &str) -> Result<HeaderName, Wrong> {
    match HeaderName::from_bytes(text.as_bytes()) {
        Ok(name) if name == AUTHORIZATION => {
            Err(Wrong::new("the field of tokens", "use a field of its own, for example X-API-Key"))
        }
        Ok(name) if is_of_the_way(name.as_str()) => {
            let message = "a field about the way of a request, not about its sender";
            Err(Wrong::new(message, "use a field of its own, for example X-API-Key"))
        }
        Ok(name) => Ok(name),
        Err(_) => Err(Wrong::new("not a header field", "write its name, for example X-API-Key")),
    }
}

/// What proxies write and take out as they like.
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

fn some_text(text: &str) -> Result<String, Wrong> {
    match text {
        "" => Err(Wrong::new("empty", "write at least one character")),
        text => Ok(text.to_owned()),
    }
}

/// A length of time between so many seconds.
fn length(reader: &Reader<'_>, low: u64, high: u64) -> Option<Duration> {
    // Nothing at all is no length elsewhere, but here it is one.
    if low == 0 && reader.is_word("0s") {
        return Some(Duration::ZERO);
    }
    let length = reader.duration()?;
    if (Micros::from_secs(low)..=Micros::from_secs(high)).contains(&length) {
        return Some(Duration::from_micros(length.as_micros()));
    }
    reader.refuse(Wrong::new("out of range", format!("use at least {low}s and at most {high}s")))
}
