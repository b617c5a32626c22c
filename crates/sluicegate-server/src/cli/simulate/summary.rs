//! The result of a replay, as `--json` prints it and as text.

use std::fmt::Write as _;

use jiff::Timestamp;
use serde::Serialize;

use super::clients::{self, ClientCounts, DeniedClient};
use super::compare::ComparisonSummary;
use super::rejected_lines::{self, ReasonSummary, RejectedLines, SampleSummary};
use super::rules::{self, RuleSummary};
use super::suggest::{self, Suggestion};
use super::tally::ReplayTally;
use super::time_order::LateLines;
use crate::cli::format::percent;

/// The result of a replay.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Summary {
    /// All lines: malformed ones, requests, and those of unknown clients.
    pub(super) lines: u64,
    pub(super) malformed: u64,
    /// Decided requests: allowed or denied.
    pub(super) requests: u64,
    pub(super) allowed: u64,
    pub(super) denied: u64,
    /// Of the allowed requests, those with an exempt path.
    pub(super) exempt: u64,
    /// Requests that a server would reject with 401.
    pub(super) unauthorized: u64,
    pub(super) from: Option<String>,
    pub(super) to: Option<String>,
    pub(super) late: LateLines,
    pub(super) rules: Vec<RuleSummary>,
    /// The names of rules that a log cannot exercise. They decide nothing here, but may on a server.
    pub(super) untried: Vec<String>,
    pub(super) identities: ClientCounts,
    pub(super) hardest_hit: Vec<DeniedClient>,
    pub(super) reasons: Vec<ReasonSummary>,
    pub(super) samples: Vec<SampleSummary>,
    /// With `--suggest` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) suggestions: Option<Vec<Suggestion>>,
    /// With `--compare` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) compare: Option<ComparisonSummary>,
}

impl Summary {
    /// The summary without the results of `--suggest` and `--compare`. `logs` are the names of the logs.
    pub(super) fn new(
        logs: &[String],
        lines: u64,
        late: LateLines,
        rejected: &RejectedLines,
        tally: &ReplayTally,
    ) -> Self {
        Self {
            lines,
            malformed: rejected.total(),
            requests: tally.requests.total(),
            allowed: tally.requests.allowed,
            denied: tally.requests.denied,
            exempt: tally.exempt,
            unauthorized: tally.unauthorized,
            from: tally.first_micros.map(rfc_3339),
            to: tally.first_micros.map(|_| rfc_3339(tally.last_micros)),
            late,
            rules: tally.rules.iter().map(RuleSummary::new).collect(),
            untried: Vec::new(),
            identities: tally.clients.counts(),
            hardest_hit: tally.clients.most_denied(),
            reasons: rejected.reasons(),
            samples: rejected.samples(logs),
            suggestions: None,
            compare: None,
        }
    }

    /// The text for a terminal. Nothing from a log acts on the terminal.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let Self { requests, allowed, denied, .. } = self;
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(
            text,
            "{requests} requests, {allowed} allowed, {denied} denied ({})",
            percent(*denied, *requests)
        );
        if let (Some(from), Some(to)) = (&self.from, &self.to) {
            let _ = writeln!(text, "from {from} to {to}");
        }
        self.write_lines(&mut text);
        rules::write_text(&mut text, &self.rules);
        rules::write_untested(&mut text, &self.untried);
        clients::write_text(&mut text, self);
        rejected_lines::write_text(&mut text, self);
        if let Some(compared) = &self.compare {
            compared.write_text(&mut text);
        }
        for suggestion in self.suggestions.as_deref().unwrap_or_default() {
            suggest::write_text(&mut text, suggestion);
        }
        text
    }

    fn write_lines(&self, text: &mut String) {
        let Self { lines, malformed, exempt, unauthorized, late, .. } = self;
        let _ = write!(text, "{lines} lines, {malformed} malformed");
        if late.lines > 0 {
            let _ = write!(text, ", {} late by up to {} s", late.lines, late.seconds_max());
        }
        if *exempt > 0 {
            let _ = write!(text, ", {exempt} exempt");
        }
        if *unauthorized > 0 {
            let _ = write!(text, ", {unauthorized} of unknown clients, which would get a 401");
        }
        text.push('\n');
    }
}

/// A time in the format of RFC 3339.
pub(super) fn rfc_3339(at_micros: u64) -> String {
    // The parsers of logs bound times far below the largest timestamp.
    i64::try_from(at_micros)
        .ok()
        .and_then(|at| Timestamp::from_microsecond(at).ok())
        .unwrap_or_default()
        .to_string()
}
