//! `--suggest`: which limits would have denied how much, and which of them to take.
//!
//! Every limit of every rule is tried in many sizes at once, each with a state of its own and with the code that decides,
//! while the log is replayed. A limit is tried alone: what other limits and rules would have denied is let through, so that
//! its own effect is seen. Tiers and overrides are left as they are, and their requests out.

mod ladder;
mod pick;
mod rule_text;
#[cfg(test)]
mod tests;
pub(super) mod words;

use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use sluicegate::core::Timestamp;
use sluicegate::observe::{Decided, Observer};
use sluicegate::rules::RuleSet;
use sluicegate::rules::file::Environment;
use sluicegate::rules::matching::Source;

use ladder::Ladder;
pub(super) use pick::{Share, Targets};
pub(super) use rule_text::RuleTexts;

/// The most limits that are tried, the first ones of the file: each takes the time and the memory of some thirty stores.
const LADDERS_MAX: usize = 8;

/// Tries limits on the requests that a limiter decides.
#[derive(Debug)]
pub(super) struct Ladders {
    rules: RuleSet,
    ladders: Vec<Ladder>,
}

/// Watches a limiter for [`Ladders`], if there are any.
#[derive(Clone, Debug, Default)]
pub(super) struct Watch(Option<Arc<Mutex<Ladders>>>);

/// What is suggested for one limit of a rule.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Suggestion {
    pub(super) rule: String,
    /// Which of the rule's limits, counted from zero.
    pub(super) limit: usize,
    pub(super) requests: u64,
    pub(super) identities: u64,
    /// From the smallest to the largest.
    pub(super) table: Vec<Tried>,
    /// The rule with the suggested limit, for a configuration file; absent if no limit that was tried is large enough.
    pub(super) yaml: Option<String>,
}

/// One size of a limit and what it would have denied.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Tried {
    /// As a configuration writes it.
    pub(super) limit: String,
    pub(super) denied: u64,
    pub(super) identities_denied: u64,
    pub(super) is_current: bool,
    pub(super) is_knee: bool,
    pub(super) is_suggested: bool,
}

impl Ladders {
    /// Ladders for the limits of `rules`, which were read from `texts`, for a log that begins at `now`.
    pub(super) fn new(rules: &RuleSet, texts: &RuleTexts, environment: &Environment, now: Timestamp) -> Self {
        let places = rules.rules().iter().enumerate();
        let limits =
            places.flat_map(|(place, rule)| (0..rule.limits.quotas().len()).map(move |limit| (place, limit)));
        let ladders = limits.filter_map(|(place, limit)| Ladder::new(place, limit, texts, environment, now));
        Self { rules: rules.clone(), ladders: ladders.take(LADDERS_MAX).collect() }
    }

    fn decided(&mut self, decided: &Decided<'_>) {
        // The limiter has just matched the same request, so this does not fail.
        let Ok(matched) = self.rules.charges(decided.request, decided.asked_at) else { return };
        for (charge, applied) in matched.charges.iter().zip(&matched.applied) {
            if applied.source == Source::Rule {
                let of_rule = self.ladders.iter_mut().filter(|ladder| ladder.rule() == applied.rule);
                of_rule.for_each(|ladder| ladder.charge(charge, decided));
            }
        }
    }

    fn suggestions(&self, texts: &RuleTexts, targets: Targets) -> Vec<Suggestion> {
        self.ladders.iter().map(|ladder| ladder.suggestion(texts, targets)).collect()
    }
}

impl Watch {
    pub(super) fn new(ladders: Ladders) -> Self {
        Self(Some(Arc::new(Mutex::new(ladders))))
    }

    /// What is suggested.
    pub(super) fn suggestions(&self, texts: &RuleTexts, targets: Targets) -> Option<Vec<Suggestion>> {
        let ladders = self.0.as_ref()?;
        Some(ladders.lock().unwrap_or_else(PoisonError::into_inner).suggestions(texts, targets))
    }
}

impl Observer for Watch {
    #[inline]
    fn decided(&self, decided: &Decided<'_>) {
        if let Some(ladders) = &self.0 {
            ladders.lock().unwrap_or_else(PoisonError::into_inner).decided(decided);
        }
    }
}
