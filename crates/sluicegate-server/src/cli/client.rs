//! Questions to a running server over HTTP, encrypted where its URL says so.
//!
//! Everything has a bound: the time until an answer begins, the time for all of a whole one, and its length.

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

use crate::authorities;
use crate::secret::Secret;

/// From the start of connecting to the end of the answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Bytes of an answer: more than the last hour of as many rules as have one, and far more than all limits of all rules that
/// one request can meet are likely to fill.
const ANSWER_BYTES_MAX: usize = 32 << 20;

/// Characters of somebody else's text that a message repeats.
const SHOWN_CHARS_MAX: usize = 200;

/// Which listener a URL is for, and what names it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Listener {
    /// The option that names the URL.
    option: &'static str,
    name: &'static str,
    example: &'static str,
}

/// Where decisions are asked for.
pub(super) const API: Listener = Listener { option: "--api", name: "api", example: "http://127.0.0.1:8081" };
/// Where a server tells how things stand.
pub(super) const ADMIN: Listener = Listener { option: "--admin", name: "admin", example: "http://127.0.0.1:8082" };
/// The same, for what it did.
pub(super) const FROM_ADMIN: Listener = Listener { option: "--from-admin", ..ADMIN };

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unanswered {
    /// Not a URL that can be asked.
    #[error("{}: `{value}` {problem}; give for example {}", listener.option, listener.example)]
    Url {
        /// What it should name.
        listener: Listener,
        /// As typed, escaped.
        value: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// TLS cannot be used here.
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
    /// Nobody listens there.
    #[error("cannot reach {url} ({reason}); is the server running there? `{} URL` names another place", listener.option)]
    Unreachable {
        /// What it should be.
        listener: Listener,
        /// Where.
        url: String,
        /// What stands in the way.
        reason: String,
    },
    /// Somebody listens, but the answer did not come.
    #[error("no answer from {url} within {} s; is that a Sluicegate {} listener?", PATIENCE.as_secs(), listener.name)]
    TooSlow {
        /// What it should be.
        listener: Listener,
        /// Where.
        url: String,
    },
    /// The connection broke, or what came was not HTTP.
    #[error("no HTTP answer from {url}: {reason}; is that a Sluicegate {} listener?", listener.name)]
    Broken {
        /// What it should be.
        listener: Listener,
        /// Where.
        url: String,
        /// What went wrong.
        reason: String,
    },
}

/// The start of somebody else's text, with nothing in it that acts on a terminal.
pub(super) fn shown(text: &str) -> String {
    let escape = |character: char| match character {
        '"' | '\'' => character.to_string(),
        _ => character.escape_debug().to_string(),
    };
    text.chars().take(SHOWN_CHARS_MAX).map(escape).collect()
}

/// What a problem document says, or else the start of the body.
pub(super) fn detail(text: &str) -> String {
    #[derive(Deserialize)]
    struct Problem {
        detail: String,
    }
    match serde_json::from_str::<Problem>(text) {
        Ok(problem) => shown(&problem.detail),
        Err(_) if text.is_empty() => "(nothing)".to_owned(),
        Err(_) => shown(text),
    }
}

/// Where to ask.
pub(super) struct Endpoint {
    client: legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    scheme: Scheme,
    authority: Authority,
    /// What comes before the listener's own paths, without a slash at its end.
    prefix: String,
    listener: Listener,
    /// As typed, for messages.
    url: String,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({})", self.url)
    }
}

impl Endpoint {
    /// Reads `http://HOST:PORT` or `https://…`, with a path where a proxy adds one.
    pub(super) fn parse(listener: Listener, url: &str) -> Result<Self, Unanswered> {
        // A password that does not belong here would be shown otherwise.
        let value = if url.contains('@') { "…".to_owned() } else { shown(url) };
        let wrong = |problem| Unanswered::Url { listener, value: value.clone(), problem };
        let uri: Uri = url.parse().map_err(|_| wrong("is not a URL"))?;
        let schemes = [Scheme::HTTP, Scheme::HTTPS];
        let scheme = uri.scheme().filter(|scheme| schemes.contains(scheme));
        let scheme = scheme.ok_or_else(|| wrong("does not start with http:// or https://"))?.clone();
        let authority = uri.authority().filter(|authority| !authority.host().is_empty());
        let authority = authority.ok_or_else(|| wrong("names no host"))?.clone();
        if authority.as_str().contains('@') {
            return Err(wrong("has a user name or password"));
        }
        if uri.query().is_some() {
            return Err(wrong("has a query"));
        }
        let prefix = uri.path().trim_end_matches('/').to_owned();
        Ok(Self { client: client(scheme == Scheme::HTTPS)?, scheme, authority, prefix, listener, url: value })
    }

    /// Where that is, for people.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Posts JSON and returns the status and the whole answer.
    pub(super) async fn post(&self, path: &str, body: Vec<u8>) -> Result<(StatusCode, String), Unanswered> {
        let json = HeaderValue::from_static("application/json");
        self.whole(self.request(Method::POST, path).header(header::CONTENT_TYPE, json), body).await
    }

    /// Fetches, with the token if there is one, and returns the status and the whole answer.
    pub(super) async fn get(
        &self,
        path: &str,
        token: Option<&Secret>,
    ) -> Result<(StatusCode, String), Unanswered> {
        self.whole(self.with_token(self.request(Method::GET, path), token)?, Vec::new()).await
    }

    /// Asks for what has no end, and returns the answer once it has begun.
    pub(super) async fn events(
        &self,
        path: &str,
        token: Option<&Secret>,
    ) -> Result<Response<Incoming>, Unanswered> {
        let request = self.request(Method::GET, path).header(header::ACCEPT, "text/event-stream");
        let begun = self.ask(self.with_token(request, token)?, Vec::new());
        timeout(PATIENCE, begun).await.unwrap_or_else(|_| Err(self.too_slow()))
    }

    fn request(&self, method: Method, path: &str) -> request::Builder {
        let uri = format!("{}://{}{}{path}", self.scheme, self.authority, self.prefix);
        Request::builder().method(method).uri(uri)
    }

    fn with_token(
        &self,
        request: request::Builder,
        token: Option<&Secret>,
    ) -> Result<request::Builder, Unanswered> {
        let Some(token) = token else { return Ok(request) };
        let value = HeaderValue::from_str(&format!("Bearer {}", token.reveal()));
        let mut value = value.map_err(|_| self.broken(&"the token holds what no header field can"))?;
        value.set_sensitive(true);
        Ok(request.header(header::AUTHORIZATION, value))
    }

    async fn whole(&self, request: request::Builder, body: Vec<u8>) -> Result<(StatusCode, String), Unanswered> {
        let exchange = async {
            let response = self.ask(request, body).await?;
            let status = response.status();
            let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
            let body = body.map_err(|error| self.broken(&error))?.to_bytes();
            let text = String::from_utf8(body.into()).map_err(|_| self.broken(&"it is not UTF-8"))?;
            Ok((status, text))
        };
        timeout(PATIENCE, exchange).await.unwrap_or_else(|_| Err(self.too_slow()))
    }

    async fn ask(&self, request: request::Builder, body: Vec<u8>) -> Result<Response<Incoming>, Unanswered> {
        let request = request.body(Full::new(Bytes::from(body))).map_err(|error| self.broken(&error))?;
        self.client.request(request).await.map_err(|error| {
            let reason = innermost(&error);
            if error.is_connect() {
                Unanswered::Unreachable { listener: self.listener, url: self.url.clone(), reason }
            } else {
                self.broken(&reason)
            }
        })
    }

    fn broken(&self, reason: &dyn Display) -> Unanswered {
        Unanswered::Broken { listener: self.listener, url: self.url.clone(), reason: reason.to_string() }
    }

    fn too_slow(&self) -> Unanswered {
        Unanswered::TooSlow { listener: self.listener, url: self.url.clone() }
    }
}

fn client(
    is_encrypted: bool,
) -> Result<legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>, rustls::Error> {
    let roots = if is_encrypted { authorities::system() } else { rustls::RootCertStore::empty() };
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(authorities::client_config(roots)?)
        .https_or_http()
        .enable_http1()
        .wrap_connector(connector);
    Ok(legacy::Client::builder(TokioExecutor::new()).build(connector))
}

/// The cause of all causes: what is around it only says that something failed.
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
    fn what_is_no_url_says_so_with_the_remedy() {
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
