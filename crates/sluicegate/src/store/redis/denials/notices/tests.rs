//! Notices on a real server, and what leads to them.

use super::*;
use sluicegate_testkit::poll;
use sluicegate_testkit::redis_server::RedisServer;

/// Longer than anything takes that is not meant to fail.
const PATIENCE: Duration = Duration::from_secs(20);

fn servers(server: &RedisServer) -> Arc<Servers> {
    let options = server.url().parse().expect("a URL");
    Arc::new(Servers::start(&options, &[&SCRIPT], "ours:").expect("options that make sense"))
}

fn reader(servers: &Arc<Servers>) -> Reader {
    let key = b"ours:{notices}".to_vec();
    Reader { servers: Arc::clone(servers), denials: Arc::new(Denials::new()), key, revision: 0, last: None }
}

impl Reader {
    /// Which of the first slots are forgotten by an exchange; all if everything is.
    async fn forgets(&mut self) -> Vec<u16> {
        let since = self.denials.forgotten.now();
        self.exchange().await;
        (0..2_000).filter(|slot| !self.denials.forgotten.is_nothing_since(since, [*slot])).collect()
    }
}

#[tokio::test]
async fn each_reads_what_the_others_have_posted_and_only_once() {
    let server = RedisServer::start();
    let servers = servers(&server);
    let [mut one, mut other] = [reader(&servers), reader(&servers)];
    assert_eq!(
        (one.forgets().await.len(), other.forgets().await.len()),
        (2_000, 2_000),
        "what was before is unknown"
    );
    assert_eq!((one.forgets().await, other.forgets().await), (vec![], vec![]));
    one.denials.unsent.add(7);
    one.denials.unsent.add(7);
    one.denials.unsent.add(1_200);
    assert_eq!(one.forgets().await, Vec::<u16>::new(), "it has forgotten its own already");
    other.denials.unsent.add(3);
    assert_eq!(other.forgets().await, [7, 1_200]);
    assert_eq!(one.forgets().await, [3]);
    assert_eq!((one.forgets().await, other.forgets().await), (vec![], vec![]));
    assert_eq!(server.command::<u64>(&["ZCARD", "ours:{notices}"]), 5, "one for each slot, and two revisions");
}

#[tokio::test]
async fn what_was_lost_or_is_not_ours_is_not_taken_for_nothing() {
    let server = RedisServer::start();
    let servers = servers(&server);
    let [mut one, mut other] = [reader(&servers), reader(&servers)];
    one.exchange().await;
    other.exchange().await;
    for loss in [["DEL", "ours:{notices}", "any"], ["SET", "ours:{notices}", "garbage"]] {
        server.command::<redis::Value>(&loss);
        one.denials.unsent.add(5);
        assert_eq!((one.forgets().await.len(), other.forgets().await.len()), (2_000, 2_000), "{loss:?}");
        assert_eq!((one.forgets().await, other.forgets().await), (vec![], vec![]), "{loss:?}");
    }
    server.command::<u64>(&["ZADD", "ours:{notices}", "9007199254740991", "nonsense"]);
    assert_eq!(one.forgets().await.len(), 2_000);
}

#[tokio::test]
async fn what_could_not_be_posted_is_posted_later_and_more_than_fits_in_parts() {
    let server = RedisServer::start();
    let servers = servers(&server);
    let [mut one, mut other] = [reader(&servers), reader(&servers)];
    other.exchange().await;
    server.command::<()>(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let posted: Vec<u16> = (0..1_500).collect();
    posted.iter().for_each(|slot| one.denials.unsent.add(*slot));
    one.exchange().await;
    assert_eq!(one.denials.heard.load(Ordering::Relaxed), 0, "the server refused to write");
    server.command::<()>(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    one.exchange().await;
    assert_ne!(one.denials.heard.load(Ordering::Relaxed), 0);
    let first = other.forgets().await;
    one.exchange().await;
    let second = other.forgets().await;
    assert!(first.len() <= POSTED_MAX && !second.is_empty());
    assert_eq!([first, second].concat(), posted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_notice_is_posted_without_being_asked_for() {
    let server = RedisServer::start();
    let servers = servers(&server);
    let [one, other] = [Arc::new(Denials::new()), Arc::new(Denials::new())];
    let _boards =
        [&one, &other].map(|denials| NoticeBoard::start(Arc::clone(&servers), Arc::clone(denials), "ours:"));
    let heard = |denials: &Denials| denials.heard.load(Ordering::Acquire);
    poll::until_true("both have read", PATIENCE, || heard(&one) > 0 && heard(&other) > 0);
    let since = other.forgotten.now();
    one.unsent.add(9);
    poll::until_true("the other has heard of it", PATIENCE, || !other.forgotten.is_nothing_since(since, [9]));
    assert!(other.forgotten.is_nothing_since(since, [8]));
}

#[test]
fn a_clock_that_was_set_shows() {
    let millis = |count: Local| count * 1_000_000;
    let last = Reading { asked: millis(100), answered: millis(140), server: millis(5_000) };
    let next = |server| Reading { asked: millis(1_100), answered: millis(1_150), server: millis(server) };
    // Between 960 and 1050 have passed here, and clocks may be 10 off.
    for (server, was_set) in
        [(5_949, true), (5_950, false), (6_000, false), (6_060, false), (6_061, true), (9, true)]
    {
        assert_eq!(next(server).was_set_since(last), was_set, "{server}");
    }
}
