//! Questions to a running server over plain HTTP.
//!
//! Everything has a bound: the time for all of it together, and the length of the answer.

use std::fmt::Display;
use std::time::Duration;

use axum::http::header::{self, HeaderValue};
use axum::http::uri::{Authority, Scheme};
use axum::http::{Method, Request, StatusCode, Uri, request};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::net::TcpStream;
use tokio::time::timeout;

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
/// Where a server tells what it did.
pub(super) const ADMIN: Listener =
    Listener { option: "--from-admin", name: "admin", example: "http://127.0.0.1:8082" };

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
    /// Nobody listens there.
    #[error("cannot reach {url} ({source}); is the server running there? `{} URL` names another place", listener.option)]
    Unreachable {
        /// What it should be.
        listener: Listener,
        /// Where.
        url: String,
        /// What the system said.
        source: std::io::Error,
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
#[derive(Debug)]
pub(super) struct Endpoint {
    authority: Authority,
    /// What comes before the listener's own paths, without a slash at its end.
    prefix: String,
    listener: Listener,
    /// As typed, for messages.
    url: String,
}

impl Endpoint {
    /// Reads `http://HOST:PORT`, with a path where a proxy adds one.
    pub(super) fn parse(listener: Listener, url: &str) -> Result<Self, Unanswered> {
        // A password that does not belong here would be shown otherwise.
        let value = if url.contains('@') { "…".to_owned() } else { shown(url) };
        let wrong = |problem| Unanswered::Url { listener, value: value.clone(), problem };
        let uri: Uri = url.parse().map_err(|_| wrong("is not a URL"))?;
        match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP => {}
            Some(scheme) if *scheme == Scheme::HTTPS => {
                return Err(wrong("is https, which is not spoken here yet"));
            }
            _ => return Err(wrong("does not start with http://")),
        }
        let authority = uri.authority().filter(|authority| !authority.host().is_empty());
        let authority = authority.ok_or_else(|| wrong("names no host"))?.clone();
        if authority.as_str().contains('@') {
            return Err(wrong("has a user name or password"));
        }
        if uri.query().is_some() {
            return Err(wrong("has a query"));
        }
        Ok(Self { authority, prefix: uri.path().trim_end_matches('/').to_owned(), listener, url: value })
    }

    /// Posts JSON and returns the status and the whole answer.
    pub(super) async fn post(&self, path: &str, body: Vec<u8>) -> Result<(StatusCode, String), Unanswered> {
        let json = HeaderValue::from_static("application/json");
        self.ask(self.request(Method::POST, path).header(header::CONTENT_TYPE, json), body).await
    }

    /// Fetches, with the token if there is one, and returns the status and the whole answer.
    pub(super) async fn get(
        &self,
        path: &str,
        token: Option<&Secret>,
    ) -> Result<(StatusCode, String), Unanswered> {
        let request = self.request(Method::GET, path);
        let request = match token {
            Some(token) => request.header(header::AUTHORIZATION, format!("Bearer {}", token.reveal())),
            None => request,
        };
        self.ask(request, Vec::new()).await
    }

    fn request(&self, method: Method, path: &str) -> request::Builder {
        let uri = format!("{}{path}", self.prefix);
        Request::builder().method(method).uri(uri).header(header::HOST, self.authority.as_str())
    }

    async fn ask(&self, request: request::Builder, body: Vec<u8>) -> Result<(StatusCode, String), Unanswered> {
        let request = request.body(Full::new(Bytes::from(body))).map_err(|error| self.broken(&error))?;
        match timeout(PATIENCE, self.exchange(request)).await {
            Ok(answer) => answer,
            Err(_elapsed) => Err(Unanswered::TooSlow { listener: self.listener, url: self.url.clone() }),
        }
    }

    fn broken(&self, reason: &dyn Display) -> Unanswered {
        Unanswered::Broken { listener: self.listener, url: self.url.clone(), reason: reason.to_string() }
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<(StatusCode, String), Unanswered> {
        let host = self.authority.host().trim_start_matches('[').trim_end_matches(']');
        let port = self.authority.port_u16().unwrap_or(80);
        let stream = TcpStream::connect((host, port)).await;
        let unreachable =
            |source| Unanswered::Unreachable { listener: self.listener, url: self.url.clone(), source };
        let handshake = http1::handshake(TokioIo::new(stream.map_err(unreachable)?)).await;
        let (mut sender, connection) = handshake.map_err(|error| self.broken(&error))?;
        // It is driven until the answer is read, and ends with the runtime.
        tokio::spawn(connection);
        let response = sender.send_request(request).await.map_err(|error| self.broken(&error))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| self.broken(&error))?.to_bytes();
        let text = String::from_utf8(body.into()).map_err(|_| self.broken(&"it is not UTF-8"))?;
        Ok((status, text))
    }
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
            ("https://127.0.0.1:8081", "is https, which is not spoken here yet"),
            ("127.0.0.1:8081", "does not start with http://"),
            ("ftp://127.0.0.1", "does not start with http://"),
            ("/v1/check", "does not start with http://"),
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
