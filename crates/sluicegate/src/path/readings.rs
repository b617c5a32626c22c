//! The readings of a path in which encoded slashes are separators, for applications that decode a path before they
//! split it.
//!
//! The first reading starts from the whole path as it was sent, so dot segments between encoded slashes are resolved
//! as such an application resolves them: `/a%2F..%2Fb` is `/b`. The forwarded path is resolved in the reading in
//! which encoded slashes are data. The two agree unless a `..` removes a segment with an encoded slash. If they do
//! not agree, the path is rejected: some reader would reach another place than the client.
//!
//! Other applications do not resolve dot segments after decoding: for them `/a%2F..%2Fb` is below `/a`. So there is a
//! second such reading that keeps each `..`, if there is one.

use super::segments::Segment;
use super::{EncodedSlashes, PATH_SEGMENTS_MAX, PathError, joined, resolve, resource_of};

/// A path and its resource, in one reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    path: Box<str>,
    resource: Box<str>,
}

impl Reading {
    /// The path, in the form of [`Path::matched`](super::Path::matched).
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The resource of the path.
    #[must_use]
    pub fn resource(&self) -> &str {
        &self.resource
    }
}

impl From<String> for Reading {
    fn from(path: String) -> Self {
        let resource = resource_of(&path).into();
        Self { path: path.into(), resource }
    }
}

/// The other readings of `path`, where `sent` is forwarded and `matched` is the first reading. Empty if they are all
/// the same.
pub(super) fn separated(
    path: &str,
    sent: &str,
    matched: &str,
    dropped_encoded_slash: bool,
) -> Result<Box<[Reading]>, PathError> {
    let separated = with_separators(path)?;
    if dropped_encoded_slash && with_separators(sent)? != separated {
        return Err(PathError::AmbiguousDots);
    }
    if separated == matched {
        return Ok(Box::default());
    }
    Ok([Some(separated), with_dots(sent)?].into_iter().flatten().map(Reading::from).collect())
}

/// With dot segments resolved.
fn with_separators(path: &str) -> Result<String, PathError> {
    resolve(&decoded(path), EncodedSlashes::Refuse).map(|resolved| resolved.matched())
}

/// Every `..` is kept, for applications that decode a path and do not resolve it. `None` if there is none.
fn with_dots(sent: &str) -> Result<Option<String>, PathError> {
    let (mut segments, mut has_dots) = (Vec::new(), false);
    for text in decoded(sent).split('/') {
        let segment = Segment::parse(text, EncodedSlashes::Refuse)?;
        has_dots |= segment.sent == "..";
        if !matches!(&*segment.sent, "" | ".") {
            segments.push(segment.matched);
        }
    }
    if segments.len() > PATH_SEGMENTS_MAX {
        return Err(PathError::TooManySegments);
    }
    Ok(has_dots.then(|| joined(segments.iter().map(String::as_str), false)))
}

/// Parsing has shown that every percent sign begins an escape, so no escape is found inside another.
fn decoded(path: &str) -> String {
    path.replace("%2F", "/").replace("%2f", "/")
}
