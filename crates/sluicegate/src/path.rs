//! Paths of requests in one form, so that nobody reaches another rule by writing the same path otherwise.
//!
//! [`Path::parse`] makes two texts of a path. [`Path::sent`] is what goes to an application: dot segments are resolved,
//! runs of slashes are one slash, and what need not be percent-encoded is not (RFC 3986 §6.2.2). [`Path::matched`] is
//! what rules see: in lower case, without parameters (`;x`), dots and spaces at the end of a segment and without a slash
//! at the end of the path, because some applications take no notice of these. It is only ever looked at, so it may
//! be coarser than what is sent: a rule then applies to a little more, never to less.
//!
//! What two programs would read differently is refused, with the reason: an encoded slash, a backslash, a control
//! character, half an escape, a dot segment that hides behind a parameter. [`PathPattern`] is what rules write.
//!
//! It does not look at queries, and knows nothing of the application: one that decodes twice is beyond help.

mod pattern;
mod segments;

pub use pattern::{PathPattern, PathPatternError};

use segments::Segment;
use std::borrow::Cow;
use std::fmt;

/// The longest path, in bytes: as much of a request line as servers usually take.
pub const PATH_BYTES_MAX: usize = 8_192;
/// The most segments of a path. It bounds what matching costs; applications have a dozen.
pub const PATH_SEGMENTS_MAX: usize = 256;

/// A path that everybody reads alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path<'a> {
    sent: Cow<'a, str>,
    matched: Cow<'a, str>,
}

/// What happens to a slash that is percent-encoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EncodedSlashes {
    /// The path is refused: an application may take `%2F` for a slash, and so for another path.
    #[default]
    Refuse,
    /// It is a part of its segment, for applications that keep it one.
    Keep,
}

/// Why a path is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathError {
    /// It does not begin with a slash.
    NoSlash,
    /// It has more than [`PATH_BYTES_MAX`] bytes.
    TooLong,
    /// It has more than [`PATH_SEGMENTS_MAX`] segments.
    TooManySegments,
    /// It has a percent sign that is not followed by two hexadecimal digits.
    BrokenEscape,
    /// It has a percent-encoded slash or backslash.
    EncodedSlash,
    /// It has a character that no path may have: a control character, a space, a backslash, or one beyond ASCII.
    Character,
    /// It has a segment that is nothing but dots, spaces or a parameter, such as `..;x`.
    HiddenDots,
}

impl fmt::Display for PathError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (problem, remedy) = match self {
            Self::NoSlash => ("does not begin with a slash", "begin it with one"),
            Self::TooLong => ("has more than 8192 bytes", "ask for something shorter"),
            Self::TooManySegments => ("has more than 256 segments", "ask for something shorter"),
            Self::BrokenEscape => {
                ("has a percent sign without two hexadecimal digits", "write a percent sign as %25")
            }
            Self::EncodedSlash => ("has a percent-encoded slash or backslash", "send it in the query"),
            Self::Character => {
                ("has a control character, space, backslash or one beyond ASCII", "percent-encode what is text")
            }
            Self::HiddenDots => ("has a segment of only dots, spaces or parameters", "leave that segment out"),
        };
        write!(formatter, "the path {problem}: {remedy}")
    }
}

impl std::error::Error for PathError {}

impl<'a> Path<'a> {
    /// Reads the path of a request, without its query.
    ///
    /// ```
    /// use sluicegate::path::{EncodedSlashes, Path};
    ///
    /// let path = Path::parse("//api/./Users/%7Ejo;v=1/", EncodedSlashes::Refuse)?;
    /// assert_eq!(path.sent(), "/api/Users/~jo;v=1/");
    /// assert_eq!(path.matched(), "/api/users/~jo");
    /// assert_eq!(path.resource(), "api.users.~jo");
    /// assert!(Path::parse("/api/..%2Fadmin", EncodedSlashes::Refuse).is_err());
    /// # Ok::<(), sluicegate::path::PathError>(())
    /// ```
    ///
    /// # Errors
    /// If programs could read the path differently.
    pub fn parse(path: &'a str, slashes: EncodedSlashes) -> Result<Self, PathError> {
        if path.len() > PATH_BYTES_MAX {
            return Err(PathError::TooLong);
        }
        if !path.starts_with('/') {
            return Err(PathError::NoSlash);
        }
        if segments::is_plain(path) {
            return Ok(Self { sent: Cow::Borrowed(path), matched: Cow::Borrowed(path) });
        }
        let (kept, has_slash_at_end) = resolve(path, slashes)?;
        let sent = joined(kept.iter().map(|segment| &*segment.sent), has_slash_at_end);
        let matched = joined(kept.iter().map(|segment| &*segment.matched), false);
        Ok(Self { sent: borrowed_if_same(path, sent), matched: Cow::Owned(matched) })
    }

    /// What an application is sent.
    #[must_use]
    pub fn sent(&self) -> &str {
        &self.sent
    }

    /// What rules see.
    #[must_use]
    pub fn matched(&self) -> &str {
        &self.matched
    }

    /// What rules call the path as a resource: its segments with dots between them, `/` for none.
    #[must_use]
    pub fn resource(&self) -> String {
        match self.matched.trim_start_matches('/') {
            "" => "/".to_owned(),
            segments => segments.replace('/', "."),
        }
    }
}

/// The segments that are left when dot segments are resolved, and whether the path ends in a slash.
fn resolve(path: &str, slashes: EncodedSlashes) -> Result<(Vec<Segment>, bool), PathError> {
    let mut kept: Vec<Segment> = Vec::new();
    let mut has_slash_at_end = false;
    for text in path.split('/').skip(1) {
        let segment = Segment::parse(text, slashes)?;
        has_slash_at_end = matches!(&*segment.sent, "" | "." | "..");
        match &*segment.sent {
            "" | "." => {}
            ".." => {
                kept.pop();
            }
            _ => kept.push(segment),
        }
        if kept.len() > PATH_SEGMENTS_MAX {
            return Err(PathError::TooManySegments);
        }
    }
    Ok((kept, has_slash_at_end))
}

fn joined<'s>(segments: impl Iterator<Item = &'s str>, has_slash_at_end: bool) -> String {
    let mut path = String::new();
    for segment in segments {
        path.push('/');
        path.push_str(segment);
    }
    if has_slash_at_end || path.is_empty() {
        path.push('/');
    }
    path
}

fn borrowed_if_same(path: &str, normal: String) -> Cow<'_, str> {
    if normal == path { Cow::Borrowed(path) } else { Cow::Owned(normal) }
}

#[cfg(test)]
mod tests;
