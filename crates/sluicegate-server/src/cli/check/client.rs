//! One question to one server over plain HTTP.
//!
//! Everything has a bound: the time for all of it together, and the length of the answer.

use std::time::Duration;

use axum::http::header::{self, HeaderValue};
use axum::http::uri::{Authority, Scheme};
use axum::http::{Request, StatusCode, Uri};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// From the start of connecting to the end of the answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Bytes of an answer: far more than all limits of all rules that one request can meet are likely to fill.
const ANSWER_BYTES_MAX: usize = 1_048_576;

/// Characters of somebody else's text that a message repeats.
const SHOWN_CHARS_MAX: usize = 200;

/// Why there is no decision.
#[derive(Debug, thiserror::Error)]
pub(super) enum Undecided {
    /// This machine has no means to ask.
    #[error("cannot ask at all: {0}")]
    NoRuntime(#[from] std::io::Error),
    /// `--api` is not a URL that can be asked.
    #[error("--api: `{value}` {problem}; give for example http://127.0.0.1:8081")]
    Url {
        /// As typed, escaped.
        value: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// Nobody listens there.
    #[error("cannot reach {api} ({source}); is the server running there? `--api URL` names another place")]
    Unreachable {
        /// Where.
        api: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// Somebody listens, but the answer did not come.
    #[error("no answer from {api} within {} s; is that a Sluicegate api listener?", PATIENCE.as_secs())]
    TooSlow {
        /// Where.
        api: String,
    },
    /// The connection broke, or what came was not HTTP.
    #[error("no HTTP answer from {api}: {reason}; is that a Sluicegate api listener?")]
    Broken {
        /// Where.
        api: String,
        /// What went wrong.
        reason: String,
    },
    /// An answer that says why there is no decision.
    #[error("the server answered {status}: {detail}")]
    Refused {
        /// Its status.
        status: StatusCode,
        /// What it says, escaped.
        detail: String,
    },
    /// An answer that makes no sense.
    #[error("the answer of {api} (status {status}) is no decision: {reason}; is that a Sluicegate api listener?")]
    Unintelligible {
        /// Where.
        api: String,
        /// Its status.
        status: StatusCode,
        /// What is wrong with it.
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

/// Where to ask.
#[derive(Debug)]
pub(super) struct Endpoint {
    authority: Authority,
    /// What comes before the API's own paths, without a slash at its end.
    prefix: String,
    /// As typed, for messages.
    api: String,
}

impl Endpoint {
    /// Reads `http://HOST:PORT`, with a path where a proxy adds one.
    pub(super) fn parse(api: &str) -> Result<Self, Undecided> {
        // A password that does not belong here would be shown otherwise.
        let value = if api.contains('@') { "…".to_owned() } else { shown(api) };
        let wrong = |problem| Undecided::Url { value: value.clone(), problem };
        let uri: Uri = api.parse().map_err(|_| wrong("is not a URL"))?;
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
        Ok(Self { authority, prefix: uri.path().trim_end_matches('/').to_owned(), api: value })
    }

    /// Posts JSON and returns the status and the whole answer.
    pub(super) async fn post(&self, path: &str, body: Vec<u8>) -> Result<(StatusCode, String), Undecided> {
        match timeout(PATIENCE, self.exchange(path, body)).await {
            Ok(answer) => answer,
            Err(_elapsed) => Err(Undecided::TooSlow { api: self.api.clone() }),
        }
    }

    async fn exchange(&self, path: &str, body: Vec<u8>) -> Result<(StatusCode, String), Undecided> {
        let broken = |reason: String| Undecided::Broken { api: self.api.clone(), reason };
        let host = self.authority.host().trim_start_matches('[').trim_end_matches(']');
        let port = self.authority.port_u16().unwrap_or(80);
        let stream = TcpStream::connect((host, port)).await;
        let stream = stream.map_err(|source| Undecided::Unreachable { api: self.api.clone(), source })?;

        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|error| broken(error.to_string()))?;
        // It is driven until the answer is read, and ends with the runtime.
        tokio::spawn(connection);
        let request = Request::post(format!("{}{path}", self.prefix))
            .header(header::HOST, self.authority.as_str())
            .header(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| broken(error.to_string()))?;
        let response = sender.send_request(request).await.map_err(|error| broken(error.to_string()))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| broken(error.to_string()))?.to_bytes();
        let text = String::from_utf8(body.into()).map_err(|_| broken("it is not UTF-8".to_owned()))?;
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
            let endpoint = Endpoint::parse(api).expect(api);
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
            let message = Endpoint::parse(api).expect_err(api).to_string();
            assert!(message.contains(problem), "{api}: {message}");
            assert!(message.ends_with("; give for example http://127.0.0.1:8081"), "{message}");
            assert!(!message.contains("canary"), "{message}");
        }
    }
}
