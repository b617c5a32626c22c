//! What only a look inside can show.

use super::*;
use crate::store::redis::call::Repeat;
use crate::store::redis::options::RedisOptions;
use sluicegate_testkit::redis_server::RedisServer;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_idea_of_the_servers_clock_costs_one_more_try() {
    let server = RedisServer::start();
    let options: RedisOptions = server.url().parse().expect("a URL");
    let script = Script::new(
        "local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local late = now > tonumber(ARGV[1])
return ARGV[2] .. ' ' .. string.format('%.0f', now) .. (late and ' late' or ' in time')",
    );
    let common = Common {
        dialer: Dialer::for_servers(&options, 0).expect("a dialer"),
        primary_only: true,
        connections: NonZeroUsize::MIN,
        in_flight_max: NonZeroUsize::MAX,
        read_timeout: Duration::from_secs(20),
        scripts: vec![script.text],
        key_prefix: String::new(),
        doubt: Arc::new(Notify::new()),
    };
    let node = Node::start(Address { host: "127.0.0.1".to_owned(), port: server.port() }, Arc::new(common), None);
    let deadline = Instant::now() + Duration::from_secs(20);
    let call = Call { script: &script, keys: &[], arguments: &[], repeat: Repeat::Never };
    for tries in 1..=3 {
        let link = node.shared.link(0, deadline).await.expect("a connection");
        let now = Instant::now();
        link.clock.learn(link.clock.at(now) - 3_600_000_000, now, now);
        let Ok(Outcome::Answered(answer)) = node.call(&call, deadline, false).await else { panic!("no answer") };
        assert_eq!(answer.body, b"in time");
        assert_eq!(node.counters().late.load(Ordering::Relaxed), tries);
    }
}
