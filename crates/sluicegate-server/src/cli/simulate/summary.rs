//! The result in numbers, as `--json` prints it.

use jiff::Timestamp;
use serde::Serialize;
use sluicegate::identity::Stage;
use sluicegate::rules::{Mode, Rule, RuleSet, Selector};

use super::compare::Compared;
use super::faults::Faults;
use super::order::Late;
use super::suggest::Suggestion;
use super::tally::people::Person;
use super::tally::{RuleTally, Tally};

/// How many of those who were denied most are named.
pub(super) const HIT_MAX: usize = 20;

/// Everything that is printed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Summary {
    /// All lines: malformed ones, requests, and those of callers whom nobody knows.
    pub(super) lines: u64,
    pub(super) malformed: u64,
    /// The decided ones: allowed or denied.
    pub(super) requests: u64,
    pub(super) allowed: u64,
    pub(super) denied: u64,
    /// Of the allowed, those whose path is exempt.
    pub(super) exempt: u64,
    /// Those that would be answered with 401.
    pub(super) unauthorized: u64,
    pub(super) from: Option<String>,
    pub(super) to: Option<String>,
    pub(super) late: LateLines,
    pub(super) rules: Vec<RuleSummary>,
    /// Rules for what no log has, by their names: they had no say here, and may have one on a server.
    pub(super) untried: Vec<String>,
    pub(super) identities: Identities,
    pub(super) hardest_hit: Vec<Hit>,
    pub(super) reasons: Vec<ReasonSummary>,
    pub(super) samples: Vec<SampleSummary>,
    /// With `--suggest` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) suggestions: Option<Vec<Suggestion>>,
    /// With `--compare` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) compare: Option<Compared>,
}

/// Lines behind those before them, which were decided at the time of those.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LateLines {
    pub(super) lines: u64,
    pub(super) micros_max: u64,
}

/// What one rule said to the requests that it matched.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RuleSummary {
    pub(super) name: String,
    pub(super) mode: &'static str,
    pub(super) requests: u64,
    pub(super) allowed: u64,
    pub(super) denied: u64,
    /// What a rule that only watches would have denied.
    pub(super) shadow_denied: u64,
}

/// How many asked.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Identities {
    pub(super) known: u64,
    pub(super) denied: u64,
    /// Those that made room for others, all of them never denied until then.
    pub(super) others: u64,
    /// True if some came when there was no room.
    pub(super) is_cut: bool,
}

/// Somebody who was denied.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Hit {
    pub(super) identity: String,
    pub(super) requests: u64,
    pub(super) denied: u64,
}

/// Why lines were no requests.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReasonSummary {
    pub(super) reason: String,
    pub(super) lines: u64,
}

/// A line that was no request.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SampleSummary {
    pub(super) log: String,
    pub(super) line: u64,
    pub(super) reason: String,
    pub(super) text: String,
}

impl Summary {
    pub(super) fn new(logs: &[String], lines: u64, late: Late, faults: &Faults, tally: &Tally) -> Self {
        let people = &tally.people;
        let sample = |sample: &super::faults::Sample| SampleSummary {
            log: logs.get(sample.log).cloned().unwrap_or_default(),
            line: sample.line,
            reason: sample.reason.clone(),
            text: sample.excerpt.clone(),
        };
        let reason = |(reason, lines): (&String, &u64)| ReasonSummary { reason: reason.clone(), lines: *lines };
        Self {
            lines,
            malformed: faults.total(),
            requests: tally.requests.total(),
            allowed: tally.requests.allowed,
            denied: tally.requests.denied,
            exempt: tally.exempt,
            unauthorized: tally.unauthorized,
            from: tally.first_micros.map(time),
            to: tally.first_micros.map(|_| time(tally.last_micros)),
            late: LateLines { lines: late.lines, micros_max: late.micros_max },
            rules: tally.rules.iter().map(RuleSummary::new).collect(),
            untried: Vec::new(),
            identities: Identities {
                known: people.known().count() as u64,
                denied: people.denied() as u64,
                others: people.others().people,
                is_cut: people.is_full(),
            },
            hardest_hit: people.hardest_hit(HIT_MAX).into_iter().map(Hit::new).collect(),
            reasons: faults.counts.iter().map(reason).collect(),
            samples: faults.samples.iter().map(sample).collect(),
            suggestions: None,
            compare: None,
        }
    }
}

/// The names of rules that match by what no log has: the host, header fields, claims, a descriptor, or a credential that is
/// about to be verified.
pub(super) fn untried(rules: &RuleSet) -> Vec<String> {
    let is_untried = |rule: &&Rule| {
        let Selector { host, headers, claims, descriptor, stage, only_by_place, .. } = &rule.selector;
        let is_of_http = host.is_some() || !headers.is_empty() || !claims.is_empty();
        is_of_http || !descriptor.is_empty() || *only_by_place || *stage == Stage::Credential
    };
    rules.rules().iter().filter(is_untried).map(|rule| rule.space.name().to_owned()).collect()
}

impl RuleSummary {
    pub(super) fn new(tally: &RuleTally) -> Self {
        let is_shadow = tally.mode == Mode::Shadow;
        let said = tally.said;
        Self {
            name: tally.name.to_string(),
            mode: tally.mode.name(),
            requests: said.total(),
            allowed: said.allowed,
            denied: if is_shadow { 0 } else { said.denied },
            shadow_denied: if is_shadow { said.denied } else { 0 },
        }
    }
}

impl Hit {
    fn new(person: &Person) -> Self {
        Self { identity: person.name.to_string(), requests: person.count.total(), denied: person.count.denied }
    }
}

/// A time as RFC 3339 has it.
pub(super) fn time(at_micros: u64) -> String {
    // Times of logs are bounded far below what can be shown.
    i64::try_from(at_micros)
        .ok()
        .and_then(|at| Timestamp::from_microsecond(at).ok())
        .unwrap_or_default()
        .to_string()
}
