//! HTTP/1.1 responses as bytes, framed as hyper frames them: the headers in the order of the calls, the length and the
//! date, then the body.
//!
//! Header names and values are not validated: all of them are the server's own.

use std::io;

use axum::http::{StatusCode, header};
use jiff::fmt::rfc2822::DateTimePrinter;
use sluicegate::Decision;
use sluicegate::core::Timestamp;
use sluicegate::headers::{HeaderOptions, write_headers};
use sluicegate::response::NO_STORE;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use crate::api_response;
use crate::wire::decision::DecisionJson;

/// The responses to the requests of one read, in order. The memory is reused for the next read.
#[derive(Debug, Default)]
pub(super) struct ResponseBuffer {
    bytes: Vec<u8>,
    /// The body of the last response, until its head is complete.
    body: Vec<u8>,
    date: Date,
}

impl ResponseBuffer {
    /// Begins a response that is dated `now`.
    pub(super) fn begin(&mut self, status: StatusCode, now: Timestamp) {
        self.date.set(now);
        let reason = status.canonical_reason().unwrap_or_default();
        for part in ["HTTP/1.1 ", status.as_str(), " ", reason, "\r\n"] {
            self.bytes.extend_from_slice(part.as_bytes());
        }
        self.body.clear();
    }

    /// Adds a header.
    pub(super) fn field(&mut self, name: &str, value: impl AsRef<[u8]>) {
        for part in [name.as_bytes(), b": ", value.as_ref(), b"\r\n"] {
            self.bytes.extend_from_slice(part);
        }
    }

    /// The buffer of the response's body.
    pub(super) fn body(&mut self) -> &mut Vec<u8> {
        &mut self.body
    }

    /// Ends the response. If it `is_last`, the connection closes after it.
    pub(super) fn end(&mut self, is_last: bool) {
        if is_last {
            self.field("connection", "close");
        }
        self.field("content-length", itoa::Buffer::new().format(self.body.len()));
        for part in ["date: ", &self.date.text, "\r\n\r\n"] {
            self.bytes.extend_from_slice(part.as_bytes());
        }
        self.bytes.append(&mut self.body);
    }

    /// Sends all responses.
    pub(super) async fn flush(&mut self, io: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        io.write_all(&self.bytes).await?;
        self.bytes.clear();
        io.flush().await
    }
}

/// Writes the response to a decision: the bytes of [`api_response::decided`].
pub(super) fn write_decided(decision: &Decision, options: HeaderOptions, responses: &mut ResponseBuffer) {
    responses.begin(api_response::status(decision), decision.now());
    responses.field(header::CONTENT_TYPE.as_str(), api_response::JSON);
    responses.field(NO_STORE.0.as_str(), NO_STORE.1);
    write_headers(decision, options, |field, value| responses.field(field.name(), value));
    DecisionJson::from(decision).write_json(responses.body());
}

/// The value of the `Date` header (RFC 9110 §5.6.7), formatted once per second.
#[derive(Debug, Default)]
struct Date {
    second: Option<u64>,
    text: String,
}

impl Date {
    fn set(&mut self, now: Timestamp) {
        let second = now.as_micros() / 1_000_000;
        if self.second != Some(second) {
            self.second = Some(second);
            self.text = written(second).unwrap_or_default();
        }
    }
}

/// `None` for a year of more than four digits.
fn written(second: u64) -> Option<String> {
    let timestamp = jiff::Timestamp::from_second(second.try_into().ok()?).ok()?;
    DateTimePrinter::new().timestamp_to_rfc9110_string(&timestamp).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_705_312_900_999_999;

    #[tokio::test]
    async fn responses_are_framed_and_sent_in_order() {
        let mut responses = ResponseBuffer::default();
        for (status, micros, body, is_last) in
            [(StatusCode::OK, NOW, "{}", false), (StatusCode::TOO_MANY_REQUESTS, NOW + 1, "", true)]
        {
            responses.begin(status, Timestamp::now(micros));
            responses.field("x", "y z");
            responses.body().extend_from_slice(body.as_bytes());
            responses.end(is_last);
        }
        let mut sent = Vec::new();
        responses.flush(&mut sent).await.expect("memory takes it");
        let expected = "HTTP/1.1 200 OK\r\nx: y z\r\ncontent-length: 2\r\ndate: Mon, 15 Jan 2024 10:01:40 GMT\r\n\r\n{}\
                        HTTP/1.1 429 Too Many Requests\r\nx: y z\r\nconnection: close\r\ncontent-length: 0\r\n\
                        date: Mon, 15 Jan 2024 10:01:41 GMT\r\n\r\n";
        assert_eq!(String::from_utf8(sent.clone()).expect("text"), expected);
        // Sent bytes are not sent again.
        responses.flush(&mut sent).await.expect("memory takes it");
        assert_eq!(sent.len(), expected.len());
    }
}
