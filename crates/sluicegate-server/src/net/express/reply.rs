//! Answers of HTTP/1.1 as bytes, framed as hyper frames them: the fields in the order in which they are given, then the
//! length and the date, then the body.
//!
//! It checks nothing: names and values are those of our own answers.

use std::io;

use axum::http::StatusCode;
use jiff::fmt::rfc2822::DateTimePrinter;
use sluicegate::core::Timestamp;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

/// Answers that are to be sent, in order. As many as one read brings requests are collected, and its memory is kept for
/// the next ones.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    /// The body of the last answer, until its head is complete.
    body: Vec<u8>,
    date: Date,
}

impl Outbox {
    /// Begins an answer that is given at `now`.
    pub(crate) fn begin(&mut self, status: StatusCode, now: Timestamp) {
        self.date.set(now);
        let reason = status.canonical_reason().unwrap_or_default();
        for part in ["HTTP/1.1 ", status.as_str(), " ", reason, "\r\n"] {
            self.bytes.extend_from_slice(part.as_bytes());
        }
        self.body.clear();
    }

    /// Adds a field to the head of the answer.
    pub(crate) fn field(&mut self, name: &str, value: impl AsRef<[u8]>) {
        for part in [name.as_bytes(), b": ", value.as_ref(), b"\r\n"] {
            self.bytes.extend_from_slice(part);
        }
    }

    /// Where the body of the answer is to be put.
    pub(crate) fn body(&mut self) -> &mut Vec<u8> {
        &mut self.body
    }

    /// Ends the answer, after which the connection closes if it is the last one.
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

    /// Sends all answers.
    pub(super) async fn flush(&mut self, io: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        io.write_all(&self.bytes).await?;
        self.bytes.clear();
        io.flush().await
    }
}

/// The time of an answer, as the field `Date` has it (RFC 9110 §5.6.7). It is written anew only when the second changes.
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

/// `None` for a year that has more than four digits, which no clock says.
fn written(second: u64) -> Option<String> {
    let timestamp = jiff::Timestamp::from_second(second.try_into().ok()?).ok()?;
    DateTimePrinter::new().timestamp_to_rfc9110_string(&timestamp).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_705_312_900_999_999;

    #[tokio::test]
    async fn answers_are_framed_and_sent_in_order() {
        let mut outbox = Outbox::default();
        for (status, micros, body, is_last) in
            [(StatusCode::OK, NOW, "{}", false), (StatusCode::TOO_MANY_REQUESTS, NOW + 1, "", true)]
        {
            outbox.begin(status, Timestamp::now(micros));
            outbox.field("x", "y z");
            outbox.body().extend_from_slice(body.as_bytes());
            outbox.end(is_last);
        }
        let mut sent = Vec::new();
        outbox.flush(&mut sent).await.expect("memory takes it");
        let expected = "HTTP/1.1 200 OK\r\nx: y z\r\ncontent-length: 2\r\ndate: Mon, 15 Jan 2024 10:01:40 GMT\r\n\r\n{}\
                        HTTP/1.1 429 Too Many Requests\r\nx: y z\r\nconnection: close\r\ncontent-length: 0\r\n\
                        date: Mon, 15 Jan 2024 10:01:41 GMT\r\n\r\n";
        assert_eq!(String::from_utf8(sent.clone()).expect("text"), expected);
        // What was sent is not sent again.
        outbox.flush(&mut sent).await.expect("memory takes it");
        assert_eq!(sent.len(), expected.len());
    }
}
