//! A plain check: `POST /v1/check` whose bytes can be read in one way only, by whoever reads them.
//!
//! [`Plain::read`] takes a request that is wholly there and says nothing but what a check says: its request line letter
//! by letter, one good `Host`, one length, JSON, and no field that is about the connection or about how the body comes.
//! It refuses nothing: whatever else there is, also what is merely wrong, is none of its business and goes the way of all
//! requests.

use std::pin::pin;

use axum::body::to_bytes;
use axum::response::{IntoResponse as _, Response};
use httparse::{EMPTY_HEADER, Header, Status};
use sluicegate::clock::Clock as _;
use sluicegate::{CheckError, Decision};

use super::super::json_body::is_json;
use super::super::{Panicked, catch_panic};
use super::PATH;
use crate::app::App;
use crate::net::{Outbox, is_host};
use crate::problem::Problem;
use crate::wire::request::Check;
use crate::{respond, wire};

/// How a plain check begins.
const REQUEST_LINE: &[u8] = b"POST /v1/check HTTP/1.1\r\n";

/// The most fields: clients send about six, and proxies add a few.
const FIELDS_MAX: usize = 24;

/// Fields that hyper goes by, which are therefore for hyper.
const NOT_PLAIN: [&str; 4] = ["connection", "expect", "transfer-encoding", "upgrade"];

/// A plain check.
pub(crate) struct Plain<'b> {
    check: Check<'b>,
    bytes: usize,
}

impl<'b> Plain<'b> {
    /// The plain check that `bytes` begin with, if they do.
    pub(crate) fn read(bytes: &'b [u8]) -> Option<Self> {
        let fields = bytes.strip_prefix(REQUEST_LINE)?;
        let mut room = [EMPTY_HEADER; FIELDS_MAX];
        let Ok(Status::Complete((head, found))) = httparse::parse_headers(fields, &mut room) else { return None };
        let length = body_bytes(found)?;
        let body = fields[head..].get(..length)?;
        let check = wire::request::check(body).ok()?;
        Some(Self { check, bytes: REQUEST_LINE.len() + head + length })
    }

    /// How many bytes it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Decides it.
    pub(crate) async fn decide(&self, app: &App) -> DecidedPlain {
        let request = self.check.request();
        let deciding = pin!(async { Ok(app.limiter().check(&request).await) });
        DecidedPlain(catch_panic(deciding).await)
    }
}

/// What came of a plain check.
pub(crate) struct DecidedPlain(Result<Result<Decision, CheckError>, Panicked>);

impl DecidedPlain {
    /// Puts the answer into `outbox`.
    pub(crate) async fn write(self, app: &App, outbox: &mut Outbox) {
        match self.0 {
            Ok(Ok(decision)) => respond::write_decided(&decision, app.headers(), outbox),
            Ok(Err(error)) => write(respond::decided(Err(error), app.headers()), app, outbox).await,
            Err(panicked) => write(Err(panicked.problem(PATH)), app, outbox).await,
        }
    }
}

/// How long the body is that these fields are before, if they are those of a plain check.
fn body_bytes(fields: &[Header<'_>]) -> Option<usize> {
    let (mut host, mut length, mut media_type) = (None, None, None);
    for Header { name, value } in fields {
        let known = match name.len() {
            4 if name.eq_ignore_ascii_case("host") => &mut host,
            12 if name.eq_ignore_ascii_case("content-type") => &mut media_type,
            14 if name.eq_ignore_ascii_case("content-length") => &mut length,
            _ if NOT_PLAIN.iter().any(|other| name.eq_ignore_ascii_case(other)) => return None,
            _ => continue,
        };
        if known.replace(*value).is_some() {
            return None;
        }
    }
    if !is_host(host?) || !is_json(media_type?) {
        return None;
    }
    let digits = str::from_utf8(length?).ok()?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// Writes an answer that is not the usual one. All of them are in memory.
async fn write(answer: Result<Response, Problem>, app: &App, outbox: &mut Outbox) {
    let (head, body) = answer.into_response().into_parts();
    outbox.begin(head.status, app.limiter().clock().now());
    for (name, value) in &head.headers {
        outbox.field(name.as_str(), value);
    }
    if let Ok(body) = to_bytes(body, usize::MAX).await {
        outbox.body().extend_from_slice(&body);
    }
}

#[cfg(test)]
mod tests;
