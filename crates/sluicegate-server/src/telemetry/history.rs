//! Outcomes of requests within the last hour, by rule, in steps of ten seconds.
//!
//! A background task takes a snapshot of the counters once per [`STEP`] and records the differences; the counting path is not
//! involved. Memory is bounded: a rule gets a track with its first decision, and at most [`TRACKS_MAX`] rules have one.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;

use sluicegate::core::Timestamp;

use crate::metrics::{RuleCounts, RuleOutcomes, Snapshot};
use crate::telemetry::tally::RequestTotals;

/// The length of a step.
pub(crate) const STEP: Duration = Duration::from_secs(10);
/// The number of steps: one hour.
pub(crate) const STEPS: usize = 360;
/// The most rules with a track, of 5.8 kB each. A dashboard page cannot show more.
pub(crate) const TRACKS_MAX: usize = 1_000;

/// The last hour.
#[derive(Debug, Default)]
pub(crate) struct OutcomeHistory(Mutex<HistoryState>);

#[derive(Debug, Default)]
struct HistoryState {
    /// The number of recorded steps.
    steps: u64,
    /// The end of the last step.
    until: Option<Timestamp>,
    all: Track,
    rules: HashMap<Box<str>, Track>,
}

/// The steps of one rule, or of all requests, in a ring.
#[derive(Debug)]
struct Track {
    /// Step n is at index n modulo [`STEPS`].
    steps: Box<[HistoryStep; STEPS]>,
    /// The counter values at the last step.
    counted: RuleOutcomes,
}

/// The outcomes within one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HistoryStep {
    pub(crate) allowed: u32,
    pub(crate) denied: u32,
    pub(crate) shadow_denied: u32,
    pub(crate) degraded: u32,
}

impl Default for Track {
    fn default() -> Self {
        Self { steps: Box::new([HistoryStep::default(); STEPS]), counted: RuleOutcomes::default() }
    }
}

impl From<RuleOutcomes> for HistoryStep {
    fn from(outcomes: RuleOutcomes) -> Self {
        // Saturates at four billion requests in ten seconds.
        let short = |count| u32::try_from(count).unwrap_or(u32::MAX);
        Self {
            allowed: short(outcomes.allowed),
            denied: short(outcomes.denied),
            shadow_denied: short(outcomes.shadow_denied),
            degraded: short(outcomes.degraded),
        }
    }
}

impl Track {
    fn record(&mut self, step: u64, counted: RuleOutcomes) {
        self.steps[index(step)] = counted.since(&self.counted).into();
        self.counted = counted;
    }
}

impl OutcomeHistory {
    /// Records the outcomes since the last step.
    pub(crate) fn record(&self, now: Timestamp, snapshot: &Snapshot, requests: &RequestTotals) {
        let mut state = self.0.lock();
        let HistoryState { steps, until, all, rules } = &mut *state;
        *until = Some(now);
        all.record(*steps, all_of(snapshot, requests));
        let names: HashMap<&str, &RuleCounts> = snapshot.rules.iter().map(|rule| (&*rule.name, rule)).collect();
        rules.retain(|name, _| names.contains_key(&**name));
        for rule in &snapshot.rules {
            let has_room = rules.len() < TRACKS_MAX && rule.outcomes.all() > 0;
            match rules.get_mut(&rule.name) {
                Some(track) => track.record(*steps, rule.outcomes),
                None if has_room => rules.entry(rule.name.clone()).or_default().record(*steps, rule.outcomes),
                None => {}
            }
        }
        *steps += 1;
    }

    /// The last hour of a rule, or of all requests. `None` if the rule has no track.
    pub(crate) fn hour(&self, rule: Option<&str>) -> Option<Hour> {
        let state = self.0.lock();
        let track = match rule {
            Some(rule) => state.rules.get(rule)?,
            None => &state.all,
        };
        Some(state.hour(track))
    }

    /// The last hour of all requests and of every rule with a track, from the same moment.
    pub(crate) fn whole(&self) -> (Hour, HashMap<Box<str>, Hour>) {
        let state = self.0.lock();
        let rules = state.rules.iter().map(|(name, track)| (name.clone(), state.hour(track)));
        (state.hour(&state.all), rules.collect())
    }
}

/// The last hour of a rule, or of all requests.
#[derive(Debug)]
pub(crate) struct Hour {
    /// The end of the last step, if there is one.
    pub(crate) until: Option<Timestamp>,
    /// In chronological order.
    pub(crate) steps: Vec<HistoryStep>,
}

impl HistoryState {
    fn hour(&self, track: &Track) -> Hour {
        let first = self.steps.saturating_sub(STEPS as u64);
        let steps = (first..self.steps).map(|step| track.steps[index(step)]).collect();
        Hour { until: self.until, steps }
    }
}

fn index(step: u64) -> usize {
    // The remainder is less than `STEPS`, so the cast is lossless.
    (step % STEPS as u64) as usize
}

/// The outcomes of all requests, independent of rules.
fn all_of(snapshot: &Snapshot, requests: &RequestTotals) -> RuleOutcomes {
    RuleOutcomes {
        allowed: requests.allowed,
        denied: requests.denied + requests.undecided,
        shadow_denied: snapshot.rules.iter().map(|rule| rule.outcomes.shadow_denied).sum(),
        degraded: requests.degraded + requests.undecided,
    }
}

#[cfg(test)]
mod tests {
    use sluicegate::rules::RuleSet;

    use super::*;
    use crate::metrics::Metrics;

    const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);
    const NOTHING: RequestTotals =
        RequestTotals { allowed: 0, denied: 0, undecided: 0, degraded: 0, store_failures: 0 };

    fn snapshot(rules: &[(&str, u64)]) -> Snapshot {
        let counts = |(name, allowed): &(&str, u64)| RuleCounts {
            name: (*name).into(),
            outcomes: RuleOutcomes { allowed: *allowed, ..RuleOutcomes::default() },
            remaining: Default::default(),
        };
        let none = Metrics::new(&RuleSet::default(), None).snapshot();
        Snapshot { rules: rules.iter().map(counts).collect(), ..none }
    }

    fn allowed(history: &OutcomeHistory, rule: Option<&str>) -> Vec<u32> {
        history.hour(rule).expect("a track").steps.iter().map(|step| step.allowed).collect()
    }

    #[test]
    fn a_step_holds_the_counts_since_the_last_step() {
        let history = OutcomeHistory::default();
        for counted in [2, 2, 7] {
            history.record(NOW, &snapshot(&[("a", counted)]), &RequestTotals { allowed: counted, ..NOTHING });
        }
        assert_eq!(allowed(&history, None), [2, 0, 5]);
        assert_eq!(allowed(&history, Some("a")), [2, 0, 5]);
    }

    #[test]
    fn a_new_rule_starts_with_empty_steps_and_a_removed_rule_loses_its_track() {
        let history = OutcomeHistory::default();
        history.record(NOW, &snapshot(&[("a", 1), ("idle", 0)]), &NOTHING);
        assert!(history.hour(Some("idle")).is_none());
        history.record(NOW, &snapshot(&[("b", 3)]), &NOTHING);
        assert_eq!(allowed(&history, Some("b")), [0, 3]);
        assert!(history.hour(Some("a")).is_none());
        history.record(NOW, &snapshot(&[("a", 1), ("b", 3)]), &NOTHING);
        assert_eq!(allowed(&history, Some("a")), [0, 0, 1]);
    }

    #[test]
    fn only_the_last_hour_is_kept() {
        let history = OutcomeHistory::default();
        for counted in 1..=STEPS as u64 + 5 {
            history.record(NOW, &snapshot(&[]), &RequestTotals { allowed: counted * counted, ..NOTHING });
        }
        let steps = allowed(&history, None);
        assert_eq!(steps.len(), STEPS);
        // The differences of consecutive squares.
        assert_eq!((steps[0], steps[STEPS - 1]), (2 * 6 - 1, 2 * (STEPS as u32 + 5) - 1));
    }

    #[test]
    fn the_number_of_tracks_is_bounded() {
        let history = OutcomeHistory::default();
        let names: Vec<String> = (0..=TRACKS_MAX).map(|index| format!("r{index}")).collect();
        let rules: Vec<(&str, u64)> = names.iter().map(|name| (&**name, 1)).collect();
        history.record(NOW, &snapshot(&rules), &NOTHING);
        assert!(history.hour(Some("r999")).is_some());
        assert!(history.hour(Some("r1000")).is_none());
    }
}
