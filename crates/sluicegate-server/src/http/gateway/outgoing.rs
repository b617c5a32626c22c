//! A forwarded request, in the form of the upstream's protocol.

use axum::body::{Body, HttpBody as _};
use axum::http::header::{self, HeaderMap, HeaderValue};
use axum::http::uri::{Authority, PathAndQuery, Scheme};
use axum::http::{Method, Request, Uri, Version};

use super::upload::Pace;
use super::upstream::Upstream;
use crate::body::BodyWatch;

/// A forwarded request.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) method: Method,
    /// The head without hop-by-hop fields, with all fields of the gateway except the host.
    pub(super) headers: HeaderMap,
    pub(super) path_and_query: PathAndQuery,
    /// The host to send; `None` for the upstream's own.
    pub(super) host: Option<HeaderValue>,
    /// True if the client accepts trailers.
    pub(super) wants_trailers: bool,
    pub(super) body: Body,
    /// The pace of the body.
    pub(super) pace: Pace,
    /// The progress of the body; `None` without a body.
    pub(super) watch: Option<BodyWatch>,
}

impl Outgoing {
    /// A copy, if a retry is harmless: the method is safe (RFC 9110 §9.2.1) and there is no body.
    pub(super) fn copy(&self) -> Option<Self> {
        let is_safe = matches!(self.method, Method::GET | Method::HEAD | Method::OPTIONS);
        (is_safe && self.watch.is_none()).then(|| Self {
            method: self.method.clone(),
            headers: self.headers.clone(),
            path_and_query: self.path_and_query.clone(),
            host: self.host.clone(),
            wants_trailers: self.wants_trailers,
            body: Body::empty(),
            pace: Pace::Steady,
            watch: None,
        })
    }

    /// The request for HTTP/1.1.
    pub(super) fn into_http1(mut self, upstream: &Upstream) -> Request<Body> {
        join_cookies(&mut self.headers);
        if self.watch.is_some() && !takes_body(&self.method) {
            // An upstream that does not read such a body would parse it as the next request on the connection.
            self.headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        if self.frame_length() == Length::Unknown {
            // hyper would treat a `GET` as a request without a body and drop it.
            self.headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        let host = self.host.take().unwrap_or_else(|| upstream.authority.clone());
        self.headers.insert(header::HOST, host);
        let uri = Uri::from(self.path_and_query);
        request(self.method, uri, Version::HTTP_11, self.headers, self.body)
    }

    /// The request for HTTP/1.1 with an upgrade to WebSocket.
    pub(super) fn into_upgrade(self, upstream: &Upstream) -> Request<Body> {
        let mut request = self.into_http1(upstream);
        super::hop_headers::set_websocket(request.headers_mut());
        request
    }

    /// The request for HTTP/2. The host was validated, so there is one.
    pub(super) fn into_http2(mut self, upstream: &Upstream) -> Option<Request<Body>> {
        self.headers.remove(header::HOST);
        self.frame_length();
        if self.wants_trailers {
            self.headers.insert(header::TE, HeaderValue::from_static("trailers"));
        }
        let host = self.host.take().unwrap_or_else(|| upstream.authority.clone());
        let authority = Authority::try_from(host.as_bytes()).ok()?;
        let scheme = if upstream.scheme == "https" { Scheme::HTTPS } else { Scheme::HTTP };
        let uri =
            Uri::builder().scheme(scheme).authority(authority).path_and_query(self.path_and_query).build().ok()?;
        Some(request(self.method, uri, Version::HTTP_2, self.headers, self.body))
    }

    /// Sets the length of the body, in place of all length fields of the client.
    fn frame_length(&mut self) -> Length {
        let was_declared = self.headers.remove(header::CONTENT_LENGTH).is_some();
        match self.body.size_hint().exact() {
            // Most requests have no body and need no length.
            Some(0) if !was_declared => Length::Known,
            Some(length) => {
                self.headers.insert(header::CONTENT_LENGTH, length.into());
                Length::Known
            }
            None => Length::Unknown,
        }
    }
}

/// True if the length of a body is known before it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Length {
    Known,
    Unknown,
}

/// True if every server reads the body of such a request.
fn takes_body(method: &Method) -> bool {
    matches!(*method, Method::POST | Method::PUT | Method::PATCH)
}

fn request(method: Method, uri: Uri, version: Version, headers: HeaderMap, body: Body) -> Request<Body> {
    let mut request = Request::new(body);
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    *request.version_mut() = version;
    *request.headers_mut() = headers;
    request
}

/// HTTP/2 may send each cookie in its own field; HTTP/1.1 requires one field (RFC 9113 §8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let mut cookies = headers.get_all(header::COOKIE).iter();
    if cookies.by_ref().nth(1).is_none() {
        return;
    }
    let lines: Vec<_> = headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    // The parts are valid values, and so is their concatenation.
    if let Ok(joined) = HeaderValue::from_bytes(&lines.join(&b"; "[..])) {
        headers.insert(header::COOKIE, joined);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_become_one_field() {
        let mut headers = HeaderMap::new();
        for cookie in ["a=1", "b=2", "c=3"] {
            headers.append(header::COOKIE, HeaderValue::from_static(cookie));
        }
        join_cookies(&mut headers);
        assert_eq!(headers.get_all(header::COOKIE).iter().collect::<Vec<_>>(), ["a=1; b=2; c=3"]);
    }

    #[test]
    fn only_safe_requests_without_a_body_are_retried() {
        let outgoing = |method: Method, watch| Outgoing {
            method,
            headers: HeaderMap::new(),
            path_and_query: PathAndQuery::from_static("/"),
            host: None,
            wants_trailers: false,
            body: Body::empty(),
            pace: Pace::Steady,
            watch,
        };
        for method in [Method::GET, Method::HEAD, Method::OPTIONS] {
            assert!(outgoing(method.clone(), None).copy().is_some(), "{method}");
            assert!(outgoing(method.clone(), Some(BodyWatch::default())).copy().is_none(), "{method}");
        }
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            assert!(outgoing(method.clone(), None).copy().is_none(), "{method}");
        }
    }
}
