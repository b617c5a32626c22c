//! Properties of a node that are invisible from outside.

use super::*;
use crate::store::redis::client::call::{LatePolicy, Resend};
use crate::store::redis::client::dialer::Dialer;
use crate::store::redis::client::options::RedisOptions;
use sluicegate_testkit::poll;
use sluicegate_testkit::redis_server::RedisServer;
use std::num::NonZeroUsize;
use std::time::Duration;

/// Longer than any step of the test takes.
const PATIENCE: Duration = Duration::from_secs(20);

fn start(server: &RedisServer, connections: usize, scripts: Vec<&'static str>) -> Node {
    let options: RedisOptions = server.url().parse().expect("a URL");
    let context = NodeContext {
        dialer: Dialer::for_servers(&options, 0).expect("a dialer"),
        primary_only: true,
        connections: NonZeroUsize::new(connections).expect("some"),
        in_flight_max: NonZeroUsize::MAX,
        read_timeout: PATIENCE,
        scripts,
        key_prefix: String::new(),
        doubt: Arc::new(Notify::new()),
        generation: Arc::default(),
    };
    Node::start(Address { host: "127.0.0.1".to_owned(), port: server.port() }, Arc::new(context), None)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_connection_is_the_last_choice() {
    let server = RedisServer::start();
    let node = start(&server, 2, vec!["return 1"]);
    node.tried(Instant::now() + PATIENCE).await;
    let link = |lane: usize| node.shared.lanes[lane].borrow().clone().expect("a connection");
    let uses =
        |number, lane| node.shared.connected_link(number).is_some_and(|used| Arc::ptr_eq(&used, &link(lane)));
    assert!(uses(0, 0) && uses(1, 1));
    // A successful probe may come in between.
    poll::until_true("the other is used", PATIENCE, || {
        link(0).record_probe(false);
        uses(0, 1) && uses(1, 1)
    });
    poll::until_true("both are used", PATIENCE, || {
        link(0).record_probe(false);
        link(1).record_probe(false);
        uses(0, 0) && uses(1, 1)
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_clock_estimate_costs_one_retry() {
    let server = RedisServer::start();
    let script = Script::new(
        "local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local late = now > tonumber(ARGV[1])
return ARGV[2] .. ' ' .. string.format('%.0f', now) .. (late and ' late' or ' in time')",
    );
    let node = start(&server, 1, vec![script.text]);
    let deadline = Instant::now() + PATIENCE;
    let call = Call {
        script: &script,
        keys: &[],
        arguments: &[],
        resend: Resend::Never,
        late_policy: LatePolicy::default(),
    };
    for tries in 1..=3 {
        let link = node.shared.link(0, deadline).await.expect("a connection");
        let now = Instant::now();
        link.clock.learn(link.clock.at(now) - 3_600_000_000, now, now);
        let Ok(NodeOutcome::Answered(answer)) = node.call(&call, deadline, false).await else {
            panic!("no answer")
        };
        assert_eq!(answer.body, b"in time");
        assert_eq!(node.counters().late.load(Ordering::Relaxed), tries);
    }
}
