//! More requests at once than a healthy Redis answers in time, from outside: every request gets a decision, and the
//! limits are exact afterwards.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use serde_json::{Value, json};
use sluicegate_testkit::poll;
use sluicegate_testkit::redis_server::RedisServer;

use crate::client::{post, send};
use crate::server::{ConfigFile, PATIENCE, Server};

/// The limit of each identity.
const CAPACITY: u64 = 2;
const RULES: &str = "
rules:
  - { name: open, match: { resource: open }, per: identifier, on_store_failure: open,
      limits: [ { algorithm: token_bucket, capacity: 2, refill: 1/h } ] }
  - { name: closed, match: { resource: closed }, per: identifier, on_store_failure: closed,
      limits: [ { algorithm: token_bucket, capacity: 2, refill: 1/h } ] }
";

fn start(redis: &RedisServer, name: &str) -> (Server, ConfigFile) {
    let config = ConfigFile::new(name, RULES);
    let server = Server::start(&["--config", config.path(), "--store", &redis.url(), "--resp", "127.0.0.1:0"]);
    let is_decided = || {
        let answer = post(server.address("api"), "/v1/check", r#"{"resource":"closed","identifier":"first"}"#);
        answer.json()["degraded"] == json!(false)
    };
    poll::until_true("the store decides", PATIENCE, is_decided);
    (server, config)
}

/// A connection with alternating writes and reads.
struct Talk {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Talk {
    fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the listener accepts");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_nodelay(true).expect("a socket option");
        Self { reader: BufReader::new(stream.try_clone().expect("a handle")), stream }
    }

    fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).expect("the server reads");
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).expect("an answer");
        line.trim_end().to_owned()
    }

    /// The status and the body of an HTTP response.
    fn answer(&mut self) -> (u16, Value) {
        let status = self.line().split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let mut length = 0;
        loop {
            let line = self.line().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(text) = line.strip_prefix("content-length: ") {
                length = text.parse().expect("a length");
            }
        }
        let mut body = vec![0; length];
        self.reader.read_exact(&mut body).expect("a body");
        (status, serde_json::from_slice(&body).expect("JSON"))
    }
}

/// The decisions of a rule so far, by outcome.
fn outcomes(server: &Server, rule: &str) -> BTreeMap<String, u64> {
    let text = send(server.address("admin"), "GET", "/metrics").body;
    let of_rule = format!("rule=\"{rule}\"");
    let mut counts = BTreeMap::new();
    let lines = text.lines().filter(|line| line.starts_with("sluicegate_decisions_total{"));
    for line in lines.filter(|line| line.contains(&of_rule)) {
        let (series, count) = line.rsplit_once(' ').expect("a count");
        let outcome =
            series.split("outcome=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("an outcome");
        *counts.entry(outcome.to_owned()).or_insert(0) += count.parse::<u64>().expect("a count");
    }
    counts.retain(|_, count| *count > 0);
    counts
}

fn check_of(resource: &str, identifier: &str) -> String {
    let body = json!({ "resource": resource, "identifier": identifier }).to_string();
    let length = body.len();
    format!(
        "POST /v1/check HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

#[test]
fn a_flood_of_requests_neither_opens_a_limit_nor_closes_a_service() {
    const CONNECTIONS: usize = 800;
    const WAVES: usize = 3;
    /// Before overload was distinguished from failure, every flood failed.
    const ATTEMPTS_MAX: usize = 5;
    let redis = RedisServer::start();
    let (server, _config) = start(&redis, "overload-http");
    let mut talks: Vec<Talk> = (0..CONNECTIONS).map(|_| Talk::open(server.address("api"))).collect();
    for resource in ["open", "closed"] {
        // Without a free core, Redis may be silent for so long that it counts as failed. Then the flood is repeated.
        for attempt in 1.. {
            let before = outcomes(&server, resource);
            let (mut admitted, mut refused) = (vec![0; CONNECTIONS], 0);
            for _ in 0..WAVES {
                for (number, talk) in talks.iter_mut().enumerate() {
                    talk.send(&check_of(resource, &format!("n{attempt}-{number}")));
                }
                for (talk, admitted) in talks.iter_mut().zip(&mut admitted) {
                    let (status, body) = talk.answer();
                    assert!(matches!(status, 200 | 429 | 503), "{resource}: {status} {body}");
                    *admitted += u64::from(status == 200);
                    refused += u64::from(status == 503);
                }
            }
            let after = outcomes(&server, resource);
            println!("{resource}: {after:?}");
            let sum = |counts: &BTreeMap<String, u64>| counts.values().sum::<u64>();
            assert!(sum(&after) - sum(&before) >= (CONNECTIONS * WAVES) as u64, "{after:?}");
            let opened = |counts: &BTreeMap<String, u64>| counts.get("failed_open").copied().unwrap_or_default();
            if opened(&after) - opened(&before) + refused > (CONNECTIONS * WAVES) as u64 / 1_000 {
                assert!(attempt < ATTEMPTS_MAX, "{before:?} {after:?}");
                poll::until_true("the store is up", PATIENCE, || {
                    let body = json!({ "resource": resource, "identifier": "n" }).to_string();
                    post(server.address("api"), "/v1/peek", body).json()["degraded"] == json!(false)
                });
                continue;
            }
            assert!(admitted.iter().all(|admitted| *admitted <= 2 * CAPACITY), "{admitted:?}");
            // The units that the local share admitted are charged in the end, so no identity has remaining quota.
            let is_exact = |number: usize| {
                let name = format!("n{attempt}-{number}");
                let body = json!({ "resource": resource, "identifier": name }).to_string();
                let look = post(server.address("api"), "/v1/peek", body).json();
                look["degraded"] == json!(false) && look["remaining"] == json!(0)
            };
            for number in (0..CONNECTIONS).step_by(40) {
                poll::until_true("the limit is exact", PATIENCE, || is_exact(number));
            }
            break;
        }
    }
    let ready = send(server.address("admin"), "GET", "/readyz");
    assert_eq!((ready.status, ready.json()["degraded"].clone()), (200, json!(false)));
}

/// The load pattern of `redis-benchmark -c 64 -P 16`.
#[test]
fn pipelines_of_throttles_are_answered_with_decisions() {
    const CONNECTIONS: usize = 64;
    const PIPELINED: usize = 16;
    const ROUNDS: usize = 12;
    let redis = RedisServer::start();
    let (server, _config) = start(&redis, "overload-resp");
    let mut talks: Vec<Talk> = (0..CONNECTIONS).map(|_| Talk::open(server.address("resp"))).collect();
    for round in 0..ROUNDS {
        for (number, talk) in talks.iter_mut().enumerate() {
            // Even rounds use one key for all connections; odd rounds use one key per command.
            let key = |place: usize| if round % 2 == 0 { 0 } else { number * PIPELINED + place };
            let commands = (0..PIPELINED).map(|place| format!("CL.THROTTLE k{} 15 30 60 1\r\n", key(place)));
            talk.send(&commands.collect::<String>());
        }
        for talk in &mut talks {
            for _ in 0..PIPELINED {
                let head = talk.line();
                assert_eq!(head, "*5", "round {round}");
                (0..5).for_each(|_| assert!(talk.line().starts_with(':')));
            }
        }
    }
}
