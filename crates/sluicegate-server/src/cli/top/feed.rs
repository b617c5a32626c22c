//! Follows the event stream of a server, and reconnects after restarts and network errors.

use std::time::Duration;

use axum::http::StatusCode;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::cli::client::{ADMIN, ClientError, Endpoint, detail};
use crate::secret::Secret;

/// The timeout for the body of an error response.
const ERROR_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest silence of a stream that has an event every second.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// The first pause before reconnecting. Each further pause is twice as long.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(15);
/// The longest event. An overview with fifty rules and twenty identities has some dozens of kilobytes.
const EVENT_BYTES_MAX: usize = 1_048_576;
/// The most bytes of an error response.
const ERROR_BYTES_MAX: usize = 65_536;
/// The path of the event stream.
const EVENTS: &str = "/admin/v1/events";

/// An event of the feed.
#[derive(Debug)]
pub(super) enum FeedEvent {
    /// The server's overview as JSON.
    Overview(String),
    /// The connection failed. The feed reconnects after the pause.
    Disconnected { reason: String, pause: Duration },
    /// The server rejects the request, and a retry would not help.
    Rejected(String),
}

/// A server and the token for it.
#[derive(Debug)]
pub(super) struct Feed {
    endpoint: Endpoint,
    token: Option<Secret>,
}

/// The reason for the end of a connection.
enum ConnectionEnd {
    Disconnected(String),
    Rejected(String),
}

impl Feed {
    pub(super) fn new(admin: &str, token: Option<Secret>) -> Result<Self, ClientError> {
        Ok(Self { endpoint: Endpoint::parse(ADMIN, admin)?, token })
    }

    /// The server's URL for messages.
    pub(super) fn url(&self) -> &str {
        self.endpoint.url()
    }

    /// Sends all events to `events`, until the receiver is dropped or the server rejects the request.
    pub(super) async fn follow(self, events: mpsc::Sender<FeedEvent>) {
        let mut pause = PAUSE_FIRST;
        loop {
            let reason = match self.listen(&events, &mut pause).await {
                ConnectionEnd::Rejected(reason) => {
                    // If the receiver is gone, the event is not needed.
                    let _ = events.send(FeedEvent::Rejected(reason)).await;
                    return;
                }
                ConnectionEnd::Disconnected(reason) => reason,
            };
            if events.send(FeedEvent::Disconnected { reason, pause }).await.is_err() {
                return;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Reads one connection to its end.
    async fn listen(&self, sender: &mpsc::Sender<FeedEvent>, pause: &mut Duration) -> ConnectionEnd {
        let mut body = match self.open().await {
            Ok(body) => body,
            Err(end) => return end,
        };
        let mut parser = EventParser::default();
        loop {
            let frame = match timeout(SILENCE_MAX, body.frame()).await {
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(error))) => {
                    return ConnectionEnd::Disconnected(format!("the connection broke: {error}"));
                }
                Ok(None) => return ConnectionEnd::Disconnected("the server has ended the connection".to_owned()),
                Err(_) => return ConnectionEnd::Disconnected(format!("no event for {} s", SILENCE_MAX.as_secs())),
            };
            let Some(events) = parser.push(frame.data_ref().map_or(&[][..], |bytes| bytes)) else {
                return ConnectionEnd::Rejected(
                    "an event is too long; is that a Sluicegate admin listener?".to_owned(),
                );
            };
            for text in events {
                *pause = PAUSE_FIRST;
                if sender.send(FeedEvent::Overview(text)).await.is_err() {
                    return ConnectionEnd::Rejected(String::new());
                }
            }
        }
    }

    async fn open(&self) -> Result<Incoming, ConnectionEnd> {
        let answered = self.endpoint.events(EVENTS, self.token.as_ref()).await;
        let response = answered.map_err(|error| ConnectionEnd::Disconnected(error.to_string()))?;
        let status = response.status();
        if status == StatusCode::OK {
            return Ok(response.into_body());
        }
        let body = timeout(ERROR_TIMEOUT, Limited::new(response.into_body(), ERROR_BYTES_MAX).collect()).await;
        let body = body.ok().and_then(Result::ok).map(|body| body.to_bytes()).unwrap_or_default();
        Err(rejection(status, &body))
    }
}

/// The end of the connection for an error response.
fn rejection(status: StatusCode, body: &[u8]) -> ConnectionEnd {
    let reason = format!("the server answered {}: {}", status.as_u16(), detail(&String::from_utf8_lossy(body)));
    match status {
        StatusCode::UNAUTHORIZED => {
            ConnectionEnd::Rejected(format!("{reason}; set SLUICEGATE_ADMIN_TOKEN to a token with read access"))
        }
        status if status == StatusCode::NOT_FOUND || status.is_redirection() => {
            ConnectionEnd::Rejected(format!("{reason}; is that a Sluicegate admin listener?"))
        }
        status if status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS => {
            ConnectionEnd::Rejected(reason)
        }
        _ => ConnectionEnd::Disconnected(reason),
    }
}

/// An incremental parser for server-sent events.
#[derive(Debug, Default)]
struct EventParser(Vec<u8>);

impl EventParser {
    /// Adds bytes, and returns the data of every complete event; `None` if an event is too long.
    fn push(&mut self, bytes: &[u8]) -> Option<Vec<String>> {
        self.0.extend_from_slice(bytes);
        let mut events = Vec::new();
        while let Some(end) = self.0.windows(2).position(|pair| pair == b"\n\n") {
            let event = String::from_utf8_lossy(&self.0[..end]).into_owned();
            self.0.drain(..end + 2);
            let data: Vec<&str> =
                event.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim_start).collect();
            if !data.is_empty() {
                events.push(data.join("\n"));
            }
        }
        (self.0.len() <= EVENT_BYTES_MAX).then_some(events)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_do_not_depend_on_the_sizes_of_reads() {
        let stream = ": hello\n\nevent: overview\ndata: {\"at\":\ndata: 1}\n\ndata: 2\n\ndata: 3";
        for size in 1..stream.len() {
            let mut parser = EventParser::default();
            let events: Vec<String> =
                stream.as_bytes().chunks(size).flat_map(|bytes| parser.push(bytes).expect("short")).collect();
            assert_eq!(events, ["{\"at\":\n1}", "2"], "{size}");
        }
        assert!(EventParser::default().push(&vec![b'x'; EVENT_BYTES_MAX + 1]).is_none());
    }

    #[test]
    fn error_responses_are_reported_and_escaped() {
        let text =
            |status: u16, body: &str| match rejection(StatusCode::from_u16(status).expect("one"), body.as_bytes())
            {
                ConnectionEnd::Rejected(reason) => format!("rejected {reason}"),
                ConnectionEnd::Disconnected(reason) => format!("disconnected {reason}"),
            };
        assert!(
            text(401, r#"{"detail":"a token"}"#)
                .contains("401: a token; set SLUICEGATE_ADMIN_TOKEN to a token with read access")
        );
        assert!(text(404, "").starts_with("rejected the server answered 404: (nothing); is that"));
        assert!(text(302, "").starts_with("rejected the server answered 302: (nothing); is that"));
        assert_eq!(text(503, "{\"detail\":\"\\u001b[2J\"}"), "disconnected the server answered 503: \\u{1b}[2J");
    }
}
