//! The section `gateway`: routes to upstreams, and the requests that are exempt from limits.

pub(super) mod route;
pub(super) mod url;

use sluicegate::path::{EncodedSlashes, PathPattern};
use sluicegate::rules::file::field::{Absent, Boolean, Choice, Custom, Field, Form, Mapping, Shape};
use sluicegate::rules::file::{Place, Reader, Section, ValueError, value};
use std::collections::HashMap;

use route::ROUTE;
pub(crate) use route::{RouteSettings, TlsSettings};
pub(crate) use url::{UpstreamUrl, is_link_local};

/// The section.
pub(super) static GATEWAY: Mapping = Mapping {
    doc: "The reverse proxy: its routes and its treatment of requests.",
    fields: &[&ROUTES, &EXEMPT, &PREFLIGHTS, &ENCODED_SLASHES, &IDENTITY_HEADERS, &CORS],
    constraints: &[],
};

static ROUTES: Field<Custom<Vec<RouteSettings>>> = Field {
    key: "routes",
    doc: "The upstreams of requests by host and path. Of the routes that match a request, the most specific host wins, then the most specific path.",
    kind: Custom {
        read: read_routes,
        form: || Form::List {
            noun: "routes",
            item: Box::new(Form::Mapping(&ROUTE)),
            min: 0,
            max: Some(ROUTES_MAX),
            is_unique: false,
        },
    },
    absent: Absent::Default("[]"),
    examples: &[],
};

static EXEMPT: Field<Custom<Box<[PathPattern]>>> = Field {
    key: "exempt",
    doc: "Paths that the gateway forwards without identification, decision or charge, such as health checks.",
    kind: Custom {
        read: read_exempt,
        form: || Form::List {
            noun: "path patterns",
            item: Box::new(path_pattern()),
            min: 0,
            max: Some(EXEMPT_MAX),
            is_unique: false,
        },
    },
    absent: Absent::Default("[]"),
    examples: &["[/healthz]"],
};

static PREFLIGHTS: Field<Choice<Preflights>> = Field {
    key: "preflights",
    doc: "Whether CORS preflights (`OPTIONS` with `Origin` and `Access-Control-Request-Method`) count as requests. They cannot carry credentials.",
    kind: Choice(&[("count", Preflights::Count), ("exempt", Preflights::Exempt)]),
    absent: Absent::Default("count"),
    examples: &[],
};

static ENCODED_SLASHES: Field<Choice<EncodedSlashes>> = Field {
    key: "encoded_slashes",
    doc: "The treatment of `%2F` in paths: `keep` forwards it unchanged and applies the rules for [both readings](gateway.md#encoded-slashes); `refuse` answers 400. Forward-auth follows it, too.",
    kind: Choice(&[("keep", EncodedSlashes::Keep), ("refuse", EncodedSlashes::Refuse)]),
    absent: Absent::Default("keep"),
    examples: &[],
};

static IDENTITY_HEADERS: Field<Boolean> = Field {
    key: "identity_headers",
    doc: "Whether upstreams receive the identity of the client in `X-Sluicegate-Identifier`, `X-Sluicegate-Tenant` and `X-Sluicegate-Tier`.",
    kind: Boolean,
    absent: Absent::Default("false"),
    examples: &[],
};

static CORS: Field<Custom<Cors>> = Field {
    key: "cors",
    doc: "Scripts of other web origins that may read the responses of the gateway itself, such as 429, 401 and 503.",
    kind: Custom { read: read_cors, form: || Form::Mapping(&CORS_FIELDS) },
    absent: Absent::Nothing("none"),
    examples: &[],
};

/// The keys of `gateway.cors`.
pub(super) static CORS_FIELDS: Mapping = Mapping {
    doc: "Scripts of other web origins that may read the responses of the gateway itself.",
    fields: &[&ALLOW_ORIGINS, &ALLOW_CREDENTIALS],
    constraints: &[],
};

static ALLOW_ORIGINS: Field<Custom<Origins>> = Field {
    key: "allow_origins",
    doc: "Origins as browsers write them, such as `https://app.example.com`, or `[\"*\"]` for all.",
    kind: Custom {
        read: read_origins,
        form: || {
            let shape = Shape::matching("origin", "^(\\*|[a-z]+://[a-z0-9._:\\[\\]-]+)$");
            let item = Form::Text(Shape { max_length: Some(ORIGIN_BYTES_MAX), ..shape });
            Form::List { noun: "origins", item: Box::new(item), min: 1, max: Some(ORIGINS_MAX), is_unique: false }
        },
    },
    absent: Absent::Required(ORIGINS_REMEDY),
    examples: &["[https://app.example.com]"],
};

static ALLOW_CREDENTIALS: Field<Boolean> = Field {
    key: "allow_credentials",
    doc: "Whether scripts may also read responses to requests with cookies.",
    kind: Boolean,
    absent: Absent::Default("false"),
    examples: &[],
};

/// The remedy for a missing or malformed `allow_origins`.
const ORIGINS_REMEDY: &str = "list them, for example [https://app.example.com], or [\"*\"] for all";
/// The most routes: many times the number that one gateway needs.
pub(crate) const ROUTES_MAX: usize = 1_000;
/// The most exempt paths; each is compared with every request.
pub(crate) const EXEMPT_MAX: usize = 64;
/// The most CORS origins.
pub(crate) const ORIGINS_MAX: usize = 256;
/// The longest origin, in bytes: a scheme, a host and a port.
pub(crate) const ORIGIN_BYTES_MAX: usize = 300;

/// The options of the gateway.
#[derive(Debug, Default)]
pub(crate) struct GatewaySettings {
    /// The routes.
    pub(crate) routes: Vec<RouteSettings>,
    /// Paths that are forwarded without a decision.
    pub(crate) exempt: Box<[PathPattern]>,
    /// Whether CORS preflights are decided.
    pub(crate) preflights: Preflights,
    /// The treatment of encoded slashes in paths, also for forward-auth.
    pub(crate) encoded_slashes: EncodedSlashes,
    /// Whether upstreams receive the identity of the client.
    pub(crate) identity_headers: bool,
    /// Web origins with scripts that may read the gateway's own responses.
    pub(crate) cors: Option<Cors>,
}

/// Web origins with scripts that may read the gateway's own responses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cors {
    /// Origins such as `https://app.example.com`.
    pub(crate) origins: Origins,
    /// Whether scripts may also read responses to requests with credentials.
    pub(crate) credentials: bool,
}

/// A set of web origins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origins {
    /// Every origin.
    Any,
    /// Exactly these origins.
    Listed(Box<[Box<str>]>),
}

/// The treatment of CORS preflights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Preflights {
    /// A preflight is decided like any other request.
    #[default]
    Count,
    /// A preflight is forwarded without a decision.
    Exempt,
}

/// Reads the section.
pub(super) fn read(section: &Section<'_>) -> Option<GatewaySettings> {
    let routes = section.read(&ROUTES);
    let exempt = section.read(&EXEMPT);
    let preflights = section.read(&PREFLIGHTS);
    let encoded_slashes = section.read(&ENCODED_SLASHES);
    let identity_headers = section.read(&IDENTITY_HEADERS);
    let cors = section.read_optional(&CORS);
    Some(GatewaySettings {
        routes: routes?,
        exempt: exempt?,
        preflights: preflights?,
        encoded_slashes: encoded_slashes?,
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
        // Requests are compared without regard to case and to a slash at the end.
        let key = (route.host.clone(), route.path.text().trim_end_matches('/').to_ascii_lowercase());
        if let Some(place) = first.get(&key) {
            let message = format!("a second route for this host and path, first at {place}");
            item.report_as(ValueError::new(message, "remove one, or list several upstreams in one route"), None);
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
    let section = reader.mapping(&CORS_FIELDS)?;
    let origins = section.read(&ALLOW_ORIGINS);
    let credentials = section.read(&ALLOW_CREDENTIALS);
    let cors = Cors { origins: origins?, credentials: credentials? };
    if cors.origins == Origins::Any && cors.credentials {
        let remedy = "list the origins, or leave `allow_credentials` out";
        return reader.refuse(ValueError::new("all origins with cookies", remedy));
    }
    Some(cors)
}

fn read_origins(reader: &Reader<'_>) -> Option<Origins> {
    let items = bounded(reader, ORIGINS_REMEDY, "origins", 1, ORIGINS_MAX)?;
    let origins: Box<[Box<str>]> = all(items.iter().map(|item| item.text_as(origin)))?;
    Some(if origins.iter().any(|each| &**each == "*") { Origins::Any } else { Origins::Listed(origins) })
}

/// An origin as browsers write it: a scheme and a host, in lower case, and a port if it is not the usual one.
fn origin(text: &str) -> Result<Box<str>, ValueError> {
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
    Err(ValueError::new("not an origin", remedy))
}

/// The items of a list that has `min` to `max` of them.
fn bounded<'d>(reader: &Reader<'d>, remedy: &str, noun: &str, min: usize, max: usize) -> Option<Vec<Reader<'d>>> {
    let items = reader.list(remedy)?;
    if (min..=max).contains(&items.len()) {
        return Some(items);
    }
    let remedy = if items.is_empty() { remedy.to_owned() } else { format!("use at most {max}") };
    reader.refuse(ValueError::new(format!("{} {noun}", items.len()), remedy))
}

/// All items, or `None` if one failed. Every item is read first, so that all problems are reported.
fn all<T, C: FromIterator<T>>(items: impl Iterator<Item = Option<T>>) -> Option<C> {
    let items: Vec<Option<T>> = items.collect();
    items.into_iter().collect()
}

/// A pattern of paths as it stands in a file.
fn path_pattern() -> Form {
    Form::Text(Shape { max_length: Some(1024), ..Shape::matching("path pattern", "^/[^?\\\\]*$") })
}
