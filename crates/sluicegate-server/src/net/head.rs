//! Checks of well-formed request heads: the host, the target, the transfer coding and HTTP/2 header values.
//!
//! hyper passes on every head that it can parse and leaves the host and the target to the server. RFC 9112 §3.2 requires
//! exactly one `Host`. A gateway that saw another host than its upstream would apply one site's rules to another site. Each
//! error is a 400 that names the field. Framing is checked earlier, in [`super::http1_framing`].

use axum::http::header::{self, HeaderMap, HeaderValue};
use axum::http::{Method, Request, StatusCode, Version};

use sluicegate::authority::is_authority;

use crate::problem::Problem;

/// Rejects a request with an ambiguous or missing host or target.
pub(super) fn check<B>(request: &Request<B>) -> Result<(), Problem> {
    let is_http2 = request.version() >= Version::HTTP_2;
    let host = host(request.headers())?;
    let authority = request.uri().authority().map(|authority| authority.as_str());
    match (host, authority) {
        (None, None) if request.version() != Version::HTTP_10 => {
            return Err(rejected("host", "the request names no host; send one `Host` header"));
        }
        (Some(host), Some(authority)) if !host.as_bytes().eq_ignore_ascii_case(authority.as_bytes()) => {
            return Err(rejected("host", "the request names two different hosts; send one"));
        }
        // On HTTP/1.1 an absolute target does not replace the header.
        (None, Some(_)) if request.version() == Version::HTTP_11 => {
            return Err(rejected("host", "the request has no `Host` header; send one"));
        }
        _ => {}
    }
    if authority.is_some_and(|authority| !is_authority(authority.as_bytes())) {
        return Err(rejected("host", "the host of the target is not HOST or HOST:PORT"));
    }
    if *request.method() == Method::CONNECT {
        return Err(rejected("method", "CONNECT is not supported; send the request itself"));
    }
    let target = request.uri().path_and_query().map_or("", |target| target.as_str());
    if !target.is_ascii() {
        return Err(rejected(
            "target",
            "the request target has bytes that a URI cannot contain; send them as %XX",
        ));
    }
    let path = request.uri().path();
    let is_path = path.starts_with('/') || (path == "*" && *request.method() == Method::OPTIONS);
    if !is_path {
        return Err(rejected("target", "the request target is not a path; begin it with /"));
    }
    if is_http2 { values(request.headers()) } else { codings(request.headers()) }
}

/// Rejects values that begin or end with a blank (RFC 9113 §8.2.1). On HTTP/1 such blanks are not part of the value, so a
/// proxy that forwards the value over HTTP/1 would forward another value than the one checked here.
fn values(headers: &HeaderMap) -> Result<(), Problem> {
    let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    let is_bad = |value: &HeaderValue| is_blank(value.as_bytes().first()) || is_blank(value.as_bytes().last());
    if headers.values().any(is_bad) {
        return Err(rejected("headers", "a header value begins or ends with a blank; send it without"));
    }
    Ok(())
}

/// The one `Host` header, if there is any.
fn host(headers: &HeaderMap) -> Result<Option<&HeaderValue>, Problem> {
    let mut hosts = headers.get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) => Ok(None),
        (Some(host), None) if is_authority(host.as_bytes()) => Ok(Some(host)),
        (Some(_), None) => Err(rejected("host", "the `Host` header is not HOST or HOST:PORT")),
        (Some(_), Some(_)) => Err(rejected("host", "the request has more than one `Host` header; send one")),
    }
}

/// Accepts only `chunked`, once. The server decodes no other transfer coding and forwards none.
fn codings(headers: &HeaderMap) -> Result<(), Problem> {
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => Ok(()),
        (Some(coding), None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => Ok(()),
        _ => {
            let detail =
                "the only transfer coding taken is `chunked`, once; send the body in that, or with a length";
            Err(rejected("transfer-encoding", detail))
        }
    }
}

fn rejected(field: &'static str, detail: &'static str) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, detail).field(field)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(version: Version, method: &str, target: &str, headers: &[(&str, &str)]) -> Result<(), Problem> {
        let mut request = Request::builder().version(version).method(method).uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        check(&request.body(()).expect("a valid request"))
    }

    #[test]
    fn exactly_one_host_is_accepted() {
        for (version, target, hosts, is_good) in [
            (Version::HTTP_11, "/", &["t"][..], true),
            (Version::HTTP_11, "/", &["t:80"], true),
            (Version::HTTP_11, "/", &["[::1]:8080"], true),
            (Version::HTTP_11, "/", &[], false),
            (Version::HTTP_11, "/", &["t", "t"], false),
            (Version::HTTP_11, "/", &[""], false),
            (Version::HTTP_11, "http://t/", &["t"], true),
            (Version::HTTP_11, "http://t/", &["T"], true),
            (Version::HTTP_11, "http://t/", &["u"], false),
            (Version::HTTP_11, "http://t/", &[], false),
            (Version::HTTP_11, "http://u@t/", &["t"], false),
            (Version::HTTP_10, "/", &[], true),
            (Version::HTTP_10, "/", &["t", "u"], false),
            (Version::HTTP_2, "http://t/", &[], true),
            (Version::HTTP_2, "http://t/", &["t"], true),
            (Version::HTTP_2, "http://t/", &["u"], false),
            (Version::HTTP_2, "http://u@t/", &[], false),
            (Version::HTTP_2, "/", &[], false),
            (Version::HTTP_2, "/", &["t"], true),
        ] {
            let headers: Vec<_> = hosts.iter().map(|host| ("host", *host)).collect();
            let checked = ask(version, "GET", target, &headers);
            assert_eq!(checked.is_ok(), is_good, "{version:?} {target} {hosts:?}: {checked:?}");
        }
    }

    #[test]
    fn http2_values_with_blanks_at_their_ends_are_rejected() {
        for (value, is_good) in
            [("a b", true), ("", true), (" a", false), ("a ", false), ("\ta", false), (" ", false)]
        {
            let headers = [("host", "t"), ("authorization", value)];
            assert_eq!(ask(Version::HTTP_2, "GET", "/", &headers).is_ok(), is_good, "{value:?}");
            assert!(ask(Version::HTTP_11, "GET", "/", &headers).is_ok(), "{value:?}: the parser has trimmed it");
        }
    }

    #[test]
    fn a_target_is_a_path() {
        let host = [("host", "t:1")];
        for (method, target, is_good) in [
            ("GET", "/", true),
            ("GET", "/?a", true),
            ("OPTIONS", "*", true),
            ("GET", "*", false),
            ("CONNECT", "t:1", false),
        ] {
            let checked = ask(Version::HTTP_11, method, target, &host);
            assert_eq!(checked.is_ok(), is_good, "{method} {target}: {checked:?}");
        }
    }

    #[test]
    fn chunked_once_is_the_only_coding() {
        for (codings, is_good) in [
            (&["chunked"][..], true),
            (&["Chunked"], true),
            (&["chunked, chunked"], false),
            (&["gzip, chunked"], false),
            (&["chunked", "chunked"], false),
            (&["identity", "chunked"], false),
            (&[", chunked"], false),
        ] {
            let mut headers = vec![("host", "t")];
            headers.extend(codings.iter().map(|coding| ("transfer-encoding", *coding)));
            assert_eq!(ask(Version::HTTP_11, "POST", "/", &headers).is_ok(), is_good, "{codings:?}");
        }
    }
}
