//! Heads that are complete and well-formed, and still not to be trusted.
//!
//! hyper hands on what it could parse. Which host a request is for, and what its target is, it leaves to us: RFC 9112
//! §3.2 wants exactly one `Host`, and a gateway that saw another host than its upstream would let one site's rules
//! decide about another's. Each refusal is a 400 that names the field. How a request is framed was decided before:
//! see [`super::framing`].

use std::net::Ipv6Addr;

use axum::http::header::{self, HeaderMap, HeaderValue};
use axum::http::{Method, Request, StatusCode, Version};

use crate::problem::Problem;

/// Refuses a request that says two things, or nothing, about what it is for.
pub(super) fn check<B>(request: &Request<B>) -> Result<(), Problem> {
    let is_http2 = request.version() >= Version::HTTP_2;
    let host = host(request.headers())?;
    let authority = request.uri().authority().map(|authority| authority.as_str());
    match (host, authority) {
        (None, None) if request.version() != Version::HTTP_10 => {
            return Err(refused("host", "the request names no host; send one `Host` header"));
        }
        (Some(host), Some(authority)) if !host.as_bytes().eq_ignore_ascii_case(authority.as_bytes()) => {
            return Err(refused("host", "the request names two different hosts; send one"));
        }
        // Over HTTP/1.1 a target with a host in it does not replace the header.
        (None, Some(_)) if request.version() == Version::HTTP_11 => {
            return Err(refused("host", "the request has no `Host` header; send one"));
        }
        _ => {}
    }
    if authority.is_some_and(|authority| !is_host(authority.as_bytes())) {
        return Err(refused("host", "the host of the target is not HOST or HOST:PORT"));
    }
    if *request.method() == Method::CONNECT {
        return Err(refused("method", "tunnels are not made here; send the request itself"));
    }
    let target = request.uri().path_and_query().map_or("", |target| target.as_str());
    if !target.is_ascii() {
        return Err(refused("target", "the target of the request has bytes that no URI has; send them as %XX"));
    }
    let path = request.uri().path();
    let is_path = path.starts_with('/') || (path == "*" && *request.method() == Method::OPTIONS);
    if !is_path {
        return Err(refused("target", "the target of the request is no path; begin it with /"));
    }
    if is_http2 { Ok(()) } else { codings(request.headers()) }
}

/// The one `Host` header, if there is any.
fn host(headers: &HeaderMap) -> Result<Option<&HeaderValue>, Problem> {
    let mut hosts = headers.get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) => Ok(None),
        (Some(host), None) if is_host(host.as_bytes()) => Ok(Some(host)),
        (Some(_), None) => Err(refused("host", "the `Host` header is not HOST or HOST:PORT")),
        (Some(_), Some(_)) => Err(refused("host", "the request has more than one `Host` header; send one")),
    }
}

/// `HOST` or `HOST:PORT`, as RFC 9110 §7.2 has it, without the user that a URI may have.
pub(crate) fn is_host(value: &[u8]) -> bool {
    let is_port = |rest: &[u8]| match rest.split_first() {
        None => true,
        Some((colon, port)) => *colon == b':' && port.len() <= 5 && port.iter().all(u8::is_ascii_digit),
    };
    if let Some(literal) = value.strip_prefix(b"[") {
        let Some(end) = literal.iter().position(|byte| *byte == b']') else { return false };
        let is_address = str::from_utf8(&literal[..end]).is_ok_and(|text| text.parse::<Ipv6Addr>().is_ok());
        return is_address && is_port(&literal[end + 1..]);
    }
    let end = value.iter().position(|byte| *byte == b':').unwrap_or(value.len());
    let (name, port) = value.split_at(end);
    let is_name_byte = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=%".contains(byte);
    !name.is_empty() && name.iter().all(is_name_byte) && is_port(port)
}

/// Bodies come in chunks, or with a length; nothing else is undone here, and nobody upstream shall try.
fn codings(headers: &HeaderMap) -> Result<(), Problem> {
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => Ok(()),
        (Some(coding), None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => Ok(()),
        _ => {
            let detail =
                "the only transfer coding taken is `chunked`, once; send the body in that, or with a length";
            Err(refused("transfer-encoding", detail))
        }
    }
}

fn refused(field: &'static str, detail: &'static str) -> Problem {
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
    fn one_host_is_enough_and_two_are_too_many() {
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
    fn a_host_is_a_name_or_an_address_and_perhaps_a_port() {
        for host in
            ["a", "a.example", "127.0.0.1:1", "a:", "a_b", "xn--bcher-kva.example:65535", "[::1]", "[::1]:"]
        {
            assert!(is_host(host.as_bytes()), "{host}");
        }
        for host in
            ["", ":80", "a b", "a/b", "a@b", "a:b", "a:123456", "a:-1", "[::1", "::1", "[a]", "[::1]x", "a?b", "é"]
        {
            assert!(!is_host(host.as_bytes()), "{host}");
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
