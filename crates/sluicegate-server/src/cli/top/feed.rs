//! Follows a server: what it tells once per second, across its restarts and everything between here and there.

use std::time::Duration;

use axum::http::StatusCode;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::cli::client::{ADMIN, Endpoint, Unanswered, detail};
use crate::secret::Secret;

/// How long the reasons for a refusal may take.
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
#[derive(Debug)]
pub(super) struct Feed {
    endpoint: Endpoint,
    token: Option<Secret>,
}

/// Why there is nothing more to hear.
enum End {
    Gone(String),
    Refused(String),
}

impl Feed {
    pub(super) fn new(admin: &str, token: Option<Secret>) -> Result<Self, Unanswered> {
        Ok(Self { endpoint: Endpoint::parse(ADMIN, admin)?, token })
    }

    /// Where the server is, for people.
    pub(super) fn place(&self) -> &str {
        self.endpoint.url()
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
                Ok(Some(Err(error))) => return End::Gone(format!("the connection broke: {error}")),
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
        let answered = self.endpoint.events(EVENTS, self.token.as_ref()).await;
        let response = answered.map_err(|error| End::Gone(error.to_string()))?;
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
    let why = format!("the server answered {}: {}", status.as_u16(), detail(&String::from_utf8_lossy(body)));
    match status {
        StatusCode::UNAUTHORIZED => End::Refused(format!("{why}; put the token into SLUICEGATE_ADMIN_TOKEN")),
        status if status == StatusCode::NOT_FOUND || status.is_redirection() => {
            End::Refused(format!("{why}; is that a Sluicegate admin listener?"))
        }
        status if status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS => End::Refused(why),
        _ => End::Gone(why),
    }
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
        assert!(words(404, "").starts_with("refused the server answered 404: (nothing); is that"));
        assert!(words(302, "").starts_with("refused the server answered 302: (nothing); is that"));
        assert_eq!(words(503, "{\"detail\":\"\\u001b[2J\"}"), "gone the server answered 503: \\u{1b}[2J");
    }
}
