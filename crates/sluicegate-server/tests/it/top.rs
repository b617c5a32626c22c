//! `sluicegate top` in a real terminal against a real server: live numbers, escaped names, reconnection after a restart, and a
//! restored terminal at the end.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Output};

use serde_json::{Value, json};
use sluicegate_testkit::terminal::Terminal;

use crate::client::Session;
use crate::server::{ConfigFile, Server, sluicegate};

const RULES: &str = "
rules:
  - { name: burst, deadline: 5s, limits: [ { algorithm: token_bucket, capacity: 5, refill: 5/h } ] }
  - { name: daily, deadline: 5s, mode: shadow, limits: [ { algorithm: fixed_window, limit: 3, window: 365d } ] }
";

fn start(test: &str) -> (Server, ConfigFile) {
    let config = ConfigFile::new(test, RULES);
    let server = Server::start(&["--config", config.path(), "--store", "memory"]);
    (server, config)
}

/// The command `top` for this server, at a terminal with colours.
fn top(admin: SocketAddr, options: &[&str]) -> Command {
    let url = format!("http://{admin}");
    let mut command = sluicegate(&[&["top", "--admin", &url], options].concat());
    command.env_remove("NO_COLOR").env("TERM", "xterm-256color");
    command
}

fn check(session: &mut Session, identifier: &str) {
    let body = json!({"resource": "r", "identifier": identifier}).to_string();
    assert!(matches!(session.post("/v1/check", &body).status, 200 | 429));
}

fn run(command: &mut Command) -> (Output, String) {
    let output = command.output().expect("it runs");
    let text = String::from_utf8([&output.stdout[..], &output.stderr].concat()).expect("text");
    (output, text)
}

#[test]
fn live_numbers_fit_every_size_and_the_terminal_is_restored() {
    let (server, _config) = start("top-moves");
    let mut session = Session::open(server.address("api"));
    let mut terminal = Terminal::start(&top(server.address("admin"), &[]), 100, 30);
    terminal.wait_for(|text| text.contains("memory up") && text.contains("allowed 0/s"));
    assert!(!terminal.is_ordinary() && !terminal.shows_keys());
    // Repeats the load until the numbers appear, because the machine may be slow.
    terminal.wait_for(|text| {
        (0..50).for_each(|_| check(&mut session, "carol"));
        let denied =
            text.lines().find(|line| line.contains("denied") && line.contains("/s (")).unwrap_or_default();
        !denied.contains("denied 0/s") && !denied.contains("denied –/s") && text.contains("carol")
    });
    terminal.wait_for(|text| text.contains("burst") && text.contains("would deny"));
    assert!(String::from_utf8_lossy(&terminal.bytes()).contains("\u{1b}[32m"), "there are colours");
    terminal.resize(40, 12);
    terminal.wait_for(|text| text.lines().count() <= 12 && text.contains("p50") && text.contains('…'));
    terminal.press("q");
    assert!(terminal.wait().success());
    assert!(terminal.shows_keys());
}

#[test]
fn signals_and_keys_restore_the_terminal() {
    let (server, _config) = start("top-ends");
    for end in ["ctrl-c", "TERM", "HUP"] {
        let mut terminal = Terminal::start(&top(server.address("admin"), &[]), 80, 24);
        terminal.wait_for(|text| text.contains("memory up"));
        if end == "ctrl-c" {
            terminal.press("\u{3}")
        } else {
            terminal.signal(end)
        }
        assert!(terminal.wait().success(), "{end}");
        assert!(terminal.shows_keys(), "{end}");
    }
}

/// The escape sequences of `top` without colours.
const OWN: [&str; 8] =
    ["\u{1b}[?1049h", "\u{1b}[?25l", "\u{1b}[H", "\u{1b}[K", "\u{1b}[J", "\u{1b}[?25h", "\u{1b}[?1049l", "\r\n"];

/// Runs `top` without colours until it shows all of `shown`, and asserts that it wrote no other control characters.
fn assert_escaped(admin: SocketAddr, shown: &[&str]) {
    let mut command = top(admin, &[]);
    command.env("NO_COLOR", "1");
    let mut terminal = Terminal::start(&command, 120, 60);
    terminal.wait_for(|text| shown.iter().all(|name| text.contains(name)));
    assert!(!terminal.is_ordinary(), "the alternate screen is active");
    terminal.press("q");
    assert!(terminal.wait().success());
    let written = String::from_utf8(terminal.bytes()).expect("text");
    let rest = OWN.iter().fold(written, |text, own| text.replace(own, ""));
    assert_eq!(rest.chars().find(|each| each.is_control() || *each == '\u{202e}'), None);
}

#[test]
fn client_names_are_escaped() {
    let (server, _config) = start("top-names");
    let mut session = Session::open(server.address("api"));
    // The API rejects control characters in names, but accepts bidirectional ones.
    let body = json!({"resource": "r", "identifier": "\u{1b}[2J"}).to_string();
    assert_eq!(session.post("/v1/check", &body).status, 400);
    (0..60).for_each(|_| check(&mut session, "\u{202e}drow"));
    assert_escaped(server.address("admin"), &["\\u202edrow"]);
    let (_, json) = run(&mut top(server.address("admin"), &["--once", "--json"]));
    assert!(!json.contains('\u{202e}'), "{json}");
    let printed: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(printed["heaviest"][0]["identifier"], json!("\u{202e}drow"));
}

#[test]
fn values_of_a_hostile_server_are_escaped() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let admin = listener.local_addr().expect("bound");
    let name = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\r\n\u{1b}c\u{8}\u{1b}[?1049l";
    let overview = json!({
        "at": 1, "version": name, "health": {"status": name}, "store": {"kind": name, "state": name, "trouble": name},
        "ruleCount": 1, "rules": [{"name": name, "mode": name}],
        "heaviest": [{"tenant": name, "identifier": name, "kind": name, "requestsPerSecond": 1, "deniedPerSecond": 1}],
    });
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: {overview}\n\n");
    let liar = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a reader");
        let length = stream.read(&mut [0; 4096]).expect("a request");
        assert!(length > 0);
        stream.write_all(answer.as_bytes()).expect("written");
        // Waits until the client closes the connection.
        drop(stream.read_to_end(&mut Vec::new()));
    });
    assert_escaped(admin, &["\\u001b[2J\\u001b]0;owned\\u0007\\u009b31m\\u000d\\u000a\\u001bc"]);
    liar.join().expect("it has ended");
}

#[test]
fn top_reconnects_after_a_restart_of_the_server() {
    let admin = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").to_string();
    let begin = || {
        let arguments = ["--gateway", "off", "--api", "127.0.0.1:0", "--admin", &admin, "--store", "memory"];
        Server::start_command(sluicegate(&arguments))
    };
    let server = begin();
    let mut terminal = Terminal::start(&top(server.address("admin"), &[]), 100, 30);
    terminal.wait_for(|text| text.contains("memory up"));
    drop(server);
    terminal.wait_for(|text| text.contains("no response from the server") && text.contains("retrying in"));
    assert!(terminal.text().contains("memory up"), "the last numbers stay");
    let server = begin();
    terminal.wait_for(|text| !text.contains("no response from the server") && text.contains("memory up"));
    let mut session = Session::open(server.address("api"));
    terminal.wait_for(|text| {
        (0..50).for_each(|_| check(&mut session, "carol"));
        text.contains("carol")
    });
    terminal.press("q");
    assert!(terminal.wait().success());
}

#[test]
fn once_prints_a_single_frame_without_escape_sequences() {
    let (server, _config) = start("top-once");
    let mut session = Session::open(server.address("api"));
    (0..60).for_each(|_| check(&mut session, "carol"));
    let (output, text) = run(&mut top(server.address("admin"), &["--once"]));
    assert!(output.status.success(), "{text}");
    assert!(text.contains("burst") && text.contains("carol") && text.lines().count() <= 24, "{text}");
    assert!(!text.contains('\u{1b}') && !text.contains("q quits"), "{text}");
    assert!(!text.contains("p99 –  store"), "percentiles are since the start: {text}");
    let (output, text) = run(&mut top(server.address("admin"), &["--once", "--json"]));
    assert!(output.status.success(), "{text}");
    let printed: Value = serde_json::from_str(&text).expect("one line of JSON");
    assert_eq!(printed["requests"]["allowed"], json!(5));
}

#[test]
fn errors_name_the_remedy_and_exit_with_1() {
    let (server, _config) = start("top-refused");
    let admin = server.address("admin");
    let (output, text) = run(top(admin, &["--once"]).env("SLUICEGATE_ADMIN_TOKEN", "canary-token-of-tests"));
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("set SLUICEGATE_ADMIN_TOKEN to a token with read access") && !text.contains("canary"),
        "{text}"
    );
    let (output, text) = run(&mut top(server.address("api"), &["--once"]));
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("is that a Sluicegate admin listener?"), "{text}");
    drop(server);
    let (output, text) = run(&mut top(admin, &["--once"]));
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("cannot watch http://"), "{text}");
}
