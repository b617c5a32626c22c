//! Requests that a shared limit denies, many concurrently on a real Cluster: identities and tenants lose exactly the
//! admitted units.

use crate::support::hourly;
use sluicegate::clock::SystemClock;
use sluicegate::core::{
    Align, Cost, FixedWindow, Micros, Quota, Rate, SlidingCounter, SlidingWindow, TokenBucket,
};
use sluicegate::rules::{Limits, OnStoreFailure, Per, Rule, RuleSet, Unmatched};
use sluicegate::store::redis::{KeyEncoder, RedisStore};
use sluicegate::{Limiter, Request};
use sluicegate_testkit::redis_cluster::{Options, RedisCluster};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Longer than any call takes, because a late call may charge without a reply.
const PATIENCE: Duration = Duration::from_secs(10);
const CALLERS: u32 = 10;
const LIMIT: u64 = 1_000;
/// How long each limit is under load, at least.
const LASTS: Duration = Duration::from_millis(1_500);
/// The load continues until so many units were admitted and so many requests denied, however slow the machine is.
const ADMITTED_MIN: u64 = 20;
const DENIED_MIN: u64 = 100;
/// A load that reaches neither number by then has found a limiter that admits or denies everything.
const LOAD_MAX: Duration = Duration::from_secs(30);
/// The time by which all reservations are released.
const SETTLED: Duration = Duration::from_secs(5);

/// None of these refills a whole unit within the test.
fn limits() -> Vec<(&'static str, Vec<Quota>)> {
    let (hour, year) = (Micros::from_secs(3_600), Micros::from_secs(365 * 86_400));
    let window: Quota = SlidingWindow::new(LIMIT, hour).unwrap().into();
    let counter: Quota = SlidingCounter::new(LIMIT, year).unwrap().into();
    let fixed: Quota = FixedWindow::new(LIMIT, year, Align::Epoch).unwrap().into();
    let credits = TokenBucket::with_credits(LIMIT, Rate::new(1, hour).unwrap(), 5, hour).unwrap();
    vec![
        ("sliding-window", vec![window.clone()]),
        ("sliding-counter", vec![counter]),
        ("fixed-window", vec![fixed.clone()]),
        ("bucket", vec![hourly(LIMIT)]),
        ("credits", vec![credits.into()]),
        ("several", vec![window, hourly(LIMIT), fixed]),
    ]
}

fn rules(name: &str, quotas: &[Quota]) -> RuleSet {
    let everybody = TokenBucket::new(2, Rate::new(20, Micros::from_secs(1)).unwrap()).unwrap();
    let rule = |name: String, per, quotas: Vec<Quota>| Rule {
        per,
        deadline: PATIENCE,
        on_store_failure: OnStoreFailure::Closed,
        ..Rule::new(&name, Limits::all(&name, quotas.into_iter().map(|quota| (None, quota))))
    };
    let rules = vec![
        rule(format!("{name}-own"), Per::IDENTIFIER, quotas.to_vec()),
        rule(format!("{name}-tenant"), Per::TENANT, quotas.to_vec()),
        rule(format!("{name}-all"), Per::GLOBAL, vec![everybody.into()]),
    ];
    RuleSet::new(rules, Vec::new(), Unmatched::Deny).unwrap()
}

async fn limiter(cluster: &RedisCluster, rules: RuleSet) -> Arc<Limiter<RedisStore>> {
    let store = RedisStore::start(&cluster.url().parse().unwrap(), KeyEncoder::default()).unwrap();
    store.ready(PATIENCE).await.unwrap();
    Arc::new(Limiter::new(rules, store, SystemClock::new()))
}

/// The results of all callers so far.
#[derive(Default)]
struct Totals {
    admitted: AtomicU64,
    denied: AtomicU64,
}

impl Totals {
    /// The admitted cost, and the number of denials.
    fn get(&self) -> (u64, u64) {
        (self.admitted.load(Ordering::Relaxed), self.denied.load(Ordering::Relaxed))
    }

    fn suffice(&self) -> bool {
        let (admitted, denied) = self.get();
        admitted > ADMITTED_MIN && denied > DENIED_MIN
    }
}

/// Sends requests as fast as it can.
async fn send(limiter: Arc<Limiter<RedisStore>>, caller: u32, totals: Arc<Totals>) {
    // Another cost is another decision, so the denial of one client does not answer the others.
    let cost = 1 + u64::from(caller % 2);
    let request = Request::new("any", "alice").cost(Cost::new(cost as u32));
    let started = Instant::now();
    while started.elapsed() < LASTS || !totals.suffice() && started.elapsed() < LOAD_MAX {
        if limiter.check(&request).await.unwrap().is_allowed() {
            totals.admitted.fetch_add(cost, Ordering::Relaxed);
        } else {
            totals.denied.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    }
}

/// The remaining quota of every limit but the shared one.
async fn left(limiter: &Limiter<RedisStore>) -> Vec<u64> {
    let decision = limiter.peek(&Request::new("any", "alice")).await.unwrap();
    let own = decision.limits().filter(|limit| !limit.rule.ends_with("-all"));
    own.map(|limit| limit.verdict.remaining).collect()
}

async fn denied_requests_leave_no_trace(limiters_count: usize) {
    let cluster = RedisCluster::with(&Options::default().size(3, 0));
    for (name, quotas) in limits() {
        let mut limiters = Vec::new();
        for _ in 0..limiters_count {
            limiters.push(limiter(&cluster, rules(name, &quotas)).await);
        }
        let totals = Arc::new(Totals::default());
        let callers = (0..CALLERS).map(|caller| {
            let limiter = Arc::clone(&limiters[caller as usize % limiters_count]);
            tokio::spawn(send(limiter, caller, Arc::clone(&totals)))
        });
        for caller in futures_util::future::join_all(callers).await {
            caller.unwrap();
        }
        let (admitted, denied) = totals.get();
        assert!(totals.suffice(), "{name}: {admitted} admitted, {denied} denied");
        let expected = vec![LIMIT - admitted; 2 * quotas.len()];
        let started = Instant::now();
        let mut seen = left(&limiters[0]).await;
        while seen != expected && started.elapsed() < SETTLED {
            tokio::time::sleep(Duration::from_millis(20)).await;
            seen = left(&limiters[0]).await;
        }
        assert_eq!(seen, expected, "{name}: {admitted} admitted, {denied} denied");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn denied_requests_of_one_server_leave_no_trace() {
    denied_requests_leave_no_trace(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn denied_requests_of_two_servers_leave_no_trace() {
    denied_requests_leave_no_trace(2).await;
}
