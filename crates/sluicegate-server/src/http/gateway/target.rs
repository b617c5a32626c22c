//! The target of a request: its host and its normalised path.
//!
//! An upstream may use another version of HTTP than the client and parse the request by its own rules. The
//! head check in `net` guarantees one valid host before a request gets here. This module also rejects hosts that
//! only some readers accept, requests without a host (HTTP/1.0) and targets that are not absolute paths.

use axum::http::header::{self, HeaderValue};
use axum::http::request::Parts;
use axum::http::uri::PathAndQuery;
use axum::http::{Method, StatusCode};

use sluicegate::authority::is_strict_authority;
use sluicegate::path::{EncodedSlashes, Path, Reading};

use crate::admit;
use crate::problem::Problem;

/// The methods that a gateway forwards.
const ALLOWED: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");

/// The host and the path of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// Host and port as the client sent them.
    pub(super) host: HeaderValue,
    /// Path and query as the client sent them.
    path_and_query: PathAndQuery,
}

impl Target {
    /// Reads the head of a request.
    pub(super) fn of(head: &Parts) -> Result<Self, Problem> {
        if head.method == Method::TRACE {
            let detail = "TRACE is not for a gateway; `Allow` lists methods that are";
            return Err(Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail).header(header::ALLOW, ALLOWED));
        }
        let host = host(head)?;
        let path_and_query = head.uri.path_and_query().filter(|target| target.path().starts_with('/')).cloned();
        let path_and_query = path_and_query
            .ok_or_else(|| bad("the request's target is not a path; send one that begins with /"))?;
        Ok(Self { host, path_and_query })
    }

    /// The host as text.
    pub(super) fn host(&self) -> Option<&str> {
        self.host.to_str().ok()
    }

    /// The path in its normal form.
    pub(super) fn path(&self, slashes: EncodedSlashes) -> Result<Path<'_>, Problem> {
        admit::path(self.path_and_query.path(), slashes)
    }

    /// The path and query for the upstream: `path`, without `prefix` if it starts with that, and the query unchanged.
    pub(super) fn sent(&self, path: &Path<'_>, prefix: Option<&str>) -> Result<PathAndQuery, Problem> {
        let path = match prefix {
            Some(prefix) => {
                let rest = without(path, prefix);
                check_readings(path, rest, prefix)?;
                rest
            }
            None => path.sent(),
        };
        // `http://host?query` has no slash of its own, and an HTTP/2 upstream would get an empty path.
        if path == self.path_and_query.path() && self.path_and_query.as_str().starts_with('/') {
            return Ok(self.path_and_query.clone());
        }
        let joined = self.path_and_query.query().map(|query| format!("{path}?{query}"));
        // Normal forms contain only bytes that a path may have, so this does not fail.
        PathAndQuery::try_from(joined.as_deref().unwrap_or(path))
            .map_err(|_| bad("the path holds characters that no path may hold"))
    }
}

fn bad(detail: &'static str) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, detail)
}

/// Removes a prefix of whole segments: `/api` is not a prefix of `/apis`. The prefix is compared as routes compare
/// paths, so another spelling of the path does not keep it.
fn without<'p>(path: &'p Path<'_>, prefix: &str) -> &'p str {
    let rest = path.matched().strip_prefix(prefix);
    if !rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) {
        return path.sent();
    }
    // Both forms of a path have the same segments, each of which begins with a slash.
    let mut slashes = path.sent().match_indices('/');
    slashes.nth(prefix.matches('/').count()).map_or("/", |(at, _)| &path.sent()[at..])
}

/// An upstream that treats encoded slashes as separators must reach the path that the rules saw: without `prefix`, a
/// `..` between encoded slashes could lead out of the rest.
fn check_readings(path: &Path<'_>, rest: &str, prefix: &str) -> Result<(), Problem> {
    let Some(separated) = path.separated().first().map(Reading::path) else { return Ok(()) };
    let below = |path| str::strip_prefix(path, prefix).filter(|rest| rest.is_empty() || rest.starts_with('/'));
    let is_same = match below(path.matched()) {
        None => below(separated).is_none(),
        Some(_) => {
            let sent = Path::parse(rest, EncodedSlashes::Keep).ok();
            let read = sent.as_ref().and_then(|sent| sent.readings().take(2).last());
            read.is_some_and(|read| below(separated) == Some(read.trim_end_matches('/')))
        }
    };
    if is_same {
        Ok(())
    } else {
        Err(bad("the path leads elsewhere if %2F is a slash; leave out its dot segments"))
    }
}

/// The host that the target names, or else the `Host` field. The head check has ensured that they do not differ.
fn host(head: &Parts) -> Result<HeaderValue, Problem> {
    let host = match head.uri.authority() {
        Some(authority) => HeaderValue::from_str(authority.as_str()).ok(),
        None => head.headers.get(header::HOST).cloned(),
    };
    let host = host.ok_or_else(|| bad("the request names no host; send one `Host` header"))?;
    if host.to_str().is_ok_and(is_strict_authority) {
        return Ok(host);
    }
    Err(bad("the `Host` header is not a valid host; send a name or address, optionally with a port"))
}

#[cfg(test)]
mod tests {
    use axum::http::{Request, Version};
    use axum::response::IntoResponse as _;

    use super::*;

    fn target(version: Version, uri: &str, hosts: &[&str]) -> Result<Target, StatusCode> {
        let mut request = Request::builder().version(version).uri(uri);
        for host in hosts {
            request = request.header("host", *host);
        }
        let (head, ()) = request.body(()).expect("a request").into_parts();
        Target::of(&head).map_err(|problem| problem.into_response().status())
    }

    fn host(version: Version, uri: &str, hosts: &[&str]) -> Result<String, u16> {
        let target = target(version, uri, hosts).map_err(|status| status.as_u16())?;
        Ok(target.host().expect("a host in ASCII").to_owned())
    }

    #[test]
    fn the_host_is_that_of_the_target_or_of_the_host_field() {
        let named = |text: &str| Ok(text.to_owned());
        assert_eq!(host(Version::HTTP_11, "/a", &["api.example.com:8080"]), named("api.example.com:8080"));
        assert_eq!(host(Version::HTTP_11, "/a", &["[::1]:80"]), named("[::1]:80"));
        assert_eq!(host(Version::HTTP_10, "/a", &["t"]), named("t"));
        assert_eq!(host(Version::HTTP_11, "http://real/a", &["real"]), named("real"));
        assert_eq!(host(Version::HTTP_2, "https://real/a", &[]), named("real"));
    }

    #[test]
    fn requests_without_a_host_that_all_readers_accept_are_rejected() {
        assert_eq!(host(Version::HTTP_10, "/a", &[]), Err(400), "rules and routes of a host would not see it");
        for name in ["a:", "a:65536", "a$b", "a%41"] {
            assert_eq!(host(Version::HTTP_11, "/a", &[name]), Err(400), "{name}");
        }
        assert_eq!(host(Version::HTTP_11, "/a", &[&"a".repeat(260)]), Err(400));
    }

    #[test]
    fn the_path_has_one_form_and_the_query_is_untouched() {
        for (uri, sent, matched) in [
            ("/a?b=//%2f&c", "/a?b=//%2f&c", "/a"),
            ("//a/./B/../C;x/?%2e=..", "/a/C;x/?%2e=..", "/a/c"),
            ("/%61?", "/a?", "/a"),
            ("http://t?x=1", "/?x=1", "/"),
            ("http://t", "/", "/"),
        ] {
            let target = target(Version::HTTP_11, uri, &["t"]).expect("a target");
            let path = target.path(EncodedSlashes::Keep).expect("a path");
            assert_eq!(
                (target.sent(&path, None).expect("valid").as_str(), path.matched()),
                (sent, matched),
                "{uri}"
            );
        }
        let path = |uri, slashes| {
            let target = target(Version::HTTP_11, uri, &["t"]).expect("a target");
            target.path(slashes).map(|path| path.sent().to_owned()).map_err(|problem| problem.status().as_u16())
        };
        for uri in ["/a%5cb", "/a%00", "/a%", "/..;/a"] {
            assert_eq!(path(uri, EncodedSlashes::Keep), Err(400), "{uri}");
        }
        assert_eq!(path("/a%2fb", EncodedSlashes::Keep), Ok("/a%2fb".to_owned()));
        assert_eq!(path("/a%2fb", EncodedSlashes::Refuse), Err(400));
    }

    #[test]
    fn strip_prefix_removes_whole_segments() {
        for (uri, sent) in [
            ("/api/x?y", "/x?y"),
            ("/api", "/"),
            ("/api?y", "/?y"),
            ("/api/", "/"),
            ("/apis", "/apis"),
            ("/x/api", "/x/api"),
            ("/API/X?y", "/X?y"),
            ("/api;v=1/x", "/x"),
            ("/%61pi./x/", "/x/"),
            ("/API", "/"),
        ] {
            let target = target(Version::HTTP_11, uri, &["t"]).expect("a target");
            let path = target.path(EncodedSlashes::Keep).expect("a path");
            assert_eq!(target.sent(&path, Some("/api")).expect("valid").as_str(), sent, "{uri}");
        }
    }

    /// The upstream must not read a path below the prefix that the rules did not see.
    #[test]
    fn both_readings_of_a_path_lose_the_same_beginning() {
        for (uri, sent) in [
            ("/api/a%2Fb", Some("/a%2Fb")),
            ("/api/x%2F..%2Fa", Some("/x%2F..%2Fa")),
            ("/api/a%2F..", Some("/a%2F..")),
            ("/other/a%2Fb", Some("/other/a%2Fb")),
            // The upstream would read `/secret`, which rules know as `/api/secret`; but they saw `/secret`.
            ("/api/x%2F..%2F..%2Fsecret", None),
            ("/api/x%2F..%2F..%2Fapi%2Fsecret", None),
            ("/api%2Fa", None),
            ("/other/..%2Fapi/a", None),
        ] {
            let target = target(Version::HTTP_11, uri, &["t"]).expect("a target");
            let path = target.path(EncodedSlashes::Keep).expect("a path");
            let got = target.sent(&path, Some("/api")).map(|sent| sent.as_str().to_owned());
            assert_eq!(got.ok().as_deref(), sent, "{uri}");
        }
    }

    #[test]
    fn targets_without_a_path_and_trace_are_rejected() {
        assert_eq!(target(Version::HTTP_11, "*", &["t"]), Err(StatusCode::BAD_REQUEST));
        let request = Request::builder().method(Method::TRACE).uri("/a").header("host", "t");
        let (head, ()) = request.body(()).expect("a request").into_parts();
        let response = Target::of(&head).unwrap_err().into_response();
        assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
        assert!(response.headers().contains_key("allow"));
    }
}
