//! The exchange of invalidations on a real server.

use super::*;
use sluicegate_testkit::poll;
use sluicegate_testkit::redis_server::RedisServer;

/// Longer than any step of the test takes.
const PATIENCE: Duration = Duration::from_secs(20);

fn servers(server: &RedisServer) -> Arc<Servers> {
    let options = server.url().parse().expect("a URL");
    Arc::new(Servers::start(&options, &[&SCRIPT], "ours:").expect("options that make sense"))
}

fn reader(servers: &Arc<Servers>) -> Exchange {
    let key = b"ours:{notices}".to_vec();
    Exchange { servers: Arc::clone(servers), cache: Arc::new(DenialCache::new()), key, revision: 0, last: None }
}

impl Exchange {
    /// The partitions that an exchange invalidates, out of the first 2,000.
    async fn forgets(&mut self) -> Vec<u16> {
        let since = self.cache.invalidations.now();
        self.exchange().await;
        (0..2_000).filter(|partition| !self.cache.invalidations.is_valid_since(since, [*partition])).collect()
    }
}

#[tokio::test]
async fn each_instance_reads_the_invalidations_of_the_others_once() {
    let server = RedisServer::start();
    let servers = servers(&server);
    let [mut one, mut other] = [reader(&servers), reader(&servers)];
    assert_eq!(
        (one.forgets().await.len(), other.forgets().await.len()),
        (2_000, 2_000),
        "earlier invalidations are unknown"
    );
    assert_eq!((one.forgets().await, other.forgets().await), (vec![], vec![]));
    one.cache.unsent.add(7);
    one.cache.unsent.add(7);
    one.cache.unsent.add(1_200);
    assert_eq!(one.forgets().await, Vec::<u16>::new(), "its own are invalidated already");
    other.cache.unsent.add(3);
    assert_eq!(other.forgets().await, [7, 1_200]);
    assert_eq!(one.forgets().await, [3]);
    assert_eq!((one.forgets().await, other.forgets().await), (vec![], vec![]));
    assert_eq!(
        server.command::<u64>(&["ZCARD", "ours:{notices}"]),
        5,
        "one for each partition, and two revisions"
    );
}

#[tokio::test]
async fn a_lost_or_foreign_set_invalidates_everything() {
    let server = RedisServer::start();
    let servers = servers(&server);
    let [mut one, mut other] = [reader(&servers), reader(&servers)];
    one.exchange().await;
    other.exchange().await;
    for loss in [["DEL", "ours:{notices}", "any"], ["SET", "ours:{notices}", "garbage"]] {
        server.command::<redis::Value>(&loss);
        one.cache.unsent.add(5);
        assert_eq!((one.forgets().await.len(), other.forgets().await.len()), (2_000, 2_000), "{loss:?}");
        assert_eq!((one.forgets().await, other.forgets().await), (vec![], vec![]), "{loss:?}");
    }
    server.command::<u64>(&["ZADD", "ours:{notices}", "9007199254740991", "nonsense"]);
    assert_eq!(one.forgets().await.len(), 2_000);
}

#[tokio::test]
async fn unsent_invalidations_are_retried_and_split_across_calls() {
    let server = RedisServer::start();
    let servers = servers(&server);
    let [mut one, mut other] = [reader(&servers), reader(&servers)];
    other.exchange().await;
    server.command::<()>(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let posted: Vec<u16> = (0..1_500).collect();
    posted.iter().for_each(|partition| one.cache.unsent.add(*partition));
    one.exchange().await;
    assert_eq!(one.cache.last_exchange.load(Ordering::Relaxed), 0, "the server rejected the write");
    server.command::<()>(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    one.exchange().await;
    assert_ne!(one.cache.last_exchange.load(Ordering::Relaxed), 0);
    let first = other.forgets().await;
    one.exchange().await;
    let second = other.forgets().await;
    assert!(first.len() <= POSTED_MAX && !second.is_empty());
    assert_eq!([first, second].concat(), posted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalidation_is_posted_promptly() {
    let server = RedisServer::start();
    let servers = servers(&server);
    let [one, other] = [Arc::new(DenialCache::new()), Arc::new(DenialCache::new())];
    let _tasks = [&one, &other]
        .map(|cache| tokio::spawn(exchange_forever(Arc::clone(&servers), Arc::clone(cache), "ours:")));
    let last_exchange = |cache: &DenialCache| cache.last_exchange.load(Ordering::Acquire);
    poll::until_true("both have read", PATIENCE, || last_exchange(&one) > 0 && last_exchange(&other) > 0);
    let since = other.invalidations.now();
    one.unsent.add(9);
    poll::until_true("the other has read it", PATIENCE, || !other.invalidations.is_valid_since(since, [9]));
    assert!(other.invalidations.is_valid_since(since, [8]));
}

#[test]
fn a_clock_step_of_the_server_is_detected() {
    let millis = |count: LocalNanos| count * 1_000_000;
    let last = ClockReading { sent_at: millis(100), received_at: millis(140), server: millis(5_000) };
    let next =
        |server| ClockReading { sent_at: millis(1_100), received_at: millis(1_150), server: millis(server) };
    // Between 960 and 1050 ms have passed here, and the clocks may diverge by 10 ms.
    for (server, was_set) in
        [(5_949, true), (5_950, false), (6_000, false), (6_060, false), (6_061, true), (9, true)]
    {
        assert_eq!(next(server).was_set_since(last), was_set, "{server}");
    }
}
