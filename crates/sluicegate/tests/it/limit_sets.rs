//! Every limit set of a rule (its own limits, a tier's, an override's) has a state of its own. Requests under one set
//! never change the remaining quota of another, whatever subject they share, however long the limits are, in every
//! store.

use crate::support::block_on;
use sluicegate::clock::ManualClock;
use sluicegate::core::algorithm::token_bucket::CREDIT_TTL_DEFAULT;
use sluicegate::core::{
    Align, Cost, FixedWindow, Micros, Quota, Rate, SlidingCounter, SlidingWindow, TokenBucket,
};
use sluicegate::pattern::Pattern;
use sluicegate::rules::{Limits, Override, Per, Rule, RuleSet, Unmatched};
use sluicegate::store::Store;
use sluicegate::store::memory::MemoryOptions;
use sluicegate::{Limiter, MemoryStore, Request};
use sluicegate_testkit::conformance::START;
use std::net::IpAddr;

const HOUR: Micros = Micros::from_secs(3_600);
const LIMIT: u64 = 5;

/// The same algorithm with every length that a set may have.
fn quotas(algorithm: &str, limit: u64, length: Micros) -> Vec<Quota> {
    let rate = Rate::new(limit, length).unwrap();
    vec![match algorithm {
        "token_bucket" => TokenBucket::new(limit, rate).unwrap().into(),
        "token_bucket with credits" => {
            TokenBucket::with_credits(limit, rate, limit, CREDIT_TTL_DEFAULT).unwrap().into()
        }
        "sliding_window" => SlidingWindow::new(limit, length).unwrap().into(),
        "sliding_counter" => SlidingCounter::new(limit, length).unwrap().into(),
        _ => FixedWindow::new(limit, length, Align::Epoch).unwrap().into(),
    }]
}

const ALGORITHMS: [&str; 5] =
    ["token_bucket", "token_bucket with credits", "sliding_window", "sliding_counter", "fixed_window"];

fn limits(quotas: Vec<Quota>) -> Limits {
    Limits::all("api", quotas.into_iter().map(|quota| (None, quota)))
}

/// A rule with an own limit of 5 per hour. Its tier `pro` and its override for `vip-*` allow as many in `short`.
fn rules(algorithm: &str, per: Per, short: Micros) -> RuleSet {
    let mut rule = Rule { per, ..Rule::new("api", limits(quotas(algorithm, LIMIT, HOUR))) };
    rule.deadline = std::time::Duration::from_secs(10);
    rule.tiers = vec![("pro".into(), limits(quotas(algorithm, LIMIT, short)))];
    let of_vips = limits(quotas(algorithm, LIMIT, short));
    rule.overrides = vec![Override { identifier: Pattern::new("vip-*"), limits: of_vips, until: None }];
    RuleSet::new(vec![rule], vec!["pro".into()], Unmatched::Allow).unwrap()
}

/// The number of requests admitted under the rule's own limit in 12 seconds, interleaved with requests under the
/// shorter sets.
async fn admitted_under_the_own_limit<S: Store>(
    limiter: &Limiter<S, ManualClock>,
    per: Per,
    costs: [u32; 2],
) -> u64 {
    let address: IpAddr = "192.0.2.1".parse().unwrap();
    let of = |identifier| Request { address: Some(address), ..Request::new("r", identifier) };
    let names = if per.identifier { ["a", "a"] } else { ["a", "vip-1"] };
    let (slow, mut fast) = (of(names[0]).cost(Cost::new(costs[0])), of(names[1]).cost(Cost::new(costs[1])));
    if per.identifier {
        fast = fast.tier("pro");
    }
    let mut admitted = 0;
    for turn in 0..120_u32 {
        limiter.clock().advance(Micros::from_millis(100));
        for _ in 0..3 {
            admitted += u64::from(limiter.check(&slow).await.unwrap().is_allowed()) * u64::from(costs[0]);
        }
        let fast = if turn % 2 == 0 { fast } else { fast.tier("pro") };
        limiter.check(&fast).await.unwrap();
    }
    admitted
}

async fn no_set_changes_another<S: Store>(store: impl AsyncFn() -> S) {
    for algorithm in ALGORITHMS {
        for per in [Per::ADDRESS, Per::TENANT, Per::GLOBAL, Per::IDENTIFIER] {
            for (short, costs) in [(100, [1, 1]), (1_000, [1, 5]), (60_000, [2, 1])] {
                let rules = rules(algorithm, per, Micros::from_millis(short));
                let limiter = Limiter::new(rules, store().await, ManualClock::at(START));
                let admitted = admitted_under_the_own_limit(&limiter, per, costs).await;
                // Whole requests of this cost fit, and nothing refills within 12 s of an hour.
                let expected = LIMIT / u64::from(costs[0]) * u64::from(costs[0]);
                assert_eq!(admitted, expected, "{algorithm}, {per:?}, {short} ms, costs {costs:?}");
            }
        }
    }
}

fn memory_store() -> MemoryStore {
    MemoryStore::new(MemoryOptions::default(), START)
}

#[test]
fn a_shorter_limit_of_a_tier_or_override_never_refills_the_own_limit_in_memory() {
    block_on(no_set_changes_another(async || memory_store()));
}

#[cfg(feature = "redis")]
#[test]
fn a_shorter_limit_of_a_tier_or_override_never_refills_the_own_limit_on_redis() {
    use sluicegate::store::redis::{KeyEncoder, RedisStore};
    crate::redis_server::on_every_server(async |server| {
        let connection = server.connect().await;
        for (apart, remembers) in [(false, false), (true, false), (false, true)] {
            no_set_changes_another(async || {
                redis::cmd("FLUSHALL").exec_async(&mut connection.clone()).await.unwrap();
                let store = RedisStore::over_connection(connection.clone(), KeyEncoder::default(), apart)
                    .with_caller_clock();
                if remembers { store.with_denial_cache() } else { store }
            })
            .await;
        }
    });
}

#[test]
fn change_of_tier_keeps_the_usage_of_each_tier() {
    block_on(async {
        for algorithm in ALGORITHMS {
            let rules = rules(algorithm, Per::IDENTIFIER, Micros::from_secs(60));
            let limiter = Limiter::new(rules, memory_store(), ManualClock::at(START));
            let (own, pro) = (Request::new("r", "a"), Request::new("r", "a").tier("pro"));
            let three = Cost::new(3);
            assert!(limiter.check(&own.cost(three)).await.unwrap().is_allowed());
            assert!(limiter.check(&pro.cost(Cost::new(5))).await.unwrap().is_allowed(), "{algorithm}");
            assert!(!limiter.check(&own.cost(three)).await.unwrap().is_allowed(), "{algorithm}");
            let remaining = limiter.peek(&own).await.unwrap().limits().next().unwrap().verdict.remaining;
            let credits = if algorithm.contains("credits") { LIMIT } else { 0 };
            assert!(remaining == 2 && credits <= LIMIT, "{algorithm}: {remaining}");
        }
    });
}

/// Credits are earned by idling under the set that has them, never by arriving from another set.
#[test]
fn change_of_tier_creates_no_credits() {
    let plain = quotas("token_bucket", 10, Micros::from_secs(1));
    let rate = Rate::new(10, Micros::from_secs(1)).unwrap();
    let plus = TokenBucket::with_credits(10, rate, 1_000, CREDIT_TTL_DEFAULT).unwrap();
    let mut rule = Rule::new("api", limits(plain));
    rule.tiers = vec![("plus".into(), limits(vec![plus.into()]))];
    let rules = RuleSet::new(vec![rule], vec!["plus".into()], Unmatched::Allow).unwrap();
    let limiter = Limiter::new(rules, memory_store(), ManualClock::at(START));
    block_on(async {
        assert!(limiter.check(&Request::new("r", "a")).await.unwrap().is_allowed());
        limiter.clock().advance(HOUR);
        let plus = Request::new("r", "a").tier("plus");
        assert!(!limiter.check(&plus.cost(Cost::new(500))).await.unwrap().is_allowed());
        assert!(limiter.check(&plus.cost(Cost::new(10))).await.unwrap().is_allowed());
    });
}

#[test]
fn reset_clears_the_client_in_every_set_and_keeps_shared_states() {
    block_on(async {
        for algorithm in ALGORITHMS {
            let own = rules(algorithm, Per::IDENTIFIER, Micros::from_secs(60)).rules()[0].clone();
            let shared = Rule { per: Per::GLOBAL, ..Rule::new("all", limits(quotas(algorithm, 50, HOUR))) };
            let rules = RuleSet::new(vec![own, shared], vec!["pro".into()], Unmatched::Allow).unwrap();
            let limiter = Limiter::new(rules, memory_store(), ManualClock::at(START));
            let (own, pro) = (Request::new("r", "a"), Request::new("r", "a").tier("pro"));
            for request in [own, pro] {
                assert!(limiter.check(&request.cost(Cost::new(5))).await.unwrap().is_allowed());
                assert!(!limiter.check(&request).await.unwrap().is_allowed());
            }
            let remaining = |decision: &sluicegate::Decision| -> Vec<u64> {
                decision.limits().map(|limit| limit.verdict.remaining).collect()
            };
            let answer = limiter.reset(&own).await.unwrap();
            assert_eq!(remaining(&answer), [5, 40], "{algorithm}");
            for request in [own, pro] {
                assert_eq!(remaining(&limiter.peek(&request).await.unwrap()), [5, 40], "{algorithm}");
            }
        }
    });
}

/// In a batch, each request is held to its own set, and all sets are charged.
#[test]
fn batch_is_held_to_the_limits_of_every_set() {
    for algorithm in ALGORITHMS {
        for short in [100, 60_000] {
            let limiter = Limiter::new(
                rules(algorithm, Per::TENANT, Micros::from_millis(short)),
                memory_store(),
                ManualClock::at(START),
            );
            block_on(async {
                let requests = [Request::new("r", "ann"), Request::new("r", "vip-1")];
                let mut admitted = 0;
                for _ in 0..30 {
                    let decisions = limiter.check_all(&limiter.rules(), &requests).await.unwrap();
                    admitted += u64::from(decisions.is_allowed());
                    limiter.clock().advance(Micros::from_millis(350));
                }
                assert_eq!(admitted, LIMIT, "{algorithm}, {short} ms");
            });
        }
    }
}

/// Two overrides with the same pattern, the first of which ends, are two sets.
#[test]
fn ended_override_leaves_the_next_one_its_own_state() {
    let mut rule = Rule::new("api", limits(quotas("token_bucket", LIMIT, HOUR)));
    let with = |length, until| Override {
        identifier: Pattern::new("a"),
        limits: limits(quotas("token_bucket", LIMIT, length)),
        until,
    };
    let until = START.plus(Micros::from_secs(10));
    rule.overrides = vec![with(Micros::from_secs(1), Some(until)), with(HOUR, None)];
    let rules = RuleSet::new(vec![rule], Vec::new(), Unmatched::Allow).unwrap();
    let limiter = Limiter::new(rules, memory_store(), ManualClock::at(START));
    block_on(async {
        let request = Request::new("r", "a").cost(Cost::new(5));
        assert!(limiter.check(&request).await.unwrap().is_allowed());
        limiter.clock().advance(Micros::from_secs(10));
        assert!(limiter.check(&request).await.unwrap().is_allowed(), "the second has a state of its own");
        assert!(!limiter.check(&request).await.unwrap().is_allowed());
    });
}
