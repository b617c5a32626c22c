//! The numbers of `simulate` compared with the exact model: every algorithm, credits, costs, several limits per rule, several
//! rules, shadow rules, and late lines.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use serde_json::Value;
use sluicegate_testkit::model::{Bucket, Counter, Fixed, Limit, Log, Model, Outcome};

use super::Folder;

const SECOND: u64 = 1_000_000;
/// The start of logs: 22:13:20 on 14 November 2023.
const START: u64 = 1_700_000_000 * SECOND;

/// A rule for the model.
struct ModelRule {
    name: &'static str,
    is_global: bool,
    is_shadow: bool,
    /// The prefix of the paths that it matches.
    path: &'static str,
    cost: u64,
    limits: Vec<Limit>,
    /// The limits as written in a configuration.
    yaml: &'static str,
}

fn bucket(capacity: u64, amount: u64, seconds: u64, credits: u64, credit_ttl: u64) -> Limit {
    let (period, credit_ttl) = (seconds * SECOND, credit_ttl * SECOND);
    Limit::Bucket(Bucket { capacity, credits, amount, period, credit_ttl })
}

fn rule(name: &'static str, path: &'static str, cost: u64, limits: Vec<Limit>, yaml: &'static str) -> ModelRule {
    ModelRule { name, is_global: false, is_shadow: false, path, cost, limits, yaml }
}

fn rules() -> Vec<ModelRule> {
    let day = 86_400;
    vec![
        rule(
            "bucket",
            "/a",
            1,
            vec![bucket(3, 1, 10, 0, day)],
            "algorithm: token_bucket, capacity: 3, refill: 1/10s",
        ),
        rule(
            "credits",
            "/b",
            2,
            vec![bucket(2, 1, 10, 2, 600)],
            "algorithm: token_bucket, capacity: 2, refill: 1/10s, credits: 2, credit_ttl: 10min",
        ),
        rule(
            "sliding",
            "/c",
            1,
            vec![Limit::Log(Log { limit: 3, window: 30 * SECOND })],
            "algorithm: sliding_window, limit: 3, window: 30s",
        ),
        rule(
            "counter",
            "/d",
            3,
            vec![Limit::Counter(Counter { limit: 7, window: 60 * SECOND })],
            "algorithm: sliding_counter, limit: 7, window: 1min",
        ),
        rule(
            "several",
            "/",
            1,
            vec![Limit::Fixed(Fixed { limit: 30, window: 300 * SECOND }), bucket(12, 1, 2, 0, day)],
            "algorithm: fixed_window, limit: 30, window: 5min }, { algorithm: token_bucket, capacity: 12, refill: 1/2s",
        ),
        ModelRule {
            is_global: true,
            ..rule(
                "everybody",
                "/",
                1,
                vec![Limit::Counter(Counter { limit: 60, window: 120 * SECOND })],
                "algorithm: sliding_counter, limit: 60, window: 2min",
            )
        },
        ModelRule {
            is_shadow: true,
            ..rule(
                "watch",
                "/",
                1,
                vec![bucket(3, 1, 4, 0, day)],
                "algorithm: token_bucket, capacity: 3, refill: 1/4s",
            )
        },
    ]
}

fn yaml(rules: &[ModelRule]) -> String {
    let rule = |rule: &ModelRule| {
        let (name, cost, limits) = (rule.name, rule.cost, rule.yaml);
        let per = if rule.is_global { "global" } else { "ip" };
        let mode = if rule.is_shadow { "shadow" } else { "enforce" };
        let path = if rule.path == "/" { "/**".to_owned() } else { format!("{}/**", rule.path) };
        format!(
            "  - {{ name: {name}, match: {{ path: {path} }}, per: {per}, cost: {cost}, mode: {mode}, \
             limits: [ {{ {limits} }} ] }}\n"
        )
    };
    format!("rules:\n{}", rules.iter().map(rule).collect::<String>())
}

/// A generated request.
#[derive(Clone, Copy)]
struct SentRequest {
    at: u64,
    address: Ipv4Addr,
    path: &'static str,
}

/// Allowed and denied requests, in total and by rule.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    all: (u64, u64),
    rules: Vec<(u64, u64)>,
    denied_clients: HashMap<String, u64>,
}

fn count(counts: &mut (u64, u64), is_allowed: bool) {
    if is_allowed { counts.0 += 1 } else { counts.1 += 1 }
}

/// The model's counts for all requests. A request is charged only if every enforced limit allows it. A shadow rule is charged
/// under the same condition, if its own limits allow it, too.
fn expected(rules: &[ModelRule], requests: &[SentRequest]) -> Counts {
    let mut models: HashMap<(usize, Option<Ipv4Addr>), Vec<Model>> = HashMap::new();
    let mut counts = Counts { rules: vec![(0, 0); rules.len()], ..Counts::default() };
    let mut now = 0;
    for request in requests {
        now = now.max(request.at);
        let mut verdicts = Vec::new();
        for (index, rule) in rules.iter().enumerate().filter(|(_, rule)| request.path.starts_with(rule.path)) {
            let key = (index, (!rule.is_global).then_some(request.address));
            let models =
                models.entry(key).or_insert_with(|| rule.limits.iter().cloned().map(Model::new).collect());
            let is_rule_allowed =
                models.iter().all(|model| model.clone().check(rule.cost, now).outcome == Outcome::Allowed);
            count(&mut counts.rules[index], is_rule_allowed);
            verdicts.push((key, rule, is_rule_allowed));
        }
        let is_allowed = verdicts.iter().all(|(_, rule, is_rule_allowed)| rule.is_shadow || *is_rule_allowed);
        count(&mut counts.all, is_allowed);
        if !is_allowed {
            *counts.denied_clients.entry(request.address.to_string()).or_default() += 1;
        }
        for (key, rule, is_rule_allowed) in verdicts {
            if is_allowed && is_rule_allowed {
                models.get_mut(&key).expect("inserted above").iter_mut().for_each(|model| {
                    model.check(rule.cost, now);
                });
            }
        }
    }
    counts
}

fn generated(seed: u64, count: usize, grain: u64, is_late: bool) -> Vec<SentRequest> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut at = START;
    (0..count)
        .map(|_| {
            at += match random.u8(..) {
                // Bursts with pauses between them.
                0..=150 => 0,
                151..=252 => random.u64(0..SECOND),
                253..=254 => random.u64(0..90 * SECOND),
                255 => random.u64(0..900 * SECOND),
            };
            let late = if is_late && random.u8(..) < 40 { random.u64(0..20 * SECOND) } else { 0 };
            SentRequest {
                at: (at.saturating_sub(late)).max(START) / grain * grain,
                address: Ipv4Addr::new(192, 0, 2, random.u8(0..4)),
                path: random.choice(["/a/x", "/b/x", "/c/x", "/d/x", "/e"]).expect("not empty"),
            }
        })
        .collect()
}

fn combined(request: &SentRequest) -> String {
    let time = jiff::Timestamp::from_microsecond(request.at as i64).expect("a time");
    let time = time.strftime("%d/%b/%Y:%H:%M:%S +0000");
    format!("{} - - [{time}] \"GET {}?q HTTP/1.1\" 200 1 \"-\" \"-\"\n", request.address, request.path)
}

fn json_line(request: &SentRequest) -> String {
    let (seconds, micros) = (request.at / SECOND, request.at % SECOND);
    format!("{{\"ts\":{seconds}.{micros:06},\"ip\":\"{}\",\"path\":\"{}\"}}\n", request.address, request.path)
}

fn counts_of(report: &Value) -> Counts {
    let number = |value: &Value| value.as_u64().expect("a number");
    let rule = |rule: &Value| (number(&rule["allowed"]), number(&rule["denied"]) + number(&rule["shadowDenied"]));
    let hit = |hit: &Value| (hit["identity"].as_str().expect("text").to_owned(), number(&hit["denied"]));
    Counts {
        all: (number(&report["allowed"]), number(&report["denied"])),
        rules: report["rules"].as_array().expect("a list").iter().map(rule).collect(),
        denied_clients: report["hardestHit"].as_array().expect("a list").iter().map(hit).collect(),
    }
}

#[test]
fn every_algorithm_gives_the_counts_of_the_model() {
    let rules = rules();
    let folder = Folder::new(&yaml(&rules));
    for (seed, is_late) in [(1, false), (2, true), (3, true)] {
        let requests = generated(seed, 3_000, SECOND, is_late);
        let log: String = requests.iter().map(combined).collect();
        let report = folder.json(&["--log", "-"], log.as_bytes());
        let expected = expected(&rules, &requests);
        assert_eq!(counts_of(&report), expected, "seed {seed}");
        assert_eq!((report["malformed"].as_u64(), report["late"]["lines"].as_u64() > Some(0)), (Some(0), is_late));
        assert!(expected.rules.iter().all(|(allowed, denied)| *allowed > 10 && *denied > 10), "{expected:?}");
    }
}

#[test]
fn fractions_of_seconds_are_exact() {
    let rules = rules();
    let folder = Folder::new(&yaml(&rules));
    for seed in [4, 5] {
        let requests = generated(seed, 3_000, 1, true);
        let log: String = requests.iter().map(json_line).collect();
        let report = folder.json(&["--log", "-", "--format", "json"], log.as_bytes());
        assert_eq!(counts_of(&report), expected(&rules, &requests), "seed {seed}");
    }
}

#[test]
fn a_single_rule_gives_the_counts_of_the_model() {
    for rule in rules() {
        let rules = [ModelRule { is_shadow: false, ..rule }];
        let folder = Folder::new(&yaml(&rules));
        let requests = generated(6, 2_000, 1, false);
        let log: String = requests.iter().map(json_line).collect();
        let report = folder.json(&["--log", "-", "--format", "json"], log.as_bytes());
        assert_eq!(counts_of(&report), expected(&rules, &requests), "{}", rules[0].name);
    }
}
