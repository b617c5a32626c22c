//! `--suggest`: the denials under limits of other sizes, and the size to take.
//!
//! The replay tests every limit of every rule in many sizes at once. Each size has a state of its own and uses the code that
//! decides requests. A limit is tested alone: requests that other limits or rules would have denied still count, so that its
//! own effect is visible. Requests under the limits of a tier or an override are excluded.

mod candidate_limits;
mod rule_text;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use maud::{Markup, html};
use serde::Serialize;
use sluicegate::core::Timestamp;
use sluicegate::observe::{DecisionEvent, Observer};
use sluicegate::rules::RuleSet;
use sluicegate::rules::file::Environment;
use sluicegate::rules::matching::Source;

use super::report::{EscapedText, grouped, name};
use crate::cli::format::percent;
use candidate_limits::CandidateLimits;
pub(super) use rule_text::RuleTexts;

/// The most limits that are tested, in the order of the file. Each takes the time and the memory of about thirty stores.
const LIMITS_MAX: usize = 8;

/// Tests candidates for all limits on the requests that a limiter decides.
#[derive(Debug)]
pub(super) struct LimitSearch {
    rules: RuleSet,
    limits: Vec<CandidateLimits>,
}

/// Passes decisions to a [`LimitSearch`], if there is one.
#[derive(Clone, Debug, Default)]
pub(super) struct SuggestObserver(Option<Arc<Mutex<LimitSearch>>>);

/// The suggestion for one limit of a rule.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Suggestion {
    rule: String,
    /// The index of the limit in the rule, from zero.
    limit: usize,
    requests: u64,
    identities: u64,
    /// In ascending order of size.
    table: Vec<CandidateResult>,
    /// The rule with the suggested limit, for a configuration file; absent if no tested size is large enough.
    yaml: Option<String>,
}

/// One size of a limit, and its denials.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CandidateResult {
    /// As written in a configuration file.
    limit: String,
    denied: u64,
    identities_denied: u64,
    is_current: bool,
    is_knee: bool,
    is_suggested: bool,
}

impl LimitSearch {
    /// Candidates for the limits of `rules`, which were read from `texts`, for a log that begins at `now`.
    pub(super) fn new(rules: &RuleSet, texts: &RuleTexts, environment: &Environment, now: Timestamp) -> Self {
        let indices = rules.rules().iter().enumerate();
        let indices =
            indices.flat_map(|(rule, parsed)| (0..parsed.limits.quotas().len()).map(move |limit| (rule, limit)));
        let limits =
            indices.filter_map(|(rule, limit)| CandidateLimits::new(rule, limit, texts, environment, now));
        Self { rules: rules.clone(), limits: limits.take(LIMITS_MAX).collect() }
    }

    fn decided(&mut self, decided: &DecisionEvent<'_>) {
        // The limiter has just matched the same request, so this does not fail.
        let Ok(matched) = self.rules.charges(decided.request, decided.asked_at) else { return };
        for (charge, applied) in matched.charges.iter().zip(&matched.applied) {
            if applied.source == Source::Rule {
                let of_rule = self.limits.iter_mut().filter(|limit| limit.rule() == applied.rule);
                of_rule.for_each(|limit| limit.charge(charge, decided));
            }
        }
    }

    fn suggestions(&self, texts: &RuleTexts, targets: DenialTargets) -> Vec<Suggestion> {
        self.limits.iter().map(|limit| limit.suggestion(texts, targets)).collect()
    }
}

impl SuggestObserver {
    pub(super) fn new(search: LimitSearch) -> Self {
        Self(Some(Arc::new(Mutex::new(search))))
    }

    /// The suggestions for all tested limits; `None` without `--suggest`.
    pub(super) fn suggestions(&self, texts: &RuleTexts, targets: DenialTargets) -> Option<Vec<Suggestion>> {
        let search = self.0.as_ref()?;
        Some(search.lock().unwrap_or_else(PoisonError::into_inner).suggestions(texts, targets))
    }
}

impl Observer for SuggestObserver {
    #[inline]
    fn decided(&self, decided: &DecisionEvent<'_>) {
        if let Some(search) = &self.0 {
            search.lock().unwrap_or_else(PoisonError::into_inner).decided(decided);
        }
    }
}

/// The most that a suggested limit may deny.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DenialTargets {
    pub(super) identities: Option<DenialShare>,
    pub(super) requests: Option<DenialShare>,
}

/// A share in hundredths of a per cent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DenialShare(u64);

impl DenialShare {
    const ONE_PERCENT: Self = Self(100);

    /// Whether `part` is at most this share of `whole`.
    fn covers(self, part: u64, whole: u64) -> bool {
        u128::from(part) * 10_000 <= u128::from(whole) * u128::from(self.0)
    }
}

impl FromStr for DenialShare {
    type Err = String;

    /// Parses `1%` or `0.25%`.
    fn from_str(text: &str) -> Result<Self, String> {
        let error = || format!("{text:?} is not a share; write 0% to 100%, for example 1% or 0.25%");
        let number = text.trim().strip_suffix('%').ok_or_else(error)?.trim_end();
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || whole.len() > 3 || fraction.len() > 2 || !is_number(whole) || !is_number(fraction) {
            return Err(error());
        }
        let hundredths: u64 = format!("{whole}{fraction:0<2}").parse().map_err(|_| error())?;
        if hundredths > 10_000 { Err(error()) } else { Ok(Self(hundredths)) }
    }
}

impl DenialTargets {
    /// The first row, and so the smallest size, that meets the targets. Without a target, 1 % of the identities may be denied.
    fn first_within(self, table: &[CandidateResult], requests: u64, identities: u64) -> Option<usize> {
        let default = if self.requests.is_none() { Some(DenialShare::ONE_PERCENT) } else { None };
        let (of_identities, of_requests) = (self.identities.or(default), self.requests);
        table.iter().position(|row| {
            of_identities.is_none_or(|share| share.covers(row.identities_denied, identities))
                && of_requests.is_none_or(|share| share.covers(row.denied, requests))
        })
    }
}

/// The knee of a falling curve: the point furthest below the straight line from its first point to its last. `None` for a curve
/// that does not fall or does not bend.
fn knee(denied: &[u64]) -> Option<usize> {
    let (first, last) = (*denied.first()?, *denied.last()?);
    let fall = i128::from(first) - i128::from(last);
    let steps = i128::try_from(denied.len() - 1).ok()?;
    let below = |(index, denied): (usize, &u64)| {
        let wide_index = i128::try_from(index).unwrap_or_default();
        ((i128::from(first) - i128::from(*denied)) * steps - fall * wide_index, index)
    };
    // Of several points, the first one: the smaller limit.
    let furthest = denied.iter().enumerate().map(below).max_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)))?;
    (fall > 0 && furthest.0 > 0).then_some(furthest.1)
}

impl CandidateResult {
    /// The marks of a row, separated by commas.
    fn marks(&self) -> String {
        let marks = [(self.is_current, "now"), (self.is_knee, "knee"), (self.is_suggested, "suggested")];
        let marks: Vec<&str> = marks.into_iter().filter_map(|(is, mark)| is.then_some(mark)).collect();
        marks.join(", ")
    }
}

/// Appends a suggestion to the text: a table of sizes, and the rule for a configuration file.
pub(super) fn write_text(text: &mut String, suggestion: &Suggestion) {
    let Suggestion { rule, limit, requests, identities, table, yaml } = suggestion;
    // Writing to a string cannot fail, here and below.
    let _ = writeln!(text, "\nrule {rule}, limit {}: denials by size", limit + 1);
    let limits = table.iter().map(|row| row.limit.len()).max().unwrap_or_default();
    for row in table {
        let of_requests = percent(row.denied, *requests);
        let of_identities = percent(row.identities_denied, *identities);
        let _ = write!(
            text,
            "  {:limits$}  {:>12} requests {of_requests:>8}  {:>10} identities {of_identities:>8}",
            row.limit, row.denied, row.identities_denied,
        );
        let marks = row.marks();
        if !marks.is_empty() {
            let _ = write!(text, "  <- {marks}");
        }
        text.push('\n');
    }
    match yaml {
        Some(yaml) => _ = write!(text, "suggested:\nrules:\n{yaml}"),
        None => text.push_str("no tested size meets the targets; raise the limit and try again\n"),
    }
}

/// The section of the report for one limit.
pub(super) fn section(suggestion: &Suggestion) -> Markup {
    html! {
        section {
            h2 { "Other sizes of limit " (suggestion.limit + 1) " of rule " (name(&suggestion.rule)) }
            (table(suggestion))
            @match &suggestion.yaml {
                Some(yaml) => {
                    p { "The suggested rule:" }
                    pre { @for line in yaml.lines() { (EscapedText(line)) "\n" } }
                }
                None => p { "No tested size meets the targets: raise the limit and try again." },
            }
        }
    }
}

fn table(suggestion: &Suggestion) -> Markup {
    let Suggestion { requests, identities, table, .. } = suggestion;
    html! {
        div.scroll {
            table {
                tr {
                    th { "limit" } th { "requests denied" } th { "share" } th { "identities denied" } th { "share" } th {}
                }
                @for row in table {
                    @let marks = row.marks();
                    tr.marked[!marks.is_empty()] {
                        td { (EscapedText(&row.limit)) }
                        td { (grouped(row.denied)) }
                        td { (percent(row.denied, *requests)) }
                        td { (grouped(row.identities_denied)) }
                        td { (percent(row.identities_denied, *identities)) }
                        td { (marks) }
                    }
                }
            }
        }
    }
}
