//! Rejected lines: lines of a log that cannot be decided, counted by reason, with samples, text and report section.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use maud::{Markup, html};
use serde::Serialize;
use sluicegate::path::PathError;

use super::format::LineError;
use super::report::{EscapedText, grouped, name};
use super::summary::Summary;

/// The most samples in total, and per reason: enough to see a pattern.
const SAMPLES_MAX: usize = 12;
const SAMPLES_OF_A_REASON: u64 = 3;
/// The length of a sample, in characters.
const EXCERPT_CHARACTERS: usize = 120;

/// The reason for the rejection of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineRejection {
    /// It is not a request.
    Line(LineError),
    /// Its time is further back than `--window`.
    TooLate,
    /// Its time is far ahead, and the time of the next line is not.
    Ahead,
    /// The gateway rejects such a path with 400.
    Path(PathError),
    /// The gateway rejects such a method with 405.
    Method,
    /// The client's identity, tenant or tier is invalid.
    Name,
}

impl fmt::Display for LineRejection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(error) => error.fmt(formatter),
            Self::TooLate => formatter
                .write_str("its time is further back than --window; give the logs in the order of their times"),
            Self::Ahead => {
                formatter.write_str("its time is further ahead than --window, and the next line's is not")
            }
            Self::Path(error) => write!(formatter, "answered with 400: {error}"),
            Self::Method => {
                formatter.write_str("answered with 405: the gateway does not forward CONNECT and TRACE")
            }
            Self::Name => formatter
                .write_str("an identity, tenant or tier that is empty, too long or has control characters"),
        }
    }
}

/// A rejected line as a sample.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RejectedSample {
    /// The index of the log on the command line.
    log: usize,
    line: u64,
    reason: String,
    excerpt: String,
}

/// All rejected lines.
#[derive(Clone, Debug, Default)]
pub(super) struct RejectedLines {
    counts: BTreeMap<String, u64>,
    samples: Vec<RejectedSample>,
}

/// The number of lines that were rejected for one reason.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReasonSummary {
    reason: String,
    lines: u64,
}

/// A rejected line in the summary.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SampleSummary {
    log: String,
    line: u64,
    reason: String,
    text: String,
}

impl RejectedLines {
    pub(super) fn add(&mut self, log: usize, line: u64, reason: LineRejection, text: &[u8]) {
        let reason = reason.to_string();
        let count = self.counts.entry(reason.clone()).or_default();
        *count += 1;
        if *count <= SAMPLES_OF_A_REASON && self.samples.len() < SAMPLES_MAX {
            self.samples.push(RejectedSample { log, line, reason, excerpt: excerpt(text) });
        }
    }

    pub(super) fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    /// The union of two sets. It keeps the first samples in the order of the logs.
    pub(super) fn and(mut self, others: Self) -> Self {
        for (reason, count) in others.counts {
            *self.counts.entry(reason).or_default() += count;
        }
        self.samples.extend(others.samples);
        self.samples.sort();
        self.samples.truncate(SAMPLES_MAX);
        self
    }

    /// The counts by reason for the summary.
    pub(super) fn reasons(&self) -> Vec<ReasonSummary> {
        let counts = self.counts.iter();
        counts.map(|(reason, lines)| ReasonSummary { reason: reason.clone(), lines: *lines }).collect()
    }

    /// The samples for the summary. `logs` are the names of the logs.
    pub(super) fn samples(&self, logs: &[String]) -> Vec<SampleSummary> {
        let sample = |sample: &RejectedSample| SampleSummary {
            log: logs.get(sample.log).cloned().unwrap_or_default(),
            line: sample.line,
            reason: sample.reason.clone(),
            text: sample.excerpt.clone(),
        };
        self.samples.iter().map(sample).collect()
    }
}

/// Appends the rejected lines to the text.
pub(super) fn write_text(text: &mut String, summary: &Summary) {
    if summary.reasons.is_empty() {
        return;
    }
    text.push_str("\nmalformed lines\n");
    for ReasonSummary { reason, lines } in &summary.reasons {
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(text, "  {lines:>12}  {reason}");
    }
    for SampleSummary { log, line, reason, text: excerpt } in &summary.samples {
        let _ = writeln!(text, "  {log}:{line}: {reason}: {excerpt}");
    }
}

/// The section of the report with the numbers of lines, the reasons and the samples.
pub(super) fn section(summary: &Summary) -> Markup {
    let late = &summary.late;
    html! {
        section {
            h2 { "Lines" }
            p {
                (grouped(summary.lines)) " lines, " (grouped(summary.malformed)) " malformed, " (grouped(summary.exempt))
                " exempt, " (grouped(summary.unauthorized)) " of unknown clients; " (grouped(late.lines))
                " were late by up to " (grouped(late.seconds_max())) " s and count at the time of the line before them."
            }
            @if !summary.reasons.is_empty() {
                div.scroll {
                    table {
                        tr { th { "log" } th { "line" } th { "reason" } th { "text" } }
                        @for sample in &summary.samples {
                            tr {
                                @for text in [&*sample.log, &sample.line.to_string(), &sample.reason, &sample.text] {
                                    td.left { (name(text)) }
                                }
                            }
                        }
                    }
                }
                ul {
                    @for reason in &summary.reasons {
                        li { (grouped(reason.lines)) " lines: " (EscapedText(&reason.reason)) }
                    }
                }
            }
        }
    }
}

/// The beginning of a line, safe for a terminal. It omits queries, because they may contain tokens and reports are shared.
fn excerpt(text: &[u8]) -> String {
    // No character has more than four bytes.
    let start = &text[..text.len().min(EXCERPT_CHARACTERS * 4)];
    let shown: String =
        without_queries(&String::from_utf8_lossy(start)).chars().take(EXCERPT_CHARACTERS).collect();
    shown.escape_debug().to_string()
}

/// Replaces the text between a `?` and the end of its word, whether or not it is a query.
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
    fn samples_are_cut_and_have_no_queries() {
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
