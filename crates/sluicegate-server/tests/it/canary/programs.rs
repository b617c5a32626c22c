//! The output of the other commands: validate, explain, check, top, simulate, rules, and of servers that fail to start
//! or lose their database.

use std::process::{Command, Output};

use sluicegate_testkit::postgres_server::PostgresServer;

use super::{Outputs, Scene, environment, front_doors};
use crate::client::{post, send, send_with};
use crate::server::{Server, sluicegate};

/// Runs every command with secrets in all of its inputs.
pub(super) fn run_all(scene: &Scene, outputs: &mut Outputs) {
    let (secrets, path) = (&scene.secrets, scene.config_path());
    run(scene, outputs, &["validate", &path]);
    let bad = scene.folder.path().join("bad.yaml").to_str().expect("text").to_owned();
    for mistake in front_doors::mistakes(&secrets.mistake.text) {
        std::fs::write(&bad, format!("rules: []\n{mistake}\n")).expect("a file");
        run(scene, outputs, &["validate", &bad]);
        run(scene, outputs, &["serve", "--config", &bad]);
        run(scene, outputs, &["explain", "--config", &bad, "--resource", "r", "--identifier", "i"]);
    }
    for header in [
        format!("X-API-Key: {}", secrets.api_key.text),
        format!("X-API-Key: {}", secrets.wrong_api_key.text),
        format!("Authorization: Bearer {}", secrets.token),
        format!("Authorization: Bearer {}", secrets.forged.text),
        format!("Cookie: {}", secrets.cookie.text),
    ] {
        let question = ["explain", "--config", &path, "--path", "/shop/1", "--header", &header];
        run(scene, outputs, &question);
        run(scene, outputs, &[&question[..], &["--json"]].concat());
    }
    let api = format!("http://user:{}@{}", secrets.basic.text, scene.server.address("api"));
    run(scene, outputs, &["check", "--resource", "few", "--identifier", "alice", "--api", &api]);
    let plain = format!("http://{}", scene.server.address("api"));
    run(scene, outputs, &["check", "--resource", "few", "--identifier", "alice", "--api", &plain, "--json"]);
    top(scene, outputs);
    databases(scene, outputs);
    simulate(scene, outputs, &path);
}

/// Runs `top` with the right token, with a wrong one, with a password in the URL, and against a port without a server.
fn top(scene: &Scene, outputs: &mut Outputs) {
    let (secrets, admin) = (&scene.secrets, scene.server.address("admin"));
    let (plain, basic) = (format!("http://{admin}"), format!("http://user:{}@{admin}", secrets.basic.text));
    let nobody = "http://127.0.0.1:9".to_owned();
    for form in [&["--once"][..], &["--once", "--json"]] {
        for url in [&plain, &basic, &nobody] {
            run(scene, outputs, &[&["top", "--admin", url], form].concat());
        }
        let mut command = sluicegate(&[&["top", "--admin", &plain], form].concat());
        environment(&mut command, secrets);
        command.env("SLUICEGATE_ADMIN_TOKEN", &secrets.wrong_admin_token.text);
        print(outputs, command);
    }
    let shown = outputs.at("sluicegate top (exit status: 0)");
    assert!(shown.contains("MOST REQUESTS") && shown.contains("\"heaviest\""), "{shown}");
    let refused = outputs.at("sluicegate top (exit status: 1)");
    assert!(refused.contains("cannot watch"), "{refused}");
}

/// A server with rules in a database that becomes unavailable while it runs.
pub(super) fn serve_while_the_database_goes(scene: &Scene, outputs: &mut Outputs) {
    let (secrets, postgres) = (&scene.secrets, PostgresServer::start());
    let password = format!("postgres:{}@", secrets.database.text);
    let mut command = sluicegate(&["--gateway", "off", "--api", "off", "--admin", "127.0.0.1:0"]);
    command.args(["--config", &scene.config_path(), "--store", "memory"]);
    environment(&mut command, secrets);
    command.env("SLUICEGATE_DATABASE", postgres.url().replace("postgres@", &password));
    let mut server = Server::start_command(command);
    let admin = server.address("admin");
    let token = format!("authorization: Bearer {}", secrets.admin_token.text);
    let mut send_all = |when: &str| {
        for path in ["/metrics", "/readyz", "/admin/v1/rules", "/admin/v1/audit", "/admin/v1/status"] {
            let answer = send_with(admin, "GET", path, &token);
            outputs.add(format!("GET {path} {when}"), format!("{answer:?}"));
        }
    };
    send_all("with the database");
    postgres.kill();
    server.wait_for_line("the database cannot be followed");
    send_all("without the database");
    assert!(outputs.at("GET /admin/v1/audit without the database").contains("503"));
    server.signal("TERM");
    outputs.add("the log without the database", server.wait().lines.join("\n"));
}

/// A server with a password that Redis rejects.
pub(super) fn serve_with_wrong_password(scene: &Scene, outputs: &mut Outputs) {
    let url = scene.redis.url_as("user", &scene.secrets.wrong_redis.text);
    let mut command = sluicegate(&["--gateway", "off", "--api", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
    command.args(["--config", &scene.config_path(), "--store", &url]);
    environment(&mut command, &scene.secrets);
    let server = Server::start_command(command);
    let body = r#"{"resource":"few","identifier":"alice"}"#;
    let answer = post(server.address("api"), "/v1/check", body);
    assert_eq!(answer.status, 503);
    outputs.add("a check without Redis", format!("{answer:?}"));
    outputs.add("metrics without Redis", send(server.address("admin"), "GET", "/metrics").body);
    server.signal("TERM");
    outputs.add("the log without Redis", server.wait().lines.join("\n"));
}

fn databases(scene: &Scene, outputs: &mut Outputs) {
    let (secrets, path) = (&scene.secrets, scene.config_path());
    for url in [
        format!("postgres://user:{}@127.0.0.1:9/d", secrets.database.text),
        format!("postgres://user:{}@127.0.0.1:port/d", secrets.database.text),
        format!("mysql://user:{}@127.0.0.1/d", secrets.database.text),
    ] {
        run(scene, outputs, &["rules", "export", "--database", &url]);
        run(scene, outputs, &["rules", "import", &path, "--database", &url]);
        let mut command = sluicegate(&["--gateway", "off", "--api", "off", "--admin", "127.0.0.1:0"]);
        command.env("SLUICEGATE_DATABASE", &url);
        keep(scene, outputs, command);
    }
    let own = format!("sqlite://{}", scene.folder.path().join("rules.db").display());
    run(scene, outputs, &["rules", "export", "--database", &own]);
    for store in ["redis://user:{}@127.0.0.1:port", "mongodb://user:{}@h", "redis://user:{}@h/zero"] {
        run(scene, outputs, &["serve", "--store", &store.replace("{}", &secrets.wrong_redis.text)]);
    }
}

fn simulate(scene: &Scene, outputs: &mut Outputs, config: &str) {
    let (query, cookie) = (&scene.secrets.query.text, &scene.secrets.cookie.text);
    let line = format!(
        "192.0.2.1 - - [14/Nov/2023:22:13:20 +0000] \"GET /shop/1?token={query} HTTP/1.1\" 200 5 \
         \"https://e.example/?t={query}\" \"{} {cookie}\"\n",
        "agent".repeat(30)
    );
    let object = format!(
        "{{\"time\":\"2023-11-14T22:13:20Z\",\"remote_addr\":\"192.0.2.1\",\"method\":\"GET\",\"uri\":\"/shop/1?t={query}\",\
         \"status\":200,\"http_user_agent\":\"{}\",\"http_cookie\":\"{cookie}\",\"http_authorization\":\"Bearer {cookie}\"}}\n",
        "agent".repeat(30)
    );
    // The report quotes the beginning of rejected lines.
    let (broken_line, broken_object) = (line.replace("[14/", "[x/"), object.replace("2023-11-14T", "x"));
    for (format, text) in
        [("combined", line.repeat(20) + &broken_line), ("json", object.repeat(20) + &broken_object)]
    {
        let (log, page) = (scene.folder.path().join("access.log"), scene.folder.path().join("report.html"));
        std::fs::write(&log, text).expect("a file");
        let [log, page] = [&log, &page].map(|path| path.to_str().expect("text"));
        let common = ["simulate", "--config", config, "--log", log, "--format", format];
        run(scene, outputs, &[&common[..], &["--report", page, "--suggest"]].concat());
        run(scene, outputs, &[&common[..], &["--json"]].concat());
        outputs.add("the report", std::fs::read_to_string(page).unwrap_or_default());
    }
}

fn run(scene: &Scene, outputs: &mut Outputs, arguments: &[&str]) {
    keep(scene, outputs, sluicegate(arguments));
}

fn keep(scene: &Scene, outputs: &mut Outputs, mut command: Command) {
    environment(&mut command, &scene.secrets);
    print(outputs, command);
}

fn print(outputs: &mut Outputs, mut command: Command) {
    let Output { stdout, stderr, status } = command.output().expect("the binary starts");
    let place = command.get_args().next().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    let text = [stdout, stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    outputs.add(format!("sluicegate {place} ({status})"), text);
}
