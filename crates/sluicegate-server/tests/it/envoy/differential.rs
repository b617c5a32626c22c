//! The real `envoyproxy/ratelimit` and our binary side by side: random configurations, random requests, and equal answers in every
//! field. `cargo xtask ratelimit` compiles that service with Go and runs this; without it the test says that it did not run.
//!
//! A domain of the configuration is a story: its requests go to both services until the first denial, because from there on
//! that service has counted what it denied. Both start with all domains, so no story shares a counter with another one.
//!
//! The generated stories avoid what both are known to understand differently. That service joins keys and values by `_`. Its
//! counters have the start of the window in their names, but not the unit, so a day shares its counter with its first hour: a
//! story has one unit. It counts what a limit of 0 in shadow mode is asked, which only a limit in a descriptor could show. The
//! pinned version does not match a `*` within a value, and `quota_mode` has another meaning in it.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Instant, SystemTime};

use fastrand::Rng;
use serde_json::{Map, Value, json};
use sluicegate_testkit::port;
use sluicegate_testkit::redis_server::RedisServer;

use super::store_errors;
use crate::client::{Answer, Session};
use crate::server::{PATIENCE, Server, sluicegate};

/// The path of the service, and the seed of the first configuration.
const PROGRAM: &str = "SLUICEGATE_TEST_RATELIMIT";
const SEED: &str = "SLUICEGATE_TEST_RATELIMIT_SEED";

/// The domains of a run, and the most requests about each.
const STORIES: usize = 400;
const STEPS: usize = 12;
/// The stories that must be compared to the end. The others were interrupted.
const STORIES_MIN: usize = STORIES / 10;

const KEYS: [&str; 3] = ["user", "path", "plan"];
const VALUES: [&str; 5] = ["a", "ab", "b", "abc", "c"];
/// Windows of at least an hour rarely end within a run.
const UNITS: [(&str, u64); 3] = [("HOUR", 3_600), ("DAY", 86_400), ("WEEK", 604_800)];

/// The process of the other service, which ends with the test.
struct Theirs {
    process: Child,
    address: SocketAddr,
}

impl Theirs {
    fn start(program: &str, root: &Path, redis: &str) -> Self {
        let [http, grpc, debug] = [port::free(), port::free(), port::free()];
        let process = Command::new(program)
            .env_clear()
            .envs([
                ("RUNTIME_ROOT", root.to_str().expect("a path of text")),
                ("RUNTIME_SUBDIRECTORY", "ratelimit"),
            ])
            .envs([("USE_STATSD", "false"), ("LOG_LEVEL", "error"), ("RUNTIME_WATCH_ROOT", "false")])
            .envs([("REDIS_SOCKET_TYPE", "tcp"), ("REDIS_URL", redis), ("HOST", "127.0.0.1")])
            .envs(
                [("PORT", http), ("GRPC_PORT", grpc), ("DEBUG_PORT", debug)]
                    .map(|(name, port)| (name, port.to_string())),
            )
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{program}: {error}"));
        let theirs = Self { process, address: SocketAddr::from(([127, 0, 0, 1], http)) };
        let started = Instant::now();
        while TcpStream::connect(theirs.address).is_err() {
            assert!(started.elapsed() < PATIENCE, "{program} does not listen");
            std::thread::yield_now();
        }
        theirs
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A story: its domain, its unit, and its configuration.
struct Story {
    domain: String,
    unit: &'static str,
    configuration: String,
}

impl Story {
    fn new(random: &mut Rng, number: usize) -> Self {
        let (domain, unit) = (format!("story{number}"), UNITS[random.usize(..UNITS.len())].0);
        let list = Siblings { unit, names: Vec::new() }.descriptors(random, 2);
        let configuration = json!({ "domain": domain, "descriptors": list }).to_string();
        Self { domain, unit, configuration }
    }
}

/// The generator of the descriptors of a story, with the names of the limits so far.
struct Siblings {
    unit: &'static str,
    names: Vec<String>,
}

impl Siblings {
    /// A random descriptor with its nested ones, as a list item of YAML.
    fn descriptor(&mut self, random: &mut Rng, key: &str, value: Option<&str>, depth: usize) -> Value {
        let mut item = Map::from_iter([("key".to_owned(), json!(key))]);
        if let Some(value) = value {
            item.insert("value".to_owned(), json!(value));
            if value.ends_with('*') && random.bool() {
                item.insert("share_threshold".to_owned(), json!(true));
            }
        }
        if random.u8(..4) > 0 {
            item.insert("rate_limit".to_owned(), self.limit(random));
            if item["rate_limit"]["requests_per_unit"] != 0 && random.u8(..4) == 0 {
                item.insert("shadow_mode".to_owned(), json!(true));
            }
        }
        if depth > 1 && random.bool() {
            item.insert("descriptors".to_owned(), self.descriptors(random, depth - 1));
        }
        Value::Object(item)
    }

    fn limit(&mut self, random: &mut Rng) -> Value {
        if random.u8(..8) == 0 {
            return json!({ "unlimited": true });
        }
        let mut limit = json!({ "unit": self.unit.to_lowercase(), "requests_per_unit": random.u8(..9) });
        if random.u8(..3) == 0 {
            let replaced = random.choice(&self.names).filter(|_| random.clone().bool()).cloned();
            let name = format!("name{}", self.names.len());
            limit["name"] = json!(name);
            if let Some(replaced) = replaced {
                limit["replaces"] = json!([{ "name": replaced }]);
            }
            self.names.push(name);
        }
        limit
    }

    /// Siblings, no two of which have the same key and value.
    fn descriptors(&mut self, random: &mut Rng, depth: usize) -> Value {
        let mut all: Vec<(&str, Option<&str>)> = Vec::new();
        for key in KEYS {
            all.push((key, None));
            all.extend(VALUES.iter().chain(&["a*", "*", "b*"]).map(|value| (key, Some(*value))));
        }
        random.shuffle(&mut all);
        let count = random.usize(1..=5);
        all.into_iter().take(count).map(|(key, value)| self.descriptor(random, key, value, depth)).collect()
    }
}

/// A random request of one to three descriptors. The protocol has no limits in descriptors by the week.
fn request(random: &mut Rng, story: &Story) -> Value {
    let entry = |random: &mut Rng| json!({ "key": KEYS[random.usize(..KEYS.len())], "value": VALUES[random.usize(..VALUES.len())] });
    let descriptor = |random: &mut Rng| {
        let entries: Value = (0..random.usize(1..=2)).map(|_| entry(random)).collect();
        let mut descriptor = json!({ "entries": entries });
        if random.u8(..4) == 0 {
            descriptor["hitsAddend"] = json!(random.u8(..4).to_string());
        }
        // A check comes before the charges of its request here, so a smaller limit of its own could not see them.
        if story.unit != "WEEK" && descriptor["hitsAddend"] != "0" && random.u8(..6) == 0 {
            descriptor["limit"] = json!({ "requestsPerUnit": random.u8(1..6), "unit": story.unit });
        }
        descriptor
    };
    let mut list: Vec<Value> = (0..random.usize(1..=3)).map(|_| descriptor(random)).collect();
    // Two limits on one counter in one request are both held here, and there one after the other.
    let entries: Vec<Value> = list.iter().map(|descriptor| descriptor["entries"].clone()).collect();
    for descriptor in &mut list {
        if let Some(fields) = descriptor.as_object_mut()
            && entries.iter().filter(|entries| **entries == fields["entries"]).count() > 1
        {
            fields.remove("limit");
        }
    }
    let mut request = json!({ "domain": story.domain, "descriptors": list });
    if random.u8(..3) == 0 {
        request["hitsAddend"] = json!(random.u8(1..4));
    }
    request
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a time after 1970").as_secs()
}

/// The part of an answer that both have, without the amounts that may differ in a denied request.
fn comparable(answer: &Answer) -> Value {
    let body = answer.json();
    let is_denied = body["overallCode"] == "OVER_LIMIT";
    let statuses = body["statuses"].as_array().cloned().unwrap_or_default();
    let status = |mut status: Value| {
        if let Some(fields) = status.as_object_mut() {
            fields.remove("durationUntilReset");
            if is_denied && fields["code"] == "OK" {
                fields.remove("limitRemaining");
            }
        }
        status
    };
    let statuses: Vec<Value> = statuses.into_iter().map(status).collect();
    json!({ "status": answer.status, "overallCode": body["overallCode"], "statuses": statuses })
}

/// The seconds until the reset of each status. Both services read the clock one after the other.
fn resets(answer: &Answer) -> Vec<Option<i64>> {
    let statuses = answer.json()["statuses"].as_array().cloned().unwrap_or_default();
    let reset = |status: &Value| status["durationUntilReset"].as_str()?.strip_suffix('s')?.parse().ok();
    statuses.iter().map(reset).collect()
}

/// Whether two lists of resets differ by no more than the time between two readings of the clock.
fn are_close(one: &[Option<i64>], other: &[Option<i64>], seconds: i64) -> bool {
    one.len() == other.len()
        && one.iter().zip(other).all(|pair| match pair {
            (Some(one), Some(other)) => (one - other).abs() <= seconds,
            (one, other) => one == other,
        })
}

/// Replays a story on both. `None` if a window or a deadline ended meanwhile.
fn compared(
    random: &mut Rng,
    story: &Story,
    theirs: &mut Session,
    ours: &mut Session,
) -> Option<Result<(), String>> {
    let window = || unix_seconds() / UNITS[0].1;
    let began = window();
    let mut asked = Vec::new();
    for _ in 0..STEPS {
        let request = request(random, story);
        let text = request.to_string();
        asked.push(request);
        let sent = unix_seconds();
        let (expected, found) = (theirs.post("/json", &text), ours.post("/json", &text));
        let seconds = i64::try_from(unix_seconds() - sent).expect("a short time") + 1;
        if found.status == 503 || window() != began {
            return None;
        }
        let is_equal =
            comparable(&expected) == comparable(&found) && are_close(&resets(&expected), &resets(&found), seconds);
        if !is_equal {
            let requests: Vec<String> = asked.iter().map(Value::to_string).collect();
            return Some(Err(format!("{}\ntheirs {}\nours   {}", requests.join("\n"), expected.body, found.body)));
        }
        if found.status != 200 {
            break;
        }
    }
    Some(Ok(()))
}

#[test]
fn random_configurations_get_the_answers_of_the_real_service() {
    let Ok(program) = std::env::var(PROGRAM) else {
        println!("did NOT run: `cargo xtask ratelimit` compiles envoyproxy/ratelimit with Go, and runs this test");
        return;
    };
    let seed = std::env::var(SEED).ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| fastrand::u64(..));
    println!("seed {seed}");
    let mut random = Rng::with_seed(seed);
    let root = tempfile::tempdir().expect("a directory");
    let folder = root.path().join("ratelimit/config");
    fs::create_dir_all(&folder).expect("a directory");
    let stories: Vec<Story> = (0..STORIES).map(|number| Story::new(&mut random, number)).collect();
    for Story { domain, configuration, .. } in &stories {
        fs::write(folder.join(format!("{domain}.yaml")), configuration).expect("a file");
    }
    let redis = RedisServer::start();
    let url = redis.url();
    let theirs = Theirs::start(&program, root.path(), url.trim_start_matches("redis://"));
    let directory = folder.to_str().expect("a path of text");
    let listeners = ["--gateway", "off", "--admin", "127.0.0.1:0", "--api", "127.0.0.1:0"];
    let arguments = [&["--envoy-ratelimit", directory, "--store", &url], &listeners[..]].concat();
    let server = Server::start_command(sluicegate(&arguments));
    let (mut theirs, mut ours) = (Session::open(theirs.address), Session::open(server.address("api")));
    let (mut whole, mut errors) = (0, 0);
    for story in &stories {
        match compared(&mut random, story, &mut theirs, &mut ours) {
            Some(Ok(())) => whole += 1,
            // A request that the store did not decide in time was decided by a share of the limit.
            Some(Err(_)) if std::mem::replace(&mut errors, store_errors(&server)) != errors => {}
            Some(Err(difference)) => {
                panic!("seed {seed}, this configuration:\n{}\n{difference}", story.configuration)
            }
            None => {}
        }
    }
    println!("{whole} of {STORIES} stories are equal, the others were interrupted");
    assert!(whole >= STORIES_MIN, "{whole}");
}
