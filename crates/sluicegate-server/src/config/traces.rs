//! `traces`: where spans are sent, and of which requests.

use std::path::PathBuf;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use sluicegate::rules::file::{Reader, Wrong};

use super::gateway::url::UpstreamUrl;
use super::share::{self, Share};

/// The keys of `traces`.
pub(crate) const TRACES_KEYS: &[&str] = &["endpoint", "headers", "sample", "parents", "service_name", "ca_file"];
/// The most header fields for the collector: a token and a tenant, and some to spare.
pub(crate) const HEADERS_MAX: usize = 16;
/// The names that header fields for the collector may have, for the schema.
pub(crate) const HEADER_NAME_PATTERN: &str = "^[A-Za-z0-9_.-]+$";
/// The longest name of this service, in characters.
pub(crate) const SERVICE_NAME_MAX: usize = 128;
/// Whose spans ours may be children of.
pub(crate) const PARENTS: &[(&str, Parents)] =
    &[("anyone", Parents::Anyone), ("trusted_proxies", Parents::TrustedProxies)];

/// Whose spans ours may be children of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Parents {
    /// Of whoever sends a context, who thereby chooses what is sampled.
    #[default]
    Anyone,
    /// Of trusted proxies.
    TrustedProxies,
}

/// What the section says.
#[derive(Clone, Debug, Default)]
pub(crate) struct TraceSettings {
    /// Where spans are sent: a scheme, a host and a port.
    pub(crate) endpoint: Option<String>,
    /// What the collector is sent along; none of the values prints itself.
    pub(crate) headers: HeaderMap,
    /// How many of the requests without a parent are traced.
    pub(crate) sample: Option<Share>,
    /// Whose spans ours may be children of.
    pub(crate) parents: Parents,
    /// What this service is called.
    pub(crate) service_name: Option<String>,
    /// The authorities to trust instead of the system's.
    pub(crate) ca_file: Option<PathBuf>,
}

/// Reads `traces`.
pub(super) fn read(reader: &Reader<'_>) -> Option<TraceSettings> {
    let section = reader.section(TRACES_KEYS)?;
    let endpoint = section.optional("endpoint", None, |endpoint| read_endpoint(endpoint).map(Some));
    let headers = section.optional("headers", HeaderMap::new(), read_headers);
    let sample = section.optional("sample", None, |sample| share::read(sample).map(Some));
    let parents = section.optional("parents", Parents::default(), |parents| parents.choice(PARENTS));
    let service_name = section.optional("service_name", None, |name| name.text_as(service_name).map(Some));
    let ca_file = section.optional("ca_file", None, |path| path.text().map(|path| Some(PathBuf::from(path))));
    Some(TraceSettings {
        endpoint: endpoint?,
        headers: headers?,
        sample: sample?,
        parents: parents?,
        service_name: service_name?,
        ca_file: ca_file?,
    })
}

/// Whether spans can be sent to this URL.
pub(crate) fn check_endpoint(text: &str) -> Result<(), Wrong> {
    UpstreamUrl::parse(text).map(drop)
}

fn read_endpoint(reader: &Reader<'_>) -> Option<String> {
    let text = reader.text()?;
    match check_endpoint(&text) {
        Ok(()) => Some(text),
        // Of a URL with a user nothing is shown, although none is taken: there may be a password.
        Err(wrong) => {
            if text.contains('@') {
                reader.report_as(wrong, None);
            } else {
                reader.report(wrong);
            }
            None
        }
    }
}

fn read_headers(reader: &Reader<'_>) -> Option<HeaderMap> {
    let pairs = reader.pairs()?;
    if pairs.len() > HEADERS_MAX {
        let remedy = format!("use at most {HEADERS_MAX}");
        return reader.refuse(Wrong::new(format!("{} header fields", pairs.len()), remedy));
    }
    let mut headers = HeaderMap::new();
    let mut is_good = true;
    for pair in pairs {
        let (name, value) = (name_of(pair.name), read_value(&pair.value));
        if name.is_none() {
            let remedy = "use letters, digits, `-`, `_` and `.`, and no name of gRPC's own";
            pair.value.report_as(Wrong::new("a header field that cannot be sent to a collector", remedy), None);
        }
        match name.zip(value) {
            Some((name, value)) => _ = headers.insert(name, value),
            None => is_good = false,
        }
    }
    is_good.then_some(headers)
}

/// gRPC keeps some names for itself, and values of others are no text.
fn name_of(text: &str) -> Option<HeaderName> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    let name: HeaderName = text.bytes().all(is_plain).then(|| text.parse().ok())??;
    let is_reserved = name.as_str().starts_with("grpc-") || name.as_str().ends_with("-bin");
    let is_of_connection = matches!(name.as_str(), "content-type" | "te" | "host" | "user-agent" | "connection");
    (!is_reserved && !is_of_connection).then_some(name)
}

fn read_value(reader: &Reader<'_>) -> Option<HeaderValue> {
    let text = reader.secret()?;
    let is_visible = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    let Some(mut value) = HeaderValue::from_str(&text).ok().filter(|_| is_visible) else {
        reader.report_as(Wrong::new("a value that cannot be sent to a collector", "use visible ASCII"), None);
        return None;
    };
    value.set_sensitive(true);
    Some(value)
}

fn service_name(text: &str) -> Result<String, Wrong> {
    let is_name = !text.is_empty() && text.chars().count() <= SERVICE_NAME_MAX && !text.contains(char::is_control);
    match is_name {
        true => Ok(text.to_owned()),
        false => {
            let remedy = format!("use 1 to {SERVICE_NAME_MAX} characters, none of them a control character");
            Err(Wrong::new("not a name of a service", remedy))
        }
    }
}
