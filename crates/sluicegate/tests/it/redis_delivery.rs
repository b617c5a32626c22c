//! The shared store on one server, on a Cluster, and behind sentinels.

use crate::support::{hourly, unit};
use sluicegate::core::{Quota, Timestamp};
use sluicegate::store::redis::{KeyEncoder, RedisStore};
use sluicegate::store::{Health, KeySpace, Store};
use sluicegate_testkit::conformance::DEADLINE;
use sluicegate_testkit::redis_cluster::{Options, RedisCluster};
use sluicegate_testkit::redis_sentinel::RedisSentinels;
use sluicegate_testkit::redis_server::RedisServer;

/// Forty concurrent requests for a limit of twenty.
async fn admits_exactly_the_limit(url: &str) {
    let store = RedisStore::start(&url.parse().unwrap(), KeyEncoder::default()).unwrap();
    store.ready(DEADLINE).await.unwrap();
    let quotas: [Quota; 1] = [hourly(20)];
    let space = KeySpace::new("rule");
    let charges = [unit(&space, "alice", &quotas)];
    let sent = (0..40).map(|_| store.charge(&charges, Timestamp::now(0), DEADLINE));
    let replies = futures_util::future::join_all(sent).await;
    let admitted = replies.iter().filter(|reply| reply.as_ref().unwrap().verdicts[0].outcome.is_allowed()).count();
    assert_eq!(admitted, 20);
    assert_eq!(store.health(), Health::Up);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_one_server() {
    let server = RedisServer::start();
    admits_exactly_the_limit(&server.url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_cluster() {
    let cluster = RedisCluster::with(&Options::default().size(3, 0));
    admits_exactly_the_limit(&cluster.url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_sentinels() {
    let sentinels = RedisSentinels::start();
    admits_exactly_the_limit(&sentinels.url()).await;
}
