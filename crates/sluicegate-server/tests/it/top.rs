//! `sluicegate top` in a real terminal, against a real server: its numbers move, nothing that a client is called acts on the
//! terminal, a server that goes is waited for, and the terminal is as before when it ends.

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

/// The command that watches this server, as if at a terminal that can do colours.
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
fn numbers_move_it_fits_every_size_and_the_terminal_is_as_before() {
    let (server, _config) = start("top-moves");
    let mut session = Session::open(server.address("api"));
    let mut terminal = Terminal::start(&top(server.address("admin"), &[]), 100, 30);
    terminal.wait_for(|text| text.contains("memory up") && text.contains("allowed 0/s"));
    assert!(!terminal.is_ordinary() && !terminal.shows_keys());
    // Load until it is seen, however slow the machine is.
    terminal.wait_for(|text| {
        (0..50).for_each(|_| check(&mut session, "carol"));
        let denied =
            text.lines().find(|line| line.contains("denied") && line.contains("/s (")).unwrap_or_default();
        !denied.contains("denied 0/s") && !denied.contains("denied –/s") && text.contains("carol")
    });
    terminal.wait_for(|text| text.contains("burst") && text.contains("would have"));
    assert!(String::from_utf8_lossy(&terminal.bytes()).contains("\u{1b}[32m"), "there are colours");
    terminal.resize(40, 12);
    terminal.wait_for(|text| text.lines().count() <= 12 && text.contains("p50") && text.contains('…'));
    terminal.press("q");
    assert!(terminal.wait().success());
    assert!(terminal.shows_keys());
}

#[test]
fn however_it_ends_the_terminal_is_as_before() {
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

/// What a terminal may be sent if nobody wants colours.
const OWN: [&str; 8] =
    ["\u{1b}[?1049h", "\u{1b}[?25l", "\u{1b}[H", "\u{1b}[K", "\u{1b}[J", "\u{1b}[?25h", "\u{1b}[?1049l", "\r\n"];

/// Watches without colours until all of `shown` is there, and makes sure that nothing else acted on the terminal.
fn is_harmless(admin: SocketAddr, shown: &[&str]) {
    let mut command = top(admin, &[]);
    command.env("NO_COLOR", "1");
    let mut terminal = Terminal::start(&command, 120, 60);
    terminal.wait_for(|text| shown.iter().all(|name| text.contains(name)));
    assert!(!terminal.is_ordinary(), "nobody has left the screen");
    terminal.press("q");
    assert!(terminal.wait().success());
    let written = String::from_utf8(terminal.bytes()).expect("text");
    let rest = OWN.iter().fold(written, |text, own| text.replace(own, ""));
    assert_eq!(rest.chars().find(|each| each.is_control() || *each == '\u{202e}'), None);
}

#[test]
fn no_name_acts_on_the_terminal() {
    let (server, _config) = start("top-names");
    let mut session = Session::open(server.address("api"));
    // What acts on a terminal by itself is no name at all; what turns text round is one.
    let body = json!({"resource": "r", "identifier": "\u{1b}[2J"}).to_string();
    assert_eq!(session.post("/v1/check", &body).status, 400);
    (0..60).for_each(|_| check(&mut session, "\u{202e}drow"));
    is_harmless(server.address("admin"), &["\\u202edrow"]);
    let (_, json) = run(&mut top(server.address("admin"), &["--once", "--json"]));
    assert!(!json.contains('\u{202e}'), "{json}");
    let told: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(told["heaviest"][0]["identifier"], json!("\u{202e}drow"));
}

#[test]
fn not_even_a_server_that_lies_acts_on_the_terminal() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let admin = listener.local_addr().expect("bound");
    let name = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\r\n\u{1b}c\u{8}\u{1b}[?1049l";
    let look = json!({
        "at": 1, "version": name, "health": {"status": name}, "store": {"kind": name, "state": name, "trouble": name},
        "ruleCount": 1, "rules": [{"name": name, "mode": name}],
        "heaviest": [{"tenant": name, "identifier": name, "kind": name, "requestsPerSecond": 1, "deniedPerSecond": 1}],
    });
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: {look}\n\n");
    let liar = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a reader");
        let length = stream.read(&mut [0; 4096]).expect("a question");
        assert!(length > 0);
        stream.write_all(answer.as_bytes()).expect("written");
        // It hears nothing more until the reader has gone.
        drop(stream.read_to_end(&mut Vec::new()));
    });
    is_harmless(admin, &["\\u001b[2J\\u001b]0;owned\\u0007\\u009b31m\\u000d\\u000a\\u001bc"]);
    liar.join().expect("it has ended");
}

#[test]
fn a_server_that_goes_is_said_so_and_waited_for() {
    let admin = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").to_string();
    let begin = || {
        let arguments = ["--gateway", "off", "--api", "127.0.0.1:0", "--admin", &admin, "--store", "memory"];
        Server::start_command(sluicegate(&arguments))
    };
    let server = begin();
    let mut terminal = Terminal::start(&top(server.address("admin"), &[]), 100, 30);
    terminal.wait_for(|text| text.contains("memory up"));
    drop(server);
    terminal.wait_for(|text| text.contains("the server does not answer") && text.contains("trying again in"));
    assert!(terminal.text().contains("memory up"), "the last numbers stay");
    let server = begin();
    terminal.wait_for(|text| !text.contains("does not answer") && text.contains("memory up"));
    let mut session = Session::open(server.address("api"));
    terminal.wait_for(|text| {
        (0..50).for_each(|_| check(&mut session, "carol"));
        text.contains("carol")
    });
    terminal.press("q");
    assert!(terminal.wait().success());
}

#[test]
fn once_is_one_picture_without_anything_that_acts_on_a_terminal() {
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
    let told: Value = serde_json::from_str(&text).expect("one line of JSON");
    assert_eq!(told["requests"]["allowed"], json!(5));
}

#[test]
fn whoever_cannot_watch_is_told_why() {
    let (server, _config) = start("top-refused");
    let admin = server.address("admin");
    let (output, text) = run(top(admin, &["--once"]).env("SLUICEGATE_ADMIN_TOKEN", "canary-token"));
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("put the token into SLUICEGATE_ADMIN_TOKEN") && !text.contains("canary"), "{text}");
    let (output, text) = run(&mut top(server.address("api"), &["--once"]));
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("is that a Sluicegate admin listener?"), "{text}");
    drop(server);
    let (output, text) = run(&mut top(admin, &["--once"]));
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("cannot watch http://"), "{text}");
}
