//! The whole file: values, problems, and the agreement of schema, pages and reader.

mod agreement;
mod documents;
mod gateway;
mod identity;
mod reference;

use super::listeners::ListenerSettings;
use super::*;
use crate::config::listeners::TlsFiles;
use crate::settings::SettingValues;
use sluicegate::rules::Unmatched;
use std::num::NonZeroU32;

fn environment() -> Environment {
    let variables =
        [("RATE", "100/s"), ("TENANT", "acme"), ("URL", "redis://:hunter2@cache:x"), ("ALGORITHM", "x")];
    let secrets = [("REDIS_PASSWORD", "p"), ("KEY_SECRET", "s"), ("RESP_PASSWORD", "canary-of-resp")];
    let secrets = secrets.into_iter().chain([
        ("LOG_HASH_SECRET", "s"),
        ("OTLP_TOKEN", "t"),
        ("API_TOKEN", "canary-of-the-api"),
    ]);
    variables.into_iter().chain(secrets).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn parse(text: &str) -> Result<Config, Problems> {
    Config::parse(text, "t.yaml", &environment())
}

fn good(text: &str) -> Config {
    parse(text).unwrap_or_else(|problems| panic!("{problems}"))
}

/// All problems of a text that also has `rules: []`.
#[track_caller]
fn check(text: &str, expected: &[&str]) {
    let found = match parse(&format!("{text}\nrules: []\n")) {
        Ok(config) => format!("no problem: {config:?}"),
        Err(problems) => problems.to_string(),
    };
    let found: Vec<&str> = found.lines().map(|line| line.trim_start_matches("t.yaml:")).collect();
    assert_eq!(found, expected, "for this text:\n{text}");
}

#[test]
fn every_server_key_is_read() {
    let config = good(
        "store: memory
memory: { max_keys: 1000 }
listen: { gateway: off, api: 0.0.0.0:0, admin: '[::1]:8082', resp: '127.0.0.1:6379' }
resp: { password: '${RESP_PASSWORD}', deadline: 50ms }
headers: { styles: [ietf], x_ratelimit_reset: delta, degraded: true }
unmatched: deny
rules: []",
    );
    let values = SettingValues::default()
        .with(&declared::STORE, Some("memory"))
        .with(&declared::GATEWAY, Some("off"))
        .with(&declared::API, Some("0.0.0.0:0"))
        .with(&declared::ADMIN, Some("[::1]:8082"))
        .with(&declared::RESP, Some("127.0.0.1:6379"));
    let settings = FileSettings { values, ..FileSettings::default() };
    assert_eq!(config.settings, settings);
    assert_eq!(config.memory.max_keys, 1_000);
    assert_eq!(config.resp.deadline, Duration::from_millis(50));
    assert!(config.resp.password.is_some_and(|password| password.matches(b"canary-of-resp")));
    let headers = HeaderOptions { x_ratelimit: false, ietf: true, reset: ResetStyle::Delta, degraded: true };
    assert_eq!(config.headers, headers);
    assert_eq!(config.rules.unmatched(), Unmatched::Deny);
}

#[test]
fn absent_keys_have_their_defaults() {
    let config = good("rules: []");
    assert_eq!(config.settings, FileSettings::default());
    assert_eq!(config.memory.max_keys, 10_000_000);
    let headers = HeaderOptions { x_ratelimit: true, ietf: true, reset: ResetStyle::Epoch, degraded: false };
    assert_eq!(config.headers, headers);
    assert_eq!(good("memory: {}\nlisten: {}\nheaders: {}\nrules: []").headers, HeaderOptions::default());
    let none = good("headers: { styles: [] }\nrules: []").headers;
    assert!(!none.x_ratelimit && !none.ietf);
}

#[test]
fn a_listener_may_be_a_mapping() {
    let config = good(
        "listen:
  gateway:
    address: 0.0.0.0:8443
    tls: { certificate_file: a.pem, key_file: b.pem }
    proxy_protocol: [10.0.0.0/8, '2001:db8::1']
    max_connections_per_address: 100
  api: { proxy_protocol: [] }
  admin: 127.0.0.1:0
rules: []",
    );
    assert_eq!(config.settings.values.text(&declared::GATEWAY), Some("0.0.0.0:8443"));
    assert_eq!(config.settings.values.text(&declared::API), None);
    let ListenerSettings { tls, proxy_protocol, connections_per_address } = config.listeners.gateway;
    assert_eq!(tls, Some(TlsFiles { certificate: "a.pem".into(), key: "b.pem".into(), clients: None }));
    assert!(proxy_protocol.contains("10.1.2.3".parse().expect("an address")));
    assert_eq!(connections_per_address.map(NonZeroU32::get), Some(100));
    assert_eq!(config.listeners.api, ListenerSettings::default());
    assert_eq!(config.listeners.admin, ListenerSettings::default());

    check(
        "listen: { api: { tls: { key_file: b.pem }, proxy_protocol: [10.0.0.0/33, 5, x], port: 1 } }",
        &[
            "1:23: listen.api.tls.certificate_file: missing key: name a file in PEM, for example certificate_file: \
             server.pem",
            "1:61: listen.api.proxy_protocol[0]: not a network (value 10.0.0.0/33): write an address or a network, for \
             example 10.0.0.0/8 or 2001:db8::/32",
            "1:74: listen.api.proxy_protocol[1]: not a network (value 5): write an address or a network, for example \
             10.0.0.0/8 or 2001:db8::/32",
            "1:77: listen.api.proxy_protocol[2]: not a network (value x): write an address or a network, for example \
             10.0.0.0/8 or 2001:db8::/32",
            "1:81: listen.api.port: unknown key: the keys here are: address, tls, proxy_protocol, \
             max_connections_per_address",
        ],
    );
}

#[test]
fn an_address_has_a_host_and_a_port() {
    for address in ["off", "127.0.0.1:8080", "0.0.0.0:0", "[::1]:65535", "localhost:80", "my-host.example_1:80"] {
        let config = good(&format!("listen: {{ api: \"{address}\" }}\nrules: []"));
        assert_eq!(config.settings.values.text(&declared::API), Some(address));
    }
    let remedy = "write HOST:PORT with a port from 0 to 65535, for example 127.0.0.1:8080 or [::1]:8080, or off";
    for address in ["", "Off", ":8080", "127.0.0.1", "localhost:", "::1:80", "[::1]", "a b:1", "h:+1"] {
        let problem = format!("1:16: listen.api: not an address (value \"{address}\"): {remedy}");
        check(&format!("listen: {{ api: \"{address}\" }}"), &[&problem]);
    }
    // The error for a port alone has a remedy, in quotes or without.
    let remedy_for_port = "write the host, too: 127.0.0.1:8081 for this machine alone, 0.0.0.0:8081 for all";
    for port in ["8081", "\"8081\""] {
        let problem = format!("1:16: listen.api: not an address (value {port}): {remedy_for_port}");
        check(&format!("listen: {{ api: {port} }}"), &[&problem]);
    }
    let problem = format!("1:16: listen.api: the port is out of range (value h:65536): {remedy}");
    check("listen: { api: h:65536 }", &[&problem]);
}

#[test]
fn every_problem_with_a_server_key_is_reported() {
    let keys = format!("the keys here are: {}", TOP.keys().join(", "));
    let schemes =
        "redis://, rediss://, redis+sentinel://, rediss+sentinel://, redis+cluster:// or rediss+cluster://";
    let kind = format!("this kind of store is not known: a store URL starts with {schemes}");
    let range = "use a whole number from 1 to 1000000000";
    let pairs = "write `key: value` pairs";
    check("stor: memory", &[&format!("1:1: stor: unknown key: did you mean store? {keys}")]);
    check("store: mysql://h", &[&format!("1:8: store: unknown store (value mysql://…): {kind}")]);
    let remedy = "`Memory` is not a store; use memory, or a URL such as redis://127.0.0.1:6379";
    check("store: Memory", &[&format!("1:8: store: unknown store (value Memory): {remedy}")]);
    check("store: 5", &["1:8: store: not a text (value 5): put it in quotes: \"5\""]);
    check("store:", &["1:6: store: no value: write a text"]);
    check("store: memory\nstore: memory", &["2:1: store: duplicate key, first at 1:1: keep one of the two"]);
    check("memory: 5", &[&format!("1:9: memory: not a mapping (value 5): {pairs}")]);
    check("memory: { keys: 5 }", &["1:11: memory.keys: unknown key: the keys here are: max_keys"]);
    for value in ["0", "-1", "1000000001", "99999999999999999999"] {
        let problem = format!("1:21: memory.max_keys: out of range (value {value}): {range}");
        check(&format!("memory: {{ max_keys: {value} }}"), &[&problem]);
    }
    for value in ["1.5", "1e6", "0x10", ".inf", "ten"] {
        let problem = format!("1:21: memory.max_keys: not a whole number (value {value}): {range}");
        check(&format!("memory: {{ max_keys: {value} }}"), &[&problem]);
    }
    check("listen: off", &[&format!("1:9: listen: not a mapping (value off): {pairs}")]);
    check(
        "listen: { grpc: off, api: 5, admin: [] }",
        &[
            "1:11: listen.grpc: unknown key: the keys here are: gateway, api, admin, resp",
            "1:27: listen.api: not an address (value 5): write the host, too: 127.0.0.1:5 for this machine alone, \
             0.0.0.0:5 for all",
            "1:37: listen.admin: not a text but a list: write a text",
        ],
    );
    check("resp: { pass: x }", &["1:9: resp.pass: unknown key: the keys here are: password, deadline"]);
    // Of a password nothing is shown, whatever is wrong with it.
    let length = "1:19: resp.password: a password of this length: use 1 to 512 bytes, or leave the key out";
    check("resp: { password: '' }", &[length]);
    check(&format!("resp: {{ password: {} }}", "p".repeat(513)), &[length]);
    check(
        "headers: { styles: [x-ratelimit, ieft, x-ratelimit], x_ratelimit_reset: epoche, degrade: 5 }",
        &[
            "1:34: headers.styles[1]: unknown value (value ieft): did you mean ietf? use x-ratelimit or ietf",
            "1:40: headers.styles[2]: named twice, first at 1:21 (value x-ratelimit): name it once",
            "1:73: headers.x_ratelimit_reset: unknown value (value epoche): did you mean epoch? use epoch or delta",
            "1:81: headers.degrade: unknown key: did you mean degraded? \
             the keys here are: styles, x_ratelimit_reset, degraded",
        ],
    );
    for value in ["yes", "1", "True"] {
        let problem = format!("1:22: headers.degraded: unknown value (value {value}): use true or false");
        let problem = problem.replace("(value True): use", "(value True): did you mean true? use");
        check(&format!("headers: {{ degraded: {value} }}"), &[&problem]);
    }
    check("headers: { degraded: }", &["1:20: headers.degraded: no value: use true or false"]);
    check("headers: { degraded: [] }", &["1:22: headers.degraded: not a word but a list: use true or false"]);
    let list = "write a list, for example [x-ratelimit, ietf], or [] for no header fields";
    check("headers: { styles: ietf }", &[&format!("1:20: headers.styles: not a list (value ietf): {list}")]);
}

#[test]
fn messages_do_not_contain_passwords() {
    for store in ["redis://user:hunter2@h:x", "'rediss+proxy://:hunter2@h'", "user:hunter2@h", "'${URL}'"] {
        let problems = parse(&format!("store: {store}\nrules: []")).unwrap_err().to_string();
        assert!(problems.contains("unknown store") && !problems.contains("hunter2"), "{problems}");
    }
}

#[test]
fn every_problem_with_the_section_redis_is_reported() {
    let names = "use 1 to 32 letters, digits, or -._: for example sg";
    check(
        "redis: { prefix: 'a b' }",
        &[&format!("1:18: redis.prefix: this cannot begin a key (value \"a b\"): {names}")],
    );
    check("redis: { keys: md5 }", &["1:16: redis.keys: unknown value (value md5): use plain or hashed"]);
    check(
        "redis: { key_secret: canary }",
        &["1:8: redis: `key_secret` without hashed keys: write `keys: hashed` too, or leave `key_secret` out"],
    );
    check(
        "redis: { max_connections: 0, connect_timeout: 2min, min_instances: 0 }",
        &[
            "1:27: redis.max_connections: out of range (value 0): use a whole number from 1 to 64",
            "1:47: redis.connect_timeout: out of range (value 2min): use 1ms to 60s, for example 1s",
            "1:68: redis.min_instances: out of range (value 0): use a whole number from 1 to 100000",
        ],
    );
    check(
        "redis: { key_file: k.pem, sentinel_user: u }",
        &[
            "1:8: redis: `key_file` stands alone: write `certificate_file` too: a certificate is nothing without its key",
            "1:8: redis: `sentinel_user` stands alone: write `sentinel_password` too, for example \"${SENTINEL_PASSWORD}\"",
        ],
    );
}

#[test]
fn a_problem_with_one_value_hides_no_problem_between_others() {
    check(
        "redis: { prefix: ' ', key_secret: s, certificate_file: 5, key_file: k, sentinel_user: u }",
        &[
            "1:8: redis: `sentinel_user` stands alone: write `sentinel_password` too, for example \"${SENTINEL_PASSWORD}\"",
            "1:8: redis: `key_secret` without hashed keys: write `keys: hashed` too, or leave `key_secret` out",
            "1:18: redis.prefix: this cannot begin a key (value \" \"): use 1 to 32 letters, digits, or -._: for example sg",
            "1:56: redis.certificate_file: not a text (value 5): put it in quotes: \"5\"",
        ],
    );
    let problems = |text: &str| parse(text).expect_err(text).to_string();
    let both = |text: &str, one: &str, other: &str| {
        let told = problems(text);
        assert!(told.contains(one) && told.contains(other) && told.lines().count() == 2, "{text}\n{told}");
    };
    both("identity: [{ ip: { ipv6_prefix: 200 } }, { ip: {} }]\nrules: []", "out of range", "never applies");
    both("identity: [{ api_key: { header: ' ' } }]\nrules: []", "api_key.header", "no keys, so no credential");
    let limits = "limits: [{ algorithm: token_bucket, capacity: 9, refill: 1/s }]";
    let apart = "overrides: [{ name: o, rule: nosuch, identifier: x, limits: unlimited }]";
    both(&format!("rules: [{{ name: a, {limits}, mode: nope }}]\n{apart}"), "mode", "no rule is called nosuch");
    let nameless = format!("rules: [{{ name: \"${{NOWHERE}}\", {limits} }}]\n{apart}");
    assert!(!problems(&nameless).contains("nosuch"), "{}", problems(&nameless));
    // Standalone overrides are checked against their rule in spite of other problems.
    let apart = "overrides: [{ name: o, rule: a, identifier: x, limits: [{ algorithm: fixed_window, limit: 1, window: 1s }] }]";
    let rule = format!("rules: [{{ name: a, {limits}, lease: {{ ttl: 100ms }}, cost: -1 }}]");
    both(&format!("{rule}\n{apart}"), "cost", "overrides[0].limits: does not go with the lease of its rule");
    let apart = "overrides: [{ name: o, rule: a, identifier: \"vip-7*\", limits: unlimited }]";
    let rule = format!(
        "rules: [{{ name: a, {limits}, cost: -1, overrides: [{{ identifier: vip-*, limits: unlimited }}] }}]"
    );
    both(&format!("{rule}\n{apart}"), "cost", "takes every identifier that this one is for");
}

#[test]
fn messages_do_not_contain_secrets_of_another_type() {
    for text in [
        "redis: { keys: hashed, key_secret: 98765 }",
        "redis: { sentinel_password: 98765 }",
        "resp: { password: 98765 }",
    ] {
        let problems = parse(&format!("{text}\nrules: []")).unwrap_err().to_string();
        assert!(problems.contains("not a text: write a text") && !problems.contains("98765"), "{problems}");
    }
}

#[test]
fn a_file_without_rules_is_rejected() {
    let problems = parse("store: memory").unwrap_err().to_string();
    assert_eq!(problems, "t.yaml:1:1: rules: missing key: list the rules, or write `rules: []` to limit nothing");
}

#[test]
fn the_demo_admits_a_few_and_then_denies() {
    let config = Config::demo().unwrap();
    assert_eq!(config.settings, FileSettings::default());
    let [rule] = config.rules.rules() else { panic!("one rule") };
    assert_eq!(rule.space.name(), "demo");
    assert!(rule.matches(&sluicegate::identity::Request::new("anything", "anybody")));
    let Limits::All { quotas, .. } = &rule.limits else { panic!("limits") };
    assert_eq!(quotas.len(), 1);
    assert_eq!(quotas[0].limit(), 10);
    assert_eq!(quotas[0].window().ceil_secs(), 10);
}

#[test]
fn validation_prints_a_summary_in_one_line() {
    let text = "tiers: [a, b]
rules:
  - name: one
    limits: [{ algorithm: fixed_window, limit: 1, window: 1s }]
    tiers: { a: unlimited, b: [{ algorithm: fixed_window, limit: 2, window: 1s }] }
    overrides: [{ identifier: x, limits: [{ algorithm: fixed_window, limit: 3, window: 1s }] }]
";
    let line = validate_command("sluicegate.yaml", text, &environment());
    assert_eq!(line.unwrap(), "sluicegate.yaml: ok, 1 rule, 3 limits, 2 tiers");
    let line = validate_command("sluicegate.yaml", "rules: []", &environment());
    assert_eq!(line.unwrap(), "sluicegate.yaml: ok, 0 rules, 0 limits, 0 tiers");
    let problems = validate_command("sluicegate.yaml", b"\xff", &environment()).unwrap_err();
    assert_eq!(problems.to_string(), "sluicegate.yaml:1:1: not UTF-8: save the file as UTF-8");
}
