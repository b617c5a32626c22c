//! Coalesced calls: requests for the same decision, and decisions that share a call.

use crate::support::{hourly, passed, unit};
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use sluicegate::core::{Cost, Outcome, Quota};
use sluicegate::store::redis::{KeyEncoder, RedisStore};
use sluicegate::store::{Charge, ErrorClass, KeySpace, Reply, Store as _};
use sluicegate_core::Timestamp;
use sluicegate_testkit::fault_proxy::{FaultProxy, Mode};
use sluicegate_testkit::poll;
use sluicegate_testkit::redis_server::RedisServer;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// Longer than any step of the test takes.
const PATIENCE: Duration = Duration::from_secs(20);
const NOW: Timestamp = Timestamp::now(0);

/// A server, a proxy that can be stopped, and a store behind it.
struct Scene {
    server: RedisServer,
    proxy: FaultProxy,
    store: Arc<RedisStore>,
    space: Arc<KeySpace>,
}

impl Scene {
    async fn start() -> Self {
        let server = RedisServer::start();
        let proxy = FaultProxy::start(server.address());
        let store = RedisStore::start(&proxy.url().parse().unwrap(), KeyEncoder::default()).unwrap();
        store.ready(PATIENCE).await.unwrap();
        Self { server, proxy, store: Arc::new(store), space: Arc::new(KeySpace::new("rule")) }
    }

    /// A request in a task of its own.
    fn send(&self, who: &str, quotas: &[Quota], cost: u32, deadline: Duration) -> JoinHandle<Answered> {
        let (store, space) = (Arc::clone(&self.store), Arc::clone(&self.space));
        let (who, quotas) = (who.to_owned(), quotas.to_vec());
        tokio::spawn(async move {
            let charge = Charge { cost: Cost::new(cost), ..unit(&space, &who, &quotas) };
            store.charge(&[charge], NOW, deadline).await.map_err(|error| error.class)
        })
    }

    /// `count` requests for the same unit of one identity.
    fn crowd(&self, who: &str, quotas: &[Quota], count: usize) -> Vec<JoinHandle<Answered>> {
        (0..count).map(|_| self.send(who, quotas, 1, PATIENCE)).collect()
    }

    /// Returns when this many requests have joined a call of others.
    fn until_joined(&self, count: u64) {
        poll::until_true("they have joined", PATIENCE, || self.store.coalesced() >= count);
    }

    async fn remaining(&self, who: &str, quotas: &[Quota]) -> u64 {
        let reply = self.store.peek(&[unit(&self.space, who, quotas)], NOW, PATIENCE).await.unwrap();
        reply.verdicts[0].remaining
    }
}

type Answered = Result<Reply, ErrorClass>;

async fn all(crowd: Vec<JoinHandle<Answered>>) -> Vec<Reply> {
    join_all(crowd).await.into_iter().map(|answered| answered.unwrap().unwrap()).collect()
}

/// Row 51: with separate calls for reads, write and expiry, every check costs four round trips.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decision_over_several_limits_is_one_call() {
    let scene = Scene::start().await;
    let quotas = [hourly(2), hourly(3), hourly(4)];
    for expected in [true, true, false] {
        let before = scene.server.script_calls();
        let reply = scene.send("alice", &quotas, 1, PATIENCE).await.unwrap().unwrap();
        assert_eq!(reply.verdicts.iter().all(|verdict| verdict.outcome.is_allowed()), expected);
        assert_eq!(scene.server.script_calls() - before, 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_requests_for_one_key_are_decided_exactly_in_two_calls() {
    let scene = Scene::start().await;
    let quotas = [hourly(100)];
    scene.proxy.set(Mode::HalfOpen);
    let before = scene.server.script_calls();
    let crowd = scene.crowd("hot", &quotas, 256);
    scene.until_joined(255);
    scene.proxy.set(Mode::Pass);
    let replies = all(crowd).await;
    assert_eq!(
        scene.server.script_calls() - before,
        2,
        "one call for the first request, one for all that arrived meanwhile"
    );
    let mut remaining: Vec<u64> =
        replies.iter().filter(|reply| passed(reply)).map(|reply| reply.verdicts[0].remaining).collect();
    remaining.sort_unstable();
    assert!(remaining.into_iter().eq(0..100), "each reply has the remaining quota after its own charge");
    for reply in replies.iter().filter(|reply| !passed(reply)) {
        assert_eq!(reply.verdicts[0].remaining, 0);
        assert!(matches!(reply.verdicts[0].outcome, Outcome::Denied { .. }));
    }
    assert_eq!(scene.remaining("hot", &quotas).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decisions_over_many_keys_share_a_call_and_stay_independent() {
    let scene = Scene::start().await;
    let quotas = [hourly(3)];
    scene.proxy.set(Mode::HalfOpen);
    let before = scene.server.script_calls();
    let names: Vec<String> = (0..72).map(|index| format!("user-{index}")).collect();
    let crowd: Vec<_> = names.iter().flat_map(|name| scene.crowd(name, &quotas, 4)).collect();
    // The first eight calls have one decision each. After them, the next eight calls have room for all others.
    scene.until_joined(72 * 4 - 8);
    scene.proxy.set(Mode::Pass);
    let replies = all(crowd).await;
    let calls = scene.server.script_calls() - before;
    assert!(calls <= 8 + 8, "{calls} calls for {} decisions", replies.len());
    for (index, of_one) in replies.chunks(4).enumerate() {
        assert_eq!(of_one.iter().filter(|reply| passed(reply)).count(), 3, "user {index}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn different_costs_of_one_key_share_its_limit() {
    let scene = Scene::start().await;
    let quotas = [hourly(50)];
    scene.proxy.set(Mode::HalfOpen);
    let crowd: Vec<_> = (0..64).map(|index| scene.send("x", &quotas, 1 + index % 4, PATIENCE)).collect();
    scene.until_joined(60);
    scene.proxy.set(Mode::Pass);
    let replies = all(crowd).await;
    let costs = (0..64).map(|index| u64::from(1 + index % 4_u32));
    let spent: u64 = replies.iter().zip(costs).filter(|(reply, _)| passed(reply)).map(|(_, cost)| cost).sum();
    assert_eq!(scene.remaining("x", &quotas).await, 50 - spent);
    assert!(spent > 46, "something that fitted was denied: {spent} of 50 spent");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn charges_of_vanished_waiters_go_to_the_next_waiters() {
    let scene = Scene::start().await;
    let quotas = [hourly(100)];
    scene.proxy.set(Mode::HalfOpen);
    let before = scene.server.script_calls();
    let vanishing = scene.crowd("x", &quotas, 1);
    poll::until_true("the call is under way", PATIENCE, || scene.store.calls_in_flight() == 1);
    let waiting = scene.crowd("x", &quotas, 1);
    scene.until_joined(1);
    for caller in vanishing {
        caller.abort();
        assert!(caller.await.unwrap_err().is_cancelled());
    }
    scene.proxy.set(Mode::Pass);
    let reply = &all(waiting).await[0];
    assert_eq!(reply.verdicts[0].remaining, 99, "one was charged, and one was admitted");
    assert_eq!(scene.server.script_calls() - before, 1, "there was nothing left to ask for");
    assert_eq!(scene.remaining("x", &quotas).await, 99);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_that_leave_before_the_call_are_not_charged() {
    let scene = Scene::start().await;
    let quotas = [hourly(100)];
    scene.proxy.set(Mode::HalfOpen);
    let first = scene.crowd("x", &quotas, 1);
    poll::until_true("the call is under way", PATIENCE, || scene.store.calls_in_flight() == 1);
    let vanishing = scene.crowd("x", &quotas, 10);
    scene.until_joined(10);
    for caller in vanishing {
        caller.abort();
        assert!(caller.await.unwrap_err().is_cancelled());
    }
    scene.proxy.set(Mode::Pass);
    all(first).await;
    poll::until_true("nothing is under way", PATIENCE, || scene.store.calls_in_flight() == 0);
    assert_eq!(scene.remaining("x", &quotas).await, 99);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_fails_at_its_deadline_while_others_wait_on() {
    let scene = Scene::start().await;
    let quotas = [hourly(100)];
    scene.proxy.set(Mode::HalfOpen);
    let patient = scene.crowd("x", &quotas, 1);
    poll::until_true("the call is under way", PATIENCE, || scene.store.calls_in_flight() == 1);
    let hasty = scene.send("x", &quotas, 1, Duration::from_millis(20));
    assert_eq!(hasty.await.unwrap().unwrap_err(), ErrorClass::Timeout);
    let late = scene.crowd("x", &quotas, 2);
    scene.until_joined(3);
    scene.proxy.set(Mode::Pass);
    assert!(all(patient).await.iter().chain(&all(late).await).all(passed));
    assert_eq!(scene.remaining("x", &quotas).await, 97, "requests past their deadline were not charged");
}

/// A future that is not polled must not delay the other waiters of its decision.
#[tokio::test]
async fn a_waiter_that_is_not_polled_does_not_block_others() {
    let scene = Scene::start().await;
    let quotas = [hourly(100)];
    let charges = [unit(&scene.space, "x", &quotas)];
    let mut idle = Box::pin(scene.store.charge(&charges, NOW, PATIENCE));
    assert!(idle.as_mut().now_or_never().is_none());
    let reply = scene.store.charge(&charges, NOW, PATIENCE).await.unwrap();
    assert!(passed(&reply));
    assert!(passed(&idle.await.unwrap()));
    assert_eq!(scene.remaining("x", &quotas).await, 98);
}
