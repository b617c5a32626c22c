//! The hot paths of the core and the library: decide, charge, check, and write the header fields.

use std::error::Error;
use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use sluicegate::clock::ManualClock;
use sluicegate::core::{
    Align, Cost, FixedWindow, Micros, Quota, Rate, SlidingCounter, SlidingWindow, Timestamp, TokenBucket,
};
use sluicegate::headers::{HeaderOptions, write_headers};
use sluicegate::rules::{Limits, Rule, RuleSet, Unmatched};
use sluicegate::store::memory::MemoryOptions;
use sluicegate::{Decision, Limiter, MemoryStore, Request};

/// A path: its name, and one call of it.
pub(crate) type Path = (&'static str, Box<dyn FnMut()>);

/// The time of all operations.
pub(crate) const NOW: Timestamp = Timestamp::now(1_705_312_800_000_500);

/// More than the cost of all calls together.
pub(crate) const PLENTY: u64 = 1_000_000;

/// The request; repetition does not matter.
pub(crate) const REQUEST: Request<'_> = Request::new("api.payments.create", "customer-0123456789");

type ManualLimiter = Limiter<MemoryStore, ManualClock>;

pub(crate) fn all() -> Result<Vec<Path>, Box<dyn Error>> {
    let minute = Micros::from_secs(60);
    let bucket: Quota = TokenBucket::new(PLENTY, Rate::new(PLENTY, minute)?)?.into();
    let fixed: Quota = FixedWindow::new(PLENTY, minute, Align::Epoch)?.into();
    let counter: Quota = SlidingCounter::new(PLENTY, minute)?.into();
    // The bucket is full before the count starts.
    let log: Quota = SlidingWindow::new(64, minute)?.into();
    let full: Quota = TokenBucket::new(1, Rate::new(1, minute)?)?.into();
    Ok(vec![
        ("decide/token_bucket", decide(bucket.clone())),
        ("decide/fixed_window", decide(fixed.clone())),
        ("decide/sliding_counter", decide(counter)),
        ("decide/sliding_window_full", decide(log)),
        ("store/one_limit", charge(vec![("one", bucket.clone())])?),
        ("store/two_limits", charge(vec![("one", bucket.clone()), ("other", fixed.clone())])?),
        ("limiter/one_rule", check(vec![("one", bucket.clone())])?),
        ("limiter/one_rule_denied", check(vec![("one", full.clone())])?),
        ("limiter/two_rules", check(vec![("one", bucket.clone()), ("other", fixed)])?),
        ("headers/allowed", write(vec![("one", bucket)])?),
        ("headers/denied", write(vec![("one", full)])?),
    ])
}

fn decide(quota: Quota) -> Box<dyn FnMut()> {
    let mut state = None;
    Box::new(move || {
        let (next, verdict) = black_box(&quota).decide(state.take(), black_box(Cost::ONE), black_box(NOW));
        black_box(verdict);
        state = next;
    })
}

fn charge(quotas: Vec<(&str, Quota)>) -> Result<Box<dyn FnMut()>, Box<dyn Error>> {
    let (rules, store) = (rules(quotas)?, store());
    Ok(Box::new(move || {
        if let Ok(matched) = rules.charges(&REQUEST, NOW) {
            black_box(store.charge_now(black_box(&matched.charges), black_box(NOW)));
        }
    }))
}

fn check(quotas: Vec<(&str, Quota)>) -> Result<Box<dyn FnMut()>, Box<dyn Error>> {
    let limiter = limiter(quotas)?;
    Ok(Box::new(move || {
        black_box(decided(&limiter));
    }))
}

fn write(quotas: Vec<(&str, Quota)>) -> Result<Box<dyn FnMut()>, Box<dyn Error>> {
    let limiter = limiter(quotas)?;
    let last =
        (0..2).filter_map(|_| decided(&limiter)).last().ok_or("the store in this process always decides")?;
    Ok(Box::new(move || {
        write_headers(black_box(&last), black_box(HeaderOptions::default()), |name, value| {
            black_box((name, value));
        });
    }))
}

fn decided(limiter: &ManualLimiter) -> Option<Decision> {
    ready(limiter.check(black_box(&REQUEST))).and_then(Result::ok)
}

pub(crate) fn limiter(quotas: Vec<(&str, Quota)>) -> Result<ManualLimiter, Box<dyn Error>> {
    Ok(Limiter::new(rules(quotas)?, store(), ManualClock::at(NOW)))
}

fn rules(quotas: Vec<(&str, Quota)>) -> Result<RuleSet, Box<dyn Error>> {
    let rule = |(name, quota)| Rule::new(name, Limits::all(name, [(None, quota)]));
    Ok(RuleSet::new(quotas.into_iter().map(rule).collect(), Vec::new(), Unmatched::Allow)?)
}

/// A store of one shard, so that two keys always share it.
pub(crate) fn store() -> MemoryStore {
    MemoryStore::new(MemoryOptions { shards: 1, ..MemoryOptions::default() }, NOW)
}

/// The result of a future that never suspends, as those of the embedded store do not.
pub(crate) fn ready<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}
