//! A route of the gateway: the requests it matches, their upstreams, timeouts and bounds.

use sluicegate::authority::{HOST_BYTES_MAX, HostPattern};
use sluicegate::path::{EncodedSlashes, Path, PathPattern};
use sluicegate::rules::file::field::{
    Absent, Boolean, Constraint, Custom, Field, Form, Integer, Mapping, Nested, Shape, Text,
};
use sluicegate::rules::file::rule::HOST_PATTERN;
use sluicegate::rules::file::tree::Kind;
use sluicegate::rules::file::{self, Reader, Section, ValueError, value};
use std::path::PathBuf;
use std::time::Duration;

use super::super::PATH;
use super::{UpstreamUrl, all, bounded, path_pattern};

/// The keys of a route.
pub(in crate::config) static ROUTE: Mapping = Mapping {
    doc: "A route: which requests it matches, and where they go.",
    fields: &[
        &HOST,
        &PATH_PATTERN,
        &UPSTREAM,
        &TIMEOUT,
        &CONNECT_TIMEOUT,
        &IDLE_TIMEOUT,
        &KEEP_ALIVE,
        &CONCURRENCY,
        &MAX_BODY_BYTES,
        &MIN_BODY_RATE,
        &HTTP2,
        &PRESERVE_HOST,
        &STRIP_PREFIX,
        &RETRY,
        &TLS,
    ],
    constraints: &[],
};

static HOST: Field<Text<HostPattern>> = Field {
    key: "host",
    doc: "The host of the requests, on any port: `api.example.com` or `*.example.com`.",
    kind: Text {
        parse: host_pattern,
        form: || {
            let shape = Shape::matching("pattern", HOST_PATTERN);
            Form::Text(Shape { max_length: Some(HOST_BYTES_MAX), ..shape })
        },
    },
    absent: Absent::Nothing("any"),
    examples: &[],
};

static PATH_PATTERN: Field<Text<PathPattern>> = Field {
    key: "path",
    doc: "The paths of the requests: `*` stands for any run of characters within a segment, `**` for any run of segments.",
    kind: Text { parse: value::path, form: path_pattern },
    absent: Absent::Required("write which paths it is for, for example /api/**, or /** for all"),
    examples: &["/api/**"],
};

static UPSTREAM: Field<Custom<Vec<UpstreamUrl>>> = Field {
    key: "upstream",
    doc: "The servers that receive the requests. Several take turns; one that refuses connections is left out for 5 s.",
    kind: Custom {
        read: read_upstreams,
        form: || {
            let url = || Form::Text(Shape::matching("`http://HOST[:PORT]` or `https://…`", "^https?://[^/@?#]+$"));
            let item = Box::new(url());
            let list = Form::List { noun: "URLs", item, min: 1, max: Some(UPSTREAMS_MAX), is_unique: false };
            Form::Any(vec![url(), list])
        },
    },
    absent: Absent::Required("write where requests go, for example http://127.0.0.1:9000"),
    examples: &["http://127.0.0.1:9000"],
};

static TIMEOUT: Field<file::field::Duration> = Field {
    key: "timeout",
    doc: "The longest time from the end of the request to the head of the response, else 504.",
    kind: within("24h"),
    absent: Absent::Default("30s"),
    examples: &["30s"],
};

static CONNECT_TIMEOUT: Field<file::field::Duration> = Field {
    key: "connect_timeout",
    doc: "The longest time for a connection attempt, including TLS. After it the next upstream is tried, else 502.",
    kind: within("60s"),
    absent: Absent::Default("5s"),
    examples: &["5s"],
};

static IDLE_TIMEOUT: Field<file::field::Duration> = Field {
    key: "idle_timeout",
    doc: "The longest pause in a response body or a WebSocket before the gateway closes the connection.",
    kind: within("24h"),
    absent: Absent::Default("60s"),
    examples: &["60s"],
};

// Shorter than the five seconds of Node and other servers that close idle connections early.
static KEEP_ALIVE: Field<file::field::Duration> = Field {
    key: "keep_alive",
    doc: "How long the gateway keeps an idle connection. Choose a shorter time than the upstream does.",
    kind: within("1h"),
    absent: Absent::Default("4s"),
    examples: &["4s"],
};

static CONCURRENCY: Field<Integer<usize>> = Field {
    key: "concurrency",
    doc: "The most requests in flight to each upstream. Further requests wait for `connect_timeout`, then get 503.",
    kind: Integer { min: 1, max: CONCURRENCY_MAX, convert: |count| usize::try_from(count).ok() },
    absent: Absent::Default("4096"),
    examples: &["4096"],
};

static MAX_BODY_BYTES: Field<Integer<u64>> = Field {
    key: "max_body_bytes",
    doc: "The longest request body in bytes, else 413.",
    kind: Integer { min: 1, max: MAX_BODY_BYTES_MAX, convert: Some },
    absent: Absent::Nothing("no bound"),
    examples: &["10485760"],
};

static MIN_BODY_RATE: Field<Integer<u64>> = Field {
    key: "min_body_rate",
    doc: "The bytes per second at which a client must send a request body until the response begins, [with 10 s of allowance](gateway.md#slow-uploads), else 408; 0 for none.",
    kind: Integer { min: 0, max: MIN_BODY_RATE_MAX, convert: Some },
    absent: Absent::Default("240"),
    examples: &["240"],
};

static HTTP2: Field<Boolean> = Field {
    key: "http2",
    doc: "Whether the gateway uses HTTP/2 to the upstream. With `http` the upstream must accept it without negotiation.",
    kind: Boolean,
    absent: Absent::Nothing("`false` with `http`, negotiated with `https`"),
    examples: &[],
};

static PRESERVE_HOST: Field<Boolean> = Field {
    key: "preserve_host",
    doc: "Whether the upstream receives the `Host` of the client, or its own.",
    kind: Boolean,
    absent: Absent::Default("true"),
    examples: &[],
};

static STRIP_PREFIX: Field<Text<Box<str>>> = Field {
    key: "strip_prefix",
    doc: "The beginning of the path that the gateway removes, in whatever spelling the route matched it.",
    kind: Text {
        parse: prefix_of_paths,
        form: || {
            let pattern = "^/([A-Za-z0-9/._~!$&'()+,=:@%-]*[A-Za-z0-9._~!$&'()+,=:@%-])$";
            let shape = Shape::matching("beginning of a path, such as `/api`", pattern);
            Form::Text(Shape { max_length: Some(value::PATTERN_BYTES_MAX), ..shape })
        },
    },
    absent: Absent::Nothing("none"),
    examples: &[],
};

static RETRY: Field<Boolean> = Field {
    key: "retry",
    doc: "Whether `GET`, `HEAD` and `OPTIONS` without a body are sent once more if a kept connection fails before it has responded.",
    kind: Boolean,
    absent: Absent::Default("true"),
    examples: &[],
};

static TLS: Field<Nested<TlsSettings>> = Field {
    key: "tls",
    doc: "TLS towards the upstreams, for `https`.",
    kind: Nested { mapping: &UPSTREAM_TLS, read: read_tls },
    absent: Absent::Nothing("the system's authorities"),
    examples: &[],
};

/// The keys of a route's `tls`.
pub(in crate::config) static UPSTREAM_TLS: Mapping = Mapping {
    doc: "TLS towards the upstreams.",
    fields: &[&CA_FILE, &SERVER_NAME, &CERTIFICATE_FILE, &KEY_FILE],
    constraints: &[
        Constraint::Needs("certificate_file", "key_file"),
        Constraint::Needs("key_file", "certificate_file"),
    ],
};

static CA_FILE: Field<Custom<PathBuf>> = Field {
    key: "ca_file",
    doc: "Certificate authorities that the gateway trusts instead of the system's, in PEM.",
    kind: PATH,
    absent: Absent::Nothing("the system's"),
    examples: &["ca.pem"],
};

static SERVER_NAME: Field<Text<Box<str>>> = Field {
    key: "server_name",
    doc: "The name in the certificate of the upstream.",
    kind: Text {
        parse: server_name,
        form: || {
            let pattern = format!("^[A-Za-z0-9._:-]{{1,{HOST_BYTES_MAX}}}$");
            Form::Text(Shape::matching("name", pattern))
        },
    },
    absent: Absent::Nothing("the upstream's host"),
    examples: &[],
};

static CERTIFICATE_FILE: Field<Custom<PathBuf>> = Field {
    key: "certificate_file",
    doc: "The client certificate chain, in PEM.",
    kind: PATH,
    absent: Absent::Nothing("none"),
    examples: &["client.pem"],
};

static KEY_FILE: Field<Custom<PathBuf>> = Field {
    key: "key_file",
    doc: "The private key of the client certificate, in PEM.",
    kind: PATH,
    absent: Absent::Nothing("none"),
    examples: &["client-key.pem"],
};

/// The most upstreams of one route; one request may try all of them.
const UPSTREAMS_MAX: usize = 64;
/// The most requests in flight to one upstream. Each uses a file descriptor.
const CONCURRENCY_MAX: u64 = 100_000;
/// The largest bound of a request body. A larger one would have no effect.
const MAX_BODY_BYTES_MAX: u64 = 1 << 50;

/// The largest minimum rate of a request body, in bytes per second. Real connections are slower at times.
const MIN_BODY_RATE_MAX: u64 = 1 << 30;
/// A duration of up to `max`.
const fn within(max: &'static str) -> file::field::Duration {
    file::field::Duration { min: "1ms", max, remedy: |min, max| format!("use {min} to {max}") }
}

/// The options of a route.
#[derive(Clone, Debug)]
pub(crate) struct RouteSettings {
    /// The hosts that it matches; `None` matches all.
    pub(crate) host: Option<HostPattern>,
    /// The paths that it matches.
    pub(crate) path: PathPattern,
    /// The upstreams: at least one.
    pub(crate) upstreams: Vec<UpstreamUrl>,
    /// The longest time until the head of the response.
    pub(crate) timeout: Duration,
    /// The longest time for a connection attempt.
    pub(crate) connect_timeout: Duration,
    /// The longest pause in a response body.
    pub(crate) idle_timeout: Duration,
    /// How long idle connections are kept.
    pub(crate) keep_alive: Duration,
    /// The most requests in flight to each upstream.
    pub(crate) concurrency: usize,
    /// The longest request body in bytes.
    pub(crate) max_body_bytes: Option<u64>,
    /// The least rate of a request body in bytes per second; 0 for none.
    pub(crate) min_body_rate: u64,
    /// Whether to use HTTP/2; `None` negotiates it.
    pub(crate) http2: Option<bool>,
    /// Whether the upstream receives the `Host` of the client.
    pub(crate) preserve_host: bool,
    /// The prefix that is removed from the path.
    pub(crate) strip_prefix: Option<Box<str>>,
    /// Whether a safe request is sent again after a failed kept connection.
    pub(crate) retry: bool,
    /// TLS towards the upstreams.
    pub(crate) tls: TlsSettings,
}

/// TLS towards the upstreams of a route.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TlsSettings {
    /// The certificate authorities; `None` means those of the system.
    pub(crate) ca_file: Option<PathBuf>,
    /// The name in the upstream's certificate.
    pub(crate) server_name: Option<Box<str>>,
    /// The client certificate and its key.
    pub(crate) client_files: Option<(PathBuf, PathBuf)>,
}

/// Reads a route.
pub(super) fn read(reader: &Reader<'_>) -> Option<RouteSettings> {
    let section = reader.mapping(&ROUTE)?;
    let host = section.read_optional(&HOST);
    let path = section.read(&PATH_PATTERN);
    let upstreams = section.read(&UPSTREAM);
    let (timeout, connect_timeout) = (section.read(&TIMEOUT), section.read(&CONNECT_TIMEOUT));
    let (idle_timeout, keep_alive) = (section.read(&IDLE_TIMEOUT), section.read(&KEEP_ALIVE));
    let concurrency = section.read(&CONCURRENCY);
    let max_body_bytes = section.read_optional(&MAX_BODY_BYTES);
    let min_body_rate = section.read(&MIN_BODY_RATE);
    let http2 = section.read_optional(&HTTP2);
    let preserve_host = section.read(&PRESERVE_HOST);
    let strip_prefix = section.read_optional(&STRIP_PREFIX);
    let retry = section.read(&RETRY);
    let tls = section.read_optional(&TLS);
    let upstreams = upstreams?;
    check_tls(&section, &upstreams)?;
    Some(RouteSettings {
        host: host?,
        path: path?,
        upstreams,
        timeout: timeout?,
        connect_timeout: connect_timeout?,
        idle_timeout: idle_timeout?,
        keep_alive: keep_alive?,
        concurrency: concurrency?,
        max_body_bytes: max_body_bytes?,
        min_body_rate: min_body_rate?,
        http2: http2?,
        preserve_host: preserve_host?,
        strip_prefix: strip_prefix?,
        retry: retry?,
        tls: tls?.unwrap_or_default(),
    })
}

fn host_pattern(text: &str) -> Result<HostPattern, ValueError> {
    let remedy = "write a name without a port, for example api.example.com, or *.example.com for all below it";
    HostPattern::parse(text).ok_or_else(|| ValueError::new("not a host", remedy))
}

/// One upstream, or a list of them.
fn read_upstreams(reader: &Reader<'_>) -> Option<Vec<UpstreamUrl>> {
    if !reader.is_list() {
        return Some(vec![read_upstream(reader)?]);
    }
    let remedy = "write a URL or a list of them, for example [http://10.0.0.1:9000, http://10.0.0.2:9000]";
    all(bounded(reader, remedy, "upstreams", 1, UPSTREAMS_MAX)?.iter().map(read_upstream))
}

/// A URL with a user is invalid, but it may contain a password, so the message does not show it.
fn read_upstream(reader: &Reader<'_>) -> Option<UpstreamUrl> {
    let wrong = match UpstreamUrl::parse(&reader.text()?) {
        Ok(url) => return Some(url),
        Err(wrong) => wrong,
    };
    match &reader.node().kind {
        Kind::Scalar(scalar) if scalar.text.contains('@') => reader.report_as(wrong, None),
        _ => reader.report(wrong),
    }
    None
}

/// Reads a path prefix without a slash at its end, and returns it in the normal form of paths.
fn prefix_of_paths(text: &str) -> Result<Box<str>, ValueError> {
    let is_path_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~!$&'()+,=:@%".contains(&byte);
    let is_prefix = !text.ends_with('/') && text.bytes().all(is_path_byte);
    let path = Path::parse(text, EncodedSlashes::Refuse).ok().filter(|path| path.sent() == text);
    if let Some(path) = path.filter(|_| is_prefix && text.len() <= value::PATTERN_BYTES_MAX) {
        return Ok(path.matched().into());
    }
    Err(ValueError::new("not the beginning of a path", "write it without a slash at the end, for example /api"))
}

fn read_tls(section: &Section<'_>) -> Option<TlsSettings> {
    let server_name = section.read_optional(&SERVER_NAME);
    let ca_file = section.read_optional(&CA_FILE);
    let (certificate, key) = (section.read_optional(&CERTIFICATE_FILE), section.read_optional(&KEY_FILE));
    let client_files = match (certificate?, key?) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        (Some(_), None) | (None, Some(_)) => {
            let remedy = "write `certificate_file` and `key_file`: a certificate is nothing without its key";
            section.reader().report_as(ValueError::new("one of two files", remedy), None);
            return None;
        }
    };
    Some(TlsSettings { ca_file: ca_file?, server_name: server_name?, client_files })
}

fn server_name(text: &str) -> Result<Box<str>, ValueError> {
    let is_name_byte = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b':');
    if !text.is_empty() && text.len() <= HOST_BYTES_MAX && text.bytes().all(is_name_byte) {
        return Ok(text.into());
    }
    Err(ValueError::new("not a name", "write the name in the upstream's certificate, for example app.internal"))
}

/// Rejects `tls` with an `http://` upstream, where it would have no effect.
fn check_tls(section: &Section<'_>, upstreams: &[UpstreamUrl]) -> Option<()> {
    let Some(tls) = section.get("tls") else { return Some(()) };
    if upstreams.iter().all(UpstreamUrl::is_https) {
        return Some(());
    }
    tls.report_as(
        ValueError::new("an upstream without encryption", "write https:// for every upstream of the route"),
        None,
    );
    None
}
