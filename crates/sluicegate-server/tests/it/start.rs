//! The start of the server: its output, its listeners, and the errors that prevent it.

use std::net::TcpListener;

use serde_json::json;

use crate::client::ask;
use crate::server::{ConfigFile, Server, sluicegate};

/// Runs to the end and returns the exit code and stderr.
fn fails(arguments: &[&str]) -> (i32, String) {
    let output = sluicegate(arguments).output().expect("the binary starts");
    let stderr = String::from_utf8(output.stderr).expect("text");
    assert!(!stderr.lines().any(|line| line == "ready" || line.starts_with("listening ")), "{stderr}");
    (output.status.code().expect("no signal"), stderr)
}

#[test]
fn every_listener_is_announced_before_ready() {
    let server = Server::start(&[]);
    assert_eq!(server.listeners(), ["admin", "api", "gateway"]);
    let lines = server.lines_to_ready();
    assert_eq!(lines.last().map(String::as_str), Some("ready"));
    let (gateway, api) = (server.address("gateway"), server.address("api"));
    for hint in [
        format!("try: curl -i -H 'X-API-Key: demo-key' http://{gateway}/api/ping"),
        format!(
            "try: curl -s http://{api}/v1/check -H 'content-type: application/json' \
             -d '{{\"resource\":\"demo\",\"identifier\":\"alice\"}}'"
        ),
    ] {
        assert!(lines.contains(&hint), "{lines:#?}");
    }
    for name in server.listeners() {
        assert_ne!(server.address(name).port(), 0);
        assert_eq!(ask(server.address(name), "GET", "/nowhere").status, 404, "{name}");
    }
}

#[test]
fn an_api_that_other_machines_can_reach_without_a_token_is_warned_of() {
    let warning = |test: &str, address: &str, rest: &str| {
        let file = ConfigFile::new(test, format!("{rest}rules: []\n"));
        let flags = ["--gateway", "off", "--admin", "off", "--api", address, "--config", file.path()];
        let server = Server::start_command(sluicegate(&flags));
        let is_told = |line: &String| line.contains("can reach the api listener and need no token; set api.token");
        server.lines_to_ready().iter().any(is_told)
    };
    assert!(warning("open-api", "0.0.0.0:0", ""));
    assert!(!warning("open-api-token", "0.0.0.0:0", "api: { token: a-token-of-some-length }\n"));
    assert!(!warning("open-api-loopback", "127.0.0.1:0", ""));
}

#[test]
fn a_listener_that_is_off_is_not_there() {
    let server = Server::start_command(sluicegate(&[
        "serve",
        "--gateway",
        "off",
        "--api",
        "off",
        "--admin",
        "localhost:0",
    ]));
    assert_eq!(server.listeners(), ["admin"]);
    assert_eq!(ask(server.address("admin"), "GET", "/readyz").status, 200);
}

#[test]
fn the_environment_is_used_where_there_is_no_flag() {
    let mut command = sluicegate(&["--gateway", "127.0.0.1:0"]);
    command.env("SLUICEGATE_GATEWAY", "not used").env("SLUICEGATE_API", "off");
    command.env("SLUICEGATE_ADMIN", "127.0.0.1:0");
    let server = Server::start_command(command);
    assert_eq!(server.listeners(), ["admin", "gateway"]);
}

#[test]
fn health_is_on_the_admin_listener_only() {
    let server = Server::start(&[]);
    let (admin, api) = (server.address("admin"), server.address("api"));
    for path in ["/readyz", "/healthz"] {
        let answer = ask(admin, "GET", path);
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(answer.header("content-type"), Some("application/json"));
        assert_eq!(answer.json(), json!({ "status": "ready", "degraded": false }));
        assert_eq!(ask(api, "GET", path).status, 404, "{path}");
    }
    assert_eq!(ask(admin, "GET", "/livez").status, 200);
    assert_eq!(ask(admin, "HEAD", "/livez").body, "");
}

#[test]
fn unknown_paths_and_methods_are_problems() {
    let server = Server::start(&[]);
    let missing = ask(server.address("api"), "GET", "/v1/nothing");
    assert_eq!(missing.status, 404);
    assert_eq!(missing.header("content-type"), Some("application/problem+json"));
    assert_eq!(missing.json()["status"], 404);

    let refused = ask(server.address("admin"), "DELETE", "/livez");
    assert_eq!(refused.status, 405);
    assert_eq!(refused.header("allow"), Some("GET,HEAD"));
    assert_eq!(refused.header("content-type"), Some("application/problem+json"));
}

#[test]
fn a_port_in_use_names_listener_address_and_remedy() {
    let other = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = other.local_addr().expect("bound").to_string();
    let (code, stderr) = fails(&["--gateway", "127.0.0.1:0", "--api", &address, "--admin", "127.0.0.1:0"]);
    assert_eq!(code, 1);
    let expected = format!(
        "error: cannot listen on {address} for api: the port is in use; stop what uses it, \
         or choose another with --api 127.0.0.1:PORT (0 takes a free one) or --api off"
    );
    assert_eq!(stderr.lines().last(), Some(expected.as_str()), "{stderr}");
}

#[test]
fn a_bad_value_names_the_flag_the_value_and_the_remedy() {
    let (code, stderr) = fails(&["--admin", "8082"]);
    assert_eq!(code, 1);
    assert_eq!(stderr, "error: --admin: `8082` is not HOST:PORT; give for example 127.0.0.1:8082, or `off`\n");
    let (code, stderr) = fails(&["serve", "--store", "redis://user:canary@localhost:x"]);
    assert_eq!(code, 1);
    assert_eq!(stderr, "error: --store: the port of `localhost` is not a number from 1 to 65535\n");
    let (code, stderr) = fails(&["serve", "--store", "mongodb://user:canary@localhost:6379"]);
    assert_eq!(code, 1);
    assert!(stderr.starts_with("error: --store: this kind of store is not known"), "{stderr}");
    assert!(stderr.contains("redis+cluster://") && !stderr.contains("canary"), "{stderr}");
}

#[test]
fn unknown_flags_and_commands_are_refused() {
    for (arguments, named) in
        [(&["--admin-token", "canary"][..], "--admin-token"), (&["frobnicate"], "frobnicate")]
    {
        let (code, stderr) = fails(arguments);
        assert_eq!(code, 2, "{stderr}");
        assert!(stderr.starts_with("error: un") && stderr.contains(named), "{stderr}");
    }
}

#[test]
fn an_open_admin_listener_without_a_token_refuses_to_start() {
    let (code, stderr) = fails(&["--gateway", "off", "--api", "off", "--admin", "0.0.0.0:0"]);
    assert_eq!(code, 1);
    assert!(stderr.contains("0.0.0.0:0 without a token"), "{stderr}");
    assert!(stderr.contains("set SLUICEGATE_ADMIN_TOKEN"), "{stderr}");

    let mut command = sluicegate(&["--gateway", "off", "--api", "off", "--admin", "0.0.0.0:0"]);
    command.env("SLUICEGATE_ADMIN_TOKEN", "canary-token-of-tests").env("SLUICEGATE_LOG", "trace");
    let server = Server::start_command(command);
    let lines = server.lines_to_ready().join("\n");
    assert!(!lines.contains("canary"), "{lines}");

    // Tokens listed in the file are valid, too.
    let hash = "c48a01f49fd0f2cc404bc3cbbc80e91457a3d41bb429a695243de4c61794155c";
    let text = format!("admin: {{ tokens: [{{ name: ops, role: read, sha256: {hash} }}] }}\nrules: []\n");
    let file = ConfigFile::new("open-admin", &text);
    let open = ["--gateway", "off", "--api", "off", "--admin", "0.0.0.0:0", "--config", file.path()];
    Server::start_command(sluicegate(&open)).lines_to_ready();
}

#[test]
fn help_names_every_flag_and_variable() {
    let output = sluicegate(&["--help"]).output().expect("the binary starts");
    assert!(output.status.success());
    let help = String::from_utf8(output.stdout).expect("text");
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
    let page = std::fs::read_to_string(page).expect("the reference page");
    let (_, table) = page.split_once("<!-- settings -->").expect("the table of settings");
    let (table, _) = table.split_once("<!-- end of settings -->").expect("its end");
    let names: Vec<&str> = table.split('`').filter(|code| code.starts_with(['-', 'S'])).collect();
    assert!(names.iter().any(|name| name.starts_with("--store ")), "{names:?}");
    for name in names {
        let (name, placeholder) = name.split_once(' ').unwrap_or((name, ""));
        let placeholder = placeholder.replace('\\', "");
        let named = if placeholder.is_empty() { name.to_owned() } else { format!("{name} <{placeholder}>") };
        assert!(help.contains(&named), "{named}: {help}");
    }
    for listener in [
        "demo application without routes (default: 127.0.0.1:8080) [env: SLUICEGATE_GATEWAY]",
        "Dashboard, admin API, metrics and health (default: 127.0.0.1:8082) [env: SLUICEGATE_ADMIN]",
    ] {
        assert!(help.contains(listener), "{help}");
    }
}

#[test]
fn a_bad_log_filter_is_explained() {
    let mut command = sluicegate(&[]);
    command.env("SLUICEGATE_LOG", "info=what=ever");
    let output = command.output().expect("the binary starts");
    let stderr = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.starts_with("error: SLUICEGATE_LOG: `info=what=ever`"), "{stderr}");
}
