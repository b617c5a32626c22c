//! A database that becomes unavailable, recovers, or contains invalid rules.

use sluicegate_testkit::poll;

use super::*;
use crate::server::PATIENCE;

/// Ends the load however the test ends.
struct StopAtTheEnd<'s>(&'s std::sync::atomic::AtomicBool);

impl Drop for StopAtTheEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

const GAUGE: &str = "sluicegate_config_last_reload_successful";

#[test]
fn while_postgresql_is_gone_the_last_good_rules_go_on_and_an_alarm_is_up() {
    let database = Owned::postgres();
    let server = database.serve(FILE);
    assert_eq!(metric(&server, GAUGE), "1");
    let api = server.address("api");
    let stop = &std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        // The load continues all the time, and each request gets a decision by the last valid rules.
        let _end = StopAtTheEnd(stop);
        let load = scope.spawn(move || {
            let mut count = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let body = r#"{"resource":"first","identifier":"load"}"#;
                let answer = post(api, "/v1/peek", body);
                assert_eq!((answer.status, answer.json()["rule"].clone()), (200, "first".into()), "{answer:?}");
                count += 1;
            }
            count
        });
        database.postgres_server().kill();
        poll::until_true("the alarm", PATIENCE, || metric(&server, GAUGE) == "0");
        let refused = admin(&server, "POST", "/admin/v1/rules", &rule("new", 1));
        assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")), "{refused:?}");
        assert_eq!(admin(&server, "GET", "/admin/v1/audit", "").status, 503);
        assert_eq!(admin(&server, "GET", "/admin/v1/rules/first", "").status, 200);
        assert_eq!(send(server.address("admin"), "GET", "/readyz").status, 200);
        database.postgres_server().launch();
        poll::until_true("the end of the alarm", PATIENCE, || metric(&server, GAUGE) == "1");
        poll::until_true("changes again", PATIENCE, || {
            matches!(admin(&server, "POST", "/admin/v1/rules", &rule("new", 1)).status, 201 | 409)
        });
        assert_eq!(limit_of(&server, "new"), 1);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(load.join().expect("every request was answered") > 0);
    });
}

#[test]
fn invalid_rows_change_nothing_and_are_reported() {
    let database = Owned::sqlite();
    let mut server = database.serve(FILE);
    let path = database.url.strip_prefix("sqlite://").expect("a path");
    let sql = "UPDATE sluicegate_entries SET body = '{\"name\":\"first\",\"limits\":7}'; \
               UPDATE sluicegate_revision SET revision = revision + 1;";
    let program =
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], timeout=20); c.executescript(sys.argv[2])";
    let status = std::process::Command::new("python3").args(["-c", program, path, sql]).status().expect("python3");
    assert!(status.success());
    let line = server.wait_for_line("the database cannot be followed");
    assert!(line.contains("limits: not a list"), "{line}");
    assert_eq!(metric(&server, GAUGE), "0");
    let body = r#"{"resource":"anything","identifier":"i"}"#;
    assert_eq!(post(server.address("api"), "/v1/peek", body).json()["limit"], 5);
    // An import of a file repairs it.
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("f.yaml");
    std::fs::write(&file, FILE).expect("a file");
    assert_eq!(run(&["rules", "import", file.to_str().expect("text"), "--database", &database.url]).0, 0);
    server.wait_for_line("the database is followed again");
    assert_eq!(metric(&server, GAUGE), "1");
}

#[test]
fn a_server_without_its_database_does_not_start_and_names_the_reason() {
    let url = "postgres://user:canary@127.0.0.1:1/d";
    let mut command = sluicegate(&["--gateway", "off", "--api", "127.0.0.1:0", "--admin", "off"]);
    let output = command.env("SLUICEGATE_DATABASE", url).output().expect("it runs");
    let text = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("postgres://127.0.0.1:1/d: the database") && !text.contains("canary"), "{text}");
}
