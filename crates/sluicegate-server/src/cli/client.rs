//! The HTTP client of the command line, with TLS for `https` URLs.
//!
//! The time until a response begins, the time for a complete response and its length are bounded.

use std::error::Error;
use std::fmt::{self, Display};
use std::time::Duration;

use axum::http::header::{self, HeaderValue};
use axum::http::uri::{Authority, Scheme};
use axum::http::{Method, Request, Response, StatusCode, Uri, request};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Deserialize;
use tokio::time::timeout;

use super::format::excerpt;
use crate::secret::Secret;
use crate::tls_client;

/// The timeout from the start of connecting to the end of the response.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The most bytes of a response. The history of the maximum number of rules is the longest response.
const RESPONSE_BYTES_MAX: usize = 32 << 20;

/// The listener that a URL must name, for error messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct TargetListener {
    /// The option with the URL.
    option: &'static str,
    name: &'static str,
    example: &'static str,
}

/// The listener of the decision API.
pub(super) const API: TargetListener =
    TargetListener { option: "--api", name: "api", example: "http://127.0.0.1:8081" };
/// The admin listener.
pub(super) const ADMIN: TargetListener =
    TargetListener { option: "--admin", name: "admin", example: "http://127.0.0.1:8082" };
/// The admin listener, as an option of `simulate`.
pub(super) const FROM_ADMIN: TargetListener = TargetListener { option: "--from-admin", ..ADMIN };

/// The reason why there is no response.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClientError {
    /// An invalid URL.
    #[error("{}: `{value}` {problem}; give for example {}", listener.option, listener.example)]
    Url {
        /// The intended listener.
        listener: TargetListener,
        /// The value, escaped.
        value: String,
        /// The problem with the value.
        problem: &'static str,
    },
    /// TLS cannot be set up.
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
    /// The connection failed.
    #[error("cannot reach {url} ({reason}); is the server running there? set another URL with `{} URL`", listener.option)]
    Unreachable {
        /// The intended listener.
        listener: TargetListener,
        /// The URL.
        url: String,
        /// The cause.
        reason: String,
    },
    /// The server accepted the connection, but did not respond in time.
    #[error("no response from {url} within {} s; is that a Sluicegate {} listener?", TIMEOUT.as_secs(), listener.name)]
    TooSlow {
        /// The intended listener.
        listener: TargetListener,
        /// The URL.
        url: String,
    },
    /// The connection broke, or the response was not HTTP.
    #[error("no HTTP response from {url}: {reason}; is that a Sluicegate {} listener?", listener.name)]
    Broken {
        /// The intended listener.
        listener: TargetListener,
        /// The URL.
        url: String,
        /// The cause.
        reason: String,
    },
}

/// The detail of a problem document, or else the start of the body.
pub(super) fn detail(text: &str) -> String {
    #[derive(Deserialize)]
    struct ProblemDetail {
        detail: String,
    }
    match serde_json::from_str::<ProblemDetail>(text) {
        Ok(problem) => excerpt(&problem.detail),
        Err(_) if text.is_empty() => "(nothing)".to_owned(),
        Err(_) => excerpt(text),
    }
}

/// A server, ready for requests.
pub(super) struct Endpoint {
    client: legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    scheme: Scheme,
    authority: Authority,
    /// The path before the listener's own paths, without a trailing slash.
    prefix: String,
    listener: TargetListener,
    /// The URL for messages.
    url: String,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({})", self.url)
    }
}

impl Endpoint {
    /// Parses `http://HOST:PORT` or `https://…`, with a path if a proxy adds one.
    pub(super) fn parse(listener: TargetListener, url: &str) -> Result<Self, ClientError> {
        // The URL may contain a password, which must not appear in messages.
        let value = if url.contains('@') { "…".to_owned() } else { excerpt(url) };
        let error = |problem| ClientError::Url { listener, value: value.clone(), problem };
        let uri: Uri = url.parse().map_err(|_| error("is not a URL"))?;
        let schemes = [Scheme::HTTP, Scheme::HTTPS];
        let scheme = uri.scheme().filter(|scheme| schemes.contains(scheme));
        let scheme = scheme.ok_or_else(|| error("does not start with http:// or https://"))?.clone();
        let authority = uri.authority().filter(|authority| !authority.host().is_empty());
        let authority = authority.ok_or_else(|| error("names no host"))?.clone();
        if authority.as_str().contains('@') {
            return Err(error("has a user name or password"));
        }
        if uri.query().is_some() {
            return Err(error("has a query"));
        }
        let prefix = uri.path().trim_end_matches('/').to_owned();
        Ok(Self { client: client(scheme == Scheme::HTTPS)?, scheme, authority, prefix, listener, url: value })
    }

    /// The URL for messages.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Posts JSON. Returns the status and the complete response.
    pub(super) async fn post(&self, path: &str, body: Vec<u8>) -> Result<(StatusCode, String), ClientError> {
        let json = HeaderValue::from_static("application/json");
        self.complete(self.request(Method::POST, path).header(header::CONTENT_TYPE, json), body).await
    }

    /// Sends a GET request, with the token if there is one. Returns the status and the complete response.
    pub(super) async fn get(
        &self,
        path: &str,
        token: Option<&Secret>,
    ) -> Result<(StatusCode, String), ClientError> {
        self.complete(self.with_token(self.request(Method::GET, path), token)?, Vec::new()).await
    }

    /// Requests an event stream, and returns the response when it begins.
    pub(super) async fn events(
        &self,
        path: &str,
        token: Option<&Secret>,
    ) -> Result<Response<Incoming>, ClientError> {
        let request = self.request(Method::GET, path).header(header::ACCEPT, "text/event-stream");
        let begun = self.send(self.with_token(request, token)?, Vec::new());
        timeout(TIMEOUT, begun).await.unwrap_or_else(|_| Err(self.too_slow()))
    }

    fn request(&self, method: Method, path: &str) -> request::Builder {
        let uri = format!("{}://{}{}{path}", self.scheme, self.authority, self.prefix);
        Request::builder().method(method).uri(uri)
    }

    fn with_token(
        &self,
        request: request::Builder,
        token: Option<&Secret>,
    ) -> Result<request::Builder, ClientError> {
        let Some(token) = token else { return Ok(request) };
        let value = HeaderValue::from_str(&format!("Bearer {}", token.reveal()));
        let mut value =
            value.map_err(|_| self.broken(&"the token contains characters that a header field cannot contain"))?;
        value.set_sensitive(true);
        Ok(request.header(header::AUTHORIZATION, value))
    }

    async fn complete(
        &self,
        request: request::Builder,
        body: Vec<u8>,
    ) -> Result<(StatusCode, String), ClientError> {
        let exchange = async {
            let response = self.send(request, body).await?;
            let status = response.status();
            let body = Limited::new(response.into_body(), RESPONSE_BYTES_MAX).collect().await;
            let body = body.map_err(|error| self.broken(&error))?.to_bytes();
            let text = String::from_utf8(body.into()).map_err(|_| self.broken(&"it is not UTF-8"))?;
            Ok((status, text))
        };
        timeout(TIMEOUT, exchange).await.unwrap_or_else(|_| Err(self.too_slow()))
    }

    async fn send(&self, request: request::Builder, body: Vec<u8>) -> Result<Response<Incoming>, ClientError> {
        let request = request.body(Full::new(Bytes::from(body))).map_err(|error| self.broken(&error))?;
        self.client.request(request).await.map_err(|error| {
            let reason = innermost(&error);
            if error.is_connect() {
                ClientError::Unreachable { listener: self.listener, url: self.url.clone(), reason }
            } else {
                self.broken(&reason)
            }
        })
    }

    fn broken(&self, reason: &dyn Display) -> ClientError {
        ClientError::Broken { listener: self.listener, url: self.url.clone(), reason: reason.to_string() }
    }

    fn too_slow(&self) -> ClientError {
        ClientError::TooSlow { listener: self.listener, url: self.url.clone() }
    }
}

fn client(
    is_encrypted: bool,
) -> Result<legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>, rustls::Error> {
    let roots = if is_encrypted { tls_client::system_authorities() } else { rustls::RootCertStore::empty() };
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls_client::client_config(roots)?)
        .https_or_http()
        .enable_http1()
        .wrap_connector(connector);
    Ok(legacy::Client::builder(TokioExecutor::new()).build(connector))
}

/// The innermost error. The errors around it only state that something failed.
fn innermost(error: &(dyn Error + 'static)) -> String {
    let last = std::iter::successors(Some(error), |error| (**error).source()).last();
    last.map(ToString::to_string).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_host_port_and_prefix() {
        for (api, authority, prefix) in [
            ("http://127.0.0.1:8081", "127.0.0.1:8081", ""),
            ("http://127.0.0.1:8081/", "127.0.0.1:8081", ""),
            ("HTTP://limits.example/sluicegate/", "limits.example", "/sluicegate"),
            ("http://[::1]:8081", "[::1]:8081", ""),
        ] {
            let endpoint = Endpoint::parse(API, api).expect(api);
            assert_eq!((endpoint.authority.as_str(), endpoint.prefix.as_str()), (authority, prefix), "{api}");
        }
    }

    #[test]
    fn invalid_urls_are_rejected_with_the_remedy() {
        for (api, problem) in [
            ("127.0.0.1:8081", "does not start with http:// or https://"),
            ("ftp://127.0.0.1", "does not start with http:// or https://"),
            ("/v1/check", "does not start with http:// or https://"),
            ("http://h/?a=b", "has a query"),
            ("http://user:canary@h", "has a user name or password"),
            ("", "is not a URL"),
            ("http://a b", "is not a URL"),
        ] {
            let message = Endpoint::parse(API, api).expect_err(api).to_string();
            assert!(message.contains(problem), "{api}: {message}");
            assert!(message.ends_with("; give for example http://127.0.0.1:8081"), "{message}");
            assert!(!message.contains("canary"), "{message}");
        }
    }
}
