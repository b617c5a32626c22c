//! Lines of access logs: from bytes to who asked for what, when.
//!
//! One parser for each format, all total: any bytes are a [`Line`] or a [`Fault`] that says what is missing. They look at
//! one line at a time, keep nothing of it, and allocate only where a text is escaped. This file and its folder need
//! nothing of the server around them, so that they can be tried alone.

pub(crate) mod combined;
pub(crate) mod envoy;
pub(crate) mod fields;
pub(crate) mod json;
pub(crate) mod request;
pub(crate) mod time;

use combined::Combined;
use envoy::Envoy;
use fields::FieldMap;
use json::Json;

/// The longest line, in bytes. Servers take heads of some ten thousand bytes, and log a few fields of them.
pub(crate) const LINE_BYTES_MAX: usize = 64 << 10;

/// How a log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// The combined or the common format of Apache and nginx.
    Combined,
    /// One JSON object per line.
    Json,
    /// The default format of Envoy.
    Envoy,
}

impl Format {
    /// All formats and their names.
    pub(crate) const ALL: [(&str, Self); 3] =
        [("combined", Self::Combined), ("json", Self::Json), ("envoy", Self::Envoy)];
}

/// What a line says of a request. Texts are as they were logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    /// Microseconds since 1970.
    pub(crate) at_micros: u64,
    /// The client: an address, or a list of them as `X-Forwarded-For` has it.
    pub(crate) client: &'a [u8],
    /// The method.
    pub(crate) method: &'a [u8],
    /// What is asked for, with its query.
    pub(crate) target: &'a [u8],
    /// The name of the caller, where the log has one.
    pub(crate) identity: Option<&'a [u8]>,
    /// The caller's tenant, where the log has one.
    pub(crate) tenant: Option<&'a [u8]>,
    /// The caller's tier, where the log has one.
    pub(crate) tier: Option<&'a [u8]>,
}

/// Why a line is no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
pub(crate) enum Fault {
    #[error("the line is empty")]
    Empty,
    #[error("the line has more than 65536 bytes")]
    TooLong,
    #[error("no JSON object")]
    NotJson,
    #[error("no time")]
    NoTime,
    #[error("a time that is none, or is before 1970 or after 2112")]
    BadTime,
    #[error("no client address; name its field with --fields ip=NAME if it has another name")]
    NoAddress,
    #[error("the client is not an address")]
    BadAddress,
    #[error("no request line in quotes")]
    NoRequest,
    #[error("a request line without a method and a path")]
    BadRequest,
    #[error("no status after the request line")]
    NoStatus,
    #[error("text that is not UTF-8")]
    NotText,
}

/// Reads lines of one format.
#[derive(Debug)]
pub(crate) enum Parser {
    Combined(Combined),
    Json(Box<Json>),
    Envoy(Envoy),
}

impl Parser {
    /// A parser for `format`; `fields` says what the members of JSON objects are called.
    pub(crate) fn new(format: Format, fields: &FieldMap) -> Self {
        match format {
            Format::Combined => Self::Combined(Combined::default()),
            Format::Json => Self::Json(Box::new(Json::new(fields))),
            Format::Envoy => Self::Envoy(Envoy::default()),
        }
    }

    /// What a line says, without the line break at its end.
    pub(crate) fn parse<'a>(&'a mut self, line: &'a [u8]) -> Result<Line<'a>, Fault> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            return Err(Fault::Empty);
        }
        match self {
            Self::Combined(parser) => parser.parse(line),
            Self::Json(parser) => parser.parse(line),
            Self::Envoy(parser) => parser.parse(line),
        }
    }
}

/// The text up to `end`, and what comes after it.
fn split_at_byte(text: &[u8], end: u8) -> Option<(&[u8], &[u8])> {
    let at = memchr::memchr(end, text)?;
    Some((&text[..at], &text[at + 1..]))
}

/// A field that is there: a hyphen stands for none.
fn present(text: &[u8]) -> Option<&[u8]> {
    (!text.is_empty() && text != b"-").then_some(text)
}

#[cfg(test)]
mod tests;
