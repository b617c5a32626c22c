//! In steady state a decision of the embedded store does not allocate: neither the match nor the charge, nor the
//! decision, nor its header fields. The counter belongs to this thread, so other tests do not affect it.

use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use sluicegate::clock::ManualClock;
use sluicegate::core::{Align, FixedWindow, Micros, Quota, SlidingCounter, Timestamp};
use sluicegate::headers::{HeaderOptions, write_headers};
use sluicegate::pattern::Pattern;
use sluicegate::rules::{Limits, Rule, RuleSet, Unmatched};
use sluicegate::{Decision, Limiter, MemoryStore, Request};

use crate::support::hourly;

const REQUEST: Request<'_> = Request::new("api.payments.create", "customer-0123456789").tenant("acme").tier("pro");

/// A limiter with one rule for each of these quotas.
fn limiter(quotas: Vec<Quota>) -> Limiter<MemoryStore, ManualClock> {
    let rule = |(index, quota)| {
        let name = format!("rule-{index}");
        let mut rule = Rule::new(&name, Limits::all(&name, [(None, quota)]));
        rule.selector.resource = Some(Pattern::new("api.*"));
        rule
    };
    let rules = quotas.into_iter().enumerate().map(rule).collect();
    let rules = RuleSet::new(rules, vec!["pro".into()], Unmatched::Allow).unwrap();
    let clock = ManualClock::at(Timestamp::now(1_705_312_800_000_000));
    Limiter::new(rules, MemoryStore::default(), clock)
}

/// The embedded store never suspends.
fn check(limiter: &Limiter<MemoryStore, ManualClock>) -> Decision {
    match pin!(limiter.check(&REQUEST)).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(decision) => decision.unwrap(),
        Poll::Pending => panic!("the embedded store suspended"),
    }
}

/// The number of allocations of `times` checks with their header fields, and whether all were allowed.
fn allocations(limiter: &Limiter<MemoryStore, ManualClock>, times: u32) -> (u64, bool) {
    let mut all_allowed = true;
    let counted = allocation_counter::measure(|| {
        for _ in 0..times {
            let decision = check(limiter);
            write_headers(&decision, HeaderOptions::default(), |field, value| {
                black_box((field, value));
            });
            all_allowed &= decision.is_allowed();
        }
    });
    (counted.count_total, all_allowed)
}

#[test]
fn no_decision_allocates_in_steady_state() {
    let window = |limit| Quota::from(FixedWindow::new(limit, Micros::from_secs(60), Align::Epoch).unwrap());
    let counter = Quota::from(SlidingCounter::new(1_000, Micros::from_secs(60)).unwrap());
    for (what, quotas, is_allowed) in [
        ("one rule", vec![hourly(1_000)], true),
        ("one rule, denied", vec![hourly(1)], false),
        ("one rule with a state that does not fit a word", vec![counter], true),
        ("two rules", vec![hourly(1_000), window(1_000)], true),
        ("two rules, denied by the second", vec![hourly(1_000), window(1)], false),
    ] {
        let limiter = limiter(quotas);
        check(&limiter);
        assert_eq!(allocations(&limiter, 100), (0, is_allowed), "{what}");
    }
}

#[test]
fn allocations_are_really_counted() {
    let limiter = limiter(vec![hourly(1)]);
    // The first decision allocates the table.
    assert!(allocations(&limiter, 1).0 > 0);
}
