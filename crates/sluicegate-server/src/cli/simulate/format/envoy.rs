//! Envoy's default format:
//! `[2016-04-15T20:17:00.310Z] "POST /a HTTP/2" 204 - 154 0 226 100 "10.0.35.28" "agent" "id" "host" "upstream"`.
//!
//! The client is what `X-Forwarded-For` said, the first text in quotes after the request line. Envoy writes the address of
//! its own peer there, at the end, unless it is told not to (`use_remote_address`).

use super::request::{after_status, method_and_target, quoted};
use super::time::InternetTime;
use super::{Fault, Line, present, split_at_byte};

/// A parser for Envoy's default format.
#[derive(Debug, Default)]
pub(crate) struct Envoy {
    time: InternetTime,
}

impl Envoy {
    pub(crate) fn parse<'a>(&mut self, line: &'a [u8]) -> Result<Line<'a>, Fault> {
        let rest = line.strip_prefix(b"[").ok_or(Fault::NoTime)?;
        let (time, rest) = split_at_byte(rest, b']').ok_or(Fault::NoTime)?;
        let at_micros = self.time.read(time).ok_or(Fault::BadTime)?;
        let (request, rest) = rest.strip_prefix(b" ").and_then(quoted).ok_or(Fault::NoRequest)?;
        let rest = after_status(rest)?;
        let (method, target) = method_and_target(request)?;
        let at = memchr::memchr(b'"', rest).ok_or(Fault::NoAddress)?;
        let (forwarded, _) = quoted(&rest[at..]).ok_or(Fault::NoAddress)?;
        let client = present(forwarded).ok_or(Fault::NoAddress)?;
        Ok(Line { at_micros, client, method, target, ..Line::default() })
    }
}
