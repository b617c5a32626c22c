//! One route: for which requests it is, where they go, and how long that may take.

use sluicegate::path::{EncodedSlashes, Path, PathPattern};
use sluicegate::rules::file::tree::Kind;
use sluicegate::rules::file::{Reader, Section, Wrong, value};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use super::{UpstreamUrl, all, bounded, path};
use crate::http::gateway::host::HostPattern;

/// The keys of a route.
pub(crate) const ROUTE_KEYS: &[&str] = &[
    "host",
    "path",
    "upstream",
    "timeout",
    "connect_timeout",
    "idle_timeout",
    "keep_alive",
    "concurrency",
    "max_body_bytes",
    "http2",
    "preserve_host",
    "strip_prefix",
    "retry",
    "tls",
];
/// The keys of a route's `tls`.
pub(crate) const TLS_KEYS: &[&str] = &["ca_file", "server_name", "certificate_file", "key_file"];
/// The most upstreams of one route; all of them may be tried for one request.
pub(crate) const UPSTREAMS_MAX: usize = 64;
/// The most requests under way to one upstream. Each holds an open file.
pub(crate) const CONCURRENCY_MAX: u64 = 100_000;
/// The largest bound on a request's body: whoever wants a larger one wants none.
pub(crate) const MAX_BODY_BYTES_MAX: u64 = 1 << 50;

/// Waiting for the head of an answer, or for the next piece of a body.
const TIMEOUTS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(86_400);
/// Connecting: beyond a minute nobody waits any more.
const CONNECT_TIMEOUTS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(60);
/// Keeping connections that nobody uses.
const KEEP_ALIVES: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(3_600);

/// What a route says.
#[derive(Clone, Debug)]
pub(crate) struct RouteSettings {
    /// For which hosts; any if absent.
    pub(crate) host: Option<HostPattern>,
    /// For which paths.
    pub(crate) path: PathPattern,
    /// Where requests go: at least one.
    pub(crate) upstreams: Vec<UpstreamUrl>,
    /// How long the head of an answer may take.
    pub(crate) timeout: Duration,
    /// How long connecting may take.
    pub(crate) connect_timeout: Duration,
    /// How long a body may pause.
    pub(crate) idle_timeout: Duration,
    /// How long connections are kept that nobody uses.
    pub(crate) keep_alive: Duration,
    /// How many requests may be under way to each upstream.
    pub(crate) concurrency: usize,
    /// The longest body of a request.
    pub(crate) max_body_bytes: Option<u64>,
    /// Whether HTTP/2 is spoken, or whichever is agreed on.
    pub(crate) http2: Option<bool>,
    /// Whether the upstream is told the host that the client asked for.
    pub(crate) preserve_host: bool,
    /// What is taken off the path.
    pub(crate) strip_prefix: Option<Box<str>>,
    /// Whether a request may be sent again.
    pub(crate) retry: bool,
    /// Encryption.
    pub(crate) tls: TlsSettings,
}

/// What a route says about encryption.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TlsSettings {
    /// The authorities to trust.
    pub(crate) ca_file: Option<PathBuf>,
    /// The name in the upstream's certificate.
    pub(crate) server_name: Option<Box<str>>,
    /// Our certificate and its key.
    pub(crate) client_files: Option<(PathBuf, PathBuf)>,
}

/// Reads a route.
pub(super) fn read(reader: &Reader<'_>) -> Option<RouteSettings> {
    let section = reader.section(ROUTE_KEYS)?;
    let host = section.optional("host", None, |host| host.text_as(host_pattern).map(Some));
    let path = section.required("path", "write which paths it is for, for example /api/**, or /** for all");
    let path = path.and_then(|path| path.text_as(value::path));
    let upstreams = section.required("upstream", "write where requests go, for example http://127.0.0.1:9000");
    let upstreams = upstreams.and_then(read_upstreams);
    let times = Times::read(&section);
    let concurrency =
        section.optional("concurrency", 4_096, |count| usize::try_from(count.integer(1..=CONCURRENCY_MAX)?).ok());
    let max_body_bytes =
        section.optional("max_body_bytes", None, |bytes| bytes.integer(1..=MAX_BODY_BYTES_MAX).map(Some));
    let http2 = section.optional("http2", None, |choice| choice.boolean().map(Some));
    let preserve_host = section.optional("preserve_host", true, Reader::boolean);
    let strip_prefix = section.optional("strip_prefix", None, |prefix| prefix.text_as(prefix_of_paths).map(Some));
    let retry = section.optional("retry", true, Reader::boolean);
    let tls = section.optional("tls", TlsSettings::default(), read_tls);
    let (upstreams, times) = (upstreams?, times?);
    check_tls(&section, &upstreams)?;
    Some(RouteSettings {
        host: host?,
        path: path?,
        upstreams,
        timeout: times.timeout,
        connect_timeout: times.connect_timeout,
        idle_timeout: times.idle_timeout,
        keep_alive: times.keep_alive,
        concurrency: concurrency?,
        max_body_bytes: max_body_bytes?,
        http2: http2?,
        preserve_host: preserve_host?,
        strip_prefix: strip_prefix?,
        retry: retry?,
        tls: tls?,
    })
}

struct Times {
    timeout: Duration,
    connect_timeout: Duration,
    idle_timeout: Duration,
    keep_alive: Duration,
}

impl Times {
    fn read(section: &Section<'_>) -> Option<Self> {
        let time = |key, default, range: RangeInclusive<Duration>, longest: &str| {
            section.optional(key, Duration::from_secs(default), |time| within(time, &range, longest))
        };
        let timeout = time("timeout", 30, TIMEOUTS, "24h");
        let connect_timeout = time("connect_timeout", 5, CONNECT_TIMEOUTS, "60s");
        let idle_timeout = time("idle_timeout", 60, TIMEOUTS, "24h");
        // Shorter than the five seconds of Node and others that close early.
        let keep_alive = time("keep_alive", 4, KEEP_ALIVES, "1h");
        Some(Self {
            timeout: timeout?,
            connect_timeout: connect_timeout?,
            idle_timeout: idle_timeout?,
            keep_alive: keep_alive?,
        })
    }
}

fn within(reader: &Reader<'_>, range: &RangeInclusive<Duration>, longest: &str) -> Option<Duration> {
    let time = Duration::from_micros(reader.duration()?.as_micros());
    if range.contains(&time) {
        return Some(time);
    }
    reader.refuse(Wrong::new("out of range", format!("use 1ms to {longest}")))
}

fn host_pattern(text: &str) -> Result<HostPattern, Wrong> {
    let remedy = "write a name without a port, for example api.example.com, or *.example.com for all below it";
    HostPattern::parse(text).ok_or_else(|| Wrong::new("not a host", remedy))
}

/// One upstream, or a list of them.
fn read_upstreams(reader: &Reader<'_>) -> Option<Vec<UpstreamUrl>> {
    if !reader.is_list() {
        return Some(vec![read_upstream(reader)?]);
    }
    let remedy = "write a URL or a list of them, for example [http://10.0.0.1:9000, http://10.0.0.2:9000]";
    all(bounded(reader, remedy, "upstreams", 1, UPSTREAMS_MAX)?.iter().map(read_upstream))
}

/// A URL may hold a password, although none is taken; of one that does nothing is shown.
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

/// The beginning of a path, without a slash at its end: the rest begins with one. It is kept as routes see paths.
fn prefix_of_paths(text: &str) -> Result<Box<str>, Wrong> {
    let is_path_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~!$&'()+,=:@%".contains(&byte);
    let is_prefix = !text.ends_with('/') && text.bytes().all(is_path_byte);
    let path = Path::parse(text, EncodedSlashes::Refuse).ok().filter(|path| path.sent() == text);
    if let Some(path) = path.filter(|_| is_prefix && text.len() <= value::PATTERN_BYTES_MAX) {
        return Ok(path.matched().into());
    }
    Err(Wrong::new("not the beginning of a path", "write it without a slash at the end, for example /api"))
}

fn read_tls(reader: &Reader<'_>) -> Option<TlsSettings> {
    let section = reader.section(TLS_KEYS)?;
    let server_name = section.optional("server_name", None, |name| name.text_as(server_name).map(Some));
    let ca_file = path(&section, "ca_file");
    let (certificate, key) = (path(&section, "certificate_file"), path(&section, "key_file"));
    let client_files = match (certificate?, key?) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        (Some(_), None) | (None, Some(_)) => {
            let remedy = "write `certificate_file` and `key_file`: a certificate is nothing without its key";
            reader.report_as(Wrong::new("one of two files", remedy), None);
            return None;
        }
    };
    Some(TlsSettings { ca_file: ca_file?, server_name: server_name?, client_files })
}

fn server_name(text: &str) -> Result<Box<str>, Wrong> {
    let is_name_byte = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b':');
    if !text.is_empty()
        && text.len() <= crate::http::gateway::host::HOST_BYTES_MAX
        && text.bytes().all(is_name_byte)
    {
        return Ok(text.into());
    }
    Err(Wrong::new("not a name", "write the name in the upstream's certificate, for example app.internal"))
}

/// Encryption without anything to encrypt is a slip: somebody believes in it.
fn check_tls(section: &Section<'_>, upstreams: &[UpstreamUrl]) -> Option<()> {
    let Some(tls) = section.get("tls") else { return Some(()) };
    if upstreams.iter().all(UpstreamUrl::is_https) {
        return Some(());
    }
    tls.report_as(
        Wrong::new("an upstream without encryption", "write https:// for every upstream of the route"),
        None,
    );
    None
}
