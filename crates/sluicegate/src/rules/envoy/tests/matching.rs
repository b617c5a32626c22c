//! The limits of descriptors, as a table.

use super::*;

pub(super) const EDGE: &str = r#"
domain: edge
descriptors:
  - { key: user, rate_limit: { unit: second, requests_per_unit: 1 } }
  - { key: user, value: alice, rate_limit: { unit: second, requests_per_unit: 2 } }
  - { key: user, value: "vip-*", rate_limit: { unit: second, requests_per_unit: 3 } }
  - { key: user, value: "*-bot", rate_limit: { unit: second, requests_per_unit: 4 } }
  - { key: user, value: "a*c*e", rate_limit: { unit: second, requests_per_unit: 5 } }
  - key: path
    value: /login
    descriptors:
      - { key: ip, rate_limit: { unit: minute, requests_per_unit: 10 } }
      - { key: ip, value: 10.0.0.1, rate_limit: { unlimited: true } }
      - { key: ip, value: "10.*", share_threshold: true, rate_limit: { unit: minute, requests_per_unit: 12 } }
  - key: path
    value: "/files/*"
    share_threshold: true
    descriptors:
      - { key: method, rate_limit: { unit: hour, requests_per_unit: 20 } }
      - { key: method, value: POST, rate_limit: { unit: hour, requests_per_unit: 21 } }
  - key: path
    rate_limit: { unit: hour, requests_per_unit: 30 }
    descriptors:
      - { key: method, value: GET, rate_limit: { unit: hour, requests_per_unit: 31 } }
  - key: plan
    value: pro
    rate_limit: { unit: day, requests_per_unit: 40 }
    descriptors:
      - { key: user, rate_limit: { unit: day, requests_per_unit: 41 } }
  - { key: odd_key, rate_limit: { unit: day, requests_per_unit: 50 } }
  - { key: odd, value: b_c, rate_limit: { unit: day, requests_per_unit: 51 } }
  - { key: status, value: 200, rate_limit: { unit: day, requests_per_unit: 60 } }
  - { key: status, value: true, rate_limit: { unit: day, requests_per_unit: 61 } }
  - { key: status, value: "~", rate_limit: { unit: day, requests_per_unit: 62 } }
  - { key: blank, value: "", rate_limit: { unit: week, requests_per_unit: 70 } }
  - { key: star, value: "*", rate_limit: { unit: month, requests_per_unit: 80 } }
  - { key: only, value: x, rate_limit: { unit: year, requests_per_unit: 85 } }
  - { key: mix, value: "a*", rate_limit: { unit: day, requests_per_unit: 90 } }
  - { key: mix, value: "ab*", rate_limit: { unit: day, requests_per_unit: 91 } }
  - { key: mix, value: abc, rate_limit: { unit: day, requests_per_unit: 92 } }
  - { key: shared, value: "team-*", share_threshold: true, rate_limit: { unit: day, requests_per_unit: 95 } }
  - { key: "${HOME}", value: "${USER}", rate_limit: { unit: day, requests_per_unit: 97 } }
  - { key: quiet, descriptors: ~ }
  - { key: quiet, value: no, rate_limit: ~ }
"#;

/// Domain, entries, and the limit with the identifier of its state; `-` for no limit.
const CASES: &[(&str, &str, &str)] = &[
    // The exact value comes first, then patterns in the order of the file, then the key alone.
    ("edge", "user=bob", "1 bob"),
    ("edge", "user=alice", "2 alice"),
    ("edge", "user=Alice", "1 Alice"),
    ("edge", "user=alice ", "1 alice "),
    ("edge", "user=vip-1", "3 vip-1"),
    ("edge", "user=vip-", "3 vip-"),
    ("edge", "user=vip", "1 vip"),
    ("edge", "user=a-bot", "4 a-bot"),
    ("edge", "user=-bot", "4 -bot"),
    ("edge", "user=vip-bot", "3 vip-bot"),
    ("edge", "user=ace", "5 ace"),
    ("edge", "user=a-c-e", "5 a-c-e"),
    ("edge", "user=acec", "1 acec"),
    ("edge", "user=aec", "1 aec"),
    ("edge", "user=a*c*e", "5 a*c*e"),
    ("edge", "user=", "1 "),
    ("edge", "user=a|b", "1 a%7Cb"),
    ("edge", "mix=abc", "92 abc"),
    ("edge", "mix=abcd", "90 abcd"),
    ("edge", "mix=ab", "90 ab"),
    ("edge", "mix=a", "90 a"),
    // A request may have the text of a pattern as its value, and that comes first, too.
    ("edge", "mix=ab*", "91 ab*"),
    ("edge", "mix=a*", "90 a*"),
    ("edge", "mix=b", "-"),
    ("edge", "mix=", "-"),
    ("edge", "star=", "80 "),
    ("edge", "star=anything", "80 anything"),
    // Values that match a shared pattern have one state.
    ("edge", "shared=team-a", "95 team-*"),
    ("edge", "shared=team-b", "95 team-*"),
    ("edge", "shared=team", "-"),
    ("edge", "path=/login,ip=10.1.2.3", "12 /login|10.*"),
    ("edge", "path=/login,ip=10.9.9.9", "12 /login|10.*"),
    ("edge", "path=/files/a,method=GET", "20 /files/*|GET"),
    ("edge", "path=/files/b,method=GET", "20 /files/*|GET"),
    ("edge", "path=/files/b,method=PUT", "20 /files/*|PUT"),
    ("edge", "path=/files/b,method=POST", "21 /files/*|POST"),
    // An unlimited entry is found as well.
    ("edge", "path=/login,ip=10.0.0.1", "unlimited /login|10.0.0.1"),
    ("edge", "path=/login,ip=192.0.2.1", "10 /login|192.0.2.1"),
    // Only the last entry's descriptor can limit.
    ("edge", "path=/login", "-"),
    ("edge", "path=/other", "30 /other"),
    ("edge", "path=/other,method=GET", "31 /other|GET"),
    ("edge", "path=/other,method=POST", "-"),
    ("edge", "path=/files/a", "-"),
    ("edge", "path=/login,ip=1,more=1", "-"),
    ("edge", "user=bob,more=1", "-"),
    ("edge", "plan=pro", "40 pro"),
    ("edge", "plan=pro,user=bob", "41 pro|bob"),
    ("edge", "plan=pro,user=alice", "41 pro|alice"),
    ("edge", "plan=free", "-"),
    ("edge", "plan=free,user=bob", "-"),
    ("edge", "plan=pro,path=/other", "-"),
    // There is no backtracking: the key alone would have led further.
    ("edge", "path=/login,method=GET", "-"),
    ("edge", "path=/files/x,ip=1", "-"),
    // Order counts, and so does every key.
    ("edge", "ip=1,path=/login", "-"),
    ("edge", "user=bob,plan=pro", "-"),
    ("edge", "ip=10.0.0.1", "-"),
    ("edge", "only=x", "85 x"),
    ("edge", "only=y", "-"),
    ("edge", "only=", "-"),
    // A key and a value are separate, whatever their concatenation looks like.
    ("edge", "odd_key=1", "50 1"),
    ("edge", "odd=key", "-"),
    ("edge", "odd=b_c", "51 b_c"),
    ("edge", "odd_b=c", "-"),
    // Values are texts, whatever type YAML gives them.
    ("edge", "status=200", "60 200"),
    ("edge", "status=0200", "-"),
    ("edge", "status=true", "61 true"),
    ("edge", "status=~", "62 ~"),
    ("edge", "blank=", "70 "),
    ("edge", "blank=any", "70 any"),
    ("edge", "${HOME}=${USER}", "97 ${USER}"),
    ("edge", "quiet=x", "-"),
    ("edge", "quiet=no", "-"),
    ("edge", "unknown=1", "-"),
    ("edge", "User=bob", "-"),
    ("edge", "", "-"),
    ("Edge", "user=bob", "-"),
    ("", "user=bob", "-"),
    ("other", "user=bob", "-"),
];

#[test]
fn descriptors_match_the_table() {
    let rules = read(EDGE);
    let envoy = rules.envoy().unwrap();
    assert!(CASES.len() >= 60, "{}", CASES.len());
    for (domain, text, expected) in CASES {
        let found = envoy.find(domain, &entries(text)).map_or("-".to_owned(), |found| {
            let limit = found.limit.map_or("unlimited".to_owned(), |(requests, _)| requests.to_string());
            format!("{limit} {}", found.identifier)
        });
        assert_eq!(found, *expected, "{domain}: {text}");
    }
    assert!(envoy.has_domain("edge") && !envoy.has_domain("other") && !envoy.has_domain(""));
    assert_eq!(envoy.domains(), ["edge"]);
}

#[test]
fn an_explanation_shows_the_path_or_where_it_ends() {
    let rules = read(EDGE);
    let explained = |domain, text| {
        let explanation = rules.envoy().unwrap().explain(domain, &entries(text));
        let steps = explanation.steps.iter().map(|step| format!("{:?} at {}; ", step.how, step.place));
        format!("{}{}", steps.collect::<String>(), explanation.end)
    };
    let cases = [
        ("edge", "user=alice", "Value at t.yaml:5:5; limited, counted for alice"),
        ("edge", "user=vip-1", "Pattern at t.yaml:6:5; limited, counted for vip-1"),
        ("edge", "user=bob", "Key at t.yaml:4:5; limited, counted for bob"),
        (
            "edge",
            "path=/login,ip=10.7.7.7",
            "Value at t.yaml:9:5; Pattern at t.yaml:14:9; limited, counted for /login|10.*",
        ),
        ("other", "user=bob", "no such domain: there are edge"),
        (
            "edge",
            "only=y",
            "descriptors with that key, but none with that value, a pattern for it, or without a value",
        ),
        ("edge", "path=/login,method=GET", "Value at t.yaml:9:5; no descriptor with that key: there are ip"),
        ("edge", "user=bob,more=1", "Key at t.yaml:4:5; no descriptors below, and entries are left"),
        (
            "edge",
            "path=/login",
            "Value at t.yaml:9:5; no limit here, only further down: the descriptor needs more entries",
        ),
        ("edge", "quiet=x", "Key at t.yaml:43:5; no limit here: the descriptor has no rate_limit"),
    ];
    for (domain, text, expected) in cases {
        assert_eq!(explained(domain, text), expected, "{domain}: {text}");
    }
}
