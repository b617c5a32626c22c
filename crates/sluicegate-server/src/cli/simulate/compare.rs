//! `--compare`: a second configuration on the same log, and the requests with a changed outcome.

use std::fmt::Write as _;

use maud::{Markup, html};
use serde::Serialize;

use super::batch::LoggedRequest;
use super::clients::{ClientTable, DENIED_MAX, LISTED_MAX, LoggedClient};
use super::replay::{ReplayError, ReplayGate, ReplayOutcome};
use super::report::{grouped, name};
use super::rules::{self, RuleSummary};
use super::tally::{ReplayTally, RequestCount};
use super::timeline::Timeline;
use crate::cli::format::{percent, terminal_safe};

/// The second configuration, and the differences of its decisions.
#[derive(Debug)]
pub(super) struct ConfigComparison {
    gate: ReplayGate,
    tally: ReplayTally,
    /// Requests with the same outcome.
    both: RequestCount,
    /// Requests with a changed outcome: newly allowed and newly denied.
    changed: RequestCount,
    changed_clients: ClientTable,
    pub(super) timeline: Timeline,
}

/// The result of a comparison.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ComparisonSummary {
    /// The second configuration.
    config: String,
    requests: u64,
    allowed: u64,
    denied: u64,
    both_allowed: u64,
    both_denied: u64,
    /// Allowed by the first configuration, denied by the second.
    newly_denied: u64,
    /// Denied by the first configuration, allowed by the second.
    newly_allowed: u64,
    rules: Vec<RuleSummary>,
    /// The clients with the most changed outcomes.
    identities: Vec<ChangedClient>,
}

/// A client with a changed outcome.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ChangedClient {
    identity: String,
    newly_denied: u64,
    newly_allowed: u64,
}

impl ConfigComparison {
    pub(super) fn new(gate: ReplayGate) -> Self {
        let tally = ReplayTally::new(&gate.rules());
        Self {
            gate,
            tally,
            both: RequestCount::default(),
            changed: RequestCount::default(),
            changed_clients: ClientTable::default(),
            timeline: Timeline::default(),
        }
    }

    /// Decides a request. `first` is the outcome under the first configuration, if that decided the request.
    pub(super) fn decide(
        &mut self,
        logged: &LoggedRequest<'_>,
        first: Option<(LoggedClient<'_>, bool)>,
    ) -> Result<(), ReplayError> {
        let second = match self.gate.decide(logged)? {
            ReplayOutcome::Decided(client, decision) => {
                self.tally.add_decision(logged, client, &decision);
                decision.is_allowed()
            }
            ReplayOutcome::Exempt => {
                self.tally.add_exempt(logged);
                true
            }
            ReplayOutcome::Unauthorized | ReplayOutcome::Rejected(_) => return Ok(()),
        };
        match first {
            Some((_, first)) if first == second => self.both.add(first),
            Some((client, _)) => {
                self.changed.add(second);
                self.timeline.add(logged.at_micros, second);
                if let Some(tally) = self.changed_clients.tally(client) {
                    tally.count.add(second);
                }
            }
            None => {}
        }
        Ok(())
    }

    /// The result. `config` names the second configuration.
    pub(super) fn summary(&self, config: String) -> ComparisonSummary {
        let changed = self.changed_clients.tallies().map(|tally| ChangedClient {
            identity: tally.name.to_string(),
            newly_denied: tally.count.denied,
            newly_allowed: tally.count.allowed,
        });
        let mut identities: Vec<ChangedClient> = changed.collect();
        identities.sort_by(|a, b| {
            let total = |changed: &ChangedClient| changed.newly_denied + changed.newly_allowed;
            total(b).cmp(&total(a)).then_with(|| a.identity.cmp(&b.identity))
        });
        identities.truncate(DENIED_MAX);
        ComparisonSummary {
            config,
            requests: self.tally.requests.total(),
            allowed: self.tally.requests.allowed,
            denied: self.tally.requests.denied,
            both_allowed: self.both.allowed,
            both_denied: self.both.denied,
            newly_denied: self.changed.denied,
            newly_allowed: self.changed.allowed,
            rules: self.tally.rules.iter().map(RuleSummary::new).collect(),
            identities,
        }
    }
}

impl ComparisonSummary {
    /// Appends the comparison to the text.
    pub(super) fn write_text(&self, text: &mut String) {
        let Self { config, requests, allowed, denied, newly_denied, newly_allowed, .. } = self;
        let share = percent(*denied, *requests);
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(text, "\nwith {config}: {allowed} allowed, {denied} denied ({share})");
        let _ = writeln!(
            text,
            "{newly_denied} newly denied, {newly_allowed} newly allowed, {} allowed and {} denied by both",
            self.both_allowed, self.both_denied
        );
        rules::write_text(text, &self.rules);
        if !self.identities.is_empty() {
            text.push_str("\nclients with a changed outcome\n");
        }
        for changed in self.identities.iter().take(LISTED_MAX) {
            let (name, denied, allowed) =
                (terminal_safe(&changed.identity), changed.newly_denied, changed.newly_allowed);
            let _ = writeln!(text, "  {denied:>12} newly denied  {allowed:>12} newly allowed  {name}");
        }
    }

    /// The section of the report. `timeline` holds the changed outcomes over time.
    pub(super) fn section(&self, timeline: &Timeline) -> Markup {
        html! {
            section {
                h2 { "With " (name(&self.config)) }
                p {
                    (grouped(self.denied)) " of " (grouped(self.requests)) " requests would be denied ("
                    (percent(self.denied, self.requests)) "): " (grouped(self.newly_denied)) " newly denied and "
                    (grouped(self.newly_allowed)) " newly allowed."
                }
                @if self.identities.is_empty() {
                    p { "No client has a changed outcome." }
                } @else {
                    (timeline.chart("Newly allowed and newly denied"))
                    (self.table())
                }
            }
        }
    }

    fn table(&self) -> Markup {
        html! {
            div.scroll {
                table {
                    tr { th { "clients with a changed outcome" } th { "newly denied" } th { "newly allowed" } }
                    @for changed in &self.identities {
                        tr {
                            td { (name(&changed.identity)) }
                            td { (grouped(changed.newly_denied)) }
                            td { (grouped(changed.newly_allowed)) }
                        }
                    }
                }
            }
        }
    }
}
