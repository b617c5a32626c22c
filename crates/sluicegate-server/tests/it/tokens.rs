//! Clients with tokens of a real issuer, at the gateway of a real server.

mod issuer;

use std::time::Instant;

use axum::body::Body;
use axum::http::Request;

use crate::client::{Answer, Connection, send, send_with};
use crate::gateway::http2;
use crate::server::{ConfigFile, PATIENCE, Server, sluicegate};
use issuer::{Issuer, Signer};

const RULES: &str = "
demo: true
rules:
  - { name: one, per: identifier, limits: [{ algorithm: fixed_window, limit: 1, window: 1d }] }
";

/// Any client can invent names and so fill the part of the store for unverified identities.
#[test]
fn invented_names_do_not_take_the_room_of_verified_users() {
    let signer = Signer::new("one");
    let issuer = Issuer::publishing(&[&signer]);
    let text = format!(
        "
trusted_proxies: [127.0.0.1]
memory: {{ max_keys: 2000 }}
identity:
  - jwt: {{ issuer: {}, audience: api, jwks_url: '{}' }}
  - api_key: {{ header: X-Name, verify: false }}
rules:
  - {{ name: public, match: {{ path: /public }}, limits: [{{ algorithm: fixed_window, limit: 5, window: 365d }}] }}
  - {{ name: login, match: {{ path: /login }}, limits: [{{ algorithm: fixed_window, limit: 5, window: 365d }}] }}
",
        issuer::NAME,
        issuer.url
    );
    let file = ConfigFile::new("invented-names", text);
    let server = Server::start(&["--config", file.path()]);
    let mut connection = Connection::open(server.address("api"));
    let mut statuses = |path: &str, credentials: &[String]| -> Vec<u16> {
        let request = |credential: &String| {
            format!("GET /v1/auth HTTP/1.1\r\nhost: t\r\nx-forwarded-uri: {path}\r\n{credential}\r\n\r\n")
        };
        connection.send(credentials.iter().map(request).collect::<String>());
        credentials.iter().map(|_| connection.read_answer().status).collect()
    };

    let names: Vec<String> = (0..2_300).map(|number| format!("x-name: invented-{number}")).collect();
    let invented: Vec<u16> = names.chunks(50).flat_map(|names| statuses("/public", names)).collect();
    assert_eq!(
        invented.iter().filter(|status| **status == 204).count(),
        2_000 / 4 + 5,
        "a quarter, and the overflow"
    );
    for user in 0..12 {
        let credential = format!("authorization: Bearer {}", signer.token(&format!("user-{user}")));
        let sent = statuses("/login", &vec![credential; 6]);
        assert_eq!(sent, [204, 204, 204, 204, 204, 429], "user {user}");
    }
}

/// A server that accepts only the tokens of `issuer`.
fn server(test: &str, issuer: &Issuer) -> Server {
    let url = &issuer.url;
    let text = format!(
        "identity: [{{ jwt: {{ issuer: {}, audience: api, jwks_url: \"{url}\" }} }}]{RULES}",
        issuer::NAME
    );
    let file = ConfigFile::new(test, text);
    Server::start(&["--config", file.path()])
}

fn ping(server: &Server, token: &str) -> Answer {
    send_with(server.address("gateway"), "GET", "/api/ping", &format!("authorization: Bearer {token}"))
}

#[test]
fn bearers_of_good_tokens_have_quotas_of_their_own_and_others_get_401() {
    let (signer, stranger) = (Signer::new("one"), Signer::new("one"));
    let issuer = Issuer::publishing(&[&signer]);
    let server = server("tokens", &issuer);
    assert_eq!(ping(&server, &signer.token("alice")).status, 200);
    assert_eq!(ping(&server, &signer.token("alice")).status, 429);
    assert_eq!(ping(&server, &signer.token("bob")).status, 200);

    assert_eq!(send(server.address("gateway"), "GET", "/api/ping").status, 401);
    let expired = ping(&server, &signer.token_until("carol", 7));
    assert_eq!(expired.status, 401);
    assert!(expired.json()["detail"].as_str().unwrap().contains("has expired"), "{expired:?}");
    let forged = stranger.token("carol");
    let unsigned = format!("{}.", forged.rsplit_once('.').unwrap().0);
    for token in [&forged, &unsigned, "", "x", "a.b.c", &"x".repeat(9_000)] {
        let answer = ping(&server, token);
        assert_eq!(answer.status, 401, "{token}: {answer:?}");
        assert!(answer.header("www-authenticate").is_some(), "{answer:?}");
        assert_eq!(answer.header("x-ratelimit-limit"), None, "who is not known has no quota");
    }
    // Carol's quota is unused.
    assert_eq!(ping(&server, &signer.token("carol")).status, 200);
    assert_eq!(issuer.requests(), 1);

    server.signal("TERM");
    let log = server.wait().lines.join("\n");
    assert!(log.contains("the issuer's keys were loaded"), "{log}");
    for part in forged.split('.') {
        assert!(!log.contains(part), "a token is in the log: {log}");
    }
}

/// An HTTP/1 upstream trims a value that the gateway forwards unchanged, and an application may split at any kind of
/// whitespace.
#[tokio::test]
async fn a_token_that_only_the_upstream_would_see_is_refused() {
    let signer = Signer::new("one");
    let issuer = Issuer::publishing(&[&signer]);
    let url = &issuer.url;
    let text = format!(
        "identity: [{{ jwt: {{ issuer: {}, audience: api, jwks_url: \"{url}\" }} }}, {{ ip: {{}} }}]{RULES}",
        issuer::NAME
    );
    let file = ConfigFile::new("hidden-tokens", text);
    let server = Server::start(&["--config", file.path()]);
    let (gateway, token) = (server.address("gateway"), signer.token("alice"));
    wait_until_known(&server, &token);

    let mut client = http2::connect(gateway).await;
    let mut status = async |name: &str, value: &[u8]| {
        let request = Request::builder().uri("http://t/api/ping").header(name, value).body(Body::empty());
        client.send_request(request.expect("valid")).await.expect("an answer").status().as_u16()
    };
    for pattern in [" Bearer T", "\tBearer T", "Bearer T ", "Bearer T\t"] {
        assert_eq!(status("authorization", pattern.replace('T', &token).as_bytes()).await, 400, "{pattern:?}");
    }
    assert_eq!(status("x-other", b" blank").await, 400);
    for pattern in ["Bearer\u{a0}T", "\u{a0}Bearer T", "Basic eDp5, Bearer T", "Token T", "BearerT", ""] {
        let value: Vec<u8> =
            pattern.replace('T', &token).chars().map(|character| character as u32 as u8).collect();
        assert_eq!(status("authorization", &value).await, 401, "{pattern:?}");
        // The same over HTTP/1.
        let mut connection = Connection::open(gateway);
        let (head, end) =
            ("GET /api/ping HTTP/1.1\r\nhost: t\r\nconnection: close\r\nauthorization: ", "\r\n\r\n");
        connection.send([head.as_bytes(), &value, end.as_bytes()].concat());
        assert_eq!(connection.answer().status, 401, "{pattern:?}");
    }
    assert_eq!(status("proxy-authorization", format!("Bearer {token}").as_bytes()).await, 401);
    assert_eq!(status("authorization", format!("Bearer {token}").as_bytes()).await, 429, "alice has used up hers");
    assert_eq!(status("authorization", b"Basic eDp5").await, 200, "an address of its own");
}

/// Each form is either a credential that the application may accept, or none at all. It never counts against the quota
/// of the address.
#[tokio::test]
async fn credentials_in_hostile_forms_never_count_for_the_address() {
    const KEY: &str = "the-key-of-a-test";
    let hash = sluicegate::identify::api_key::KeyHash::of(KEY.as_bytes());
    let hash: String = hash.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let text = format!(
        "
identity:
  - api_key: {{ keys: [{{ sha256: {hash}, identifier: alice }}] }}
  - jwt: {{ issuer: {}, audience: api, secret_env: JWT_SECRET }}
  - ip: {{}}
{RULES}",
        issuer::NAME
    );
    let file = ConfigFile::new("hostile-credentials", text);
    let secret = [("JWT_SECRET", "a secret that nobody else knows.")];
    let server = Server::start_with(&secret, &["--config", file.path()]);
    let gateway = server.address("gateway");
    let token = Signer::new("one").token("alice");
    let hostile: Vec<Vec<(&str, String)>> = vec![
        vec![("x-api-key", String::new())],
        vec![("x-api-key", "wrong".to_owned())],
        vec![("x-api-key", format!("{KEY},{KEY}"))],
        vec![("x-api-key", format!("{KEY}, other"))],
        vec![("x-api-key", format!("{KEY}\u{a0}"))],
        vec![("x-api-key", format!("\u{a0}{KEY}"))],
        vec![("x-api-key", format!("\"{KEY}\""))],
        vec![("x-api-key", KEY.to_owned()), ("x-api-key", KEY.to_owned())],
        vec![("x-api-key", KEY.to_owned()), ("x-api-key", String::new())],
        vec![("x_api_key", KEY.to_owned())],
        vec![("x.api.key", KEY.to_owned())],
        vec![("x-api_key", KEY.to_owned()), ("x-api-key", KEY.to_owned())],
        vec![("authorization", format!("Bearer {token}"))],
        vec![("authorization", format!("Token.{token}"))],
        vec![("authorization", format!("Basic eDp5, Bearer {token}"))],
        vec![("authorization", "Basic eDp5".to_owned()), ("authorization", format!("Bearer {token}"))],
        vec![("authorization", "Basic eDp5".to_owned()), ("authorization", "Basic eDp5".to_owned())],
        vec![("proxy-authorization", format!("Bearer {token}"))],
        vec![("proxy_authorization", format!("Bearer {token}"))],
        vec![("proxy-authorization", "Basic eDp5".to_owned()), ("proxy-authorization", format!("Bearer {token}"))],
    ];
    let latin = |value: &str| value.chars().map(|character| character as u32 as u8).collect::<Vec<u8>>();
    let mut client = http2::connect(gateway).await;
    for fields in &hostile {
        let mut request = Request::builder().uri("http://t/api/ping");
        let mut head = b"GET /api/ping HTTP/1.1\r\nhost: t\r\nconnection: close\r\n".to_vec();
        for (name, value) in fields {
            request = request.header(*name, latin(value));
            head.extend([name.as_bytes(), b":", &latin(value), b"\r\n"].concat());
        }
        let answer = client.send_request(request.body(Body::empty()).expect("valid")).await.expect("an answer");
        assert_eq!(answer.status(), 401, "on HTTP/2: {fields:?}");
        let mut connection = Connection::open(gateway);
        connection.send([head.as_slice(), b"\r\n"].concat());
        assert_eq!(connection.answer().status, 401, "on HTTP/1: {fields:?}");
    }
    // HTTP/1 does not count whitespace at an end as part of the value. HTTP/2 forbids it.
    for value in [format!(" {KEY}"), format!("{KEY}\t")] {
        let request = Request::builder().uri("http://t/api/ping").header("x-api-key", &value);
        let answer = client.send_request(request.body(Body::empty()).expect("valid")).await.expect("an answer");
        assert_eq!(answer.status(), 400, "{value:?}");
    }
    assert_eq!(send_with(gateway, "GET", "/api/ping", &format!("x-api-key: \t {KEY} \t")).status, 200);
    assert_eq!(send_with(gateway, "GET", "/api/ping", &format!("x-api-key: {KEY}")).status, 429, "the same key");
    assert_eq!(send(gateway, "GET", "/api/ping").status, 200, "nothing was counted for the address");
}

/// Two issuers may give the same name to different users.
#[test]
fn subjects_of_two_issuers_are_different_identities_at_every_front_door() {
    const STAFF: &str = "https://staff.example";
    let (users, staff) = (Signer::new("users"), Signer::new("staff"));
    let (issuer, staff_issuer) = (Issuer::publishing(&[&users]), Issuer::publishing(&[&staff]));
    let text = |namespaces: [&str; 2]| {
        let [users, staff] = namespaces;
        format!(
            "
demo: true
trusted_proxies: [127.0.0.1]
identity:
  - jwt: {{ issuer: {}, audience: api, jwks_url: '{}'{users} }}
  - jwt: {{ issuer: {STAFF}, audience: api, jwks_url: '{}'{staff} }}
rules:
  - name: one
    per: identifier
    limits: [{{ algorithm: fixed_window, limit: 1, window: 365d }}]
    overrides: [{{ identifier: '{STAFF}|carol', limits: [{{ algorithm: fixed_window, limit: 2, window: 365d }}] }}]
",
            issuer::NAME,
            issuer.url,
            staff_issuer.url
        )
    };
    let of_staff = |subject: &str| staff.token_from(STAFF, subject);
    let file = ConfigFile::new("two-issuers", text(["", ""]));
    let server = Server::start(&["--config", file.path()]);
    let forward_auth = |token: &str| {
        let fields = format!("x-forwarded-uri: /api/ping\r\nauthorization: Bearer {token}");
        send_with(server.address("api"), "GET", "/v1/auth", &fields)
    };
    let known = [users.token("warm-up"), of_staff("warm-up")];
    known.iter().for_each(|token| wait_until_known(&server, token));

    for (subject, allowed, is_asked_at_the_gateway) in [("alice", 200, true), ("bob", 204, false)] {
        let send = |token: &str| if is_asked_at_the_gateway { ping(&server, token) } else { forward_auth(token) };
        let statuses = [users.token(subject), users.token(subject), of_staff(subject), of_staff(subject)];
        assert_eq!(statuses.map(|token| send(&token).status), [allowed, 429, allowed, 429], "{subject}");
    }
    // An identity is the same at every front door, and has the same name everywhere.
    assert_eq!([ping(&server, &of_staff("carol")).status, forward_auth(&of_staff("carol")).status], [200, 204]);
    assert_eq!(ping(&server, &of_staff("carol")).status, 429);
    let told = forward_auth(&of_staff("dave"));
    assert_eq!(told.header("x-sluicegate-identifier"), Some("https://staff.example|dave"), "{told:?}");
    let check = |identifier: &str| {
        let body = serde_json::json!({ "resource": "r", "identifier": identifier }).to_string();
        crate::client::post(server.address("api"), "/v1/check", body).status
    };
    assert_eq!([check("https://id.example|alice"), check("alice")], [429, 200]);
    drop(server);

    let file = ConfigFile::new("one-namespace", text([", namespace: people", ", namespace: people"]));
    let server = Server::start(&["--config", file.path()]);
    known.iter().for_each(|token| while ping(&server, token).status == 503 {});
    assert_eq!(ping(&server, &users.token("alice")).status, 200);
    assert_eq!(ping(&server, &of_staff("alice")).status, 429, "the same person");
}

#[test]
fn a_rotation_is_followed_without_a_restart() {
    let (old, new) = (Signer::new("old"), Signer::new("new"));
    let issuer = Issuer::publishing(&[&old]);
    let server = server("rotation", &issuer);
    wait_until_known(&server, &old.token("alice"));
    let before = issuer.requests();
    issuer.publish(&[&new]);
    wait_until_known(&server, &new.token("bob"));
    assert_eq!(ping(&server, &old.token("alice")).status, 401, "its key was taken back");
    assert!(issuer.requests() > before);
}

/// Repeats the request until the server has fetched the token's key. On a busy machine, the fetch takes longer than a
/// request waits.
fn wait_until_known(server: &Server, token: &str) {
    let started = Instant::now();
    loop {
        match ping(server, token).status {
            200 => return,
            503 => assert!(started.elapsed() < PATIENCE, "the keys are never fetched"),
            status => panic!("{status}"),
        }
    }
}

#[test]
fn without_keys_tokens_are_503_until_the_issuer_is_there() {
    let signer = Signer::new("one");
    let issuer = Issuer::failing();
    let server = server("outage", &issuer);
    let answer = ping(&server, &signer.token("alice"));
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(answer.header("retry-after").is_some(), "{answer:?}");
    issuer.publish(&[&signer]);
    wait_until_known(&server, &signer.token("alice"));
}

#[test]
fn errors_in_keys_prevent_the_start_and_name_the_remedy() {
    for (test, keys, expected) in [
        ("keys-http", "jwks_url: http://id.example/keys", "not encrypted"),
        ("keys-password", "jwks_url: \"https://user:canary@id.example/\"", "user name or password"),
        ("keys-address", "jwks_url: https://169.254.169.254/keys", "an address that no issuer has"),
        (
            "keys-authority",
            "jwks_url: https://id.example/, ca_file: /nowhere/ca.pem",
            "cannot read /nowhere/ca.pem",
        ),
    ] {
        let text = format!("identity: [{{ jwt: {{ issuer: i, audience: a, {keys} }} }}]{RULES}");
        let file = ConfigFile::new(test, text);
        let output = sluicegate(&["--config", file.path()]).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && stderr.contains(expected), "{stderr}");
        assert!(!stderr.contains("canary"), "{stderr}");
    }
}
