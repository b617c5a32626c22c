//! A plain check: a `POST /v1/check` whose bytes have only one reading, in every parser.
//!
//! [`PlainCheck::parse`] accepts a complete request with exactly the expected request line, one valid `Host`, one
//! `Content-Length`, a JSON media type, and no header about the connection or the transfer of the body. It rejects nothing:
//! any other request, including an invalid one, takes the slow path.

use std::pin::pin;

use axum::body::to_bytes;
use axum::response::{IntoResponse as _, Response};
use httparse::{EMPTY_HEADER, Header, Status};
use sluicegate::authority::is_authority;
use sluicegate::clock::Clock as _;
use sluicegate::{CheckError, Decision};

use super::response::{ResponseBuffer, write_decided};
use crate::engine::Engine;
use crate::http::check::PATH;
use crate::http::json_body::is_json;
use crate::http::panics::{HandlerPanic, catch_panic};
use crate::problem::Problem;
use crate::wire::request::Check;
use crate::{api_response, wire};

/// The request line of a plain check.
const REQUEST_LINE: &[u8] = b"POST /v1/check HTTP/1.1\r\n";

/// The most headers: clients send about six, and proxies add a few.
const HEADERS_MAX: usize = 24;

/// Headers that hyper interprets, and the header of requests from web pages.
const NOT_PLAIN: [&str; 5] = ["connection", "expect", "origin", "transfer-encoding", "upgrade"];

/// A plain check.
pub(super) struct PlainCheck<'b> {
    check: Check<'b>,
    bytes: usize,
}

impl<'b> PlainCheck<'b> {
    /// The plain check at the start of `bytes`, if there is one.
    pub(super) fn parse(bytes: &'b [u8]) -> Option<Self> {
        let fields = bytes.strip_prefix(REQUEST_LINE)?;
        let mut room = [EMPTY_HEADER; HEADERS_MAX];
        let Ok(Status::Complete((head, found))) = httparse::parse_headers(fields, &mut room) else { return None };
        let length = body_bytes(found)?;
        let body = fields[head..].get(..length)?;
        let check = wire::request::check(body).ok()?;
        Some(Self { check, bytes: REQUEST_LINE.len() + head + length })
    }

    /// The length of the request in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Charges the check.
    pub(super) async fn decide(&self, engine: &Engine) -> PlainCheckResult {
        let request = self.check.request();
        let deciding = pin!(async { Ok(engine.limiter().check(&request).await) });
        PlainCheckResult(catch_panic(deciding).await)
    }
}

/// The outcome of a plain check.
pub(super) struct PlainCheckResult(Result<Result<Decision, CheckError>, HandlerPanic>);

impl PlainCheckResult {
    /// Appends the response to `responses`.
    pub(super) async fn write(self, engine: &Engine, responses: &mut ResponseBuffer) {
        match self.0 {
            Ok(Ok(decision)) => write_decided(&decision, engine.headers(), responses),
            Ok(Err(error)) => write(api_response::decided(Err(error), engine.headers()), engine, responses).await,
            Err(panic) => write(Err(panic.problem(PATH)), engine, responses).await,
        }
    }
}

/// The length of the body, if these are the headers of a plain check.
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
    if !is_authority(host?) || !is_json(media_type?) {
        return None;
    }
    let digits = str::from_utf8(length?).ok()?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// Writes a response other than a decision. Its body is in memory.
async fn write(answer: Result<Response, Problem>, engine: &Engine, responses: &mut ResponseBuffer) {
    let (head, body) = answer.into_response().into_parts();
    responses.begin(head.status, engine.limiter().clock().time_of_day());
    for (name, value) in &head.headers {
        responses.field(name.as_str(), value);
    }
    if let Ok(body) = to_bytes(body, usize::MAX).await {
        responses.body().extend_from_slice(&body);
    }
}

#[cfg(test)]
mod tests;
