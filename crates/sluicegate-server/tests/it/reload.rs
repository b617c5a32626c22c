//! The configuration file changes while the server runs: every way to change it and to request a reload, a rejected
//! file that changes nothing, and the effect on state, metrics and in-flight requests.

mod state;
mod under_load;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::{Answer, post, post_with, send, send_with};
use crate::server::Server;

const TOKEN: &str = "reload-token-of-tests";
const AUTHORIZATION: &str = "authorization: Bearer reload-token-of-tests\r\n";

/// The log line of a change that took effect, and the one of a reload without a change.
const IN_FORCE: &str = "the configuration file is in force";
const CANNOT_BE_USED: &str = "the configuration file cannot be used";

/// A rule that allows `limit` requests and does not refill within a test.
fn rule(name: &str, limit: u32) -> String {
    format!("  - {{ name: {name}, limits: [{{ algorithm: fixed_window, limit: {limit}, window: 365d }}] }}\n")
}

fn rules(rules: &[String]) -> String {
    format!("rules:\n{}", rules.concat())
}

/// A configuration file in a directory of its own, and the server that follows it.
struct Followed {
    directory: TempDir,
    server: Server,
}

impl Followed {
    fn start(text: &str) -> Self {
        Self::start_on("memory", text)
    }

    fn start_on(store: &str, text: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        fs::write(directory.path().join("sluicegate.yaml"), text).expect("a file");
        Self::start_in(directory, store)
    }

    fn start_in(directory: TempDir, store: &str) -> Self {
        let path = directory.path().join("sluicegate.yaml");
        let arguments = ["--config", path.to_str().expect("a path of text"), "--store", store];
        let server = Server::start_with(&[("SLUICEGATE_ADMIN_TOKEN", TOKEN)], &arguments);
        Self { directory, server }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("sluicegate.yaml")
    }

    fn write(&self, text: &str) {
        fs::write(self.path(), text).expect("a file");
    }

    /// Replaces the file in one atomic step.
    fn replace(&self, text: &str) {
        let aside = self.directory.path().join("aside");
        fs::write(&aside, text).expect("a file");
        fs::rename(aside, self.path()).expect("the same directory");
    }

    fn reload(&self) -> Answer {
        post_with(self.server.address("admin"), "/admin/v1/reload", AUTHORIZATION, "")
    }

    /// Changes the file and waits until the change took effect.
    fn change_to(&self, text: &str) {
        self.replace(text);
        let answer = self.reload();
        assert_eq!(answer.status, 200, "{answer:?}");
    }

    /// The state of the limit that decides about this identifier.
    fn peek(&self, identifier: &str) -> Value {
        let body = json!({ "resource": "r", "identifier": identifier }).to_string();
        post(self.server.address("api"), "/v1/peek", body).json()
    }

    fn check(&self, identifier: &str) -> Answer {
        let body = json!({ "resource": "r", "identifier": identifier }).to_string();
        post(self.server.address("api"), "/v1/check", body)
    }

    fn limit(&self) -> Value {
        self.peek("nobody")["limit"].clone()
    }

    fn readiness(&self) -> (u16, Value) {
        let answer = send(self.server.address("admin"), "GET", "/readyz");
        (answer.status, answer.json())
    }

    fn status(&self) -> Value {
        send(self.server.address("admin"), "GET", "/admin/v1/reload").json()
    }

    /// The value of a series; `None` if there is no such series.
    fn metric(&self, series: &str) -> Option<String> {
        let text = send(self.server.address("admin"), "GET", "/metrics").body;
        let mut values = text.lines().filter_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        values.next().map(str::to_owned)
    }

    fn is_successful(&self) -> Option<String> {
        self.metric("sluicegate_config_last_reload_successful")
    }
}

fn counted(rule: &str, outcome: &str) -> String {
    format!(r#"sluicegate_decisions_total{{algorithm="fixed_window",outcome="{outcome}",rule="{rule}"}}"#)
}

#[test]
fn an_edit_a_rename_and_a_signal_take_effect() {
    let mut followed = Followed::start(&rules(&[rule("one", 1)]));
    assert_eq!(followed.limit(), 1);
    followed.write(&rules(&[rule("one", 2)]));
    followed.server.wait_for_line(IN_FORCE);
    assert_eq!(followed.limit(), 2);
    followed.replace(&rules(&[rule("one", 3)]));
    followed.server.wait_for_line(IN_FORCE);
    assert_eq!(followed.limit(), 3);
    // The file is unchanged, so the log has a line only because of the explicit reload request.
    followed.server.signal("HUP");
    followed.server.wait_for_line(IN_FORCE);
    assert_eq!(followed.limit(), 3);
}

#[test]
fn a_config_map_is_followed_through_its_links() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().to_owned();
    // As the kubelet does it: a new folder, and then one atomic step that makes it current.
    let publish = |version: &str, text: &str| {
        let folder = path.join(version);
        fs::create_dir(&folder).expect("a directory");
        fs::write(folder.join("sluicegate.yaml"), text).expect("a file");
        symlink(version, path.join("..data_tmp")).expect("a link");
        fs::rename(path.join("..data_tmp"), path.join("..data")).expect("one step");
    };
    publish("..version_1", &rules(&[rule("one", 1)]));
    symlink("..data/sluicegate.yaml", path.join("sluicegate.yaml")).expect("a link");
    let mut followed = Followed::start_in(directory, "memory");
    publish("..version_2", &rules(&[rule("one", 2)]));
    fs::remove_dir_all(path.join("..version_1")).expect("it was there");
    followed.server.wait_for_line(IN_FORCE);
    assert_eq!(followed.limit(), 2);
}

#[test]
fn a_bad_empty_or_missing_file_changes_nothing_and_can_be_seen_until_it_is_good_again() {
    let mut followed = Followed::start(&rules(&[rule("one", 1)]));
    let started = followed.metric("sluicegate_config_last_reload_success_timestamp_seconds");
    assert_eq!(
        (followed.is_successful().as_deref(), followed.readiness().1.get("staleConfiguration")),
        (Some("1"), None)
    );
    let bad = format!("unmatched: maybe\n{}", rules(&[rule("one", 2).replace("365d", "1y")]));
    for (what, problems) in [(Some(&*bad), 2), (Some(""), 1), (None, 1)] {
        match what {
            Some(text) => followed.replace(text),
            None => fs::remove_file(followed.path()).expect("it was there"),
        }
        let mistake = followed.server.wait_for_line("a mistake in the configuration file");
        assert!(mistake.contains("sluicegate.yaml"), "{mistake}");
        followed.server.wait_for_line(CANNOT_BE_USED);
        assert_eq!(followed.limit(), 1, "{what:?}");
        assert_eq!(followed.is_successful().as_deref(), Some("0"));
        assert_eq!(followed.metric("sluicegate_config_last_reload_success_timestamp_seconds"), started);
        let ready = json!({ "status": "ready", "degraded": false, "staleConfiguration": true });
        assert_eq!(followed.readiness(), (200, ready));
        let status = followed.status();
        assert_eq!(
            (&status["successful"], status["problems"].as_array().map(Vec::len)),
            (&json!(false), Some(problems))
        );
        // The response to a reload request lists every error.
        let answer = followed.reload();
        assert_eq!(
            (answer.status, answer.json()["detail"].as_str().map(|all| all.lines().count())),
            (400, Some(problems))
        );
        followed.server.wait_for_line(CANNOT_BE_USED);
    }
    followed.replace(&rules(&[rule("one", 5)]));
    followed.server.wait_for_line(IN_FORCE);
    assert_eq!((followed.limit(), followed.is_successful().as_deref()), (json!(5), Some("1")));
    assert_eq!(followed.readiness().1, json!({ "status": "ready", "degraded": false }));
}

#[test]
fn the_endpoint_lists_differences_and_requires_the_token() {
    let followed = Followed::start(&rules(&[rule("kept", 1), rule("gone", 9)]));
    let admin = followed.server.address("admin");
    assert_eq!(post(admin, "/admin/v1/reload", "").status, 401);
    assert_eq!(post_with(admin, "/admin/v1/reload", "authorization: Bearer wrong\r\n", "").status, 401);
    let text = rules(&[rule("kept", 2), rule("new", 9)]);
    followed.replace(&format!("unmatched: deny\nheaders: {{ degraded: true }}\n{text}"));
    // The first check of the file detects the change: this reload request or the watch on the directory.
    let answer = followed.reload();
    assert_eq!((answer.status, &answer.json()["needsRestart"]), (200, &json!(["headers.degraded"])));
    assert_eq!(followed.limit(), 2);
    let status = send_with(admin, "GET", "/admin/v1/reload", AUTHORIZATION.trim_end()).json();
    assert_eq!((&status["successful"], &status["needsRestart"]), (&json!(true), &json!(["headers.degraded"])));
    assert_eq!(status["problems"], json!([]));
}

#[test]
fn guesses_of_tokens_at_the_endpoint_are_429() {
    let followed = Followed::start(&rules(&[rule("one", 1)]));
    let admin = followed.server.address("admin");
    let guess = || post_with(admin, "/admin/v1/reload", "authorization: Bearer wrong\r\n", "").status;
    let answers: Vec<u16> = (0..12).map(|_| guess()).collect();
    assert_eq!((answers[0], answers[11]), (401, 429), "{answers:?}");
}

#[test]
fn a_reload_needs_a_file_and_a_token() {
    let server = Server::start_with(&[("SLUICEGATE_ADMIN_TOKEN", TOKEN)], &[]);
    let answer = post_with(server.address("admin"), "/admin/v1/reload", AUTHORIZATION, "");
    assert_eq!(answer.status, 409);
    assert!(answer.json()["detail"].as_str().is_some_and(|detail| detail.contains("--config FILE")), "{answer:?}");
    let mut server = Server::start(&[]);
    assert_eq!(post_with(server.address("admin"), "/admin/v1/reload", AUTHORIZATION, "").status, 403);
    server.signal("HUP");
    server.wait_for_line("--config FILE");
    assert_eq!(send(server.address("admin"), "GET", "/livez").status, 200);
}

#[test]
fn series_go_with_the_names_of_rules() {
    let followed = Followed::start(&rules(&[rule("gone", 100), rule("kept", 100)]));
    for _ in 0..3 {
        assert_eq!(followed.check("alice").status, 200);
    }
    followed.change_to(&rules(&[rule("new", 100), rule("kept", 100)]));
    assert_eq!(followed.metric(&counted("kept", "allowed")).as_deref(), Some("3"));
    assert_eq!(followed.metric(&counted("new", "allowed")).as_deref(), Some("0"));
    assert_eq!(followed.metric(&counted("gone", "allowed")), None);
    assert_eq!(followed.check("alice").status, 200);
    assert_eq!(followed.metric(&counted("kept", "allowed")).as_deref(), Some("4"));
    assert_eq!(followed.metric(&counted("new", "allowed")).as_deref(), Some("1"));
}
