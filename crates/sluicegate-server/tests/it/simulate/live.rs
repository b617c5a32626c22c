//! The same requests in a replay and against a live server. The limits do not refill during a test, so both must agree.

use std::time::Instant;

use serde_json::{Value, json};
use sluicegate_testkit::browser::Browser;

use super::Folder;
use crate::client::send_with;
use crate::server::{PATIENCE, Server, sluicegate};

const RULES: &str = "
trusted_proxies: [127.0.0.0/8]
rules:
  - name: bucket
    per: ip
    match: { path: /api/** }
    limits: [ { algorithm: token_bucket, capacity: 3, refill: 1/365d, credits: 3 } ]
  - name: everybody
    per: global
    cost: 2
    limits:
      - { algorithm: sliding_window, limit: 141, window: 365d }
      - { algorithm: fixed_window, limit: 139, window: 3650d }
  - name: writers
    match: { method: POST }
    mode: shadow
    limits: [ { algorithm: sliding_counter, limit: 1, window: 3650d } ]
";

/// The number of requests. The list of the most denied clients samples one request of eight. With this number, it misses all
/// of them with a probability below 10⁻²⁰.
const REQUESTS: u64 = 520;

#[test]
fn a_replay_gives_the_same_outcomes_as_a_live_server() {
    let folder = Folder::new(RULES);
    let config = folder.path("config.yaml");
    let server = Server::start(&["--config", config.to_str().expect("text")]);
    let mut random = fastrand::Rng::with_seed(9);
    let (mut log, mut allowed, mut denied) = (String::new(), 0, 0);
    for second in 0..REQUESTS {
        let address = format!("192.0.2.{}", random.u8(1..6));
        let path = random.choice(["/api/a", "/api/B?c=d", "/other", "/api/%2e%2e/x"]).expect("not empty");
        let method = random.choice(["GET", "POST", "HEAD"]).expect("not empty");
        let fields =
            format!("x-forwarded-method: {method}\r\nx-forwarded-uri: {path}\r\nx-forwarded-for: {address}");
        match send_with(server.address("api"), "GET", "/v1/auth", &fields).status {
            204 => allowed += 1,
            429 => denied += 1,
            other => panic!("{other} to {method} {path}"),
        }
        log += &super::line(&address, second, path).replacen("GET", method, 1);
    }
    let report = folder.json(&["--log", "-"], log.as_bytes());
    assert_eq!((&report["allowed"], &report["denied"]), (&json!(allowed), &json!(denied)), "{report}");
    assert!(allowed > 10 && denied > 10, "{report}");

    // The server's history has the same counts, rule by rule.
    let admin = format!("http://{}/", server.address("admin"));
    let page = folder.path("report.html");
    let arguments = ["--from-admin", &admin, "--json", "--report", page.to_str().expect("text")];
    let started = Instant::now();
    let counted = loop {
        let (code, stdout, stderr) = from_admin("", &arguments);
        assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
        let counted: Value = serde_json::from_str(&stdout).expect("JSON");
        if counted["requests"] == report["requests"] {
            break counted;
        }
        assert!(started.elapsed() < PATIENCE, "{counted}");
        std::thread::yield_now();
    };
    for part in ["requests", "allowed", "denied", "rules"] {
        assert_eq!(counted[part], report[part], "{part}");
    }
    assert_eq!(counted["mostDenied"][0]["tenant"], "default", "{counted}");
    shows_in_a_browser(page.to_str().expect("text"));
    let (_, text, _) = from_admin("", &arguments[..2]);
    assert!(text.starts_with(&format!("{REQUESTS} requests, {allowed} allowed, {denied} denied (")), "{text}");
}

/// Runs `simulate` with this admin token: exit code, standard output, standard error.
fn from_admin(token: &str, arguments: &[&str]) -> (i32, String, String) {
    let mut command = sluicegate(&["simulate"]);
    let output = command.args(arguments).env("SLUICEGATE_ADMIN_TOKEN", token).output().expect("the binary starts");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (output.status.code().expect("no signal"), text(output.stdout), text(output.stderr))
}

fn shows_in_a_browser(path: &str) {
    let mut browser = Browser::start();
    let mut page = browser.page();
    page.open(&format!("file://{path}"));
    let shown = page.evaluate("document.body.innerText");
    let shown = shown.as_str().expect("text");
    for part in ["What these limits did", "Rule everybody", "192.0.2.", "From "] {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
    assert_eq!(page.requests().len(), 1);
    assert_eq!(page.complaints(), Vec::<String>::new());
}

#[test]
fn from_admin_errors_name_the_remedy() {
    let server = Server::start_with(&[("SLUICEGATE_ADMIN_TOKEN", "canary-token-of-tests")], &[]);
    let admin = format!("http://{}", server.address("admin"));
    let (code, _, stderr) = from_admin("wrong", &["--from-admin", &admin]);
    assert!(code == 2 && stderr.contains("set SLUICEGATE_ADMIN_TOKEN to a token with read access"), "{stderr}");
    let (code, stdout, _) = from_admin("canary-token-of-tests", &["--from-admin", &admin]);
    assert!(code == 0 && stdout.contains("has not run for 10 s yet"), "{stdout}");

    let api = format!("http://{}", server.address("api"));
    let (code, _, stderr) = from_admin("canary-token-of-tests", &["--from-admin", &api]);
    assert!(code == 2 && stderr.contains("the server answered 404"), "{stderr}");
    drop(server);
    let (code, _, stderr) = from_admin("canary-token-of-tests", &["--from-admin", &admin]);
    assert!(code == 2 && stderr.contains("set another URL with `--from-admin URL`"), "{stderr}");
    for arguments in [&["--from-admin", "x", "--log", "-"][..], &["--from-admin", "x", "--suggest"], &[]] {
        assert_eq!(from_admin("", arguments).0, 2, "{arguments:?}");
    }
    assert!(!stderr.contains("canary"));
}
