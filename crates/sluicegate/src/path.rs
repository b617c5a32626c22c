//! Normal forms of request paths, so that another spelling of a path does not bypass a rule.
//!
//! [`Path::parse`] computes two texts of a path. [`Path::sent`] goes to the application: dot segments are resolved,
//! runs of slashes are one slash, and unnecessary percent-encoding is undone (RFC 3986 §6.2.2). [`Path::matched`] is
//! for rules: in lower case, without parameters (`;x`), without dots and spaces at the end of a segment and without a
//! slash at the end of the path, because some applications ignore these. It is only compared, so it may be coarser
//! than the text that is sent: a rule then applies to a little more, never to less.
//!
//! Paths that two programs would read differently are rejected with the reason: a backslash, a control character,
//! half an escape, a dot segment behind a parameter. Rules write a [`PathPattern`].
//!
//! An encoded slash (`%2F`) is data to some applications and a separator to others. It is rejected or kept. If it is
//! kept, [`Path::matched`] is the reading in which it is data, and [`Path::separated`] has those in which it is a
//! separator. A decision uses all of them ([`Path::readings`]).
//!
//! Queries are out of scope, and so are applications that decode a path twice.

mod pattern;
mod readings;
mod segments;

pub use pattern::{PathPattern, PathPatternError};
pub use readings::Reading;

use segments::Segment;
use std::borrow::Cow;
use std::fmt;

/// The longest path, in bytes: the usual limit of servers for a request line.
pub const PATH_BYTES_MAX: usize = 8_192;
/// The most segments of a path. It bounds the cost of matching; applications use a dozen.
pub const PATH_SEGMENTS_MAX: usize = 256;

/// A path in the forms for applications and for rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path<'a> {
    sent: Cow<'a, str>,
    matched: Cow<'a, str>,
    /// Few paths have one.
    separated: Box<[Reading]>,
}

/// The treatment of a percent-encoded slash (`%2F`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EncodedSlashes {
    /// The path is rejected.
    Refuse,
    /// The slash is forwarded unchanged. Rules see both readings: as data, and as a separator.
    #[default]
    Keep,
}

/// Why a path is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathError {
    /// The path does not begin with a slash.
    NoSlash,
    /// The path has more than [`PATH_BYTES_MAX`] bytes.
    TooLong,
    /// The path has more than [`PATH_SEGMENTS_MAX`] segments.
    TooManySegments,
    /// A percent sign is not followed by two hexadecimal digits.
    BrokenEscape,
    /// The path has a percent-encoded slash, and these are rejected.
    EncodedSlash,
    /// A percent-encoded slash is behind a `;`, in a parameter.
    EncodedSlashInParameter,
    /// The path has a percent-encoded backslash.
    EncodedBackslash,
    /// A `..` leads to different places, depending on whether `%2F` is data or a separator.
    AmbiguousDots,
    /// The path has an invalid character: a control character, a space, a backslash, or one beyond ASCII.
    Character,
    /// A segment consists only of dots, spaces or a parameter, such as `..;x`.
    HiddenDots,
}

impl fmt::Display for PathError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (problem, remedy) = match self {
            Self::NoSlash => ("does not begin with a slash", "begin it with one"),
            Self::TooLong => ("has more than 8192 bytes", "request a shorter path"),
            Self::TooManySegments => ("has more than 256 segments", "request a shorter path"),
            Self::BrokenEscape => {
                ("has a percent sign without two hexadecimal digits", "write a percent sign as %25")
            }
            Self::EncodedSlash => ("has a percent-encoded slash (%2F)", "send it in the query"),
            Self::EncodedSlashInParameter => {
                ("has a percent-encoded slash (%2F) behind a `;`", "write the `;` as %3B if it is text")
            }
            Self::EncodedBackslash => ("has a percent-encoded backslash (%5C)", "send it in the query"),
            Self::AmbiguousDots => {
                ("has a .. that %2F gives two meanings", "resolve the dot segments before the path is sent")
            }
            Self::Character => {
                ("has a control character, space, backslash or one beyond ASCII", "percent-encode such characters")
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
    ///
    /// let path = Path::parse("/api/..%2Fadmin", EncodedSlashes::Keep)?;
    /// assert_eq!(path.sent(), "/api/..%2Fadmin");
    /// assert_eq!(path.readings().collect::<Vec<_>>(), ["/api/..%2fadmin", "/admin", "/api/../admin"]);
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
            return Ok(Self {
                sent: Cow::Borrowed(path),
                matched: Cow::Borrowed(path),
                separated: Box::default(),
            });
        }
        let resolved = resolve(path, slashes)?;
        let (sent, matched) = (resolved.sent(), resolved.matched());
        let separated = match resolved.has_encoded_slash {
            true => readings::separated(path, &sent, &matched, resolved.dropped_encoded_slash)?,
            false => Box::default(),
        };
        Ok(Self { sent: borrowed_if_same(path, sent), matched: Cow::Owned(matched), separated })
    }

    /// The path for the application.
    #[must_use]
    pub fn sent(&self) -> &str {
        &self.sent
    }

    /// The path for rules. An encoded slash is a part of its segment here.
    #[must_use]
    pub fn matched(&self) -> &str {
        &self.matched
    }

    /// The readings in which an encoded slash is a separator. The first has the dot segments between such slashes
    /// resolved. If there is a `..` among these, the second keeps it. Empty if no encoded slash makes a difference.
    #[must_use]
    pub fn separated(&self) -> &[Reading] {
        &self.separated
    }

    /// All readings for rules: [`Path::matched`], and those of [`Path::separated`].
    pub fn readings(&self) -> impl Iterator<Item = &str> {
        [self.matched()].into_iter().chain(self.separated().iter().map(Reading::path))
    }

    /// The path as a resource: its segments with dots between them, `/` for none.
    #[must_use]
    pub fn resource(&self) -> String {
        resource_of(&self.matched)
    }
}

/// The resource of a path in the form for rules.
fn resource_of(matched: &str) -> String {
    match matched.trim_start_matches('/') {
        "" => "/".to_owned(),
        segments => segments.replace('/', "."),
    }
}

/// A path with its dot segments resolved.
#[derive(Debug, Default)]
struct Resolved {
    kept: Vec<Segment>,
    has_slash_at_end: bool,
    /// True if a segment has an encoded slash, even if it was not kept.
    has_encoded_slash: bool,
    /// True if a `..` removed such a segment.
    dropped_encoded_slash: bool,
}

impl Resolved {
    fn sent(&self) -> String {
        joined(self.kept.iter().map(|segment| &*segment.sent), self.has_slash_at_end)
    }

    fn matched(&self) -> String {
        joined(self.kept.iter().map(|segment| &*segment.matched), false)
    }
}

/// The segments that remain once dot segments are resolved.
fn resolve(path: &str, slashes: EncodedSlashes) -> Result<Resolved, PathError> {
    let mut resolved = Resolved::default();
    for text in path.split('/').skip(1) {
        let segment = Segment::parse(text, slashes)?;
        resolved.has_slash_at_end = matches!(&*segment.sent, "" | "." | "..");
        resolved.has_encoded_slash |= segment.has_encoded_slash;
        match &*segment.sent {
            "" | "." => {}
            ".." => {
                let dropped = resolved.kept.pop();
                resolved.dropped_encoded_slash |= dropped.is_some_and(|segment| segment.has_encoded_slash);
            }
            _ => resolved.kept.push(segment),
        }
        if resolved.kept.len() > PATH_SEGMENTS_MAX {
            return Err(PathError::TooManySegments);
        }
    }
    Ok(resolved)
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
