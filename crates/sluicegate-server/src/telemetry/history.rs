//! What came of requests within the last hour, by rule, in steps of ten seconds.
//!
//! Memory is bounded: a rule has a track only once something was decided by it, and only so many rules have one. Whoever
//! counts knows nothing of this; somebody looks at the counts once per [`STEP`] and writes down what has been added.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;

use sluicegate::core::Timestamp;

use crate::metrics::{Outcomes, RuleCounts, Snapshot};
use crate::telemetry::tally::Totals;

/// How long a step is.
pub(crate) const STEP: Duration = Duration::from_secs(10);
/// How many steps are kept: an hour.
pub(crate) const STEPS: usize = 360;
/// The most rules that have a track, of 5.8 kB each. More than fit on any page.
pub(crate) const TRACKS_MAX: usize = 1_000;

/// The last hour.
#[derive(Debug, Default)]
pub(crate) struct History(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// How many steps were written down so far.
    steps: u64,
    /// When the last of them was.
    until: Option<Timestamp>,
    all: Track,
    rules: HashMap<Box<str>, Track>,
}

/// One line of the picture.
#[derive(Debug)]
struct Track {
    /// The step with the number n stands at n modulo their count.
    steps: Box<[Step; STEPS]>,
    /// What there was in all at the last step.
    counted: Outcomes,
}

/// What was added within one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) allowed: u32,
    pub(crate) denied: u32,
    pub(crate) shadow_denied: u32,
    pub(crate) degraded: u32,
}

impl Default for Track {
    fn default() -> Self {
        Self { steps: Box::new([Step::default(); STEPS]), counted: Outcomes::default() }
    }
}

impl From<Outcomes> for Step {
    fn from(outcomes: Outcomes) -> Self {
        // More than four billions in ten seconds are as good as that.
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
    fn write(&mut self, step: u64, counted: Outcomes) {
        self.steps[place(step)] = counted.since(&self.counted).into();
        self.counted = counted;
    }
}

impl History {
    /// Writes down what has been added since the last step.
    pub(crate) fn write(&self, now: Timestamp, snapshot: &Snapshot, requests: &Totals) {
        let mut state = self.0.lock();
        let State { steps, until, all, rules } = &mut *state;
        *until = Some(now);
        all.write(*steps, all_of(snapshot, requests));
        let names: HashMap<&str, &RuleCounts> = snapshot.rules.iter().map(|rule| (&*rule.name, rule)).collect();
        rules.retain(|name, _| names.contains_key(&**name));
        for rule in &snapshot.rules {
            let has_place = rules.len() < TRACKS_MAX && rule.outcomes.all() > 0;
            match rules.get_mut(&rule.name) {
                Some(track) => track.write(*steps, rule.outcomes),
                None if has_place => rules.entry(rule.name.clone()).or_default().write(*steps, rule.outcomes),
                None => {}
            }
        }
        *steps += 1;
    }

    /// What was written down of this rule, or of all requests. None if the rule has no track.
    pub(crate) fn hour(&self, rule: Option<&str>) -> Option<Hour> {
        let state = self.0.lock();
        let track = match rule {
            Some(rule) => state.rules.get(rule)?,
            None => &state.all,
        };
        Some(state.hour(track))
    }

    /// The same of all requests and of every rule that has a track, as of one moment.
    pub(crate) fn whole(&self) -> (Hour, HashMap<Box<str>, Hour>) {
        let state = self.0.lock();
        let rules = state.rules.iter().map(|(name, track)| (name.clone(), state.hour(track)));
        (state.hour(&state.all), rules.collect())
    }
}

/// What was written down.
#[derive(Debug)]
pub(crate) struct Hour {
    /// When the last step ended; none if there is none.
    pub(crate) until: Option<Timestamp>,
    /// The oldest first.
    pub(crate) steps: Vec<Step>,
}

impl State {
    fn hour(&self, track: &Track) -> Hour {
        let first = self.steps.saturating_sub(STEPS as u64);
        let steps = (first..self.steps).map(|step| track.steps[place(step)]).collect();
        Hour { until: self.until, steps }
    }
}

fn place(step: u64) -> usize {
    // A remainder is less than the number of places.
    (step % STEPS as u64) as usize
}

/// What came of requests, whatever rules had a say in them.
fn all_of(snapshot: &Snapshot, requests: &Totals) -> Outcomes {
    Outcomes {
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
    const NOTHING: Totals = Totals { allowed: 0, denied: 0, undecided: 0, degraded: 0, store_failures: 0 };

    fn snapshot(rules: &[(&str, u64)]) -> Snapshot {
        let counts = |(name, allowed): &(&str, u64)| RuleCounts {
            name: (*name).into(),
            outcomes: Outcomes { allowed: *allowed, ..Outcomes::default() },
            remaining: Default::default(),
        };
        let none = Metrics::new(&RuleSet::default(), None).snapshot();
        Snapshot { rules: rules.iter().map(counts).collect(), ..none }
    }

    fn allowed(history: &History, rule: Option<&str>) -> Vec<u32> {
        history.hour(rule).expect("a track").steps.iter().map(|step| step.allowed).collect()
    }

    #[test]
    fn a_step_holds_what_has_been_added_since_the_last() {
        let history = History::default();
        for counted in [2, 2, 7] {
            history.write(NOW, &snapshot(&[("a", counted)]), &Totals { allowed: counted, ..NOTHING });
        }
        assert_eq!(allowed(&history, None), [2, 0, 5]);
        assert_eq!(allowed(&history, Some("a")), [2, 0, 5]);
    }

    #[test]
    fn a_rule_that_comes_later_was_at_rest_before_and_one_that_goes_is_forgotten() {
        let history = History::default();
        history.write(NOW, &snapshot(&[("a", 1), ("idle", 0)]), &NOTHING);
        assert!(history.hour(Some("idle")).is_none());
        history.write(NOW, &snapshot(&[("b", 3)]), &NOTHING);
        assert_eq!(allowed(&history, Some("b")), [0, 3]);
        assert!(history.hour(Some("a")).is_none());
        history.write(NOW, &snapshot(&[("a", 1), ("b", 3)]), &NOTHING);
        assert_eq!(allowed(&history, Some("a")), [0, 0, 1]);
    }

    #[test]
    fn an_hour_is_kept_and_no_more() {
        let history = History::default();
        for counted in 1..=STEPS as u64 + 5 {
            history.write(NOW, &snapshot(&[]), &Totals { allowed: counted * counted, ..NOTHING });
        }
        let steps = allowed(&history, None);
        assert_eq!(steps.len(), STEPS);
        // The difference of two squares that follow each other.
        assert_eq!((steps[0], steps[STEPS - 1]), (2 * 6 - 1, 2 * (STEPS as u32 + 5) - 1));
    }

    #[test]
    fn only_so_many_rules_have_a_track() {
        let history = History::default();
        let names: Vec<String> = (0..=TRACKS_MAX).map(|index| format!("r{index}")).collect();
        let rules: Vec<(&str, u64)> = names.iter().map(|name| (&**name, 1)).collect();
        history.write(NOW, &snapshot(&rules), &NOTHING);
        assert!(history.hour(Some("r999")).is_some());
        assert!(history.hour(Some("r1000")).is_none());
    }
}
