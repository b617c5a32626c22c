//! Log lines for requests that are decided without the store.
//!
//! During an outage of the store every request is one, so there is at most one line per second for each error class. It contains
//! the number of lines suppressed since the last one. Lines name rules, never identities.

use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate::core::{Micros, Timestamp};
use sluicegate::decision::{LimitEvent, LimitOutcome};
use sluicegate::rules::OnStoreFailure;
use sluicegate::store::{ErrorClass, StoreError};

/// The time between two lines for the same error class.
const PAUSE: Micros = Micros::from_secs(1);

/// The most rules that one line names.
const RULES_MAX: usize = 8;

/// One throttle for each error class.
#[derive(Debug, Default)]
pub(super) struct DegradationLog([LineThrottle; ErrorClass::ALL.len()]);

impl DegradationLog {
    /// Logs that a request at `now` met `error`, with the policies of its rules, unless the throttle of the class suppresses
    /// the line.
    pub(super) fn write<'a>(
        &self,
        now: Timestamp,
        error: &StoreError,
        outcomes: impl Iterator<Item = LimitEvent<'a>>,
    ) {
        let index = ErrorClass::ALL.iter().position(|class| *class == error.class).unwrap_or_default();
        if let Some(held_back) = self.0[index].admit(now) {
            let (class, reason, rules) = (error.class.name(), error.message.as_str(), policies(outcomes));
            if error.class.is_overload() {
                tracing::warn!(class, reason, rules, held_back, "the store could not keep up");
            } else {
                tracing::warn!(class, reason, rules, held_back, "the store could not decide");
            }
        }
    }
}

/// Admits one line per [`PAUSE`].
#[derive(Debug, Default)]
struct LineThrottle {
    opens_at_micros: AtomicU64,
    held_back: AtomicU64,
}

impl LineThrottle {
    /// If the line is admitted, returns the number of lines suppressed since the last admitted one.
    fn admit(&self, now: Timestamp) -> Option<u64> {
        let opens_at = self.opens_at_micros.load(Ordering::Relaxed);
        let next = now.plus(PAUSE).as_micros();
        // The clock may be set back: a throttle that would open later than after a pause is open.
        let is_open = now.as_micros() >= opens_at || opens_at > next;
        // Of several threads, the one that closes the throttle is admitted.
        let is_admitted = is_open
            && self.opens_at_micros.compare_exchange(opens_at, next, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if is_admitted {
            return Some(self.held_back.swap(0, Ordering::Relaxed));
        }
        self.held_back.fetch_add(1, Ordering::Relaxed);
        None
    }
}

/// `payments: local, search: open`, each rule once.
fn policies<'a>(outcomes: impl Iterator<Item = LimitEvent<'a>>) -> String {
    let mut named: Vec<&str> = Vec::new();
    let mut texts: Vec<String> = Vec::new();
    for LimitEvent { rule, outcome, .. } in outcomes {
        if named.contains(&rule) {
            continue;
        }
        if named.len() == RULES_MAX {
            texts.push("…".to_owned());
            break;
        }
        named.push(rule);
        texts.push(format!("{rule}: {}", policy(outcome).name()));
    }
    texts.join(", ")
}

/// The policy behind an outcome without the store.
fn policy(outcome: LimitOutcome) -> OnStoreFailure {
    match outcome {
        LimitOutcome::FailedOpen => OnStoreFailure::Open,
        LimitOutcome::FailedClosed => OnStoreFailure::Closed,
        // All other outcomes come from this instance's share of the limit.
        _ => OnStoreFailure::Local,
    }
}

#[cfg(test)]
mod tests {
    use sluicegate::core::{Align, FixedWindow, Quota};

    use super::*;

    #[test]
    fn one_line_per_second_is_admitted_with_the_number_of_suppressed_lines() {
        let throttle = LineThrottle::default();
        let at = |millis: u64| Timestamp::now(1_705_312_800_000_000 + millis * 1_000);
        assert_eq!(throttle.admit(at(0)), Some(0));
        assert_eq!((throttle.admit(at(0)), throttle.admit(at(999))), (None, None));
        assert_eq!(throttle.admit(at(1_000)), Some(2));
        assert_eq!(throttle.admit(at(1_999)), None);
        assert_eq!(throttle.admit(at(60_000)), Some(1));
    }

    #[test]
    fn one_of_several_threads_is_admitted_and_the_others_are_counted() {
        const THREADS: u64 = 8;
        let (throttle, now) = (LineThrottle::default(), Timestamp::now(5_000_000));
        let passed = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| passed.fetch_add(u64::from(throttle.admit(now).is_some()), Ordering::Relaxed));
            }
        });
        assert_eq!(passed.into_inner(), 1);
        assert_eq!(throttle.admit(now.plus(PAUSE)), Some(THREADS - 1));
    }

    #[test]
    fn every_error_class_has_its_own_throttle() {
        let log = DegradationLog::default();
        for class in ErrorClass::ALL {
            log.write(Timestamp::now(1), &StoreError::new(class, "gone"), std::iter::empty());
        }
        assert!(log.0.iter().all(|throttle| throttle.held_back.load(Ordering::Relaxed) == 0));
    }

    #[test]
    fn each_rule_is_named_once_with_its_policy_up_to_the_bound() {
        let quota = Quota::from(FixedWindow::new(1, Micros::from_secs(1), Align::Epoch).expect("valid"));
        let observed = |rule, outcome| LimitEvent { rule, slot: None, quota: &quota, outcome, verdict: None };
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
