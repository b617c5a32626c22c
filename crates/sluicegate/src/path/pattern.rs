//! Patterns for paths: segments in which `*` stands for any run of characters, and `**` for any run of segments, an
//! empty one included. `/api/**` is `/api` and all below it; `/api/*` is what is directly below.
//!
//! A pattern is brought into the form of [`Path::matched`] when it is read, so both are written alike. Matching goes
//! from left to right: what stands between two `**` is sought once, and the leftmost place is always good enough.

use super::{EncodedSlashes, PATH_SEGMENTS_MAX, Path};
use crate::rules::pattern::Pattern;
use std::fmt;

/// The longest pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 1_024;

/// A pattern for paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern {
    text: Box<str>,
    start: Box<str>,
    /// The segments between two `**`: one run means that there is none.
    runs: Box<[Box<[Pattern]>]>,
}

/// Why a text is no pattern for paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPatternError {
    /// What is wrong.
    pub message: &'static str,
    /// What to write instead.
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

    /// True if the pattern stands for all of `path`, which is one that [`Path::matched`] made.
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
            // An empty run is anywhere.
            let Some(at) = (0..=rest.len().saturating_sub(run.len()))
                .find(|&at| rest.get(at..at + run.len()).is_some_and(|place| is_run(run, place)))
            else {
                return false;
            };
            rest = &rest[at + run.len()..];
        }
        true
    }

    /// What every path begins with that the pattern stands for: all up to the first star, in the form of paths.
    pub(crate) fn start(&self) -> &str {
        &self.start
    }

    /// How much the pattern says, for choosing among several that match: the segments before the first `**`, whether
    /// it is all, and the characters that are not stars.
    #[must_use]
    pub fn precision(&self) -> (usize, bool, usize) {
        let first = self.runs.first().map_or(0, |run| run.len());
        (first, self.runs.len() == 1, self.text.chars().filter(|each| *each != '*').count())
    }
}

/// What stands before the first star, without the slash that `**` can do without.
fn start(matched: &str) -> Box<str> {
    let start = matched.split('*').next().unwrap_or_default();
    start.strip_suffix('/').filter(|_| matched.contains('*')).unwrap_or(start).into()
}

/// Text beyond ASCII, and what people write as it is, in the form that a request has.
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
