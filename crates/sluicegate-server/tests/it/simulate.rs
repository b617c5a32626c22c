//! `sluicegate simulate` end to end: its output for valid, unusual and hostile logs. Its numbers are compared with an exact
//! model and with a live server.

mod browser;
mod hostile;
mod live;
mod model;
mod options;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::Stdio;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::server::sluicegate;

/// Two requests per minute for each address.
const TWO_A_MINUTE: &str = "
rules:
  - name: two
    per: ip
    limits: [ { algorithm: fixed_window, limit: 2, window: 1min } ]
";

/// A folder with a configuration and logs.
struct Folder(TempDir);

impl Folder {
    fn new(config: &str) -> Self {
        let folder = Self(tempfile::tempdir().expect("a temporary folder"));
        folder.file("config.yaml", config);
        folder
    }

    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        std::fs::write(self.path(name), bytes).expect("a temporary file");
        self.path(name).to_str().expect("a path of text").to_owned()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs `simulate` with this configuration: exit code, standard output, standard error.
    fn run(&self, arguments: &[&str], input: &[u8]) -> (i32, String, String) {
        let config = self.path("config.yaml");
        let mut command = sluicegate(&["simulate", "--config", config.to_str().expect("text")]);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        let input = input.to_vec();
        let writer = std::thread::spawn(move || {
            // A process that does not read its input may close the pipe.
            let _ = stdin.write_all(&input);
        });
        let output = child.wait_with_output().expect("it ends");
        writer.join().expect("no panic");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        (output.status.code().expect("no signal"), text(output.stdout), text(output.stderr))
    }

    /// The output of `simulate --json`.
    fn json(&self, arguments: &[&str], input: &[u8]) -> Value {
        let (code, stdout, stderr) = self.run(&[&["--json"], arguments].concat(), input);
        assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
        serde_json::from_str(&stdout).expect("JSON")
    }
}

/// A line of the combined format; times are seconds after 22:13:20 on 14 November 2023.
fn line(address: &str, second: u64, target: &str) -> String {
    let time = jiff::Timestamp::from_second(1_700_000_000 + second as i64).expect("a time");
    let time = time.strftime("%d/%b/%Y:%H:%M:%S +0000");
    format!("{address} - - [{time}] \"GET {target} HTTP/1.1\" 200 5 \"-\" \"test\"\n")
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

#[test]
fn a_log_is_counted_by_request_rule_and_identity() {
    let folder = Folder::new(TWO_A_MINUTE);
    let mut log = String::new();
    for second in [0, 1, 2, 3, 40] {
        log += &line("192.0.2.1", second, "/a?b=c");
    }
    log += "this is no request\n";
    log += &line("192.0.2.2", 41, "/a");
    let path = folder.file("access.log", log);
    let report = folder.json(&["--log", &path], b"");
    let totals = |key: &str| report[key].as_u64().expect("a number");
    assert_eq!(["lines", "malformed", "requests", "allowed", "denied"].map(totals), [7, 1, 6, 4, 2]);
    assert_eq!(
        report["rules"],
        json!([{"name": "two", "mode": "enforce", "requests": 6, "allowed": 4, "denied": 2, "shadowDenied": 0}])
    );
    assert_eq!(report["hardestHit"], json!([{"identity": "192.0.2.1", "requests": 5, "denied": 2}]));
    assert_eq!((&report["from"], &report["to"]), (&json!("2023-11-14T22:13:20Z"), &json!("2023-11-14T22:14:01Z")));
    assert_eq!(report["samples"][0]["line"], 6);

    let (code, stdout, stderr) = folder.run(&["--log", &path], b"");
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(stdout.starts_with("6 requests, 4 allowed, 2 denied (33.3 %)\n"), "{stdout}");
    assert!(stdout.contains("1 of 2 clients had denied requests\n"), "{stdout}");
    assert!(stdout.contains("access.log:6: no time: this is no request\n"), "{stdout}");
}

#[test]
fn files_compressed_files_and_standard_input_are_one_log() {
    let folder = Folder::new(TWO_A_MINUTE);
    let lines: Vec<String> = (0..12).map(|second| line("192.0.2.1", second * 5, "/")).collect();
    let plain = folder.file("1.log", lines[..4].concat());
    let members = [gzip(lines[4..6].concat().as_bytes()), gzip(lines[6..8].concat().as_bytes())];
    let compressed = folder.file("2.log.gz", members.concat());
    let whole = folder.json(&["--log", "-"], lines.concat().as_bytes());
    assert_eq!((&whole["lines"], &whole["allowed"], &whole["denied"]), (&json!(12), &json!(4), &json!(8)));
    let parts = folder.json(&["--log", &plain, &compressed, "--log", "-"], lines[8..].concat().as_bytes());
    assert_eq!(parts, whole);
    let packed = folder.json(&["--log", "-"], &gzip(lines.concat().as_bytes()));
    assert_eq!(packed, whole);
}

#[test]
fn identity_option_selects_the_field_with_the_client() {
    let rules = "
tiers: [pro]
rules:
  - name: one
    limits: [ { algorithm: fixed_window, limit: 1, window: 1h } ]
    tiers: { pro: unlimited }
";
    let folder = Folder::new(rules);
    let named = line("192.0.2.1", 0, "/").replacen("- - ", "- alice ", 1);
    let log = [named.clone(), named, line("192.0.2.1", 1, "/"), line("192.0.2.1", 2, "/")].concat();
    let by_address = folder.json(&["--log", "-"], log.as_bytes());
    assert_eq!((&by_address["allowed"], &by_address["denied"]), (&json!(1), &json!(3)));
    let by_name = folder.json(&["--log", "-", "--identity", "user"], log.as_bytes());
    assert_eq!((&by_name["allowed"], &by_name["denied"]), (&json!(2), &json!(2)));
    assert_eq!(by_name["hardestHit"][1]["identity"], "alice");

    let json_line = |who: &str, tier: &str| {
        format!(
            "{{\"ts\":1700000000,\"ip\":\"192.0.2.1\",\"path\":\"/\",\"who\":{{\"sub\":\"{who}\",\"plan\":\"{tier}\"}}}}\n"
        )
    };
    let log =
        [json_line("a", "free"), json_line("b", "pro"), json_line("b", "pro"), json_line("a", "free")].concat();
    let arguments =
        ["--log", "-", "--format", "json", "--fields", "identity=who.sub,tier=who.plan,tenant=who.org"];
    let report = folder.json(&arguments, log.as_bytes());
    assert_eq!((&report["allowed"], &report["denied"]), (&json!(3), &json!(1)));
    assert_eq!(report["hardestHit"], json!([{"identity": "a", "requests": 2, "denied": 1}]));
}

#[test]
fn clients_behind_trusted_proxies_are_separate() {
    let folder = Folder::new(&format!("trusted_proxies: [10.0.0.0/8]\n{TWO_A_MINUTE}"));
    let envoy = |forwarded: &str| {
        format!(
            "[2016-04-15T20:17:00.310Z] \"GET / HTTP/2\" 204 - 154 0 226 100 \"{forwarded}\" \"ua\" \"id\" \"host\" \"-\"\n"
        )
    };
    let log: String =
        ["192.0.2.1, 10.0.0.1", "192.0.2.2, 10.0.0.1", "192.0.2.2", "192.0.2.2,10.0.0.9", "10.0.0.1"]
            .map(envoy)
            .concat();
    let report = folder.json(&["--log", "-", "--format", "envoy"], log.as_bytes());
    assert_eq!(report["hardestHit"], json!([{"identity": "192.0.2.2", "requests": 3, "denied": 1}]));
    assert_eq!(report["identities"]["known"], 3);
}

#[test]
fn exempt_and_rejected_requests_are_counted_separately() {
    let folder =
        Folder::new(&format!("gateway: {{ exempt: [/healthz], encoded_slashes: refuse }}\n{TWO_A_MINUTE}"));
    let log = ["/healthz", "/healthz", "/healthz", "/a%2Fb", "*", "/"]
        .map(|target| line("192.0.2.1", 0, target))
        .concat();
    let report = folder.json(&["--log", "-"], log.as_bytes());
    let totals = |key: &str| report[key].as_u64().expect("a number");
    assert_eq!(["lines", "malformed", "requests", "allowed", "denied", "exempt"].map(totals), [6, 2, 4, 4, 0, 3]);
    assert!(report["samples"][0]["reason"].as_str().expect("text").starts_with("answered with 400: "), "{report}");
}

#[test]
fn encoded_slashes_are_read_as_in_the_gateway() {
    let rule = "rules: [{ name: a, match: { path: /a/** }, limits: [{ algorithm: fixed_window, limit: 2, window: 1d }] }]";
    let folder = Folder::new(&format!("gateway: {{ exempt: [/healthz] }}\n{rule}"));
    let log = ["/a%2Fb", "/healthz/..%2Fa", "/healthz%2F", "/x%2f..%2fA", "/other%2Fa", "/x%2Fy/../a", "/healthz"]
        .map(|target| line("192.0.2.1", 0, target))
        .concat();
    let report = folder.json(&["--log", "-"], log.as_bytes());
    let totals = |key: &str| report[key].as_u64().expect("a number");
    assert_eq!(["lines", "malformed", "requests", "allowed", "denied", "exempt"].map(totals), [7, 1, 6, 5, 1, 1]);
}

#[test]
fn rules_that_a_log_cannot_exercise_are_named_as_not_tested() {
    let limits = "limits: [ { algorithm: fixed_window, limit: 1, window: 1h } ]";
    let rule = |name: &str, selector: &str| format!("  - {{ name: {name}, match: {{ {selector} }}, {limits} }}\n");
    let rules = [
        rule("host", "host: api.example"),
        rule("field", "header: { x-plan: pro }"),
        rule("claim", "claim: { plan: pro }"),
        rule("seen", "path: /a"),
    ];
    let folder = Folder::new(&format!("rules:\n{}", rules.concat()));
    let log: String = (0..3).map(|second| line("192.0.2.1", second, "/a")).collect();
    let report = folder.path("report.html");
    let summary = folder.json(&["--log", "-", "--report", report.to_str().expect("text")], log.as_bytes());
    assert_eq!((&summary["denied"], &summary["untried"]), (&json!(2), &json!(["host", "field", "claim"])));
    let names = "tested, because no log has the fields that they match by: host, field, claim";
    assert!(std::fs::read_to_string(report).expect("a report").contains(&format!("Not {names}")));
    let (code, text, _) = folder.run(&["--log", "-"], log.as_bytes());
    assert!(code == 0 && text.contains(&format!("not {names}")), "{text}");
}

#[test]
fn shadow_rules_deny_no_request_and_count_their_denials() {
    let folder = Folder::new(&TWO_A_MINUTE.replace("per: ip", "per: ip\n    mode: shadow"));
    let log = line("192.0.2.1", 0, "/").repeat(5);
    let report = folder.json(&["--log", "-"], log.as_bytes());
    assert_eq!((&report["allowed"], &report["denied"]), (&json!(5), &json!(0)));
    let rule = &report["rules"][0];
    assert_eq!((&rule["allowed"], &rule["denied"], &rule["shadowDenied"]), (&json!(2), &json!(0), &json!(3)));
}

#[test]
fn errors_exit_with_2_name_the_remedy_and_print_no_result() {
    let folder = Folder::new(TWO_A_MINUTE);
    let key = format!("{{ sha256: '{}', identifier: alice }}", "0".repeat(64));
    let tokens = format!("identity: [ {{ api_key: {{ keys: [ {key} ] }} }} ]\nrules: []\n");
    let only_tokens = folder.file("tokens.yaml", tokens);
    let log = folder.file("access.log", "");
    let broken = folder.file("broken.gz", &gzip(line("192.0.2.1", 0, "/").repeat(99).as_bytes())[..60]);
    for (arguments, expected) in [
        (vec!["--log", "/nowhere/access.log"], "cannot open the log /nowhere/access.log: "),
        (vec!["--log", &broken], "check that the file is complete"),
        (vec!["--log", &log, "--fields", "ip=x"], "add --format json"),
        (vec!["--log", &log, "--identity", "agent"], "use user, or leave it out"),
        (vec!["--log", &log, "--window", "soon"], "soon"),
        (vec![], "--log"),
    ] {
        let (code, stdout, stderr) = folder.run(&arguments, b"");
        assert_eq!((code, stdout.as_str()), (2, ""), "{arguments:?}: {stderr}");
        assert!(stderr.contains(expected), "{arguments:?}: {stderr}");
    }
    let output = sluicegate(&["simulate", "--config", &only_tokens, "--log", &log]).output().expect("it starts");
    let stderr = String::from_utf8(output.stderr).expect("text");
    assert!(stderr.contains("name the field with their identity with --identity"), "{stderr}");
}

#[test]
fn an_empty_log_is_not_an_error() {
    let folder = Folder::new(TWO_A_MINUTE);
    let report = folder.json(&["--log", "-"], b"");
    assert_eq!((&report["lines"], &report["requests"], &report["from"]), (&json!(0), &json!(0), &Value::Null));
}
