//! `--suggest` and `--compare`: their numbers equal those of a replay with the same limits, and a suggestion is a valid rule.

use serde_json::{Value, json};

use super::{Folder, TWO_A_MINUTE, line};
use crate::server::sluicegate;

/// Requests of twenty addresses. Each sends a few more than the one before it.
fn log() -> String {
    let sent =
        |second: u64| (0..20).filter(move |who| second.is_multiple_of(25 - who)).map(move |who| (second, who));
    (0..600).flat_map(sent).map(|(second, who)| line(&format!("192.0.2.{who}"), second, "/a")).collect()
}

fn suggestions(folder: &Folder, targets: &[&str]) -> Vec<Value> {
    let arguments = [&["--log", "-", "--suggest"], targets].concat();
    let report = folder.json(&arguments, log().as_bytes());
    report["suggestions"].as_array().expect("a list").clone()
}

/// The numbers of requests and identities that a configuration denies.
fn denied_by(folder: &Folder, config: &str) -> (u64, u64) {
    let path = folder.file("tried.yaml", config);
    let log = folder.file("tried.log", log());
    let output =
        sluicegate(&["simulate", "--json", "--config", &path, "--log", &log]).output().expect("it starts");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let number = |value: &Value| value.as_u64().expect("a number");
    (number(&report["denied"]), number(&report["identities"]["denied"]))
}

fn pick<'t>(suggestion: &'t Value, mark: &str) -> Option<&'t Value> {
    suggestion["table"].as_array().expect("a list").iter().find(|tried| tried[mark] == true)
}

const BUCKET: &str = "
rules:
  - name: each
    per: ip
    limits: [ { algorithm: token_bucket, capacity: 4, refill: 2/min } ]
";

#[test]
fn every_candidate_denies_as_many_requests_as_a_replay_with_it() {
    for (config, change) in [(TWO_A_MINUTE, "limit: 2"), (BUCKET, "capacity: 4, refill: 2/min")] {
        let folder = Folder::new(config);
        let suggestions = suggestions(&folder, &[]);
        assert_eq!(suggestions.len(), 1);
        let table = suggestions[0]["table"].as_array().expect("a list");
        assert!(table.len() > 12, "{table:?}");
        for tried in table.iter().step_by(3) {
            let limit = tried["limit"].as_str().expect("text");
            let (requests, identities) = denied_by(&folder, &config.replace(change, limit));
            assert_eq!(
                (&tried["denied"], &tried["identitiesDenied"]),
                (&json!(requests), &json!(identities)),
                "{limit}"
            );
        }
        let current = pick(&suggestions[0], "isCurrent").expect("one of them");
        assert_eq!(current["limit"], change);
        assert!(pick(&suggestions[0], "isKnee").is_some(), "{table:?}");
    }
}

#[test]
fn a_suggestion_is_a_valid_rule_that_meets_the_target() {
    for config in [TWO_A_MINUTE, BUCKET] {
        let folder = Folder::new(config);
        for (targets, most) in [
            (vec!["--deny-identities", "10%"], (u64::MAX, 2)),
            (vec!["--deny-requests", "5%"], (log().lines().count() as u64 / 20, u64::MAX)),
            (vec!["--deny-requests", "20%", "--deny-identities", "50%"], (log().lines().count() as u64 / 5, 10)),
        ] {
            let suggestion = &suggestions(&folder, &targets)[0];
            let yaml = format!("rules:\n{}", suggestion["yaml"].as_str().expect("a size is large enough"));
            let path = folder.file("suggested.yaml", &yaml);
            let validated = sluicegate(&["validate", &path]).output().expect("it starts");
            assert!(validated.status.success(), "{yaml}");
            let (requests, identities) = denied_by(&folder, &yaml);
            assert!(requests <= most.0 && identities <= most.1, "{targets:?}: {requests} {identities} {yaml}");
            let suggested = pick(suggestion, "isSuggested").expect("one of them");
            assert_eq!(suggested["denied"], json!(requests));
        }
    }
    let folder = Folder::new(&TWO_A_MINUTE.replace("limit: 2", "limit: 0"));
    let (code, stdout, _) = folder.run(&["--log", "-", "--suggest", "--deny-requests", "100%"], log().as_bytes());
    assert_eq!(code, 0);
    assert!(
        stdout.contains("<- now, suggested\n") && stdout.contains("\nsuggested:\nrules:\n  - name: two\n"),
        "{stdout}"
    );
}

#[test]
fn invalid_targets_are_rejected() {
    let folder = Folder::new(TWO_A_MINUTE);
    for arguments in
        [&["--log", "-", "--suggest", "--deny-requests", "lots"][..], &["--log", "-", "--deny-requests", "1%"]]
    {
        let (code, stdout, stderr) = folder.run(arguments, b"");
        assert_eq!((code, stdout.as_str()), (2, ""), "{stderr}");
    }
}

#[test]
fn a_comparison_lists_the_clients_with_a_changed_outcome() {
    let folder = Folder::new(TWO_A_MINUTE);
    let other = folder.file(
        "other.yaml",
        TWO_A_MINUTE.replace("limit: 2", "limit: 3").replace("per: ip", "per: ip\n    match: { path: /a }"),
    );
    let mut log = String::new();
    for _ in 0..4 {
        log += &line("192.0.2.1", 0, "/a");
    }
    for _ in 0..3 {
        log += &line("192.0.2.2", 0, "/b");
    }
    let arguments = ["--log", "-", "--compare", &other];
    let report = folder.json(&arguments, log.as_bytes());
    assert_eq!((&report["allowed"], &report["denied"]), (&json!(4), &json!(3)));
    let compared = &report["compare"];
    let number = |key: &str| compared[key].as_u64().expect("a number");
    let keys = ["requests", "allowed", "denied", "bothAllowed", "bothDenied", "newlyDenied", "newlyAllowed"];
    assert_eq!(keys.map(number), [7, 6, 1, 4, 1, 0, 2]);
    assert_eq!(
        compared["identities"],
        json!([
            {"identity": "192.0.2.1", "newlyDenied": 0, "newlyAllowed": 1},
            {"identity": "192.0.2.2", "newlyDenied": 0, "newlyAllowed": 1},
        ])
    );
    let (_, stdout, _) = folder.run(&arguments, log.as_bytes());
    assert!(stdout.contains("0 newly denied, 2 newly allowed, 4 allowed and 1 denied by both\n"), "{stdout}");

    let same = folder.file("same.yaml", TWO_A_MINUTE);
    let report = folder.json(&["--log", "-", "--compare", &same], log.as_bytes());
    assert_eq!((&report["compare"]["denied"], &report["compare"]["identities"]), (&report["denied"], &json!([])));
}
