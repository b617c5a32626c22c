//! The section `gateway`: which requests go to which upstreams, and which of them are decided.

mod route;
pub(super) mod url;

use sluicegate::path::PathPattern;
use sluicegate::rules::file::{Place, Reader, Section, Wrong, value};
use std::collections::HashMap;

use crate::http::gateway::{Cors, Origins};
pub(crate) use route::{
    CONCURRENCY_MAX, MAX_BODY_BYTES_MAX, ROUTE_KEYS, RouteSettings, TLS_KEYS, TlsSettings, UPSTREAMS_MAX,
};
pub(crate) use url::{UpstreamUrl, is_link_local};

/// The keys of `gateway`.
pub(crate) const GATEWAY_KEYS: &[&str] = &["routes", "exempt", "preflights", "identity_headers", "cors"];
/// The keys of `gateway.cors`.
pub(crate) const CORS_KEYS: &[&str] = &["allow_origins", "allow_credentials"];
/// What may happen to a browser's question before a request.
pub(crate) const PREFLIGHTS: &[(&str, Preflights)] =
    &[("count", Preflights::Count), ("exempt", Preflights::Exempt)];
/// The most routes: many times what one gateway has, and few enough to look through.
pub(crate) const ROUTES_MAX: usize = 1_000;
/// The most paths that are not decided; each is looked at for every request.
pub(crate) const EXEMPT_MAX: usize = 64;
/// The most origins of browsers.
pub(crate) const ORIGINS_MAX: usize = 256;
/// The longest origin, in bytes: a scheme, a host and a port.
pub(crate) const ORIGIN_BYTES_MAX: usize = 300;

/// What the section says.
#[derive(Debug, Default)]
pub(crate) struct GatewaySettings {
    /// Where requests go; without any the demo application is served.
    pub(crate) routes: Vec<RouteSettings>,
    /// Paths that are not decided.
    pub(crate) exempt: Box<[PathPattern]>,
    /// Whether preflights are decided.
    pub(crate) preflights: Preflights,
    /// Whether upstreams are told who asks.
    pub(crate) identity_headers: bool,
    /// Whose scripts may read our own answers.
    pub(crate) cors: Option<Cors>,
}

/// What happens to a browser's question before a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Preflights {
    /// It is a request like any other.
    #[default]
    Count,
    /// It is passed on and not decided.
    Exempt,
}

/// Reads the section.
pub(crate) fn read(reader: &Reader<'_>) -> Option<GatewaySettings> {
    let section = reader.section(GATEWAY_KEYS)?;
    let routes = section.optional("routes", Vec::new(), read_routes);
    let exempt = section.optional("exempt", Box::default(), read_exempt);
    let preflights = section.optional("preflights", Preflights::default(), |choice| choice.choice(PREFLIGHTS));
    let identity_headers = section.optional("identity_headers", false, Reader::boolean);
    let cors = section.optional("cors", None, |cors| read_cors(cors).map(Some));
    Some(GatewaySettings {
        routes: routes?,
        exempt: exempt?,
        preflights: preflights?,
        identity_headers: identity_headers?,
        cors: cors?,
    })
}

fn read_routes(reader: &Reader<'_>) -> Option<Vec<RouteSettings>> {
    let items = bounded(reader, "write a list of routes", "routes", 0, ROUTES_MAX)?;
    let routes: Vec<_> = items.iter().map(route::read).collect();
    let mut first: HashMap<_, Place> = HashMap::new();
    let mut is_good = true;
    for (item, route) in items.iter().zip(&routes) {
        let Some(route) = route else { continue };
        // As requests are compared with it: capitals and a slash at the end are no difference.
        let key = (route.host.clone(), route.path.text().trim_end_matches('/').to_ascii_lowercase());
        if let Some(place) = first.get(&key) {
            let message = format!("a second route for this host and path, first at {place}");
            item.report_as(Wrong::new(message, "remove one, or list several upstreams in one route"), None);
            is_good = false;
        }
        first.entry(key).or_insert_with(|| item.place());
    }
    let routes: Option<Vec<_>> = routes.into_iter().collect();
    routes.filter(|_| is_good)
}

fn read_exempt(reader: &Reader<'_>) -> Option<Box<[PathPattern]>> {
    let items = bounded(reader, "write a list of paths, for example [/healthz]", "paths", 0, EXEMPT_MAX)?;
    all(items.iter().map(|item| item.text_as(value::path)))
}

fn read_cors(reader: &Reader<'_>) -> Option<Cors> {
    let section = reader.section(CORS_KEYS)?;
    let remedy = "list them, for example [https://app.example.com], or [\"*\"] for all";
    let origins = section.required("allow_origins", remedy).and_then(|origins| read_origins(origins, remedy));
    let credentials = section.optional("allow_credentials", false, Reader::boolean);
    let cors = Cors { origins: origins?, credentials: credentials? };
    if cors.origins == Origins::Any && cors.credentials {
        let remedy = "list the origins, or leave `allow_credentials` out";
        return reader.refuse(Wrong::new("all origins with cookies", remedy));
    }
    Some(cors)
}

fn read_origins(reader: &Reader<'_>, remedy: &str) -> Option<Origins> {
    let items = bounded(reader, remedy, "origins", 1, ORIGINS_MAX)?;
    let origins: Box<[Box<str>]> = all(items.iter().map(|item| item.text_as(origin)))?;
    Some(if origins.iter().any(|each| &**each == "*") { Origins::Any } else { Origins::Listed(origins) })
}

/// An origin as browsers write it: a scheme and a host, in lower case, and a port if it is not the usual one.
fn origin(text: &str) -> Result<Box<str>, Wrong> {
    let is_host_byte = |byte: u8| {
        byte.is_ascii_lowercase()
            || byte.is_ascii_digit()
            || matches!(byte, b'-' | b'.' | b':' | b'[' | b']' | b'_')
    };
    let is_host = |host: &str| !host.is_empty() && host.bytes().all(is_host_byte);
    let is_scheme = |scheme: &str| !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_lowercase());
    let is_origin = text.len() <= ORIGIN_BYTES_MAX
        && text.split_once("://").is_some_and(|(scheme, host)| is_scheme(scheme) && is_host(host));
    if text == "*" || is_origin {
        return Ok(text.into());
    }
    let remedy =
        "write it as browsers do, for example https://app.example.com, without a path or a slash at the end";
    Err(Wrong::new("not an origin", remedy))
}

/// The items of a list of so many.
fn bounded<'d>(reader: &Reader<'d>, remedy: &str, noun: &str, min: usize, max: usize) -> Option<Vec<Reader<'d>>> {
    let items = reader.list(remedy)?;
    if (min..=max).contains(&items.len()) {
        return Some(items);
    }
    let remedy = if items.is_empty() { remedy.to_owned() } else { format!("use at most {max}") };
    reader.refuse(Wrong::new(format!("{} {noun}", items.len()), remedy))
}

/// All items, if all are there. Every one is read, with all its problems, before the first absent one counts.
fn all<T, C: FromIterator<T>>(items: impl Iterator<Item = Option<T>>) -> Option<C> {
    let items: Vec<Option<T>> = items.collect();
    items.into_iter().collect()
}

/// The value of a key that names a file.
fn path(section: &Section<'_>, key: &str) -> Option<Option<std::path::PathBuf>> {
    section.optional(key, None, |path| path.text().map(|path| Some(path.into())))
}
