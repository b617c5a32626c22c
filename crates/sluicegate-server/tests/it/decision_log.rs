//! The decision log of the real binary: its lines for requests through every front door, and the data that it must not contain.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};
use sluicegate_testkit::envoy_client::{Code, Descriptor, EnvoyClient, Question};

use crate::client::{Answer, Connection, Session, post, send, send_with};
use crate::server::{ConfigFile, PATIENCE, Server, sluicegate};

/// Rules with a limit of zero deny every request, so tests need not exhaust a limit first.
const RULES: &str = "
trusted_proxies: [127.0.0.1]
gateway: { routes: [{ path: /**, upstream: 'http://127.0.0.1:9' }] }
identity:
  - api_key:
      keys: [{ sha256: c48a01f49fd0f2cc404bc3cbbc80e91457a3d41bb429a695243de4c61794155c, identifier: demo, tier: free }]
  - ip: {}
tiers: [free]
rules:
  - { name: pages, match: { path: /pages/** }, limits: [ { algorithm: fixed_window, limit: 0, window: 1d } ] }
  - { name: also, match: { path: /pages/** }, limits: [ { algorithm: sliding_window, limit: 0, window: 1d } ] }
  - { name: closed, match: { resource: closed }, limits: [ { algorithm: token_bucket, capacity: 1, refill: 1/d } ] }
  - { name: watched, match: { resource: watched }, mode: shadow, limits: [ { algorithm: sliding_counter, limit: 0, window: 1d } ] }
  - { name: described, match: { descriptor: [ { key: user } ] }, limits: [ { algorithm: fixed_window, limit: 0, window: 1d } ] }
  - { name: ample, match: { resource: ample }, limits: [ { algorithm: fixed_window, limit: 1000000, window: 1d } ] }
";

struct Scene {
    server: Server,
    _config: ConfigFile,
}

impl Scene {
    fn start(test: &str, log: &str) -> Self {
        Self::with(test, log, &[], &[])
    }

    fn with(test: &str, log: &str, variables: &[(&str, &str)], arguments: &[&str]) -> Self {
        let config = ConfigFile::new(&format!("decision-log-{test}"), format!("{log}{RULES}"));
        let arguments = [&["--resp", "127.0.0.1:0", "--config", config.path()], arguments].concat();
        Self { server: Server::start_with(variables, &arguments), _config: config }
    }

    fn check(&self, resource: &str, identifier: &str) -> Answer {
        let body = json!({ "resource": resource, "identifier": identifier }).to_string();
        post(self.server.address("api"), "/v1/check", body)
    }

    /// The next decision in the log, without its timestamp.
    fn next(&mut self) -> Value {
        let line = self.server.wait_for_line("decision");
        let mut line: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let members = line.as_object_mut().expect("an object");
        assert_eq!(members.remove("target"), Some(json!("decisions")), "{members:?}");
        assert_eq!(
            (members.remove("level"), members.remove("message")),
            (Some(json!("INFO")), Some(json!("decision")))
        );
        members.remove("timestamp").expect("a time");
        line
    }

    fn resp(&self) -> TcpStream {
        let stream = TcpStream::connect(self.server.address("resp")).expect("the listener accepts");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream
    }
}

/// The line of a denied HTTP request, for all front doors.
fn denied_page(identity: &str, kind: &str) -> Value {
    json!({
        "outcome": "denied", "rule": "pages", "others": "also", "algorithm": "fixed_window", "limit": 0, "remaining": 0,
        "tenant": "default", "identity": identity, "identity_kind": kind,
    })
}

/// The wait for a window depends on the time of day, so tests compare only its presence.
fn without_wait(mut line: Value) -> Value {
    line.as_object_mut().expect("an object").remove("retry_after_ms");
    line
}

#[test]
fn every_front_door_logs_the_identity_and_the_rule_of_a_denial() {
    let mut scene = Scene::start("doors", "log: { decisions: {}, identities: whole }");
    let (gateway, api) = (scene.server.address("gateway"), scene.server.address("api"));

    assert_eq!(send_with(gateway, "GET", "/pages/secret-path?token=secret", "x-api-key: demo-key").status, 429);
    let mut expected = denied_page("demo", "named");
    expected["tier"] = json!("free");
    assert_eq!(without_wait(scene.next()), expected);

    let mut connection = Connection::open(api);
    connection.send(
        "GET /v1/auth HTTP/1.1\r\nhost: t\r\nx-forwarded-method: GET\r\nx-forwarded-uri: /pages/1\r\n\
         x-forwarded-for: 192.0.2.9\r\nconnection: close\r\n\r\n",
    );
    assert_eq!(connection.answer().status, 429);
    assert_eq!(without_wait(scene.next()), denied_page("192.0.2.9", "address"));

    assert_eq!((scene.check("closed", "alice").status, scene.check("closed", "alice").status), (200, 429));
    let line = scene.next();
    assert!(line["retry_after_ms"].as_u64().is_some_and(|wait| wait > 86_000_000), "{line}");
    let expected = json!({
        "outcome": "denied", "rule": "closed", "algorithm": "token_bucket", "limit": 1, "remaining": 0,
        "tenant": "default", "resource": "closed", "identity": "alice", "identity_kind": "named",
    });
    assert_eq!(without_wait(line), expected);

    let mut resp = scene.resp();
    resp.write_all(b"SG.CHECK closed alice COST 1\r\nCL.THROTTLE bob 0 1 86400\r\nCL.THROTTLE bob 0 1 86400\r\n")
        .unwrap();
    let line = scene.next();
    assert_eq!((&line["rule"], &line["identity"], &line["cost"]), (&json!("closed"), &json!("alice"), &json!(1)));
    let line = scene.next();
    assert_eq!(
        (&line["identity"], &line["outcome"], &line["limit"]),
        (&json!("bob"), &json!("denied"), &json!(1))
    );

    assert_eq!(scene.check("watched", "alice").status, 200);
    let line = scene.next();
    let says = (&line["outcome"], &line["rule"], &line["algorithm"]);
    assert_eq!(says, (&json!("shadow_denied"), &json!("watched"), &json!("sliding_counter")));
}

#[tokio::test]
async fn requests_of_envoy_are_logged_by_descriptor() {
    let mut scene = Scene::start("envoy", "log: { decisions: {}, identities: whole }");
    let client = EnvoyClient::new(scene.server.address("api"));
    let question = Question::new("shop", [Descriptor::new(&[("user", "carol")])]);
    assert_eq!(client.ask(question).await.expect("an answer").overall_code(), Code::OverLimit);
    let line = scene.next();
    let says = (&line["rule"], &line["tenant"], &line["identity"]);
    assert_eq!(says, (&json!("described"), &json!("shop"), &json!("carol")));
}

#[test]
fn identities_are_hashed_by_default() {
    let secret = [("LOG_HASH_SECRET", "canary")];
    let log = "log: { decisions: {}, hash_secret: '${LOG_HASH_SECRET}' }";
    let mut identities = Vec::new();
    for test in ["hashed-1", "hashed-2"] {
        let mut scene = Scene::with(test, log, &secret, &[]);
        scene.check("watched", "alice@example.com");
        scene.check("watched", "alice@example.com");
        scene.check("watched", "bob");
        identities.extend((0..3).map(|_| scene.next()["identity"].as_str().expect("a text").to_owned()));
    }
    let [alice, again, bob, on_another_server, ..] = &identities[..] else { panic!("{identities:?}") };
    assert_eq!((alice, alice), (again, on_another_server));
    assert_ne!(alice, bob);
    assert!(alice.len() == 16 && alice.bytes().all(|byte| byte.is_ascii_hexdigit()), "{alice}");

    let mut scene = Scene::start("cut", "log: { decisions: {}, identities: cut }");
    scene.check("watched", "alice@example.com");
    assert_eq!(scene.next()["identity"], "alic…");
}

#[test]
fn only_the_configured_shares_are_logged() {
    let mut scene = Scene::start("shares", "log: { decisions: { denied: 0%, shadow_denied: 0%, allowed: 100% } }");
    scene.check("watched", "alice");
    send(scene.server.address("gateway"), "GET", "/pages/1");
    scene.check("ample", "alice");
    let line = scene.next();
    assert_eq!(
        (&line["outcome"], &line["resource"], &line["rule"]),
        (&json!("allowed"), &json!("ample"), &json!("ample"))
    );

    for log in ["", "log: { identities: whole }"] {
        let scene = Scene::start("none", log);
        scene.check("watched", "alice");
        send(scene.server.address("gateway"), "GET", "/pages/1");
        scene.server.signal("TERM");
        let lines = scene.server.wait().lines;
        assert!(!lines.iter().any(|line| line.contains("decisions")), "{lines:#?}");
    }
}

#[test]
fn an_undecided_request_is_logged() {
    let rules = "log: { decisions: {}, identities: whole }\nrules: [ { name: strict, on_store_failure: closed, \
                 limits: [ { algorithm: fixed_window, limit: 9, window: 1d } ] } ]";
    let config = ConfigFile::new("decision-log-undecided", rules);
    // No server listens on the discard port.
    let server = Server::start(&["--config", config.path(), "--store", "redis://127.0.0.1:9"]);
    let mut scene = Scene { server, _config: config };
    assert_eq!(scene.check("any", "alice").status, 503);
    let line = scene.next();
    assert_eq!((&line["outcome"], &line["rule"]), (&json!("failed_closed"), &json!("strict")), "{line}");
    assert!(line["store_error"].is_string(), "{line}");
}

#[test]
fn text_format_is_supported_and_unknown_formats_are_rejected() {
    let text = [("SLUICEGATE_LOG_FORMAT", "text")];
    let mut scene = Scene::with("text", "log: { decisions: {}, identities: whole }", &text, &[]);
    scene.check("watched", "alice\u{202e}");
    let line = scene.server.wait_for_line("decisions");
    assert!(line.contains(r#"outcome="shadow_denied" rule="watched""#), "{line}");
    assert!(line.contains("alice\\u202e") || line.contains(r"alice\u{202e}"), "{line}");

    let mut command = sluicegate(&[]);
    command.env("SLUICEGATE_LOG_FORMAT", "xml");
    let output = command.output().expect("the binary starts");
    let stderr = String::from_utf8(output.stderr).expect("text");
    assert!(stderr.starts_with("error: SLUICEGATE_LOG_FORMAT: `xml`"), "{stderr}");
}

/// A server with a log that the test reads until `ready`, and not afterwards.
fn unread(config: &ConfigFile, level: &str) -> (Ended, BufReader<ChildStderr>, HashMap<String, SocketAddr>) {
    let arguments =
        ["--gateway", "off", "--api", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--config", config.path()];
    let mut command = sluicegate(&arguments);
    command.env("SLUICEGATE_LOG", level).stderr(Stdio::piped());
    let mut child = Ended(command.spawn().expect("the binary starts"));
    let mut log = BufReader::new(child.0.stderr.take().expect("a pipe"));
    let mut listening = HashMap::new();
    let mut line = String::new();
    while line != "ready\n" {
        line.clear();
        assert_ne!(log.read_line(&mut line).expect("text"), 0, "the server has ended");
        if let Some((name, address)) =
            line.trim_end().strip_prefix("listening ").and_then(|rest| rest.split_once(' '))
        {
            listening.insert(name.to_owned(), address.parse().expect("an address"));
        }
    }
    (child, log, listening)
}

#[test]
fn a_stalled_log_reader_blocks_no_request() {
    let config = ConfigFile::new("decision-log-unread", format!("log: {{ decisions: {{}} }}{RULES}"));
    let (_child, log, listening) = unread(&config, "info");
    // One hundred lines exceed the capacity of a pipe.
    let mut session = Session::open(listening["api"]);
    let tenant = "\u{202e}".repeat(85);
    let body = json!({ "tenant": tenant, "resource": "watched", "identifier": "alice" }).to_string();
    (0..1_000).for_each(|_| assert_eq!(session.post("/v1/check", &body).status, 200));
    assert_eq!(send(listening["admin"], "GET", "/livez").status, 200);
    drop(log);
}

#[tokio::test(flavor = "multi_thread")]
async fn log_lines_never_block_and_lost_lines_are_reported() {
    let config = ConfigFile::new("log-unread", RULES);
    let (mut child, mut log, listening) = unread(&config, "trace");
    let client = EnvoyClient::new(listening["api"]);
    let lost = || -> u64 {
        let metrics = send(listening["admin"], "GET", "/metrics").body;
        let lost = metrics.lines().find_map(|line| line.strip_prefix("sluicegate_log_lines_lost_total "));
        lost.and_then(|count| count.parse().ok()).expect("a count")
    };
    // At this level, every HTTP/2 frame causes lines, which fill the pipe and then the queue.
    let started = Instant::now();
    while lost() == 0 {
        for _ in 0..100 {
            let question = Question::new("shop", [Descriptor::new(&[("nobody", "knows")])]);
            client.ask(question).await.expect("an answer");
        }
        assert!(started.elapsed() < PATIENCE, "nothing is lost");
    }
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        log.read_to_string(&mut text).map(|_| text)
    });
    let id = child.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().expect("kill").success());
    assert!(child.0.wait().expect("it ends").success());
    let text = reader.join().expect("no panic").expect("text");
    for told in ["log lines were lost, because the reader of the log did not keep up", "\"message\":\"stopped\""] {
        assert!(text.contains(told), "`{told}` is not in {} bytes of the log", text.len());
    }
}

/// A process that ends with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_flood_of_denials_is_rate_limited_in_the_log_and_fully_counted() {
    const COMMANDS: u64 = 20_000;
    let scene = Scene::start("flood", "log: { decisions: {} }");
    let started = Instant::now();
    let mut resp = scene.resp();
    let mut writer = resp.try_clone().expect("a socket");
    let sent = std::thread::spawn(move || {
        let commands = "CL.THROTTLE k 0 1 86400\r\n".repeat(1_000);
        (0..COMMANDS / 1_000).for_each(|_| writer.write_all(commands.as_bytes()).expect("the server reads"));
    });
    // The reply to one command has five integers in six lines.
    let (mut lines, mut bytes) = (0, [0; 65_536]);
    while lines < COMMANDS * 6 {
        let read = resp.read(&mut bytes).expect("an answer");
        assert_ne!(read, 0, "closed");
        lines += bytes[..read].iter().filter(|byte| **byte == b'\n').count() as u64;
    }
    sent.join().expect("no panic");
    let seconds = started.elapsed().as_secs() + 2;

    let metrics = send(scene.server.address("admin"), "GET", "/metrics").body;
    let counted = metrics.lines().find_map(|line| line.strip_prefix("sluicegate_decision_log_left_out_total "));
    let left_out: u64 = counted.and_then(|count| count.parse().ok()).expect("a count");
    scene.server.signal("TERM");
    let ended = scene.server.wait();
    let parse = |line: &String| serde_json::from_str::<Value>(line).ok();
    let told: Vec<Value> =
        ended.lines.iter().filter_map(parse).filter(|line| line["target"] == "decisions").collect();
    let written = told.iter().filter(|line| line["message"] == "decision").count() as u64;
    assert!(written <= 100 * seconds, "{written} lines in {seconds} s");
    assert_eq!(written + left_out, COMMANDS - 1, "the first was allowed");
    let named: u64 = told.iter().filter_map(|line| line["left_out"].as_u64()).sum();
    assert_eq!(named, left_out);
}
