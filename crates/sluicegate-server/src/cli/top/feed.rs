//! Follows a server: what it tells once per second, across its restarts and everything between here and there.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::http::header::{self, HeaderValue};
use axum::http::uri::{PathAndQuery, Scheme};
use axum::http::{Request, StatusCode, Uri};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, RootCertStore};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::secret::Secret;
use crate::telemetry::escape;

/// How long the beginning of an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long nothing may come from a server that tells something every second.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// The first pause before another attempt; each is twice the one before.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(15);
/// The longest thing that is told: a look has fifty rules and twenty identities, which is some dozens of kilobytes.
const EVENT_BYTES_MAX: usize = 1_048_576;
/// Bytes of an answer that says no.
const REFUSAL_BYTES_MAX: usize = 65_536;
/// Where it is told.
const EVENTS: &str = "/admin/v1/events";

/// What there is to know.
#[derive(Debug)]
pub(super) enum News {
    /// How things stand, as JSON.
    Told(String),
    /// The server is not there; there is another attempt after the pause.
    Lost { why: String, pause: Duration },
    /// The server wants nothing to do with us, and asking again changes nothing.
    Refused(String),
}

/// Where to listen, and as who.
pub(super) struct Feed {
    client: Client<HttpsConnector<HttpConnector>, Empty<Bytes>>,
    uri: Uri,
    /// Made unprintable by its type.
    authorization: Option<HeaderValue>,
    /// As typed, for people.
    place: String,
}

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Feed({})", self.place)
    }
}

/// An address that cannot be listened to.
#[derive(Debug, thiserror::Error)]
pub(super) enum FeedError {
    /// It is no URL of a server.
    #[error("--admin: `{value}` {problem}; give for example http://127.0.0.1:8082")]
    Url { value: String, problem: &'static str },
    /// The token cannot be sent.
    #[error("SLUICEGATE_ADMIN_TOKEN holds a character that no header field can; set it again")]
    Token,
    /// TLS cannot be used.
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
}

/// Why there is nothing more to hear.
enum End {
    Gone(String),
    Refused(String),
}

impl Feed {
    pub(super) fn new(admin: &str, token: Option<&Secret>) -> Result<Self, FeedError> {
        let uri = parse(admin)?;
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_connect_timeout(Some(PATIENCE));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(trust(uri.scheme() == Some(&Scheme::HTTPS))?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let client = Client::builder(TokioExecutor::new()).build(connector);
        let authorization = token.map(|token| HeaderValue::from_str(&format!("Bearer {}", token.reveal())));
        let mut authorization = authorization.transpose().map_err(|_| FeedError::Token)?;
        authorization.iter_mut().for_each(|value| value.set_sensitive(true));
        Ok(Self { client, uri, authorization, place: escape::escape(admin) })
    }

    /// Where the server is, for people.
    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// Tells `news` everything, until nobody wants to know any more or the server refuses.
    pub(super) async fn follow(self, news: mpsc::Sender<News>) {
        let mut pause = PAUSE_FIRST;
        loop {
            let why = match self.listen(&news, &mut pause).await {
                End::Refused(why) => {
                    // Nobody may be there to hear it, and then it does not matter.
                    let _ = news.send(News::Refused(why)).await;
                    return;
                }
                End::Gone(why) => why,
            };
            if news.send(News::Lost { why, pause }).await.is_err() {
                return;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Hears one connection out.
    async fn listen(&self, news: &mpsc::Sender<News>, pause: &mut Duration) -> End {
        let mut body = match self.open().await {
            Ok(body) => body,
            Err(end) => return end,
        };
        let mut events = Events::default();
        loop {
            let frame = match timeout(SILENCE_MAX, body.frame()).await {
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(error))) => return End::Gone(format!("the connection broke: {}", chain(&error))),
                Ok(None) => return End::Gone("the server has ended the connection".to_owned()),
                Err(_) => return End::Gone(format!("nothing came for {} s", SILENCE_MAX.as_secs())),
            };
            let Some(told) = events.take(frame.data_ref().map_or(&[][..], |bytes| bytes)) else {
                return End::Refused(
                    "what is told there has no end; is that a Sluicegate admin listener?".to_owned(),
                );
            };
            for text in told {
                *pause = PAUSE_FIRST;
                if news.send(News::Told(text)).await.is_err() {
                    return End::Refused(String::new());
                }
            }
        }
    }

    async fn open(&self) -> Result<Incoming, End> {
        let mut request = Request::get(self.uri.clone()).header(header::ACCEPT, "text/event-stream");
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let request = request.body(Empty::new()).map_err(|error| End::Refused(error.to_string()))?;
        let response = match timeout(PATIENCE, self.client.request(request)).await {
            Ok(response) => response.map_err(|error| End::Gone(chain(&error)))?,
            Err(_) => return Err(End::Gone(format!("no answer within {} s", PATIENCE.as_secs()))),
        };
        let status = response.status();
        if status == StatusCode::OK {
            return Ok(response.into_body());
        }
        let body = timeout(PATIENCE, Limited::new(response.into_body(), REFUSAL_BYTES_MAX).collect()).await;
        let body = body.ok().and_then(Result::ok).map(|body| body.to_bytes()).unwrap_or_default();
        Err(refusal(status, &body))
    }
}

/// What an answer that is no feed says.
fn refusal(status: StatusCode, body: &[u8]) -> End {
    let problem: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    let detail = problem.as_ref().and_then(|problem| problem["detail"].as_str());
    let detail = detail.map_or(String::new(), |detail| format!(": {}", escape::escape(detail)));
    let why = format!("the server answered {}{detail}", status.as_u16());
    match status {
        StatusCode::UNAUTHORIZED => End::Refused(format!("{why}; put the token into SLUICEGATE_ADMIN_TOKEN")),
        StatusCode::NOT_FOUND => End::Refused(format!("{why}; is that a Sluicegate admin listener?")),
        status if status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS => End::Refused(why),
        _ => End::Gone(why),
    }
}

/// Reads `http://HOST:PORT` or `https://…`, with a path where a proxy adds one.
fn parse(admin: &str) -> Result<Uri, FeedError> {
    // A password that does not belong here would be shown otherwise.
    let value = if admin.contains('@') { "…".to_owned() } else { escape::escape(admin) };
    let wrong = |problem| FeedError::Url { value: value.clone(), problem };
    let uri: Uri = admin.parse().map_err(|_| wrong("is not a URL"))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(wrong("does not start with http:// or https://"));
    }
    let authority = uri.authority().filter(|authority| !authority.host().is_empty());
    if authority.ok_or_else(|| wrong("names no host"))?.as_str().contains('@') {
        return Err(wrong("has a user name or password, which is not how the token is given"));
    }
    if uri.query().is_some() {
        return Err(wrong("has a query"));
    }
    let path = format!("{}{EVENTS}", uri.path().trim_end_matches('/'));
    let mut parts = uri.into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(path).map_err(|_| wrong("has a path that is none"))?);
    Uri::from_parts(parts).map_err(|_| wrong("is not a URL"))
}

/// Whom to believe: the authorities of this system.
fn trust(is_needed: bool) -> Result<ClientConfig, FeedError> {
    let mut roots = RootCertStore::empty();
    if is_needed {
        // Those that nobody can read are not missed.
        let (_, _) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    Ok(builder.with_safe_default_protocol_versions()?.with_root_certificates(roots).with_no_client_auth())
}

/// What went wrong, and why that went wrong, and so on.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes: Vec<String> =
        std::iter::successors(Some(error), |error| error.source()).map(ToString::to_string).collect();
    causes.join(": ")
}

/// Takes server-sent events apart, however they are cut on their way.
#[derive(Debug, Default)]
struct Events(Vec<u8>);

impl Events {
    /// The data of every event that is now complete. None if one gets too long.
    fn take(&mut self, bytes: &[u8]) -> Option<Vec<String>> {
        self.0.extend_from_slice(bytes);
        let mut told = Vec::new();
        while let Some(end) = self.0.windows(2).position(|pair| pair == b"\n\n") {
            let event = String::from_utf8_lossy(&self.0[..end]).into_owned();
            self.0.drain(..end + 2);
            let data: Vec<&str> =
                event.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim_start).collect();
            if !data.is_empty() {
                told.push(data.join("\n"));
            }
        }
        (self.0.len() <= EVENT_BYTES_MAX).then_some(told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_whole_however_they_come() {
        let stream = ": hello\n\nevent: overview\ndata: {\"at\":\ndata: 1}\n\ndata: 2\n\ndata: 3";
        for size in 1..stream.len() {
            let mut events = Events::default();
            let told: Vec<String> =
                stream.as_bytes().chunks(size).flat_map(|bytes| events.take(bytes).expect("short")).collect();
            assert_eq!(told, ["{\"at\":\n1}", "2"], "{size}");
        }
        assert!(Events::default().take(&vec![b'x'; EVENT_BYTES_MAX + 1]).is_none());
    }

    #[test]
    fn an_address_that_is_none_says_so_with_the_remedy() {
        assert_eq!(parse("http://h:1").expect("good"), "http://h:1/admin/v1/events");
        assert_eq!(parse("https://h/behind/").expect("good"), "https://h/behind/admin/v1/events");
        for (admin, problem) in [
            ("h:1", "does not start with"),
            ("ftp://h", "does not start with"),
            ("http://user:canary@h", "has a user name"),
            ("http://h/?a", "has a query"),
            ("", "is not a URL"),
        ] {
            let message = parse(admin).expect_err(admin).to_string();
            assert!(message.contains(problem) && message.contains("give for example"), "{message}");
            assert!(!message.contains("canary"), "{message}");
        }
    }

    #[test]
    fn what_a_server_refuses_is_told_and_cannot_act_on_a_terminal() {
        let words =
            |status: u16, body: &str| match refusal(StatusCode::from_u16(status).expect("one"), body.as_bytes()) {
                End::Refused(why) => format!("refused {why}"),
                End::Gone(why) => format!("gone {why}"),
            };
        assert!(
            words(401, r#"{"detail":"a token"}"#)
                .contains("401: a token; put the token into SLUICEGATE_ADMIN_TOKEN")
        );
        assert!(words(404, "").starts_with("refused the server answered 404; is that"));
        assert_eq!(words(503, "{\"detail\":\"\\u001b[2J\"}"), "gone the server answered 503: \\u001b[2J");
    }
}
