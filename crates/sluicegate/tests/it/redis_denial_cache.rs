//! The denial cache on real servers: a denied client causes no call until it may pass, and no request is denied
//! wrongly.

use crate::redis_server::on_every_server;
use crate::support::{hourly, unit};
use sluicegate::clock::SystemClock;
use sluicegate::core::{Cost, Micros, Outcome, Quota, Rate, Timestamp, TokenBucket};
use sluicegate::rules::{Limits, Rule, RuleSet, Unmatched};
use sluicegate::store::redis::testing::SingleConnection;
use sluicegate::store::redis::{KeyEncoder, RedisStore};
use sluicegate::store::{Charge, KeySpace, Reply, Store};
use sluicegate::{Limiter, Request};
use sluicegate_testkit::conformance::behaves;
use sluicegate_testkit::redis_sentinel::RedisSentinels;
use sluicegate_testkit::redis_server::RedisServer;
use std::time::Duration;
use tokio::time::Instant;

/// Longer than any step of the test takes, and far shorter than an hour.
const PATIENCE: Duration = Duration::from_secs(30);

/// No test here uses the caller's clock.
const NOW: Timestamp = Timestamp::now(0);

async fn store(url: &str) -> RedisStore {
    let store = RedisStore::start(&url.parse().unwrap(), KeyEncoder::default()).unwrap();
    store.ready(PATIENCE).await.unwrap();
    store
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(test);
}

/// How often the script has read a key: once for each key of a call. Nothing else reads keys.
fn looks(server: &RedisServer) -> u64 {
    let line = server.info("cmdstat_get").unwrap_or_else(|| "calls=0,".to_owned());
    let calls = line.strip_prefix("calls=").and_then(|line| line.split(',').next());
    calls.unwrap().parse().unwrap()
}

fn passes(reply: &Reply) -> bool {
    reply.verdicts.iter().all(|verdict| verdict.outcome.is_allowed())
}

async fn is_admitted<S: Store>(store: &S, charges: &[Charge<'_>]) -> bool {
    passes(&store.charge(charges, NOW, PATIENCE).await.unwrap())
}

/// Repeats the request until it is admitted.
async fn until_admitted(what: &str, store: &RedisStore, charges: &[Charge<'_>]) {
    let started = Instant::now();
    // A store that is still looking for its servers has no reply.
    while !store.charge(charges, NOW, PATIENCE).await.is_ok_and(|reply| passes(&reply)) {
        assert!(started.elapsed() < PATIENCE, "{what}: not admitted within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn costing(charge: Charge<'_>, cost: u32) -> Charge<'_> {
    Charge { cost: Cost::new(cost), ..charge }
}

#[test]
fn the_conformance_suite_holds_with_the_denial_cache() {
    on_every_server(async |server| {
        let connection = server.connect().await;
        for apart in [false, true] {
            behaves(async || {
                redis::cmd("FLUSHALL").exec_async(&mut connection.clone()).await.unwrap();
                let store = RedisStore::over_connection(connection.clone(), KeyEncoder::default(), apart);
                store.with_caller_clock().with_denial_cache()
            })
            .await;
        }
    });
}

#[test]
fn a_denied_identity_causes_no_calls_while_it_is_denied() {
    run(async {
        let server = RedisServer::start();
        let store = store(&server.url()).await;
        let (space, quotas) = (KeySpace::new("rule"), [hourly(3)]);
        let charges = [unit(&space, "x", &quotas)];
        for _ in 0..3 {
            assert!(is_admitted(&store, &charges).await);
        }
        let Reply { now, verdicts } = store.charge(&charges, NOW, PATIENCE).await.unwrap();
        let (calls, wait) = (looks(&server), |verdict: &sluicegate::core::Verdict| match verdict.outcome {
            Outcome::Denied { retry_after } => retry_after,
            other => panic!("{other:?}"),
        });
        let free_at = now.plus(wait(&verdicts[0]));
        let mut last = now;
        for _ in 0..10_000 {
            let reply = store.charge(&charges, NOW, PATIENCE).await.unwrap();
            assert_eq!(reply.now.plus(wait(&reply.verdicts[0])), free_at, "it may pass when it always could");
            assert!(reply.now >= last && reply.verdicts[0].remaining == 0);
            last = reply.now;
        }
        // Only a machine that stalls for two seconds makes a call in between, because it may have missed an
        // invalidation.
        let sent = looks(&server) - calls;
        assert_eq!(sent + store.denied_from_cache(), 10_000);
        assert!(sent < 10, "{sent} calls");
        assert_eq!(store.cached_denials(), 1);
        // A peek always goes to the server, and other identities are not affected.
        let before = looks(&server);
        assert!(!passes(&store.peek(&charges, NOW, PATIENCE).await.unwrap()));
        assert!(is_admitted(&store, &[unit(&space, "y", &quotas)]).await);
        assert_eq!(looks(&server), before + 2);
    });
}

#[test]
fn an_identity_passes_as_soon_as_it_may() {
    run(async {
        let server = RedisServer::start();
        let store = store(&server.url()).await;
        let bucket = TokenBucket::new(1, Rate::new(5, Micros::from_secs(1)).unwrap()).unwrap();
        let (space, quotas) = (KeySpace::new("rule"), [Quota::from(bucket)]);
        let charges = [unit(&space, "x", &quotas)];
        let (mut admitted, mut first, mut last) = (0, None, NOW);
        while admitted < 10 {
            let reply = store.charge(&charges, NOW, PATIENCE).await.unwrap();
            if passes(&reply) {
                (admitted, last) = (admitted + 1, reply.now);
                first.get_or_insert(reply.now);
            }
            tokio::task::yield_now().await;
        }
        assert!(last.since(first.unwrap()).as_micros() >= 9 * 200_000, "no earlier than it may");
        assert!(store.denied_from_cache() > 0);
    });
}

#[test]
fn a_smaller_cost_goes_to_the_server_and_a_larger_one_does_not() {
    run(async {
        let server = RedisServer::start();
        let store = store(&server.url()).await;
        let (space, quotas) = (KeySpace::new("rule"), [hourly(10)]);
        let charge = unit(&space, "x", &quotas);
        assert!(is_admitted(&store, &[costing(charge, 6)]).await);
        assert!(!is_admitted(&store, &[costing(charge, 5)]).await);
        let before = store.denied_from_cache();
        assert!(!is_admitted(&store, &[costing(charge, 7)]).await);
        assert!(!is_admitted(&store, &[costing(charge, 11)]).await, "more than there ever is");
        assert_eq!(store.denied_from_cache(), before + 2);
        assert!(is_admitted(&store, &[costing(charge, 4)]).await);
        assert!(is_admitted(&store, &[costing(charge, 0)]).await);
        assert!(!is_admitted(&store, &[charge]).await);
    });
}

#[test]
fn a_local_refund_invalidates_at_once() {
    run(async {
        let server = RedisServer::start();
        let store = store(&server.url()).await;
        let (space, quotas) = (KeySpace::new("rule"), [hourly(1)]);
        let charges = [unit(&space, "x", &quotas)];
        let deny = async || {
            assert!(is_admitted(&store, &charges).await);
            assert!(!is_admitted(&store, &charges).await);
            let before = store.denied_from_cache();
            assert!(!is_admitted(&store, &charges).await);
            assert_eq!(store.denied_from_cache(), before + 1);
        };
        for _ in 0..50 {
            deny().await;
            store.refund(&charges, NOW, PATIENCE).await.unwrap();
        }
        for _ in 0..50 {
            deny().await;
            store.reset(&charges, NOW, PATIENCE).await.unwrap();
        }
    });
}

#[test]
fn a_refund_of_another_instance_invalidates_soon() {
    run(async {
        let server = RedisServer::start();
        let (here, there) = (store(&server.url()).await, store(&server.url()).await);
        let (space, quotas) = (KeySpace::new("rule"), [hourly(1)]);
        let charges = [unit(&space, "x", &quotas)];
        assert!(is_admitted(&there, &charges).await);
        for round in 0..2 {
            assert!(!is_admitted(&here, &charges).await);
            assert!(!is_admitted(&here, &charges).await);
            match round {
                0 => there.refund(&charges, NOW, PATIENCE).await.unwrap(),
                _ => there.reset(&charges, NOW, PATIENCE).await.unwrap(),
            };
            until_admitted("the refund of the other instance", &here, &charges).await;
        }
        assert!(here.denied_from_cache() > 0);
    });
}

#[test]
fn a_restart_with_data_loss_invalidates_the_cache() {
    run(async {
        let server = RedisServer::start();
        let store = store(&server.url()).await;
        let (space, quotas) = (KeySpace::new("rule"), [hourly(1)]);
        let charges = [unit(&space, "x", &quotas)];
        assert!(is_admitted(&store, &charges).await);
        assert!(!is_admitted(&store, &charges).await);
        assert!(!is_admitted(&store, &charges).await);
        server.restart_empty();
        until_admitted("the server is empty", &store, &charges).await;
        assert!(store.denied_from_cache() > 0);
    });
}

#[test]
fn a_failover_to_a_stale_replica_invalidates_the_cache() {
    run(async {
        let sentinels = RedisSentinels::start();
        let store = store(&sentinels.url()).await;
        let (space, quotas) = (KeySpace::new("rule"), [hourly(1)]);
        let charges = [unit(&space, "x", &quotas)];
        assert!(is_admitted(&store, &charges).await);
        assert!(!is_admitted(&store, &charges).await);
        assert!(!is_admitted(&store, &charges).await);
        assert!(store.denied_from_cache() > 0);
        let first = sentinels.primary().unwrap();
        // Replicas that have lost the charge, as after a long replication lag.
        for (index, server) in sentinels.servers().iter().enumerate() {
            if index != first {
                server.command::<()>(&["CONFIG", "SET", "replica-read-only", "no"]);
                server.command::<()>(&["FLUSHALL"]);
            }
        }
        sentinels.servers()[first].kill();
        until_admitted("another primary", &store, &charges).await;
    });
}

#[test]
fn cross_slot_requests_are_denied_from_the_cache() {
    on_every_server(async |server| {
        let connection = server.connect().await;
        let store: RedisStore<SingleConnection> =
            RedisStore::over_connection(connection, KeyEncoder::default(), true);
        let store = store.with_denial_cache();
        let (space, quotas, narrow) = (KeySpace::new("rule"), [hourly(5)], [hourly(2)]);
        let charges = [unit(&space, "a", &quotas), unit(&space, "b", &narrow)];
        for _ in 0..2 {
            assert!(is_admitted(&store, &charges).await);
        }
        let first = store.charge(&charges, NOW, PATIENCE).await.unwrap();
        let again = store.charge(&charges, NOW, PATIENCE).await.unwrap();
        assert_eq!(store.denied_from_cache(), 1);
        for reply in [&first, &again] {
            let said: Vec<_> = reply.verdicts.iter().map(|verdict| verdict.outcome.is_allowed()).collect();
            assert_eq!(said, [true, false]);
        }
        // Units that were reserved under `a` and released are available to others, and `b` can be refunded as well.
        assert_eq!(first.verdicts[0].remaining, 3);
        assert!(is_admitted(&store, &[costing(charges[0], 3)]).await);
        store.refund(&charges, NOW, PATIENCE).await.unwrap();
        assert!(is_admitted(&store, &charges).await);
    });
}

#[test]
fn a_cached_denial_looks_like_any_other_to_the_limiter() {
    run(async {
        let server = RedisServer::start();
        let rule = Rule {
            deadline: Duration::from_secs(10),
            ..Rule::new("api", Limits::all("api", [(None, hourly(1))]))
        };
        let rules = RuleSet::new(vec![rule], Vec::new(), Unmatched::Deny).unwrap();
        let limiter = Limiter::new(rules, store(&server.url()).await, SystemClock::new());
        let request = Request::new("api.read", "alice");
        assert!(limiter.check(&request).await.unwrap().is_allowed());
        let decisions = [limiter.check(&request).await.unwrap(), limiter.check(&request).await.unwrap()];
        assert_eq!(limiter.store().denied_from_cache(), 1);
        for decision in decisions {
            assert!(!decision.is_allowed() && !decision.is_degraded());
            assert_eq!(decision.tightest().unwrap().rule, "api");
        }
    });
}
