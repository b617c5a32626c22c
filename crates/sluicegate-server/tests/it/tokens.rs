//! Callers who are known by a token, at the gateway of a real server, with the keys of a real issuer.

mod issuer;

use std::time::Instant;

use crate::client::{Answer, ask, ask_with};
use crate::server::{ConfigFile, PATIENCE, Server, sluicegate};
use issuer::{Issuer, Signer};

const RULES: &str = "
rules:
  - { name: one, per: identifier, limits: [{ algorithm: fixed_window, limit: 1, window: 1d }] }
";

/// A server that believes the tokens of `issuer` and nothing else.
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
    ask_with(server.address("gateway"), "GET", "/api/ping", &format!("authorization: Bearer {token}"))
}

#[test]
fn bearers_of_good_tokens_have_quotas_of_their_own_and_others_get_401() {
    let (signer, stranger) = (Signer::new("one"), Signer::new("one"));
    let issuer = Issuer::publishing(&[&signer]);
    let server = server("tokens", &issuer);
    assert_eq!(ping(&server, &signer.token("alice")).status, 200);
    assert_eq!(ping(&server, &signer.token("alice")).status, 429);
    assert_eq!(ping(&server, &signer.token("bob")).status, 200);

    assert_eq!(ask(server.address("gateway"), "GET", "/api/ping").status, 401);
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
    // Nobody has used up what is carol's.
    assert_eq!(ping(&server, &signer.token("carol")).status, 200);
    assert_eq!(issuer.requests(), 1);

    server.signal("TERM");
    let log = server.wait().lines.join("\n");
    assert!(log.contains("the issuer's keys were loaded"), "{log}");
    for part in forged.split('.') {
        assert!(!log.contains(part), "a token is in the log: {log}");
    }
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

/// Asks until the token's key has been fetched, which takes longer than a request waits where the machine is busy.
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
fn what_is_wrong_with_keys_refuses_the_start_and_says_what_to_do() {
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
