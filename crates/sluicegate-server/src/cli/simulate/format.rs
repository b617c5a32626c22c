//! Parsers for the lines of access logs.
//!
//! There is one parser per format. Each is total: any bytes give a [`LogLine`] or a [`LineError`] that names the missing part.
//! A parser reads one line at a time and allocates only where a text is escaped. This module does not depend on the rest of
//! the server, so the fuzz targets compile it alone.

pub(crate) mod json;
pub(crate) mod text;
pub(crate) mod time;

use json::{FieldMap, JsonParser};
use text::{CombinedParser, EnvoyParser};

/// The longest line, in bytes. Servers accept heads of some ten thousand bytes and log a few fields of them.
pub(crate) const LINE_BYTES_MAX: usize = 64 << 10;

/// The format of a log.
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
    /// All formats with their names on the command line.
    pub(crate) const ALL: [(&str, Self); 3] =
        [("combined", Self::Combined), ("json", Self::Json), ("envoy", Self::Envoy)];
}

/// The fields of one line that a decision needs, as they were logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogLine<'a> {
    /// Microseconds since 1970.
    pub(crate) at_micros: u64,
    /// The client: one address, or a list of addresses as in `X-Forwarded-For`.
    pub(crate) client: &'a [u8],
    /// The method.
    pub(crate) method: &'a [u8],
    /// The request target with its query.
    pub(crate) target: &'a [u8],
    /// The client's name, if the log has one.
    pub(crate) identity: Option<&'a [u8]>,
    /// The client's tenant, if the log has one.
    pub(crate) tenant: Option<&'a [u8]>,
    /// The client's tier, if the log has one.
    pub(crate) tier: Option<&'a [u8]>,
}

/// The reason why a line cannot be read as a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
pub(crate) enum LineError {
    #[error("the line is empty")]
    Empty,
    #[error("the line has more than 65536 bytes")]
    TooLong,
    #[error("no JSON object")]
    NotJson,
    #[error("no time")]
    NoTime,
    #[error("the time is invalid, before 1970 or after 2112")]
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

/// A parser for the lines of one format.
#[derive(Debug)]
pub(crate) enum LineParser {
    Combined(CombinedParser),
    Json(Box<JsonParser>),
    Envoy(EnvoyParser),
}

impl LineParser {
    /// A parser for `format`. `fields` names the members of JSON objects.
    pub(crate) fn new(format: Format, fields: &FieldMap) -> Self {
        match format {
            Format::Combined => Self::Combined(CombinedParser::default()),
            Format::Json => Self::Json(Box::new(JsonParser::new(fields))),
            Format::Envoy => Self::Envoy(EnvoyParser::default()),
        }
    }

    /// Parses a line. The line feed must be removed; a carriage return before it is ignored.
    pub(crate) fn parse<'a>(&'a mut self, line: &'a [u8]) -> Result<LogLine<'a>, LineError> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            return Err(LineError::Empty);
        }
        match self {
            Self::Combined(parser) => parser.parse(line),
            Self::Json(parser) => parser.parse(line),
            Self::Envoy(parser) => parser.parse(line),
        }
    }
}

/// The text up to `end`, and the text after it.
fn split_at_byte(text: &[u8], end: u8) -> Option<(&[u8], &[u8])> {
    let at = memchr::memchr(end, text)?;
    Some((&text[..at], &text[at + 1..]))
}

/// The value of a field. An empty text and a hyphen both mean that the field has no value.
fn present(text: &[u8]) -> Option<&[u8]> {
    (!text.is_empty() && text != b"-").then_some(text)
}

#[cfg(test)]
mod tests;
