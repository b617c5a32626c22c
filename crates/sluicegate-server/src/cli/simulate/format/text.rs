//! The formats of text lines: the combined and the common format of Apache and nginx, and Envoy's default format.
//!
//! Fields after the status do not influence a decision, so the combined parser ignores them. The common format ends there.

use super::time::{CommonTime, InternetTime};
use super::{LineError, LogLine, present, split_at_byte};

/// A parser for the combined and the common format:
/// `192.0.2.7 - alice [10/Oct/2000:13:55:36 -0700] "GET /a HTTP/1.1" 200 2326 "referrer" "agent"`.
#[derive(Debug, Default)]
pub(crate) struct CombinedParser {
    time: CommonTime,
}

impl CombinedParser {
    pub(crate) fn parse<'a>(&mut self, line: &'a [u8]) -> Result<LogLine<'a>, LineError> {
        let (client, rest) = split_at_byte(line, b' ').ok_or(LineError::NoTime)?;
        let client = present(client).ok_or(LineError::NoAddress)?;
        let (names, rest) = split_at_byte(rest, b'[').ok_or(LineError::NoTime)?;
        let (time, rest) = split_at_byte(rest, b']').ok_or(LineError::NoTime)?;
        let at_micros = self.time.read(time).ok_or(LineError::BadTime)?;
        let (request, rest) = rest.strip_prefix(b" ").and_then(quoted).ok_or(LineError::NoRequest)?;
        after_status(rest)?;
        let (method, target) = method_and_target(request)?;
        Ok(LogLine { at_micros, client, method, target, identity: user(names), ..LogLine::default() })
    }
}

/// The user of `ident user `. A name may contain spaces.
fn user(names: &[u8]) -> Option<&[u8]> {
    let (_, user) = split_at_byte(names, b' ')?;
    present(user.strip_suffix(b" ")?)
}

/// A parser for Envoy's default format:
/// `[2016-04-15T20:17:00.310Z] "POST /a HTTP/2" 204 - 154 0 226 100 "10.0.35.28" "agent" "id" "host" "upstream"`.
///
/// The client is the value of `X-Forwarded-For`, the first quoted text after the request line. Envoy appends the address of
/// its own peer to that field unless `use_remote_address` is off.
#[derive(Debug, Default)]
pub(crate) struct EnvoyParser {
    time: InternetTime,
}

impl EnvoyParser {
    pub(crate) fn parse<'a>(&mut self, line: &'a [u8]) -> Result<LogLine<'a>, LineError> {
        let rest = line.strip_prefix(b"[").ok_or(LineError::NoTime)?;
        let (time, rest) = split_at_byte(rest, b']').ok_or(LineError::NoTime)?;
        let at_micros = self.time.read(time).ok_or(LineError::BadTime)?;
        let (request, rest) = rest.strip_prefix(b" ").and_then(quoted).ok_or(LineError::NoRequest)?;
        let rest = after_status(rest)?;
        let (method, target) = method_and_target(request)?;
        let at = memchr::memchr(b'"', rest).ok_or(LineError::NoAddress)?;
        let (forwarded, _) = quoted(&rest[at..]).ok_or(LineError::NoAddress)?;
        let client = present(forwarded).ok_or(LineError::NoAddress)?;
        Ok(LogLine { at_micros, client, method, target, ..LogLine::default() })
    }
}

/// The text in quotes at the start, and the rest after the closing quote. An escaped quote (`\"`) is part of the text.
fn quoted(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.strip_prefix(b"\"")?;
    let end = memchr::memchr_iter(b'"', text).find(|&at| {
        let backslashes = text[..at].iter().rev().take_while(|&&byte| byte == b'\\').count();
        backslashes.is_multiple_of(2)
    })?;
    Some((&text[..end], &text[end + 1..]))
}

/// The method and the target of a request line such as `GET /path HTTP/1.1`. HTTP/0.9 has no version.
pub(super) fn method_and_target(line: &[u8]) -> Result<(&[u8], &[u8]), LineError> {
    let (method, rest) = split_at_byte(line, b' ').ok_or(LineError::BadRequest)?;
    let target = match memchr::memrchr(b' ', rest) {
        Some(at) if rest[at + 1..].starts_with(b"HTTP/") => &rest[..at],
        _ => rest,
    };
    let is_method = !method.is_empty() && method.iter().all(|byte| byte.is_ascii_alphabetic() || *byte == b'-');
    if !is_method || target.is_empty() {
        return Err(LineError::BadRequest);
    }
    Ok((method, target))
}

/// The rest of the line after the status: three digits, `0`, or a hyphen for a request without a response.
fn after_status(text: &[u8]) -> Result<&[u8], LineError> {
    let text = text.strip_prefix(b" ").ok_or(LineError::NoStatus)?;
    let length = text.iter().position(|&byte| byte == b' ').unwrap_or(text.len());
    let (status, rest) = text.split_at(length);
    let is_status = status == b"-" || (matches!(status.len(), 1 | 3) && status.iter().all(u8::is_ascii_digit));
    if is_status { Ok(rest) } else { Err(LineError::NoStatus) }
}
