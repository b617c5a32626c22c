//! Unusable stores: the server reports them at the start, in one line, without the password.

use sluicegate_testkit::redis_server::{Options, RedisServer};

use super::{CANNOT_BE_USED, EVERY_POLICY, lines_with};
use crate::server::{ConfigFile, Server, sluicegate};

const CANARY: &str = "canary";

#[test]
fn a_url_that_is_no_store_is_refused_in_one_line() {
    for (url, remedy) in [
        ("postgres://ann:canary@host:5432", "a store URL starts with redis://"),
        ("ann:canary@host:6379", "use memory, or a URL such as redis://127.0.0.1:6379"),
        ("redis://ann:canary@host:port", "is not a number from 1 to 65535"),
        ("redis://ann:canary@host/zero", "is not a number"),
        ("redis://ann:canary@one,two", "use redis+sentinel:// or redis+cluster://"),
        ("redis+sentinel://ann:canary@host", "the service name is missing"),
        ("redis+cluster://ann:canary@host/1", "a Cluster has only database 0"),
    ] {
        let output = sluicegate(&["serve", "--store", url]).output().expect("the binary starts");
        let stderr = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(1), "{url}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{url}: {stderr}");
        assert!(stderr.starts_with("error: --store: ") && stderr.contains(remedy), "{url}: {stderr}");
        assert!(!stderr.contains(CANARY), "{url}: {stderr}");
    }
}

#[test]
fn a_store_that_rejects_the_connection_is_reported_in_one_line() {
    let redis = RedisServer::with(
        &Options::default()
            .password("good-canary")
            .user("ann on >good-canary ~* +@all")
            .user("bob on >good-canary ~* +@all -evalsha -eval"),
    );
    let at = redis.address();
    let cases = [
        ("redis://ann:canary@127.0.0.1:1".to_owned(), "connection", "Connection refused"),
        ("redis://ann:canary@nobody.invalid".to_owned(), "connection", "nobody.invalid"),
        (redis.url_as("ann", CANARY), "refused", "Password authentication failed"),
        (format!("redis://{at}"), "refused", "NOAUTH"),
        (redis.url_as("bob", "good-canary"), "refused", "NOPERM"),
        (redis.url_as("ann", "good-canary") + "/99", "refused", "DB index is out of range"),
        (format!("redis+cluster://ann:good-canary@{at}"), "protocol", "cluster support disabled"),
        (format!("rediss://ann:good-canary@{at}"), "timeout", "no connection within"),
    ];
    let config = ConfigFile::new("redis-refusals", EVERY_POLICY);
    std::thread::scope(|scope| {
        for (url, class, reason) in &cases {
            scope.spawn(|| told_in_one_line(&config, url, class, reason));
        }
    });
}

fn told_in_one_line(config: &ConfigFile, url: &str, class: &str, reason: &str) {
    let mut command = sluicegate(&["--gateway", "off", "--api", "127.0.0.1:0", "--admin", "off"]);
    // At the level `trace` no line is filtered out, so the count is complete.
    command.args(["--config", config.path(), "--store", url]).env("SLUICEGATE_LOG", "trace");
    let server = Server::start_command(command);
    let lines = lines_with(&server, CANNOT_BE_USED);
    assert_eq!(lines.len(), 1, "{url}: {:#?}", server.lines_to_ready());
    let line = lines[0];
    assert!(line.contains("WARN") && line.contains(class) && line.contains(reason), "{url}: {line}");
    let said = server.lines_to_ready().join("\n");
    assert!(!said.contains(CANARY), "{url}: {said}");
}
