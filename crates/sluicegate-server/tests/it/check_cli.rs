//! `sluicegate check` against a real server, and against other programs.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use serde_json::Value;

use crate::server::{Server, sluicegate};

/// Runs `check` to its end. Returns the exit code, stdout and stderr.
fn run(arguments: &[&str]) -> (i32, String, String) {
    let output = sluicegate(arguments).output().expect("the binary starts");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (output.status.code().expect("no signal"), text(output.stdout), text(output.stderr))
}

/// Checks `alice` at `api`.
fn check(api: &str, more: &[&str]) -> (i32, String, String) {
    let who = ["check", "--resource", "demo", "--identifier", "alice", "--api", api];
    run(&[&who, more].concat())
}

fn url(server: &Server) -> String {
    format!("http://{}", server.address("api"))
}

#[test]
fn the_exit_code_is_the_decision() {
    let server = Server::start(&[]);
    let api = url(&server);
    let (code, stdout, stderr) = check(&api, &["--cost", "10"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(stdout.starts_with("allowed  demo  0 of 10 left, quota fully restored in "), "{stdout}");

    let (code, stdout, _) = check(&api, &["--cost", "10"]);
    assert_eq!(code, 1);
    assert!(stdout.starts_with("denied  demo  ") && stdout.contains(" of 10 left, try again in "), "{stdout}");

    let (code, stdout, _) = check(&api, &["--cost", "11", "--tenant", "other"]);
    assert_eq!((code, stdout.as_str()), (1, "denied  demo  10 of 10 left, a cost of 11 never fits\n"));
}

#[test]
fn peek_does_not_charge() {
    let server = Server::start(&[]);
    for _ in 0..3 {
        let (code, stdout, _) = check(&url(&server), &["--peek", "--cost", "10"]);
        assert_eq!((code, stdout.as_str()), (0, "allowed  demo  10 of 10 left, quota full\n"));
    }
}

#[test]
fn json_is_the_servers_response() {
    let server = Server::start(&[]);
    let (code, stdout, _) = check(&url(&server), &["--json"]);
    assert_eq!(code, 0);
    let answer: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!((&answer["remaining"], &answer["rule"]), (&Value::from(9), &Value::from("demo")));
}

#[test]
fn without_a_decision_the_exit_code_is_2_and_stdout_is_empty() {
    let server = Server::start(&[]);
    let nobody = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port");
    let (api, gateway) = (url(&server), format!("http://{}", server.address("gateway")));
    for (url, more, expected) in [
        (format!("http://{nobody}"), &[][..], "is the server running there?"),
        (api.clone(), &["--tier", "gold"], "answered 400 Bad Request: `tier` is \"gold\""),
        (api.clone(), &["--tenant", ""], "answered 400 Bad Request: `tenant` is empty"),
        (gateway, &[], "answered 404 Not Found: nothing is served at /v1/check"),
        (api.replace("http", "https"), &[], "cannot reach https://"),
        ("127.0.0.1".to_owned(), &[], "does not start with http://"),
    ] {
        let (code, stdout, stderr) = check(&url, more);
        assert_eq!((code, stdout.as_str()), (2, ""), "{url}: {stderr}");
        assert!(stderr.starts_with("error: ") && stderr.contains(expected), "{url}: {stderr}");
    }
}

/// Another program on the port, with invalid responses.
#[test]
fn invalid_responses_exit_with_2() {
    for (said, expected) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\npong", "is not a decision"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 17\r\n\r\n{\"allowed\":false}", "is not a decision"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 400\r\n\r\n{\"allowed\":true", "no HTTP response"),
        ("220 smtp.example ESMTP\r\n", "no HTTP response"),
        ("", "no HTTP response"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let api = format!("http://{}", listener.local_addr().expect("bound"));
        let peer = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut request = [0; 4_096];
            let read = stream.read(&mut request).expect("a request");
            assert!(request[..read].starts_with(b"POST /v1/check HTTP/1.1\r\n"));
            stream.write_all(said.as_bytes()).expect("the client reads");
        });
        let (code, stdout, stderr) = check(&api, &[]);
        peer.join().expect("the peer");
        assert_eq!((code, stdout.as_str()), (2, ""), "{said:?}: {stderr}");
        assert!(stderr.contains(expected), "{said:?}: {stderr}");
    }
}

#[test]
fn invalid_arguments_exit_with_2_and_server_settings_are_ignored() {
    for arguments in [
        &["check", "--resource", "r"][..],
        &["check", "--resource", "r", "--identifier", "i", "--cost", "-1"],
        &["check", "--resource", "r", "--identifier", "i", "--cost", "4294967296"],
        &["check", "--resource", "r", "--identifier", "i", "--store", "memory"],
    ] {
        assert_eq!(run(arguments).0, 2, "{arguments:?}");
    }
    for cost in ["-1", "1.5", "4294967296"] {
        for command in [&["check"][..], &["explain", "--config", "unread.yaml"]] {
            let arguments = [command, &["--resource", "r", "--identifier", "i", "--cost", cost]].concat();
            let (code, _, stderr) = run(&arguments);
            let range = "use a whole number from 0 to 4294967295";
            let is_told =
                stderr.contains(&format!("invalid value '{cost}' for '--cost <N>'")) && stderr.contains(range);
            assert!(code == 2 && is_told, "{arguments:?}: {code}: {stderr}");
        }
    }
    // An invalid setting of a server must not look like a denial.
    let server = Server::start(&[]);
    let mut command = sluicegate(&["check", "--resource", "r", "--identifier", "i", "--api", &url(&server)]);
    command.env("SLUICEGATE_ADMIN_TOKEN", "not a token");
    assert_eq!(command.output().expect("the binary starts").status.code(), Some(0));
}
