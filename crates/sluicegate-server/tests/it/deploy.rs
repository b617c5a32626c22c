//! The files in `deploy/`: alerts and dashboards refer to existing series, Prometheus counts the decisions, and the
//! server notifies its supervisor of readiness.

mod helm;

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::{Session, send};
use crate::server::{ConfigFile, PATIENCE, Server, sluicegate};

fn deploy(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name)
}

fn text(name: &str) -> String {
    fs::read_to_string(deploy(name)).expect("a file of ours")
}

/// Runs a program that must succeed.
fn passes(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().expect("it is installed; `cargo xtask test` does that");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{command:?}: {said}");
}

#[test]
fn alerts_are_valid_and_fire_on_their_series() {
    passes(Command::new("promtool").args(["check", "rules"]).arg(deploy("prometheus/alerts.yaml")));
    passes(Command::new("promtool").args(["test", "rules"]).arg(deploy("prometheus/alerts.test.yaml")));
    let folder = deploy("prometheus");
    passes(
        Command::new("promtool").args(["check", "config", "--syntax-only", "prometheus.yaml"]).current_dir(folder),
    );
}

/// All names of our series in a text.
fn series(text: &str) -> BTreeSet<&str> {
    let words = text.split(|character: char| !(character.is_ascii_alphanumeric() || character == '_'));
    words.filter(|word| word.starts_with("sluicegate_")).collect()
}

#[test]
fn alerts_and_panels_use_existing_series() {
    let server = Server::start(&["--store", "memory"]);
    let metrics = send(server.address("admin"), "GET", "/metrics").body;
    let known = series(&metrics);
    let picture: Value = serde_json::from_str(&text("grafana/sluicegate.json")).expect("JSON");
    let panels = picture["panels"].as_array().expect("panels");
    assert!(panels.len() >= 10);
    let shown: String = panels.iter().map(|panel| panel["targets"].to_string()).collect();
    let expressions: String =
        text("prometheus/alerts.yaml").lines().filter(|line| !line.contains("remedy:")).collect();
    for name in series(&shown).union(&series(&expressions)) {
        assert!(known.contains(name), "{name} is not among\n{metrics}");
    }
}

/// A process that ends with the test.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_real_prometheus_counts_the_requests() {
    let rules = "rules: [ { name: few, limits: [ { algorithm: token_bucket, capacity: 3, refill: 1/h } ] } ]";
    let config = ConfigFile::new("deploy-prometheus", rules);
    let server = Server::start(&["--config", config.path(), "--store", "memory"]);
    let mut session = Session::open(server.address("api"));
    (0..10).for_each(|_| drop(session.post("/v1/check", r#"{"resource":"r","identifier":"alice"}"#)));

    let folder = TempDir::new().expect("a folder");
    let scrape = format!(
        "scrape_configs: [ {{ job_name: sluicegate, scrape_interval: 1s, static_configs: [ {{ targets: ['{}'] }} ] }} ]",
        server.address("admin")
    );
    fs::write(folder.path().join("prometheus.yaml"), scrape).expect("a file");
    let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound");
    let prometheus = Command::new("prometheus")
        .args(["--config.file=prometheus.yaml", "--storage.tsdb.path=data", "--log.level=error"])
        .arg(format!("--web.listen-address={port}"))
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("prometheus is installed; `cargo xtask test` does that");
    let _prometheus = Ending(prometheus);
    let counted = |outcome: &str| -> Option<Value> {
        // Prometheus is not ready at once, and has no samples at first.
        let mut session = Session::try_open(port).ok()?;
        let query =
            format!("sum(sluicegate_decisions_total%7Bjob%3D%22sluicegate%22%2Coutcome%3D%22{outcome}%22%7D)");
        let answer = session.try_post(&format!("/api/v1/query?query={query}"), "", "").ok()?;
        let found: Value = serde_json::from_str(&answer.body).ok()?;
        found["data"]["result"][0]["value"].get(1).cloned()
    };
    for (outcome, count) in [("allowed", "3"), ("denied", "7")] {
        let since = Instant::now();
        while counted(outcome) != Some(json!(count)) {
            assert!(since.elapsed() < PATIENCE, "{outcome}: {:?}", counted(outcome));
            std::thread::yield_now();
        }
    }
}

#[test]
fn the_service_manager_is_notified_of_ready_and_stop() {
    let folder = TempDir::new().expect("a folder");
    let socket = folder.path().join("notify");
    let manager = UnixDatagram::bind(&socket).expect("a socket");
    manager.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let told = || {
        let mut bytes = [0; 64];
        let length = manager.recv(&mut bytes).expect("a word");
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    let variables = [("NOTIFY_SOCKET", socket.to_str().expect("text"))];
    let server = Server::start_with(&variables, &["--store", "memory"]);
    assert_eq!(told().trim_end(), "READY=1");
    server.signal("TERM");
    assert_eq!(told().trim_end(), "STOPPING=1");
    assert!(server.wait().status.success());
}

/// The list of words after an instruction of the Dockerfile, in its last stage.
fn words_after(instruction: &str) -> Vec<String> {
    let dockerfile = text("Dockerfile");
    let line = dockerfile.lines().rev().find_map(|line| line.trim().strip_prefix(instruction));
    serde_json::from_str(line.expect("the instruction").trim()).expect("a list of words")
}

#[test]
fn the_health_check_of_the_container_fails_exactly_without_a_response() {
    let words = words_after("CMD");
    assert_eq!(words_after("ENTRYPOINT"), [words[0].clone()]);
    let run = |api: &str| {
        let arguments: Vec<&str> =
            words[1..].iter().map(|word| if word.starts_with("http") { api } else { word }).collect();
        sluicegate(&arguments).stdout(Stdio::null()).stderr(Stdio::null()).status().expect("it runs")
    };
    let server = Server::start(&["--store", "memory"]);
    let api = format!("http://{}", server.address("api"));
    assert!(run(&api).success());
    drop(server);
    assert_eq!(run(&api).code(), Some(2));
}

/// Deployments of envoyproxy/ratelimit start this path, as this user.
#[test]
fn the_image_has_a_stage_that_replaces_the_one_of_envoyproxy_ratelimit() {
    let dockerfile = text("Dockerfile");
    let stage = dockerfile.split("\nFROM ").find(|stage| stage.contains(" AS ratelimit\n")).expect("the stage");
    for line in ["USER 65534:65534", "ENTRYPOINT [\"/bin/ratelimit\"]"] {
        assert!(stage.lines().any(|each| each == line), "{line} is not in\n{stage}");
    }
    assert!(stage.contains("/sluicegate /bin/ratelimit\n"), "{stage}");
}

#[test]
fn systemd_has_no_objection_to_the_unit() {
    let folder = TempDir::new().expect("a folder");
    // `systemd-analyze` checks that the program exists.
    let unit =
        text("systemd/sluicegate.service").replace("/usr/local/bin/sluicegate", env!("CARGO_BIN_EXE_sluicegate"));
    let file = folder.path().join("sluicegate.service");
    fs::write(&file, unit).expect("a file");
    passes(Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(file));
}
