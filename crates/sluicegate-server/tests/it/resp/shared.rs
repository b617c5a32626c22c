//! The RESP listener on a shared store: concurrent commands of a pipeline, with replies and effects in the right
//! order.

use std::time::{Duration, Instant};

use serde_json::Value;
use sluicegate_testkit::fault_proxy::{FaultProxy, Mode};
use sluicegate_testkit::poll;
use sluicegate_testkit::redis_cluster::RedisCluster;
use sluicegate_testkit::redis_server::RedisServer;

use super::{Client, start};
use crate::server::{ConfigFile, PATIENCE, Server};

const UNAVAILABLE: &str = "-ERR Service temporarily unavailable (rate limiter backend error)\r\n";

/// A server on the store at `url` with this deadline.
fn start_on(url: &str, test: &str, deadline: &str) -> Server {
    let config = ConfigFile::new(test, format!("resp: {{ deadline: {deadline} }}\nrules: []"));
    start(&["--config", config.path(), "--store", url])
}

/// The reply to take number `taken` of one unit from a bucket of `limit` that gains one per hour.
fn answer(limit: u64, taken: u64) -> String {
    if taken > limit {
        return format!("*5\r\n:1\r\n:{limit}\r\n:0\r\n:3600\r\n:{}\r\n", limit * 3_600);
    }
    format!("*5\r\n:0\r\n:{limit}\r\n:{}\r\n:-1\r\n:{}\r\n", limit - taken, taken * 3_600)
}

fn throttle(key: &str, limit: u64) -> String {
    format!("CL.THROTTLE {key} {} 1 3600\r\n", limit - 1)
}

#[test]
fn a_pipeline_over_many_keys_takes_few_round_trips() {
    const COMMANDS: u64 = 1_000;
    const DELAY: Duration = Duration::from_millis(5);
    let redis = RedisServer::start();
    let proxy = FaultProxy::start(redis.address());
    let server = start_on(&proxy.url(), "resp-round-trips", "10s");
    let mut client = Client::connect(&server);
    client.exchange("CL.THROTTLE warm 0 1 3600", &answer(1, 1));
    proxy.set(Mode::Delay(DELAY));
    // Each key has a limit of its own, so a misplaced reply is visible.
    let limit = |index: u64| index % 500 + 2;
    let commands: String = (0..COMMANDS).map(|index| throttle(&format!("key{index}"), limit(index))).collect();
    let answers: String = (0..COMMANDS).map(|index| answer(limit(index), 1)).collect();
    let sent = Instant::now();
    client.send(commands);
    client.expect(answers);
    // Sequential commands would take a thousand round trips, each of twice the delay.
    let (took, one_by_one) = (sent.elapsed(), 2 * DELAY * COMMANDS as u32);
    assert!(took < one_by_one / 4, "{took:?} of {one_by_one:?}");
}

#[test]
fn commands_on_one_key_are_decided_in_their_order() {
    let redis = RedisServer::start();
    let server = start_on(&redis.url(), "resp-order", "10s");
    let mut client = Client::connect(&server);
    // Three keys in turn with other commands in between. The bucket is empty before the end.
    let (mut commands, mut answers) = (String::new(), String::new());
    for taken in 1..=60 {
        for key in ["a", "b", "a\"\\x00\""] {
            commands += &throttle(key, 50);
            answers += &answer(50, taken);
        }
        if taken % 20 == 0 {
            commands += "PING\r\nCL.THROTTLE a 49 1 0\r\n";
            answers += "+PONG\r\n-ERR value is not an integer or out of range: period is '0'; use a whole number from 1 to 315360000\r\n";
        }
    }
    // A deletion takes effect after earlier commands and before later ones.
    commands += &format!("DEL a b nobody\r\n{}{}", throttle("a", 50), throttle("b", 50));
    answers += &format!(":2\r\n{0}{0}", answer(50, 1));
    client.send(commands);
    client.expect(answers);
}

#[test]
fn without_the_store_commands_are_errors_in_time_and_the_connection_goes_on() {
    const DEADLINE: Duration = Duration::from_millis(200);
    let redis = RedisServer::start();
    let server = start_on(&redis.url(), "resp-outage", "200ms");
    let mut client = Client::connect(&server);
    let pipeline: String = (0..300).map(|index| throttle(&format!("key{index}"), 2)).collect();
    let is_back = |client: &mut Client| {
        poll::until_true("a decision after the outage", PATIENCE, || {
            client.send(throttle("again", 10_000) + "PING\r\n");
            client.read_until("+PONG\r\n").starts_with("*5\r\n:0\r\n")
        });
    };
    is_back(&mut client);

    redis.pause();
    let sent = Instant::now();
    client.send(format!("{pipeline}PING\r\n"));
    let replies = client.read_until("+PONG\r\n");
    // On a busy machine, a reply from before the pause may arrive so late that the store still counts as overloaded. Then
    // this server's share decides the first commands.
    let errors = replies.matches(UNAVAILABLE).count();
    assert_eq!(errors + replies.matches("*5\r\n").count(), 300, "{replies}");
    assert!(errors > 0, "{replies}");
    // All commands wait concurrently, or are not sent any more: in sequence they would take 60 s. The bound leaves time for
    // a busy machine.
    assert!(sent.elapsed() < DEADLINE * 50, "{:?}", sent.elapsed());
    redis.resume();
    is_back(&mut client);

    redis.kill();
    let sent = Instant::now();
    client.send(pipeline.as_str());
    client.expect(UNAVAILABLE.repeat(300));
    assert!(sent.elapsed() < DEADLINE * 50, "{:?}", sent.elapsed());
    redis.launch();
    is_back(&mut client);

    server.signal("TERM");
    let ended = server.wait();
    let last = ended.lines.iter().find(|line| line.contains("\"stopped\"")).expect("the last line");
    let last: Value = serde_json::from_str(last).expect("JSON");
    // Commands during the recovery of the store may be included.
    let counted = |name: &str| last[name].as_u64().expect("a count");
    let undecided = 300 + errors as u64;
    assert!(counted("undecided") >= undecided && counted("undecided") <= counted("store_failures"), "{last}");
    let told = "\"rules\":\"resp:cl.throttle: closed\"";
    assert!(ended.lines.iter().any(|line| line.contains(told)), "{:#?}", ended.lines);
}

/// Row 42: if a bucket has two keys, they are in two slots, and a cluster rejects every decision.
#[test]
fn two_servers_on_a_cluster_admit_exactly_the_limit() {
    const KEYS: usize = 60;
    const LIMIT: u64 = 10;
    let cluster = RedisCluster::start();
    let servers =
        [start_on(&cluster.url(), "resp-cluster-0", "10s"), start_on(&cluster.url(), "resp-cluster-1", "10s")];
    let round: String = (0..KEYS).map(|key| throttle(&format!("key{key}"), LIMIT)).collect();
    // Four clients, two on each server, each request the whole limit at once.
    let ask = |mut client: Client| {
        client.send(round.repeat(LIMIT as usize) + "PING\r\n");
        let answers = client.read_until("+PONG\r\n");
        let limited: Vec<bool> = answers.split("*5\r\n").skip(1).map(|answer| answer.starts_with(":1")).collect();
        assert_eq!(limited.len(), KEYS * LIMIT as usize, "{answers}");
        limited
    };
    let told: Vec<Vec<bool>> = std::thread::scope(|scope| {
        let clients = servers.iter().chain(&servers).map(Client::connect);
        let clients: Vec<_> = clients.map(|client| scope.spawn(|| ask(client))).collect();
        clients.into_iter().map(|client| client.join().expect("a client")).collect()
    });
    for key in 0..KEYS {
        let of_key = told.iter().flat_map(|limited| limited.iter().skip(key).step_by(KEYS));
        assert_eq!(of_key.filter(|is_limited| !**is_limited).count() as u64, LIMIT, "key{key}");
    }
}
