//! The same requests against a live server: by limits that no time of a test can refill, so that both must agree.

use serde_json::json;

use super::Folder;
use crate::client::ask_with;
use crate::server::Server;

const RULES: &str = "
trusted_proxies: [127.0.0.0/8]
rules:
  - name: bucket
    per: ip
    match: { path: /api/** }
    limits: [ { algorithm: token_bucket, capacity: 3, refill: 1/365d, credits: 3 } ]
  - name: everybody
    per: global
    cost: 2
    limits: [ { algorithm: sliding_window, limit: 141, window: 365d } ]
  - name: writers
    match: { method: POST }
    mode: shadow
    limits: [ { algorithm: sliding_counter, limit: 1, window: 3650d } ]
";

#[test]
fn a_live_server_says_the_same_to_the_same_requests() {
    let folder = Folder::new(RULES);
    let config = folder.path("config.yaml");
    let server = Server::start(&["--config", config.to_str().expect("text")]);
    let mut random = fastrand::Rng::with_seed(9);
    let (mut log, mut allowed, mut denied) = (String::new(), 0, 0);
    for second in 0..120 {
        let address = format!("192.0.2.{}", random.u8(1..6));
        let path = random.choice(["/api/a", "/api/B?c=d", "/other", "/api/%2e%2e/x"]).expect("not empty");
        let method = random.choice(["GET", "POST", "HEAD"]).expect("not empty");
        let fields =
            format!("x-forwarded-method: {method}\r\nx-forwarded-uri: {path}\r\nx-forwarded-for: {address}");
        match ask_with(server.address("api"), "GET", "/v1/auth", &fields).status {
            204 => allowed += 1,
            429 => denied += 1,
            other => panic!("{other} to {method} {path}"),
        }
        log += &super::line(&address, second, path).replacen("GET", method, 1);
    }
    let report = folder.json(&["--log", "-"], log.as_bytes());
    assert_eq!((&report["allowed"], &report["denied"]), (&json!(allowed), &json!(denied)), "{report}");
    assert!(allowed > 10 && denied > 10, "{report}");
}
