//! A server that reads a directory of `envoyproxy/ratelimit`: its start, its reloads, the rejected files, and the
//! commands of the migration page.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use sluicegate_testkit::redis_server::RedisServer;
use tempfile::TempDir;

use crate::client::{post, send};
use crate::readme::page::{Step, is_shown, steps};
use crate::server::{ConfigFile, PATIENCE, Server, sluicegate};

/// Variables that the environment of the tests must not set.
const THEIRS: [&str; 8] =
    ["HOST", "PORT", "GRPC_HOST", "GRPC_PORT", "REDIS_URL", "REDIS_AUTH", "REDIS_TYPE", "MERGE_DOMAIN_CONFIG"];

fn limit(key: &str) -> String {
    format!("domain: edge\ndescriptors: [{{ key: {key}, rate_limit: {{ unit: day, requests_per_unit: 1 }} }}]\n")
}

fn directory(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().expect("a directory");
    files.iter().for_each(|(name, text)| put(folder.path(), name, text));
    folder
}

/// Writes a file atomically, because half a file would be another error.
fn put(folder: &Path, name: &str, text: &str) {
    let unfinished = folder.join("unfinished");
    fs::write(&unfinished, text).expect("a file");
    fs::rename(unfinished, folder.join(name)).expect("a file");
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of text")
}

/// A command without the environment variables of `envoyproxy/ratelimit`.
fn command(arguments: &[&str]) -> Command {
    let mut command = sluicegate(arguments);
    THEIRS.iter().for_each(|name| _ = command.env_remove(name));
    command
}

/// A server on free ports that follows this directory, configured by the variables of `envoyproxy/ratelimit`.
fn start(folder: &Path) -> Server {
    let mut command = command(&["--envoy-ratelimit", text(folder)]);
    command.envs([("GRPC_HOST", "127.0.0.1"), ("GRPC_PORT", "0"), ("HOST", "127.0.0.1"), ("PORT", "0")]);
    command.envs([("DEBUG_PORT", "0"), ("LOCAL_CACHE_SIZE_IN_BYTES", "100")]);
    Server::start_command(command)
}

/// Runs to the end. Returns the exit code, standard output and standard error.
fn run(arguments: &[&str]) -> (i32, String, String) {
    let output = command(arguments).output().expect("the binary starts");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (output.status.code().expect("no signal"), text(output.stdout), text(output.stderr))
}

/// Waits until the metrics contain, or no longer contain, a rule of this name.
fn wait_for_rule(server: &Server, name: &str) {
    let label = format!("rule=\"{name}\"");
    let started = Instant::now();
    while !send(server.address("admin"), "GET", "/metrics").body.contains(&label) {
        assert!(started.elapsed() < PATIENCE, "{name} is not in force");
        std::thread::yield_now();
    }
}

#[test]
fn a_directory_and_its_variables_are_enough_to_start() {
    let folder = directory(&[("edge.yaml", &limit("user"))]);
    let server = start(folder.path());
    assert_eq!(server.listeners(), ["admin", "api", "gateway"]);
    assert!(server.listeners().iter().all(|name| server.address(name).ip().is_loopback()));
    let lines = server.lines_to_ready().join("\n");
    assert!(lines.contains("LOCAL_CACHE_SIZE_IN_BYTES"), "{lines}");
    assert!(!lines.contains("demo"), "{lines}");

    wait_for_rule(&server, "edge.user");
    let healthcheck = send(server.address("gateway"), "GET", "/healthcheck");
    assert_eq!((healthcheck.status, healthcheck.body.as_str()), (200, "OK"));
    // The server has no demo application, and only the rules of the directory.
    assert_eq!(send(server.address("gateway"), "GET", "/api/ping").status, 404);
    let body = r#"{"resource":"demo","identifier":"alice"}"#;
    let free = post(server.address("api"), "/v1/check", body);
    assert_eq!((free.status, &free.json()["rule"]), (200, &serde_json::Value::Null));
}

/// The limits of the directory decide Envoy's requests on both ports that have an HTTP twin of its protocol.
#[test]
fn descriptors_are_decided_by_the_directory_and_header_fields_follow_its_variables() {
    let folder = directory(&[("edge.yaml", &limit("user"))]);
    let mut command = command(&["--envoy-ratelimit", text(folder.path()), "--store", "memory"]);
    command.envs([("GRPC_HOST", "127.0.0.1"), ("GRPC_PORT", "0"), ("HOST", "127.0.0.1"), ("PORT", "0")]);
    command.envs([
        ("DEBUG_PORT", "0"),
        ("LIMIT_RESPONSE_HEADERS_ENABLED", "true"),
        ("LIMIT_RESET_HEADER", "X-Reset"),
    ]);
    let server = Server::start_command(command);
    let send = |listener: &str, user: &str| {
        let body =
            format!(r#"{{"domain":"edge","descriptors":[{{"entries":[{{"key":"user","value":"{user}"}}]}}]}}"#);
        post(server.address(listener), "/json", body)
    };
    assert_eq!(send("api", "ann").status, 200);
    let denied = send("gateway", "ann");
    assert_eq!((denied.status, &denied.json()["overallCode"]), (429, &"OVER_LIMIT".into()), "{}", denied.body);
    let answer = denied.json();
    let names: Vec<_> =
        answer["responseHeadersToAdd"].as_array().into_iter().flatten().map(|each| &each["key"]).collect();
    assert_eq!(names, ["ratelimit-limit", "ratelimit-remaining", "x-reset"], "{}", denied.body);
    // Every value has a counter of its own.
    assert_eq!(send("gateway", "bob").status, 200);

    let plain = start(folder.path());
    let body = r#"{"domain":"edge","descriptors":[{"entries":[{"key":"user","value":"ann"}]}]}"#;
    let passed = post(plain.address("api"), "/json", body);
    assert_eq!((passed.status, passed.json().get("responseHeadersToAdd")), (200, None), "{}", passed.body);
}

#[test]
fn a_changed_directory_takes_effect_and_a_bad_one_does_not() {
    let folder = directory(&[("edge.yaml", &limit("user"))]);
    let mut server = start(folder.path());
    wait_for_rule(&server, "edge.user");
    put(folder.path(), "other.yaml", &limit("path").replace("edge", "other"));
    wait_for_rule(&server, "other.path");

    put(folder.path(), "bad.yml", "domain: bad\nrules: []\n");
    let line = server.wait_for_line("a mistake in the configuration");
    assert!(line.contains("bad.yml:2:1: rules: unknown key"), "{line}");
    server.wait_for_line("what was in force stays in force");
    let metrics = send(server.address("admin"), "GET", "/metrics").body;
    assert!(metrics.contains("\nsluicegate_config_last_reload_successful 0\n"), "{metrics}");
    wait_for_rule(&server, "edge.user");

    fs::remove_file(folder.path().join("bad.yml")).expect("a file");
    server.wait_for_line("is in force");
}

#[test]
fn a_bad_directory_refuses_to_start_and_names_file_and_line() {
    let bad = directory(&[("a.yaml", &limit("user")), ("b.yaml", &limit("user"))]);
    let (code, _, stderr) = run(&["--envoy-ratelimit", text(bad.path())]);
    let expected = format!(
        "b.yaml:1:9: domain: a second file for this domain, first at {}/a.yaml:1:9 (value edge): keep one file per \
         domain, or set MERGE_DOMAIN_CONFIG=true to take them together\n",
        bad.path().display()
    );
    assert!(code == 1 && stderr.ends_with(&expected), "{code}: {stderr}");

    let empty = directory(&[]);
    let (code, _, stderr) = run(&["--envoy-ratelimit", text(empty.path())]);
    assert!(
        code == 1 && stderr.contains("put at least one *.yaml or *.yml file directly in it"),
        "{code}: {stderr}"
    );
    let (code, _, stderr) = run(&["--envoy-ratelimit", text(&empty.path().join("missing"))]);
    assert!(code == 1 && stderr.contains("cannot read the directory"), "{code}: {stderr}");
}

#[test]
fn validate_knows_the_directory_alone_and_beside_a_file() {
    let folder = directory(&[("edge.yaml", &limit("user"))]);
    let file = folder.path().join("sluicegate.json");
    let at = ["--envoy-ratelimit", text(folder.path())];
    let line = format!("{}: ok, 1 domain, 1 limit\n", folder.path().display());
    assert_eq!(run(&[&["validate"], &at[..]].concat()), (0, line.clone(), String::new()));

    fs::write(&file, "rules: []").expect("a file");
    let both = [&["validate", text(&file)], &at[..]].concat();
    let (code, stdout, _) = run(&both);
    assert!(code == 0 && stdout.ends_with(&line) && stdout.lines().count() == 2, "{stdout}");

    // One invalid half makes the whole configuration invalid. The server reads both halves.
    fs::write(&file, "rules: [{ name: edge.user, limits: unlimited }]").expect("a file");
    let (code, _, stderr) = run(&both);
    assert!(code == 1 && stderr.contains("two rules are called \"edge.user\""), "{stderr}");
    fs::write(&file, "rules: 5").expect("a file");
    let (code, stdout, stderr) = run(&both);
    assert!(code == 1 && stderr.contains("rules: not a list") && stdout == line, "{stdout}{stderr}");
    assert_eq!(run(&["validate"]).0, 2);
}

#[test]
fn explain_shows_the_path_of_a_descriptor() {
    let folder = directory(&[("edge.yaml", &limit("user"))]);
    let explain = |more: &[&str]| run(&[&["explain", "--envoy-ratelimit", text(folder.path())], more].concat());
    let (code, stdout, stderr) = explain(&["--domain", "edge", "--descriptor", "user=ann", "--json"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    let report: serde_json::Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!((&report["isLimited"], &report["entries"][0]["matchedBy"]), (&true.into(), &"key".into()));
    assert_eq!(report["explained"]["rules"][0]["name"], "edge.user");
    assert_eq!(report["explained"]["rules"].as_array().map(Vec::len), Some(1));

    let (code, stdout, _) = explain(&["--domain", "other", "--descriptor", "user=ann"]);
    assert!(code == 0 && stdout.ends_with("\nnot limited: no such domain: there are edge\n"), "{stdout}");
    let (code, _, stderr) = explain(&["--domain", "edge", "--descriptor", "user"]);
    assert!(code == 2 && stderr.contains("`user` is not KEY=VALUE"), "{stderr}");
    assert_eq!(explain(&["--descriptor", "user=ann"]).0, 2, "no domain");
    let (code, _, stderr) = run(&["explain", "--domain", "edge", "--descriptor", "user=ann"]);
    assert!(code == 2 && stderr.contains("give --envoy-ratelimit DIR"), "{stderr}");
}

/// A store with leases has smaller effective limits than the configured ones. The explanation shows the configured
/// limits, those of the directory included.
#[test]
fn a_running_server_explains_the_directory_beside_its_own_rules() {
    let folder = directory(&[("edge.yaml", &limit("user"))]);
    let own = "rules: [{ name: own, limits: [{ algorithm: token_bucket, capacity: 100, refill: 100/s }], lease: { ttl: 100ms, mode: strict } }]\n";
    let (file, redis) = (ConfigFile::new("explain-envoy", own), RedisServer::start());
    let listen = ["--gateway", "off", "--api", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let more = ["--config", file.path(), "--envoy-ratelimit", text(folder.path()), "--store", &redis.url()];
    let server = Server::start_command(command(&[&listen[..], &more].concat()));
    let body = r#"{"resource":"r","identifier":"alice"}"#;
    let explained = post(server.address("admin"), "/admin/v1/explain", body).json();
    let rules = explained["rules"].as_array().expect("rules");
    assert_eq!(rules.iter().map(|rule| rule["name"].clone()).collect::<Vec<_>>(), ["own", "edge.user"]);
    assert_eq!(rules[0]["terms"]["limits"][0]["bound"]["burst"], 100, "{explained}");
    assert_eq!(rules[0]["terms"]["limits"][0]["limit"], 90, "{explained}");
}

/// Saves every file of the page and runs every command. The output must equal the output on the page.
#[test]
fn the_page_about_moving_over_is_right() {
    let folder = tempfile::tempdir().expect("a directory");
    let mut server: Option<Server> = None;
    let mut commands = 0;
    for step in steps(include_str!("../../../../docs/coming-from-envoyproxy-ratelimit.md")) {
        match step {
            Step::Save { name, text } => {
                let path = folder.path().join(name);
                fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
                fs::write(path, text).expect("a file");
            }
            Step::Type { command, shown } => {
                commands += 1;
                if command.ends_with(" &") {
                    server = Some(start(&folder.path().join("ratelimit")));
                } else {
                    let printed = typed(&command, folder.path(), server.as_ref());
                    assert!(is_shown(&printed, &shown), "`{command}` prints\n{printed}\nand not\n{shown:#?}");
                }
            }
        }
    }
    assert!(commands >= 6 && server.is_some(), "{commands}");
}

fn typed(command: &str, folder: &Path, server: Option<&Server>) -> String {
    let program = env!("CARGO_BIN_EXE_sluicegate");
    let mut command = command.replace("cargo run --release -q --", program);
    for (name, on_page) in [("gateway", "127.0.0.1:8080"), ("api", "127.0.0.1:8081")] {
        if let Some(server) = server {
            command = command.replace(on_page, &server.address(name).to_string());
        }
    }
    let mut shell = Command::new("sh");
    shell.args(["-c", &command]).current_dir(folder).stdin(Stdio::null());
    THEIRS.iter().for_each(|name| _ = shell.env_remove(name));
    let output = shell.output().expect("a shell");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "`{command}` fails: {complaint}");
    String::from_utf8(output.stdout).expect("text")
}
