//! The output for each kind of rule, request and store.

use clap::Parser as _;
use serde_json::{Value, json};

use super::*;
use crate::cli::{Cli, Command};
use crate::settings::StoreUrl;
use sluicegate::core::Timestamp;
use sluicegate::rules::file::Environment;

const RULES: &str = r#"
tiers: [pro, admin]
redis: { min_instances: 4, prefix: shop }
rules:
  - name: payments
    match: { resource: "api.payment.*" }
    limits:
      - { algorithm: token_bucket, capacity: 100, refill: 100/60s, credits: 50 }
      - { algorithm: sliding_window, limit: 1000, window: 1h, name: hourly }
    tiers:
      pro: [ { algorithm: fixed_window, limit: 5, window: 1d } ]
      admin: unlimited
    overrides: [ { identifier: "vip-*", limits: [ { algorithm: sliding_counter, limit: 7, window: 90s } ] } ]
    on_store_failure: closed
    deadline: 5ms
  - name: search
    match: { resource: "api.search" }
    per: global
    limits: [ { algorithm: token_bucket, capacity: 100, refill: 200/s } ]
    lease: { ttl: 100ms, mode: strict }
  - name: loose
    match: { resource: "api.sea*" }
    per: tenant
    limits: [ { algorithm: token_bucket, capacity: 100, refill: 200/s } ]
    lease: { ttl: 100ms, mode: bounded }
  - { name: old, mode: off, match: { tenant: acme }, limits: unlimited }
"#;

/// One hour before the expiry of one override, and one hour after that of another.
const NOW: Timestamp = Timestamp::now(1_798_675_200_000_000);

/// The explanation of a request with this configuration and store.
fn report(yaml: &str, store: &str, arguments: &[&str]) -> Result<ExplainReport, String> {
    let config = Config::parse(yaml, "test", &Environment::new()).expect("a good file");
    let cli = Cli::try_parse_from([&["sluicegate", "explain"], arguments].concat()).expect("good arguments");
    let Some(Command::Explain(args)) = cli.command else { panic!("not explain") };
    let instances = config.redis.min_instances;
    let store = StoreUrl::parse(store).expect("a store");
    let selected = args.selectors.resolve(&config, &Env::default()).map_err(|error| error.to_string())?;
    let context = context(&config, &store, instances);
    ExplainReport::new(context, &selected.request(), NOW).map_err(|error| error.to_string())
}

fn sending<'a>(resource: &'a str, identifier: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["--resource", resource, "--identifier", identifier], more].concat()
}

/// The text block of one rule.
fn block(report: &ExplainReport, rule: &str) -> String {
    let text = text::text(report);
    let block = text.split("\n\n").find(|block| block.starts_with(&format!("{rule}  ")));
    block.expect("a rule of this name").trim_end().to_owned()
}

const MEMORY: &str = "memory";
const REDIS: &str = "redis://127.0.0.1:1";

#[test]
fn a_matching_rule_shows_its_limit_set_key_and_cost() {
    let send = |who: &str, more: &[&str]| {
        let report = report(RULES, MEMORY, &sending("api.payment.create", who, more)).expect("explained");
        assert_eq!(
            report.outcome,
            if more.contains(&"admin") { ExplainOutcome::Unlimited } else { ExplainOutcome::Limited }
        );
        block(&report, "payments")
    };
    assert_eq!(
        send("alice", &["--cost", "151"]),
        "payments  matches
  mode    enforce
  limits  of the rule
  key     shop:1:{default:alice}:payments
  cost    151
  store   memory within 5ms, else closed
  limit   payments  token_bucket  100 at once, refilled 100/min, up to 50 more saved up; a cost of 151 never fits
  limit   hourly  sliding_window  1000 in 1h"
    );
    let vip = send("vip-1", &["--tier", "pro"]);
    assert!(vip.contains("  limits  of the override vip-*\n"), "{vip}");
    assert!(vip.ends_with("  limit   payments  sliding_counter  7 in 90s"), "{vip}");
    let pro = send("alice", &["--tier", "pro"]);
    assert!(pro.contains("  limits  of the tier pro\n") && pro.ends_with("fixed_window  5 in 1d"), "{pro}");
    let admin = send("alice", &["--tier", "admin"]);
    assert_eq!(admin, "payments  matches\n  mode    enforce\n  limits  the tier admin is unlimited");
}

#[test]
fn a_mismatch_shows_its_reason_and_the_first_line_the_outcome() {
    let send = |yaml: &str, more: &[&str]| report(yaml, MEMORY, &sending("x", "alice", more)).expect("explained");
    let open = send(RULES, &[]);
    assert_eq!(block(&open, "payments"), "payments  does not match\n  resource x does not match api.payment.*");
    let old = "old  does not match\n  mode off\n  tenant default does not match acme";
    assert_eq!(block(&open, "old"), old);
    let first = |report: &ExplainReport| text::text(report).lines().next().expect("a line").to_owned();
    assert_eq!(first(&open), "allowed: no rule matches, and unmatched is allow");
    let strict = format!("unmatched: deny\n{}", RULES.trim_start());
    let denied = send(&strict, &[]);
    assert_eq!(
        (denied.outcome, first(&denied).as_str()),
        (ExplainOutcome::Denied, "denied: no rule matches, and unmatched is deny")
    );
    let free = send(&strict, &["--cost", "0"]);
    assert_eq!(
        (free.outcome, first(&free).as_str()),
        (ExplainOutcome::Allowed, "allowed: no rule matches, and it costs nothing")
    );
    let limited = report(RULES, MEMORY, &sending("api.search", "alice", &[])).expect("explained");
    assert_eq!(first(&limited), "limited: 2 of 4 rules match");
}

/// The numbers of docs/configuration.md.
#[test]
fn a_lease_shows_its_bound_for_the_number_of_servers() {
    let shared = report(RULES, REDIS, &sending("api.search", "alice", &[])).expect("explained");
    let (strict, bounded) = (block(&shared, "search"), block(&shared, "loose"));
    assert!(
        strict.ends_with(
            "  limit   search  token_bucket  80 at once, refilled 200/s
  lease   strict, up to 100ms ahead, 4 servers
  bound   search  in any time d at most 100 + 200/s·d (charged as 80); other servers may hold 30 unused at a denial"
        ),
        "{strict}"
    );
    assert!(
        bounded.ends_with(
            "  limit   loose  token_bucket  100 at once, refilled 200/s
  lease   bounded, up to 100ms ahead, 4 servers
  bound   loose  in any time d at most 100 + 200/s·d + 20; other servers may hold 36 unused at a denial"
        ),
        "{bounded}"
    );
    // A cost above the permits of one server is never leased.
    let costly = report(RULES, REDIS, &sending("api.search", "alice", &["--cost", "11"])).expect("explained");
    assert!(
        block(&costly, "loose").contains("4 servers\n          not for this request: "),
        "{}",
        block(&costly, "loose")
    );
    let embedded = report(RULES, MEMORY, &sending("api.search", "alice", &[])).expect("explained");
    let embedded = block(&embedded, "search");
    assert!(embedded.contains("  100 at once, ") && !embedded.contains("bound"), "{embedded}");
    assert!(embedded.ends_with("lease   strict, up to 100ms ahead, 4 servers: not used with the store memory"));
}

#[test]
fn a_calendar_limit_names_its_calendar() {
    let rule = "rules: [{ name: plan, limits: [{ algorithm: fixed_window, limit: 9, window: month, anchor: 31, timezone: Asia/Tokyo }] }]";
    let report = report(rule, MEMORY, &sending("r", "alice", &[])).expect("explained");
    let text = block(&report, "plan");
    assert!(text.ends_with("  plan  fixed_window  9 in every month from day 31, Asia/Tokyo"), "{text}");
    let json = serde_json::to_value(&report).expect("JSON");
    assert_eq!(json["rules"][0]["terms"]["limits"][0]["calendar"], "month from day 31, Asia/Tokyo");
}

#[test]
fn json_has_the_same_numbers_as_the_text() {
    let shared = report(RULES, REDIS, &sending("api.search", "alice", &["--cost", "2"])).expect("explained");
    let value = serde_json::to_value(&shared).expect("JSON");
    let request = json!({
        "tenant": "default", "resource": "api.search", "identifier": "alice", "tier": null, "cost": 2,
        "method": null, "path": null, "address": null,
    });
    assert_eq!(value["request"], request);
    assert_eq!(
        (&value["store"], &value["instances"], &value["outcome"]),
        (&json!("redis"), &json!(4), &json!("limited"))
    );
    assert_eq!(
        value["rules"][1],
        json!({
            "name": "search", "matches": true, "mismatches": [],
            "terms": {
                "mode": "enforce", "limitsOf": { "kind": "rule", "name": null }, "unlimited": false,
                "key": "shop:1:{~:~}:search", "cost": 2, "onStoreFailure": "open", "deadlineMs": 15,
                "limits": [{
                    "name": "search", "algorithm": "token_bucket", "limit": 80, "windowMicros": 400_000,
                    "bucket": { "capacity": 80, "credits": 0, "refillTokens": 1, "refillMicros": 5_000 },
                    "neverFits": false, "bound": { "burst": 100, "extra": 0, "stranded": 30 },
                }],
                "lease": { "mode": "strict", "ttlMicros": 100_000, "inForce": true, "forThisRequest": true },
            },
        })
    );
    let reason = "resource api.search does not match api.payment.*";
    assert_eq!(value["rules"][0]["mismatches"], json!([{ "part": "resource", "reason": reason }]));
    assert_eq!(value["rules"][0]["terms"], Value::Null);
}

#[test]
fn invalid_requests_are_rejected() {
    for (arguments, expected) in [
        (sending("r", "i", &["--tier", "gold"]), "`tier` is \"gold\": use one of pro, admin"),
        (sending("r", "", &[]), "`identifier` is empty"),
        (sending("r", "i", &["--tenant", "a\tb"]), "`tenant` has the control character"),
    ] {
        let error = report(RULES, MEMORY, &arguments).expect_err("refused");
        assert!(error.contains(expected), "{error}");
    }
}

const HTTP: &str = r#"
tiers: [pro]
identity:
  - api_key: { keys: [ { sha256: c48a01f49fd0f2cc404bc3cbbc80e91457a3d41bb429a695243de4c61794155c, identifier: demo, tier: pro, tenant: shop } ] }
  - ip: {}
rules:
  - name: pay
    match: { path: /pay/**, method: [POST] }
    limits: [ { algorithm: fixed_window, limit: 5, window: 1d } ]
  - name: guard
    match: { credential: unverified }
    per: ip
    limits: [ { algorithm: fixed_window, limit: 5, window: 1d } ]
  - name: addresses
    per: ip
    limits: [ { algorithm: fixed_window, limit: 5, window: 1d } ]
"#;

#[test]
fn an_http_request_is_resolved_as_in_the_gateway() {
    let key = "X-API-Key: demo-key";
    let report = report(HTTP, MEMORY, &["--path", "//Pay/./x;v=1", "--method", "POST", "--header", key]).unwrap();
    let sent = &report.request;
    assert_eq!((&*sent.tenant, &*sent.identifier, sent.tier.as_deref()), ("shop", "demo", Some("pro")));
    assert_eq!((sent.method.as_deref(), sent.path.as_deref()), (Some("POST"), Some("/pay/x")));
    assert!(block(&report, "pay").starts_with("pay  matches"));
    assert!(sent.separated_paths.is_empty());
    let guard = block(&report, "guard");
    assert!(guard.contains("it is for credentials that are not verified yet"), "{guard}");
    assert!(block(&report, "addresses").contains("127.0.0.1"));
    let first = text::text(&report).lines().nth(1).unwrap_or_default().to_owned();
    assert_eq!(first, "tenant shop, resource pay.x, identifier demo, tier pro, POST /pay/x, from 127.0.0.1");
}

#[test]
fn both_readings_of_an_encoded_slash_are_shown() {
    let arguments = ["--path", "/x%2F..%2FPay%2f1", "--method", "POST"];
    let report = report(HTTP, MEMORY, &arguments).unwrap();
    assert_eq!(report.request.path.as_deref(), Some("/x%2f..%2fpay%2f1"));
    assert_eq!(report.request.separated_paths, ["/pay/1", "/x/../pay/1"]);
    let text = text::text(&report);
    assert!(
        text.contains(", POST /x%2f..%2fpay%2f1, also read as /pay/1 and /x/../pay/1, from 127.0.0.1\n"),
        "{text}"
    );
    assert!(block(&report, "pay").starts_with("pay  matches"));
    let json = serde_json::to_value(&report.request).unwrap();
    assert_eq!(json["separatedPaths"], serde_json::json!(["/pay/1", "/x/../pay/1"]));
}

#[test]
fn a_request_without_a_credential_is_identified_by_its_address() {
    let report = report(HTTP, MEMORY, &["--path", "/pay", "--from", "2001:db8:1:2::3"]).unwrap();
    assert_eq!(report.request.identifier, "2001:db8:1:2::");
    let pay = block(&report, "pay");
    assert!(pay.contains("method GET is not one of POST"), "{pay}");
}

#[test]
fn requests_that_the_gateway_rejects_are_reported_with_the_reason() {
    let refused = |arguments: &[&str]| report(HTTP, MEMORY, arguments).unwrap_err();
    assert_eq!(
        refused(&["--path", "/pay", "--header", "X-API-Key: wrong"]),
        "the request would be answered with 401: the API key is not known: send `x-api-key` with a key that exists"
    );
    let refusing = format!("gateway: {{ encoded_slashes: refuse }}\n{HTTP}");
    let error = report(&refusing, MEMORY, &["--path", "/a%2fb"]).unwrap_err();
    assert!(error.contains("percent-encoded slash"), "{error}");
    assert!(refused(&["--path", "/a%5cb"]).contains("percent-encoded backslash"));
    let remote = HTTP
        .replace("  - ip: {}", "  - jwt: { issuer: i, audience: a, jwks_url: 'https://id.example/' }\n  - ip: {}");
    let error = report(&remote, MEMORY, &["--path", "/", "--header", "Authorization: Bearer x"]).unwrap_err();
    assert!(error.starts_with("the keys of i are at a URL, and explain does not fetch them"), "{error}");
}

#[test]
fn an_expired_override_is_named_with_its_expiry() {
    let rules = r#"
rules:
  - name: payments
    limits: [ { algorithm: fixed_window, limit: 5, window: 1d } ]
    overrides:
      - { identifier: "vip-1", limits: unlimited, until: "2026-12-31T01:00:00Z" }
      - { identifier: "vip-*", limits: unlimited, until: "2026-12-30T23:00:00Z" }
"#;
    let of = |identifier| report(rules, "memory", &sending("r", identifier, &[])).expect("a good request");
    let (before, after) = (of("vip-1"), of("vip-2"));
    let terms = |report: &ExplainReport| serde_json::to_value(&report.rules[0].terms).expect("JSON");
    assert_eq!((&terms(&before)["limitsOf"]["kind"], terms(&before).get("ended")), (&json!("override"), None));
    assert_eq!(terms(&after)["limitsOf"]["kind"], "rule");
    assert_eq!(terms(&after)["ended"], json!({ "name": "vip-*", "until": "2026-12-30T23:00:00Z" }));
    let text = text::text(&after);
    assert!(text.contains("the override vip-* expired at 2026-12-30T23:00:00Z"), "{text}");
}
