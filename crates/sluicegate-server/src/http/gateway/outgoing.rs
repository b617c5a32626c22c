//! A request as it is sent on, in the form that the upstream's protocol wants.

use axum::body::{Body, HttpBody as _};
use axum::http::header::{self, HeaderMap, HeaderValue};
use axum::http::uri::{Authority, PathAndQuery, Scheme};
use axum::http::{Method, Request, Uri, Version};

use super::upstream::Upstream;
use crate::body::BodyWatch;

/// A request that is sent on.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) method: Method,
    /// Without anything about a connection, and with everything that the gateway adds but the host.
    pub(super) headers: HeaderMap,
    pub(super) path_and_query: PathAndQuery,
    /// The host to name; the upstream's own if absent.
    pub(super) host: Option<HeaderValue>,
    /// Whether the client would take trailers.
    pub(super) wants_trailers: bool,
    pub(super) body: Body,
    /// How the body fares; absent if there is none.
    pub(super) watch: Option<BodyWatch>,
}

impl Outgoing {
    /// The same once more, if it does no harm to send it twice: it is safe (RFC 9110 §9.2.1) and has no body.
    pub(super) fn copy(&self) -> Option<Self> {
        let is_safe = matches!(self.method, Method::GET | Method::HEAD | Method::OPTIONS);
        (is_safe && self.watch.is_none()).then(|| Self {
            method: self.method.clone(),
            headers: self.headers.clone(),
            path_and_query: self.path_and_query.clone(),
            host: self.host.clone(),
            wants_trailers: self.wants_trailers,
            body: Body::empty(),
            watch: None,
        })
    }

    /// For HTTP/1.1.
    pub(super) fn into_http1(mut self, upstream: &Upstream) -> Request<Body> {
        join_cookies(&mut self.headers);
        if self.frame_length() == Length::Unknown {
            // hyper would take a `GET` for one without a body, and leave it out.
            self.headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        let host = self.host.take().unwrap_or_else(|| upstream.authority.clone());
        self.headers.insert(header::HOST, host);
        let uri = Uri::from(self.path_and_query);
        request(self.method, uri, Version::HTTP_11, self.headers, self.body)
    }

    /// For HTTP/1.1, with the wish to go on with WebSocket.
    pub(super) fn into_upgrade(self, upstream: &Upstream) -> Request<Body> {
        let mut request = self.into_http1(upstream);
        super::names::say_websocket(request.headers_mut());
        request
    }

    /// For HTTP/2. Hosts are checked before, so there always is one.
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

    /// Says the length that the body has, once, in place of whatever the client wrote about it.
    fn frame_length(&mut self) -> Length {
        let was_said = self.headers.remove(header::CONTENT_LENGTH).is_some();
        match self.body.size_hint().exact() {
            // What nobody asked about is not said: most requests have no body.
            Some(0) if !was_said => Length::Known,
            Some(length) => {
                self.headers.insert(header::CONTENT_LENGTH, length.into());
                Length::Known
            }
            None => Length::Unknown,
        }
    }
}

/// Whether the length of a body is known before it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Length {
    Known,
    Unknown,
}

fn request(method: Method, uri: Uri, version: Version, headers: HeaderMap, body: Body) -> Request<Body> {
    let mut request = Request::new(body);
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    *request.version_mut() = version;
    *request.headers_mut() = headers;
    request
}

/// HTTP/2 may send each cookie in a field of its own; HTTP/1.1 wants one field (RFC 9113 §8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let mut cookies = headers.get_all(header::COOKIE).iter();
    if cookies.by_ref().nth(1).is_none() {
        return;
    }
    let lines: Vec<_> = headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    // The parts were values, and so is what they make with this between them.
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
    fn only_what_is_safe_and_has_no_body_is_sent_twice() {
        let outgoing = |method: Method, watch| Outgoing {
            method,
            headers: HeaderMap::new(),
            path_and_query: PathAndQuery::from_static("/"),
            host: None,
            wants_trailers: false,
            body: Body::empty(),
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
