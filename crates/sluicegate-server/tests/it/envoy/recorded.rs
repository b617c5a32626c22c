//! Replays recorded answers of the real `envoyproxy/ratelimit` (see `recorded/README.md`) against the real binary, with the
//! embedded store and with Redis. Every field must be equal, with one exception: the descriptors beside the one that is over its
//! limit were not charged here, so more may remain.
//!
//! A story whose window ends while it is replayed proves nothing, and neither does one during which a busy Redis misses its
//! deadline. Both are repeated with fresh counters.

use std::fs;
use std::time::{Instant, SystemTime};

use serde_json::{Map, Value, json};
use sluicegate_testkit::redis_server::RedisServer;

use super::store_errors;
use crate::client::Session;
use crate::server::{PATIENCE, Server, sluicegate};

const ANSWERS: &str = include_str!("recorded/answers.jsonl");
const CONFIGURATION: &str = include_str!("recorded/edge.yaml");

/// A part of every recorded value that names a counter. Each replay of a story replaces it.
const RECORDED_KEY: &str = "s11x";

/// The units of the recorded limits, in seconds. None is shorter than the first.
const UNITS: [(&str, u64); 3] = [("HOUR", 3_600), ("DAY", 86_400), ("WEEK", 604_800)];

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a time after 1970").as_secs()
}

/// The recorded answers by their stories, in order.
fn stories() -> Vec<Vec<Value>> {
    let mut stories: Vec<Vec<Value>> = Vec::new();
    for line in ANSWERS.lines() {
        let recorded: Value = serde_json::from_str(line).expect("JSON");
        match stories.last_mut().filter(|story| story[0]["story"] == recorded["story"]) {
            Some(story) => story.push(recorded),
            None => stories.push(vec![recorded]),
        }
    }
    stories
}

/// The end of a replay.
enum Replayed {
    /// With these differences, if any.
    Whole(Vec<String>),
    /// By the end of a window, or of a deadline.
    Interrupted,
}

struct Replay {
    server: Server,
    session: Session,
    /// The errors of the store so far.
    errors: u64,
    /// The number of replays so far.
    replays: u64,
}

impl Replay {
    fn story(&mut self, story: &[Value]) -> Vec<String> {
        let started = Instant::now();
        loop {
            if let Replayed::Whole(differences) = self.once(story) {
                return differences;
            }
            assert!(started.elapsed() < PATIENCE, "no replay of the story {} is whole", story[0]["story"]);
        }
    }

    fn once(&mut self, story: &[Value]) -> Replayed {
        let window = || unix_seconds() / UNITS[0].1;
        let began = window();
        self.replays += 1;
        let mut differences = Vec::new();
        for recorded in story {
            let request = recorded["request"].to_string().replace(RECORDED_KEY, &format!("r{}x", self.replays));
            let sent = unix_seconds();
            let answer = self.session.post("/json", &request);
            if answer.status == 503 {
                return Replayed::Interrupted;
            }
            let found = differences_of(answer.status, &answer.json(), recorded, sent);
            differences.extend(found.map(|found| format!("{recorded}\n  {found}\n  {}", answer.body)));
        }
        let is_interrupted = window() != began || !differences.is_empty() && self.has_new_errors();
        if is_interrupted { Replayed::Interrupted } else { Replayed::Whole(differences) }
    }
}

impl Replay {
    /// True if the store has decided less than all requests since the last call.
    fn has_new_errors(&mut self) -> bool {
        let errors = store_errors(&self.server);
        std::mem::replace(&mut self.errors, errors) != errors
    }
}

/// The first difference between an answer, of a request sent at `sent`, and the recorded one.
fn differences_of(status: u16, answer: &Value, recorded: &Value, sent: u64) -> Option<String> {
    if json!(status) != recorded["status"] {
        return Some(format!("the status is {status}"));
    }
    if answer["overallCode"] != recorded["overallCode"] {
        return Some("another overall code".to_owned());
    }
    let list = |of: &Value| of["statuses"].as_array().cloned().unwrap_or_default();
    let (found, expected) = (list(answer), list(recorded));
    if found.len() != expected.len() {
        return Some(format!("{} statuses", found.len()));
    }
    let is_denied = recorded["overallCode"] == "OVER_LIMIT";
    found.iter().zip(&expected).enumerate().find_map(|(place, (found, expected))| {
        let (mut found, mut expected) = (object(found), object(expected));
        let reset = found.remove("durationUntilReset");
        if !is_reset(reset.as_ref(), expected.get("currentLimit"), sent) {
            return Some(format!("statuses[{place}].durationUntilReset is {reset:?}"));
        }
        if is_denied && expected["code"] == "OK" {
            let remaining =
                |of: &mut Map<String, Value>| of.remove("limitRemaining").and_then(|left| left.as_u64());
            let (real, counted) = (remaining(&mut found), remaining(&mut expected));
            if real < counted {
                return Some(format!("statuses[{place}] has only {real:?} left"));
            }
        }
        (found != expected).then(|| format!("statuses[{place}] differs"))
    })
}

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().expect("an object")
}

/// Whether `reset` is the time to the end of the limit's window at some instant since `sent`, give or take the second by which
/// the clocks of two processes may differ.
fn is_reset(reset: Option<&Value>, limit: Option<&Value>, sent: u64) -> bool {
    let (Some(reset), Some(limit)) = (reset, limit) else { return reset.is_none() && limit.is_none() };
    let unit = UNITS.iter().find(|(name, _)| limit["unit"] == *name).expect("a recorded unit").1;
    let mut instants = sent - 1..=unix_seconds() + 1;
    instants.any(|instant| *reset == format!("{}s", unit - instant % unit))
}

fn replay(store: &str) {
    let folder = tempfile::tempdir().expect("a directory");
    fs::write(folder.path().join("edge.yaml"), CONFIGURATION).expect("a file");
    let directory = folder.path().to_str().expect("a path of text");
    let listeners = ["--gateway", "off", "--admin", "127.0.0.1:0", "--api", "127.0.0.1:0"];
    let server = Server::start_command(sluicegate(
        &[&["--envoy-ratelimit", directory, "--store", store], &listeners[..]].concat(),
    ));
    let session = Session::open(server.address("api"));
    let mut replay = Replay { server, session, errors: 0, replays: 0 };
    let stories = stories();
    assert_eq!((stories.len(), stories.iter().map(Vec::len).sum::<usize>()), (500, 1_982));
    let differences: Vec<String> = stories.iter().flat_map(|story| replay.story(story)).collect();
    assert!(differences.is_empty(), "{} answers differ:\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn the_embedded_store_gives_the_recorded_answers() {
    replay("memory");
}

#[test]
fn redis_gives_the_recorded_answers() {
    replay(&RedisServer::start().url());
}
