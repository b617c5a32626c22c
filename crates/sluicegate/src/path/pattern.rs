//! Patterns for paths: in a segment `*` matches any run of characters, and `**` matches any run of segments, an empty
//! one included. `/api/**` matches `/api` and everything below it; `/api/*` matches the segments directly below.
//!
//! A pattern is normalised like [`Path::matched`] when it is read. Matching goes from left to right: the part between
//! two `**` is searched once, and its leftmost position is always sufficient.

use super::{EncodedSlashes, PATH_SEGMENTS_MAX, Path};
use crate::pattern::Pattern;
use std::fmt;

/// The longest pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 1_024;

/// A pattern for paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern {
    text: Box<str>,
    start: Box<str>,
    /// The segments between two `**`. A single run means that there is no `**`.
    runs: Box<[Box<[Pattern]>]>,
}

/// An invalid path pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPatternError {
    /// The error.
    pub message: &'static str,
    /// The remedy.
    pub remedy: &'static str,
}

impl fmt::Display for PathPatternError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.message, self.remedy)
    }
}

impl std::error::Error for PathPatternError {}

impl PathPattern {
    /// Reads a pattern.
    ///
    /// ```
    /// use sluicegate::path::PathPattern;
    ///
    /// let pattern = PathPattern::parse("/api/*/orders/**")?;
    /// assert!(pattern.matches("/api/v1/orders") && pattern.matches("/api/v2/orders/7/items"));
    /// assert!(!pattern.matches("/api/orders/7"));
    /// # Ok::<(), sluicegate::path::PathPatternError>(())
    /// ```
    ///
    /// # Errors
    /// If no path could ever match the text.
    pub fn parse(text: &str) -> Result<Self, PathPatternError> {
        let wrong = |message, remedy| Err(PathPatternError { message, remedy });
        if !text.starts_with('/') {
            return wrong("does not begin with a slash", "write a path, for example /api/**");
        }
        if text.len() > PATTERN_BYTES_MAX {
            return wrong("a pattern of more than 1024 bytes", "use a shorter one");
        }
        if text.split('/').any(|segment| segment.len() > 2 && segment.contains("**")) {
            return wrong("** within a segment", "let ** stand for itself between two slashes");
        }
        let plain: String = text.chars().map(encoded).collect();
        let Ok(path) = Path::parse(&plain, EncodedSlashes::Keep) else {
            return wrong("matches no path", "write it as it stands in a request, without ? and \\");
        };
        let matched = path.matched();
        if matched.matches('*').count() != text.matches('*').count() || matched.contains("%3f") {
            return wrong("matches no path", "leave out queries, parameters and dot segments");
        }
        let mut runs: Vec<Vec<Pattern>> = vec![Vec::new()];
        for segment in matched.split('/').filter(|segment| !segment.is_empty()) {
            match (segment, runs.last_mut()) {
                ("**", _) => runs.push(Vec::new()),
                (segment, Some(run)) => run.push(Pattern::new(segment)),
                (_, None) => {}
            }
        }
        Ok(Self {
            text: text.into(),
            start: start(matched),
            runs: runs.into_iter().map(Vec::into_boxed_slice).collect(),
        })
    }

    /// The pattern as it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// True if the pattern matches all of `path`, which [`Path::matched`] returned.
    #[must_use]
    pub fn matches(&self, path: &str) -> bool {
        let mut segments: smallvec::SmallVec<[&str; 16]> = smallvec::SmallVec::new();
        segments.extend(path.split('/').filter(|segment| !segment.is_empty()).take(PATH_SEGMENTS_MAX));
        let [first, middle @ .., last] = &*self.runs else {
            return self.runs.first().is_some_and(|only| is_run(only, &segments));
        };
        if segments.len() < first.len() + last.len() || !is_run(first, &segments[..first.len()]) {
            return false;
        }
        let (mut rest, end) = segments[first.len()..].split_at(segments.len() - first.len() - last.len());
        if !is_run(last, end) {
            return false;
        }
        for run in middle {
            // An empty run matches anywhere.
            let Some(at) = (0..=rest.len().saturating_sub(run.len()))
                .find(|&at| rest.get(at..at + run.len()).is_some_and(|place| is_run(run, place)))
            else {
                return false;
            };
            rest = &rest[at + run.len()..];
        }
        true
    }

    /// The literal prefix of every matching path: all up to the first star, in normal form.
    pub(crate) fn start(&self) -> &str {
        &self.start
    }

    /// The specificity of the pattern, to choose among several that match: the segments before the first `**`,
    /// whether it has no `**`, and the characters that are not stars.
    #[must_use]
    pub fn precision(&self) -> (usize, bool, usize) {
        let first = self.runs.first().map_or(0, |run| run.len());
        (first, self.runs.len() == 1, self.text.chars().filter(|each| *each != '*').count())
    }
}

/// The text before the first star, without the slash that `**` makes optional.
fn start(matched: &str) -> Box<str> {
    let start = matched.split('*').next().unwrap_or_default();
    start.strip_suffix('/').filter(|_| matched.contains('*')).unwrap_or(start).into()
}

/// Text beyond ASCII, and characters that people do not encode, in the form of a request's path.
fn encoded(character: char) -> String {
    let is_plain = character.is_ascii_graphic() && character != '?';
    let mut bytes = [0; 4];
    if is_plain {
        return character.to_string();
    }
    character.encode_utf8(&mut bytes).bytes().map(|byte| format!("%{byte:02X}")).collect()
}

fn is_run(patterns: &[Pattern], segments: &[&str]) -> bool {
    patterns.len() == segments.len()
        && patterns.iter().zip(segments).all(|(pattern, segment)| pattern.matches(segment))
}
