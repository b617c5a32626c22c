//! Lines of which no decision was made: how many for which reason, and a few of them to look at.

use std::collections::BTreeMap;
use std::fmt;

use sluicegate::path::PathError;

use super::format::Fault;

/// How many lines are shown, and how many of them for one reason: enough to see a pattern.
const SAMPLES_MAX: usize = 12;
const SAMPLES_OF_A_REASON: u64 = 3;
/// How much of a line is shown, in characters.
const EXCERPT_CHARACTERS: usize = 120;

/// Why there is no decision about a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// It is no request.
    Fault(Fault),
    /// Its time is further back than the window.
    TooLate,
    /// Its time is far ahead, and the next line's is not.
    Ahead,
    /// The gateway refuses such a path with 400.
    Path(PathError),
    /// The gateway refuses such a method with 405.
    Method,
    /// Its caller has a name that no caller may have.
    Name,
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fault(fault) => fault.fmt(formatter),
            Self::TooLate => formatter
                .write_str("its time is further back than --window; give the logs in the order of their times"),
            Self::Ahead => {
                formatter.write_str("its time is further ahead than --window, and the next line's is not")
            }
            Self::Path(error) => write!(formatter, "answered with 400: {error}"),
            Self::Method => formatter.write_str("answered with 405: CONNECT and TRACE are not for a gateway"),
            Self::Name => formatter
                .write_str("an identity, tenant or tier that is empty, too long or has control characters"),
        }
    }
}

/// One such line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Sample {
    /// Which log, by its place on the command line.
    pub(super) log: usize,
    pub(super) line: u64,
    pub(super) reason: String,
    pub(super) excerpt: String,
}

/// All such lines.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    pub(super) counts: BTreeMap<String, u64>,
    pub(super) samples: Vec<Sample>,
}

impl Faults {
    pub(super) fn add(&mut self, log: usize, line: u64, reason: Reason, text: &[u8]) {
        let reason = reason.to_string();
        let count = self.counts.entry(reason.clone()).or_default();
        *count += 1;
        if *count <= SAMPLES_OF_A_REASON && self.samples.len() < SAMPLES_MAX {
            self.samples.push(Sample { log, line, reason, excerpt: excerpt(text) });
        }
    }

    pub(super) fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    /// These and others, of which the first in the logs are shown.
    pub(super) fn and(mut self, others: Self) -> Self {
        for (reason, count) in others.counts {
            *self.counts.entry(reason).or_default() += count;
        }
        self.samples.extend(others.samples);
        self.samples.sort();
        self.samples.truncate(SAMPLES_MAX);
        self
    }
}

/// The beginning of a line, with nothing in it that acts on a terminal, and without queries: people pass reports on, and
/// tokens stand in queries.
fn excerpt(text: &[u8]) -> String {
    // No character has more than four bytes.
    let start = &text[..text.len().min(EXCERPT_CHARACTERS * 4)];
    let shown: String =
        without_queries(&String::from_utf8_lossy(start)).chars().take(EXCERPT_CHARACTERS).collect();
    shown.escape_debug().to_string()
}

/// What stands between a `?` and the end of its word is left out, whether or not it is a query.
fn without_queries(text: &str) -> String {
    let is_end = |character: char| character.is_whitespace() || matches!(character, '"' | '\'');
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('?') {
        let end = after.find(is_end).unwrap_or(after.len());
        shown += before;
        shown += if end == 0 { "?" } else { "?…" };
        rest = &after[end..];
    }
    shown + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_shown_without_its_queries_and_not_to_its_end() {
        for (line, shown) in [
            ("GET /a?token=x HTTP/1.1", "GET /a?… HTTP/1.1"),
            (r#"{"uri":"/a?b=c?d","at":7}"#, r#"{\"uri\":\"/a?…\",\"at\":7}"#),
            ("what? nothing", "what? nothing"),
            ("/a?cut", "/a?…"),
            ("\u{1b}[2J", r"\u{1b}[2J"),
        ] {
            assert_eq!(excerpt(line.as_bytes()), shown);
        }
        assert_eq!(excerpt("x".repeat(1_000).as_bytes()).len(), EXCERPT_CHARACTERS);
    }
}
