//! The numbers of cached denials, on real servers: wait and remaining quota are those that the server would return,
//! whatever this process has charged since.

use crate::support::{hourly, unit};
use sluicegate::clock::SystemClock;
use sluicegate::core::{
    Align, Cost, FixedWindow, Micros, Outcome, Quota, Rate, SlidingCounter, SlidingWindow, Timestamp, TokenBucket,
};
use sluicegate::pattern::Pattern;
use sluicegate::rules::{Limits, Rule, RuleSet, Selector, Unmatched};
use sluicegate::store::redis::{KeyEncoder, RedisStore};
use sluicegate::store::{Charge, Key, KeySpace, Lease, LeaseMode, Reply, Store, Subject};
use sluicegate::{Limiter, Request};
use sluicegate_testkit::redis_server::RedisServer;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Longer than any step of the test takes.
const PATIENCE: Duration = Duration::from_secs(30);
/// No test here uses the caller's clock.
const NOW: Timestamp = Timestamp::now(0);
/// How much too long a wait may be. A call takes less even on a busy machine, and all limits here last much longer.
const ROUND_TRIP_MAX: Micros = Micros::from_secs(10);
/// How long charges of other instances may be missing from a cached denial.
const OTHERS_UNSEEN_MAX: Duration = Duration::from_secs(1);

async fn store(server: &RedisServer) -> RedisStore {
    let store = RedisStore::start(&server.url().parse().unwrap(), KeyEncoder::default()).unwrap();
    store.ready(PATIENCE).await.unwrap();
    store
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(test);
}

fn costing(charge: Charge<'_>, cost: u32) -> Charge<'_> {
    Charge { cost: Cost::new(cost), ..charge }
}

/// The key that all clients of a rule share.
fn shared<'a>(space: &'a KeySpace, quotas: &'a [Quota]) -> Charge<'a> {
    Charge { key: Key { space, subject: Subject::default() }, ..unit(space, "", quotas) }
}

/// Limits that do not refill during a test.
fn slow_limits() -> Vec<(&'static str, Quota)> {
    let day = Micros::from_secs(86_400);
    vec![
        ("token bucket", hourly(5)),
        ("fixed window", FixedWindow::new(5, day, Align::Key).unwrap().into()),
        ("sliding counter", SlidingCounter::new(5, day).unwrap().into()),
        ("sliding window", SlidingWindow::new(5, day).unwrap().into()),
    ]
}

/// A bucket that a test cannot exhaust.
fn large(capacity: u64) -> Quota {
    TokenBucket::new(capacity, Rate::new(1, Micros::from_secs(300)).unwrap()).unwrap().into()
}

fn passes(reply: &Reply) -> bool {
    reply.verdicts.iter().all(|verdict| verdict.outcome.is_allowed())
}

/// The instant at which each limit has room, by the server's clock; `None` for never.
fn instants(reply: &Reply) -> Vec<Option<Timestamp>> {
    let instant = |outcome| match outcome {
        Outcome::Allowed => Some(NOW),
        Outcome::Denied { retry_after } => Some(reply.now.plus(retry_after)),
        Outcome::NeverAdmissible => None,
    };
    reply.verdicts.iter().map(|verdict| instant(verdict.outcome)).collect()
}

fn remaining(reply: &Reply) -> Vec<u64> {
    reply.verdicts.iter().map(|verdict| verdict.remaining).collect()
}

/// Charges, and compares a denial with the server's immediately afterwards. Returns whether the charge passed.
async fn charge_and_compare<S: Store>(what: &str, store: &S, charges: &[Charge<'_>]) -> bool {
    charge_and_compare_within(Micros::from_micros(0), what, store, charges).await
}

/// The same for cross-slot requests, with instants up to `apart` from each other.
async fn charge_and_compare_within<S: Store>(
    apart: Micros,
    what: &str,
    store: &S,
    charges: &[Charge<'_>],
) -> bool {
    let reply = store.charge(charges, NOW, PATIENCE).await.unwrap();
    if passes(&reply) {
        return true;
    }
    let truth = store.peek(charges, NOW, PATIENCE).await.unwrap();
    assert_eq!(remaining(&reply), remaining(&truth), "{what}: remaining quota");
    for (told, truth) in instants(&reply).into_iter().zip(instants(&truth)) {
        assert_eq!(told.is_some(), truth.is_some(), "{what}: whether it may ever pass");
        let (told, truth) = (told.unwrap_or_default(), truth.unwrap_or_default());
        assert!(
            truth.since(told) <= apart && told.since(truth) <= ROUND_TRIP_MAX,
            "{what}: may pass at {told:?}, not {truth:?}"
        );
    }
    false
}

#[test]
fn a_cached_denial_has_the_longest_wait_after_charges_by_other_rules() {
    run(async {
        let server = RedisServer::start();
        let day = FixedWindow::new(5, Micros::from_secs(86_400), Align::Epoch).unwrap();
        let slow = TokenBucket::new(1, Rate::new(1, Micros::from_secs(1_000)).unwrap()).unwrap();
        let rule = |name, quota| Rule {
            deadline: Duration::from_secs(10),
            ..Rule::new(name, Limits::all(name, [(None, quota)]))
        };
        let of_a = Selector { resource: Some(Pattern::new("a")), ..Selector::default() };
        let rules = vec![rule("id", day.into()), Rule { selector: of_a, ..rule("x", slow.into()) }];
        let rules = RuleSet::new(rules, Vec::new(), Unmatched::Deny).unwrap();
        let limiter = Limiter::new(rules, store(&server).await, SystemClock::new());
        let mut last = None;
        for (resource, passes) in
            [("a", true), ("a", false), ("b", true), ("b", true), ("b", true), ("b", true), ("a", false)]
        {
            let decision = limiter.check(&Request::new(resource, "alice")).await.unwrap();
            assert!(!decision.is_degraded());
            assert_eq!(decision.is_allowed(), passes, "{resource}");
            last = Some(decision);
        }
        let last = last.unwrap();
        assert_eq!(last.tightest().unwrap().rule, "id", "the day's limit is used up, too, and lasts longer");
        assert_eq!(last.remaining(), Some(0));
        assert_eq!(limiter.store().denied_from_cache(), 1);
    });
}

#[test]
fn a_cached_denial_counts_smaller_costs_admitted_since() {
    run(async {
        let server = RedisServer::start();
        let store = store(&server).await;
        for (name, quota) in slow_limits() {
            let (space, quotas) = (KeySpace::new("rule"), [quota]);
            let charge = unit(&space, name, &quotas);
            for (cost, passes) in [(3, true), (5, false), (1, true), (5, false), (5, false), (1, true), (5, false)]
            {
                let what = format!("{name}, {cost}");
                assert_eq!(charge_and_compare(&what, &store, &[costing(charge, cost)]).await, passes, "{what}");
            }
            let last = store.charge(&[costing(charge, 5)], NOW, PATIENCE).await.unwrap();
            assert_eq!(last.verdicts[0].remaining, 0);
        }
        assert!(store.denied_from_cache() >= 4);
    });
}

/// A deterministic random generator.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

/// Random charges, refunds and resets by clients that share keys, under several sets of limits.
async fn compare_random_traffic<S: Store>(store: &S, apart: Micros, seed: u64) -> usize {
    let mut draw = Draw(seed);
    let spaces: Vec<KeySpace> = (0..3).map(|number| KeySpace::new(&format!("rule-{seed}-{number}"))).collect();
    let limits: Vec<Quota> = slow_limits().into_iter().map(|(_, quota)| quota).collect();
    let wide: Vec<Quota> = vec![hourly(40), SlidingWindow::new(30, Micros::from_secs(3_600)).unwrap().into()];
    let mut of_spaces: Vec<Vec<Quota>> = Vec::new();
    for _ in 0..2 {
        let count = 1 + draw.below(2);
        of_spaces.push((0..count).map(|_| limits[draw.below(limits.len())].clone()).collect());
    }
    let names = ["alice", "bob", "carol"];
    let mut denials = 0;
    for step in 0..250 {
        let name = names[draw.below(names.len())];
        let all = [
            unit(&spaces[0], name, &of_spaces[0]),
            unit(&spaces[1], name, &of_spaces[1]),
            shared(&spaces[2], &wide[draw.below(2)..][..1]),
        ];
        // The set of rules differs from request to request.
        let rules = 1 + draw.below(7);
        let cost = [1, 1, 1, 2, 3, 5][draw.below(6)];
        let charges: Vec<Charge<'_>> =
            (0..3).filter(|rule| rules >> rule & 1 == 1).map(|rule| costing(all[rule], cost)).collect();
        let what = format!("seed {seed}, step {step}: {name}, rules {rules:03b}, cost {cost}");
        match draw.below(20) {
            0 => drop(store.refund(&charges, NOW, PATIENCE).await.unwrap()),
            1 => drop(store.reset(&charges, NOW, PATIENCE).await.unwrap()),
            _ => denials += usize::from(!charge_and_compare_within(apart, &what, store, &charges).await),
        }
    }
    denials
}

#[test]
fn every_cached_denial_equals_the_servers_after_random_operations() {
    run(async {
        let server = RedisServer::start();
        let store = store(&server).await;
        let mut denials = 0;
        for seed in 0..12 {
            denials += compare_random_traffic(&store, Micros::from_micros(0), seed).await;
        }
        let cached = store.denied_from_cache();
        assert!(denials > 500 && cached > 150, "{cached} of {denials} denials without a call");
    });
}

#[test]
fn every_cached_denial_equals_the_servers_across_slots() {
    run(async {
        let server = RedisServer::start();
        let client = redis::Client::open(server.url()).unwrap();
        let connection = client.get_multiplexed_async_connection().await.unwrap();
        let store = RedisStore::over_connection(connection, KeyEncoder::default(), true).with_denial_cache();
        let mut denials = 0;
        for seed in 100..106 {
            denials += compare_random_traffic(&store, ROUND_TRIP_MAX, seed).await;
        }
        let cached = store.denied_from_cache();
        assert!(denials > 250 && cached > 50, "{cached} of {denials} denials without a call");
    });
}

/// Held permits change in the background, so a cached denial may show too long a wait, and never too short a one.
#[test]
fn permits_count_as_charged_in_cached_denials() {
    run(async {
        let server = RedisServer::start();
        let store = store(&server).await;
        let (space, quotas) = (KeySpace::new("hot"), [hourly(3_000)]);
        let lease = Some(Lease { ttl: Micros::from_millis(200), mode: LeaseMode::Bounded });
        let hot = Charge { lease, ..unit(&space, "alice", &quotas) };
        let (mut admitted, mut compared) = (0, 0);
        while admitted < 3_000 {
            let reply = store.charge(&[hot], NOW, PATIENCE).await.unwrap();
            if !passes(&reply) {
                break;
            }
            admitted += 1;
            if admitted % 20 == 0 {
                let large = [costing(unit(&space, "alice", &quotas), 2_990)];
                let reply = store.charge(&large, NOW, PATIENCE).await.unwrap();
                assert!(!passes(&reply));
                let truth = store.peek(&large, NOW, PATIENCE).await.unwrap();
                assert!(instants(&reply) >= instants(&truth), "{admitted}: {reply:?} {truth:?}");
                assert!(remaining(&reply) <= remaining(&truth), "{admitted}: {reply:?} {truth:?}");
                compared += 1;
            }
        }
        assert!(compared > 50 && store.denied_from_cache() > 10);
    });
}

/// One client is denied continuously, while others pass under a limit that all share.
#[test]
fn a_flood_is_denied_from_the_cache_while_others_pass_on_a_shared_key() {
    const FLOOD: u64 = 30_000;
    /// How many admitted requests the flood has to overlap with, however slow the machine makes them.
    const ADMITTED: u64 = 100;
    run(async {
        let server = RedisServer::start();
        let store = store(&server).await;
        let (each, all) = (KeySpace::new("each"), KeySpace::new("all"));
        let (narrow, wide, roomy) = ([hourly(1)], [large(1_000_000)], [large(500_000)]);
        let charges = |name, quotas| [unit(&each, name, quotas), shared(&all, &wide)];
        let flooding = charges("flooding", &narrow);
        assert!(passes(&store.charge(&flooding, NOW, PATIENCE).await.unwrap()));
        let (is_over, admitted) = (AtomicBool::new(false), std::sync::atomic::AtomicU64::new(0));
        let others = async {
            while !is_over.load(Ordering::Relaxed) {
                let reply = store.charge(&charges("other", &roomy), NOW, PATIENCE).await.unwrap();
                assert!(passes(&reply));
                admitted.fetch_add(1, Ordering::Relaxed);
            }
        };
        let before = server.script_calls();
        let flood = async {
            let (mut last, mut denials) = (u64::MAX, 0);
            while denials < FLOOD || admitted.load(Ordering::Relaxed) < ADMITTED {
                denials += 1;
                let charged = admitted.load(Ordering::Relaxed);
                let reply = store.charge(&flooding, NOW, PATIENCE).await.unwrap();
                assert!(!passes(&reply) && reply.verdicts[0].remaining == 0);
                let left = reply.verdicts[1].remaining;
                assert!(left <= 1_000_000 - 1 - charged, "{left} left, and {charged} were admitted");
                assert!(left <= last, "{left} left after {last}");
                last = left;
                tokio::task::yield_now().await;
            }
            is_over.store(true, Ordering::Relaxed);
            denials
        };
        let ((), (), denials) = tokio::join!(others, others_as_well(&store, &is_over), flood);
        let (cached, admitted) = (store.denied_from_cache(), admitted.load(Ordering::Relaxed));
        let calls = server.script_calls() - before;
        println!("{denials} denials, {cached} without a call; {admitted} admitted meanwhile; {calls} calls");
        assert!(cached > denials * 99 / 100, "{cached} of {denials} without a call, {calls} calls");
    });
}

/// A client with no shared limits.
async fn others_as_well(store: &RedisStore, is_over: &AtomicBool) {
    let (space, quotas) = (KeySpace::new("alone"), [large(500_000)]);
    while !is_over.load(Ordering::Relaxed) {
        assert!(passes(&store.charge(&[unit(&space, "alone", &quotas)], NOW, PATIENCE).await.unwrap()));
    }
}

#[test]
fn charges_of_another_instance_count_within_a_second() {
    run(async {
        let server = RedisServer::start();
        let (here, there) = (store(&server).await, store(&server).await);
        let (each, all) = (KeySpace::new("each"), KeySpace::new("all"));
        let (narrow, wide) = ([hourly(1)], [hourly(20)]);
        let denied = [unit(&each, "alice", &narrow), shared(&all, &wide)];
        assert!(passes(&here.charge(&denied, NOW, PATIENCE).await.unwrap()));
        let mut stale = 0;
        for round in 0..3 {
            assert!(!passes(&here.charge(&denied, NOW, PATIENCE).await.unwrap()));
            assert!(passes(&there.charge(&[costing(shared(&all, &wide), 5)], NOW, PATIENCE).await.unwrap()));
            let charged = Instant::now();
            let truth = 20 - 1 - 5 * (round + 1);
            while charged.elapsed() < OTHERS_UNSEEN_MAX + Duration::from_millis(100) {
                let is_due = charged.elapsed() > OTHERS_UNSEEN_MAX;
                let reply = here.charge(&denied, NOW, PATIENCE).await.unwrap();
                let left = reply.verdicts[1].remaining;
                assert!(left == truth || !is_due && left == truth + 5, "{left}, and {truth} is true");
                stale += u64::from(left != truth);
                tokio::task::yield_now().await;
            }
        }
        assert!(stale > 0, "it was never answered without a call");
    });
}

/// No process can charge an exhausted limit, so no call is needed.
#[test]
fn an_exhausted_key_causes_no_further_calls() {
    run(async {
        let server = RedisServer::start();
        let store = store(&server).await;
        let space = KeySpace::new("rule");
        // The second limit has room, but cannot be charged while the first is exhausted.
        let quotas = [hourly(2), hourly(10)];
        let charge = costing(unit(&space, "alice", &quotas), 2);
        assert!(passes(&store.charge(&[charge], NOW, PATIENCE).await.unwrap()));
        let started = Instant::now();
        let mut sent = 0_u64;
        while started.elapsed() < Duration::from_millis(2_500) || sent <= 100 {
            assert!(!charge_and_compare("alice", &store, &[charge]).await);
            sent += 1;
        }
        let called = sent - store.denied_from_cache();
        // A machine that stalls for two seconds may have missed an invalidation, which costs a call.
        assert!(called <= 10, "{called} calls for {sent} requests");
    });
}
