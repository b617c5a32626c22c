//! Requests with secrets through every front door, and their responses.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use serde_json::json;
use sluicegate_testkit::envoy_client::{Descriptor, EnvoyClient, Question};

use super::{Outputs, Scene, Secrets};
use crate::client::Connection;
use crate::server::PATIENCE;

/// Sends every request once.
pub(super) async fn send_all(scene: &Scene, outputs: &mut Outputs) {
    send_gateway(scene, outputs);
    send_api(scene, outputs);
    send_envoy(scene, outputs).await;
    send_resp(scene, outputs);
    send_admin(scene, outputs);
}

/// The source address of wrong tokens, because the server blocks an address for a while after too many of them.
const GUESSER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Sends a request byte by byte as given, and records the raw response.
fn send(outputs: &mut Outputs, place: &str, address: SocketAddr, head: &str, body: &str) {
    let is_guess = place.ends_with("a wrong token") || place.ends_with("a bare token");
    let mut connection =
        if is_guess { Connection::open_from(GUESSER, address) } else { Connection::open(address) };
    let length = if body.is_empty() { String::new() } else { format!("content-length: {}\r\n", body.len()) };
    connection.send(format!("{head}{length}host: t\r\nconnection: close\r\n\r\n{body}"));
    outputs.add(place, connection.read_to_end());
}

/// Header lines with credentials, each with its description.
fn credentials(secrets: &Secrets) -> Vec<(&'static str, String)> {
    let basic = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, format!("u:{}", secrets.basic.text));
    vec![
        ("the key", format!("x-api-key: {}\r\n", secrets.api_key.text)),
        ("a wrong key", format!("x-api-key: {}\r\n", secrets.wrong_api_key.text)),
        ("two keys", format!("x-api-key: {0}\r\nx-api-key: {0}\r\n", secrets.api_key.text)),
        ("the token", format!("authorization: Bearer {}\r\n", secrets.token)),
        ("a forged token", format!("authorization: Bearer {}\r\n", secrets.forged.text)),
        ("no token", format!("authorization: Bearer {}\r\n", secrets.wrong_api_key.text)),
        ("a password", format!("authorization: Basic {basic}\r\nproxy-authorization: Basic {basic}\r\n")),
    ]
}

fn send_gateway(scene: &Scene, outputs: &mut Outputs) {
    let (secrets, address) = (&scene.secrets, scene.server.address("gateway"));
    let (query, cookie) = (&secrets.query.text, &secrets.cookie.text);
    for path in ["/shop/1", "/gone/1", "/nowhere", "/shop/%2e%2e/x", "/shop/%zz", "/shop/a%00b"] {
        for (what, lines) in credentials(secrets) {
            let head = format!(
                "GET {path}?api_key={query} HTTP/1.1\r\ncookie: session={cookie}\r\n\
                 referer: https://e.example/?t={query}\r\n{lines}"
            );
            // The upstream echoes the head. The echo belongs to the client, so it may contain the client's own
            // secrets.
            let place = format!("GET {path} with {what}");
            let mut connection = Connection::open(address);
            connection.send(format!("{head}host: t\r\nconnection: close\r\n\r\n"));
            let text = connection.read_to_end();
            let is_echo = text.starts_with("HTTP/1.1 200");
            outputs.add(place, if is_echo { text.split("\r\n\r\n").next().expect("a head") } else { &text });
        }
    }
    let lines = format!("cookie: {cookie}\r\nx-api-key: {}\r\n", secrets.api_key.text);
    for head in [
        format!("GET /shop/1?{query} HTTP/1.1\r\ntransfer-encoding: x\r\n{lines}"),
        format!("GET /shop/1?{query} HTTP/1.1\r\ncontent-length: {query}\r\n{lines}"),
        format!("GET /shop/1?{query} HTTP/9.1\r\n{lines}"),
        format!("GET /shop/1?{query} HTTP/1.1\r\nbad header {query}: x\r\n{lines}"),
        format!("GET http://[bad/?{query} HTTP/1.1\r\n{lines}"),
    ] {
        send(outputs, "a malformed request", address, &head, "");
    }
}

fn send_api(scene: &Scene, outputs: &mut Outputs) {
    let (secrets, address) = (&scene.secrets, scene.server.address("api"));
    let (query, body) = (&secrets.query.text, &secrets.body.text);
    let good = json!({ "resource": "few", "identifier": "alice" }).to_string();
    let bodies = [
        good.clone(),
        json!({ "resource": "few", "identifier": "alice", "password": body }).to_string(),
        format!("{{\"resource\": \"few\", \"token\": {body}}}"),
        format!("{{\"resource\": \"{body}"),
        format!("{body}\u{1}"),
    ];
    let tokens = [
        ("the token", format!("authorization: Bearer {}\r\n", secrets.admin_token.text)),
        ("a wrong token", format!("authorization: Bearer {}\r\n", secrets.wrong_admin_token.text)),
        ("a bare token", format!("authorization: {}\r\n", secrets.wrong_admin_token.text)),
    ];
    for path in ["/v1/check", "/v1/check/batch", "/v1/peek", "/v1/refund", "/v1/reset", "/json", "/nowhere"] {
        for (what, lines) in &tokens {
            for sent in &bodies {
                let head = format!("POST {path}?k={query} HTTP/1.1\r\ncontent-type: application/json\r\n{lines}");
                send(outputs, &format!("POST {path} with {what}"), address, &head, sent);
            }
        }
    }
    for (what, lines) in credentials(secrets) {
        let head = format!(
            "GET /v1/auth?k={query} HTTP/1.1\r\nx-forwarded-method: GET\r\nx-forwarded-uri: /shop/1?t={query}\r\n\
             x-forwarded-for: 192.0.2.1\r\ncookie: {}\r\n{lines}",
            secrets.cookie.text
        );
        send(outputs, &format!("GET /v1/auth with {what}"), address, &head, "");
    }
    for path in ["/docs", "/docs/docs.js", "/docs/docs.css", "/openapi.json"] {
        send(outputs, path, address, &format!("GET {path}?k={query} HTTP/1.1\r\n"), "");
    }
}

async fn send_envoy(scene: &Scene, outputs: &mut Outputs) {
    let client = EnvoyClient::new(scene.server.address("api"));
    let descriptor = || Descriptor::new(&[("user", "alice")]);
    for token in [&scene.secrets.admin_token, &scene.secrets.wrong_admin_token] {
        let client = client.clone().with_token(&token.text);
        for question in [
            Question::new("d", [descriptor()]),
            Question::new("d", [descriptor().refund()]),
            Question::new("", [descriptor()]),
        ] {
            outputs.add("gRPC", format!("{:?}", client.ask(question).await));
        }
    }
}

fn send_resp(scene: &Scene, outputs: &mut Outputs) {
    let (right, wrong) = (&scene.secrets.resp.text, &scene.secrets.wrong_resp.text);
    let mut stream = TcpStream::connect(scene.server.address("resp")).expect("the listener accepts");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let commands = format!(
        "AUTH {wrong}\r\nAUTH user {wrong}\r\nAUTH a b {wrong}\r\nHELLO 3 AUTH default {wrong}\r\nHELLO {wrong}\r\n\
         SG.CHECK few alice\r\nHELLO 2 AUTH default {right}\r\nAUTH {right}\r\nSG.CHECK few alice\r\n\
         CL.THROTTLE k 1 x 60\r\nCLIENT INFO\r\nCLIENT LIST\r\nINFO\r\nCOMMAND\r\nCONFIG GET requirepass\r\nQUIT\r\n"
    );
    stream.write_all(commands.as_bytes()).expect("the server reads");
    let mut text = Vec::new();
    stream.read_to_end(&mut text).expect("an end");
    outputs.add("RESP", String::from_utf8_lossy(&text));
}

/// The paths of the admin listener that the test reads.
const READ: [&str; 21] = [
    "/",
    "/metrics",
    "/livez",
    "/readyz",
    "/healthz",
    "/admin/v1/rules",
    "/admin/v1/rules/few",
    "/admin/v1/tenants",
    "/admin/v1/overrides",
    "/admin/v1/keys",
    "/admin/v1/top",
    "/admin/v1/audit",
    "/admin/v1/history",
    "/admin/v1/history?rule=few",
    "/admin/v1/reload",
    "/admin/v1/openapi.json",
    "/admin/v1/nowhere",
    "/nowhere",
    "/admin/v1/rules/none",
    "/admin/v1/keys/none",
    "/admin/v1/top?limit=x",
];

fn send_admin(scene: &Scene, outputs: &mut Outputs) {
    let (secrets, address) = (&scene.secrets, scene.server.address("admin"));
    let bearer = |text: &str| format!("authorization: Bearer {text}\r\n");
    let tokens = [
        ("no token", String::new()),
        ("the token", bearer(&secrets.admin_token.text)),
        ("the token of ops", bearer(&secrets.ops_token.text)),
        ("a wrong token", bearer(&secrets.wrong_admin_token.text)),
    ];
    for (what, lines) in &tokens {
        for path in READ {
            send(
                outputs,
                &format!("GET {path} with {what}"),
                address,
                &format!("GET {path} HTTP/1.1\r\n{lines}"),
                "",
            );
        }
        let rule = json!({ "name": "r", "limits": [], "password": secrets.body.text }).to_string();
        let key = json!({ "name": "k", "identifier": "i", "sha256": secrets.body.text }).to_string();
        let question = json!({ "resource": "few", "identifier": "alice" }).to_string();
        let bad_question = json!({ "path": "/shop/1", "header": secrets.body.text }).to_string();
        for (method, path, body) in [
            ("POST", "/admin/v1/reload", ""),
            ("POST", "/admin/v1/explain", &*question),
            ("POST", "/admin/v1/explain", &*bad_question),
            ("POST", "/admin/v1/keys", &*key),
            ("PUT", "/admin/v1/rules/r", &*rule),
            ("POST", "/admin/v1/tenants", &*format!("{{{}", secrets.body.text)),
            ("DELETE", "/admin/v1/keys/none", ""),
        ] {
            let head = format!("{method} {path} HTTP/1.1\r\ncontent-type: application/json\r\n{lines}");
            send(outputs, &format!("{method} {path} with {what}"), address, &head, body);
        }
    }
    let mut events = Connection::open(address);
    events.send("GET /admin/v1/events HTTP/1.1\r\nhost: t\r\n\r\n");
    let mut text = events.read_whole_head();
    while !text.ends_with("\n\n") {
        text.push_str(&String::from_utf8_lossy(&events.read(1)));
    }
    outputs.add("events", text);
}

/// Adds errors beside the secrets of the file. The server reports each error and applies none of the changes.
pub(super) fn reload_mistakes(scene: &Scene, outputs: &mut Outputs) {
    let (path, mistake) = (scene.config_path(), &scene.secrets.mistake.text);
    let good = std::fs::read_to_string(&path).expect("a file");
    let address = scene.server.address("admin");
    let token = format!("authorization: Bearer {}\r\n", scene.secrets.admin_token.text);
    for text in mistakes(mistake) {
        std::fs::write(&path, format!("{good}\n{text}\n")).expect("a file");
        let head = format!("POST /admin/v1/reload HTTP/1.1\r\n{token}");
        let place = format!("a reload of {}", text.split(mistake.as_str()).next().expect("a beginning"));
        send(outputs, &place, address, &head, "");
        assert!(outputs.at(&place).starts_with("HTTP/1.1 400"), "{place}: {}", outputs.at(&place));
        send(
            outputs,
            "the state of the reload",
            address,
            &format!("GET /admin/v1/reload HTTP/1.1\r\n{token}"),
            "",
        );
    }
    std::fs::write(&path, good).expect("a file");
}

/// Lines with a secret in a wrong place or in a wrong form.
pub(super) fn mistakes(secret: &str) -> Vec<String> {
    vec![
        format!("resp: {{ password: [ {secret} ] }}"),
        format!("resp: {{ password: {{ {secret}: 1 }} }}"),
        format!("store: redis://user:{secret}@host:port"),
        format!("store: redis+proxy://user:{secret}@host"),
        format!("database: mysql://user:{secret}@host/d"),
        format!("log: {{ hash_secret: [ {secret} ] }}"),
        format!("traces: {{ endpoint: 'http://user:{secret}@collector' }}"),
        format!("traces: {{ headers: {{ grpc-timeout: {secret} }} }}"),
        format!("traces: {{ headers: {{ authorization: [ {secret} ] }} }}"),
        format!("redis: {{ sentinel_password: [ {secret} ], key_secret: [ {secret} ] }}"),
        format!("admin: {{ tokens: [ {{ name: n, role: read, sha256: {secret} }} ] }}"),
        format!("keys: [ {{ name: n, identifier: i, sha256: {secret} }} ]"),
        format!("gateway: {{ routes: [ {{ path: /x, upstream: 'http://user:{secret}@host' }} ] }}"),
        format!(
            "identity: [ {{ jwt: {{ issuer: i, audience: a, jwks_url: 'https://user:{secret}@id.example/' }} }} ]"
        ),
        format!("identity: [ {{ api_key: {{ keys: [ {{ identifier: i, sha256: {secret} }} ] }} }} ]"),
    ]
}
