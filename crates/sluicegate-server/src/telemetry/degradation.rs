//! The lines in the log that tell of requests the store had no part in.
//!
//! Without the store every request is such a request, so there is at most one line per second for each class of
//! trouble; it says how many were held back since the last one. Rules are named, identities never.

use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate::core::{Micros, Timestamp};
use sluicegate::observe::{LimitOutcome, Observed};
use sluicegate::rules::OnStoreFailure;
use sluicegate::store::{ErrorClass, StoreError};

/// The time between two lines about one class of trouble.
const PAUSE: Micros = Micros::from_secs(1);

/// The most rules that one line names.
const RULES_MAX: usize = 8;

/// One gate for each class of trouble.
#[derive(Debug, Default)]
pub(super) struct DegradationLog([Gate; ErrorClass::ALL.len()]);

impl DegradationLog {
    /// Writes that a request of `now` met `error`, and which rules answered it by which policy, unless such a line
    /// was just written.
    pub(super) fn write<'a>(
        &self,
        now: Timestamp,
        error: &StoreError,
        outcomes: impl Iterator<Item = Observed<'a>>,
    ) {
        let place = ErrorClass::ALL.iter().position(|class| *class == error.class).unwrap_or_default();
        if let Some(held_back) = self.0[place].pass(now) {
            let (class, reason, rules) = (error.class.name(), error.message.as_str(), policies(outcomes));
            tracing::warn!(class, reason, rules, held_back, "the store could not decide");
        }
    }
}

/// Lets one pass, then nobody for a while.
#[derive(Debug, Default)]
struct Gate {
    opens_at_micros: AtomicU64,
    held_back: AtomicU64,
}

impl Gate {
    /// How many were held back since the last one that passed, if this one passes.
    fn pass(&self, now: Timestamp) -> Option<u64> {
        let opens_at = self.opens_at_micros.load(Ordering::Relaxed);
        let next = now.plus(PAUSE).as_micros();
        // Of several that come at once the one that closes the gate passes.
        let has_passed = now.as_micros() >= opens_at
            && self.opens_at_micros.compare_exchange(opens_at, next, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if has_passed {
            return Some(self.held_back.swap(0, Ordering::Relaxed));
        }
        self.held_back.fetch_add(1, Ordering::Relaxed);
        None
    }
}

/// `payments: local, search: open`, each rule once.
fn policies<'a>(outcomes: impl Iterator<Item = Observed<'a>>) -> String {
    let mut named: Vec<&str> = Vec::new();
    let mut words: Vec<String> = Vec::new();
    for Observed { rule, outcome, .. } in outcomes {
        if named.contains(&rule) {
            continue;
        }
        if named.len() == RULES_MAX {
            words.push("…".to_owned());
            break;
        }
        named.push(rule);
        words.push(format!("{rule}: {}", policy(outcome).name()));
    }
    words.join(", ")
}

/// The policy that led to an outcome without the store.
fn policy(outcome: LimitOutcome) -> OnStoreFailure {
    match outcome {
        LimitOutcome::FailedOpen => OnStoreFailure::Open,
        LimitOutcome::FailedClosed => OnStoreFailure::Closed,
        // Only a share has anything else to say.
        _ => OnStoreFailure::Local,
    }
}

#[cfg(test)]
mod tests {
    use sluicegate::core::{Align, FixedWindow, Quota};

    use super::*;

    #[test]
    fn one_passes_each_second_and_tells_how_many_did_not() {
        let gate = Gate::default();
        let at = |millis: u64| Timestamp::now(1_705_312_800_000_000 + millis * 1_000);
        assert_eq!(gate.pass(at(0)), Some(0));
        assert_eq!((gate.pass(at(0)), gate.pass(at(999))), (None, None));
        assert_eq!(gate.pass(at(1_000)), Some(2));
        assert_eq!(gate.pass(at(1_999)), None);
        assert_eq!(gate.pass(at(60_000)), Some(1));
    }

    #[test]
    fn of_many_at_once_one_passes_and_none_is_forgotten() {
        const THREADS: u64 = 8;
        let (gate, now) = (Gate::default(), Timestamp::now(5_000_000));
        let passed = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| passed.fetch_add(u64::from(gate.pass(now).is_some()), Ordering::Relaxed));
            }
        });
        assert_eq!(passed.into_inner(), 1);
        assert_eq!(gate.pass(now.plus(PAUSE)), Some(THREADS - 1));
    }

    #[test]
    fn every_class_has_a_gate_of_its_own() {
        let log = DegradationLog::default();
        for class in ErrorClass::ALL {
            log.write(Timestamp::now(1), &StoreError::new(class, "gone"), std::iter::empty());
        }
        assert!(log.0.iter().all(|gate| gate.held_back.load(Ordering::Relaxed) == 0));
    }

    #[test]
    fn each_rule_is_named_once_with_its_policy_and_not_too_many_are() {
        let quota = Quota::from(FixedWindow::new(1, Micros::from_secs(1), Align::Epoch).expect("valid"));
        let observed = |rule, outcome| Observed { rule, slot: None, quota: &quota, outcome, verdict: None };
        use LimitOutcome::{FailedClosed, FailedOpen, FallbackAllowed, FallbackDenied, ShadowDenied};
        let outcomes = [
            observed("a", FallbackAllowed),
            observed("a", FallbackDenied),
            observed("b", FailedOpen),
            observed("c", FailedClosed),
            observed("d", ShadowDenied),
        ];
        assert_eq!(policies(outcomes.into_iter()), "a: local, b: open, c: closed, d: local");
        let names: Vec<String> = (0..9).map(|index| format!("r{index}")).collect();
        let many = policies(names.iter().map(|name| observed(name, FailedOpen)));
        assert!(many.ends_with("r7: open, …"), "{many}");
    }
}
