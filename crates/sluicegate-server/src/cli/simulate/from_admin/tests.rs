//! The summary, text and report for given responses of a server.

use serde_json::json;

use super::*;

fn last_hour(history: serde_json::Value) -> LastHour {
    let top = json!({ "mostDenied": [{
        "tenant": "default", "identifier": "\u{1b}[31mann", "kind": "named",
        "deniedPerSecond": 1.5, "requestsPerSecond": 2.000,
    }] });
    let read = "a response of a server";
    LastHour::new(
        "http://admin.test".to_owned(),
        serde_json::from_value(history).expect(read),
        serde_json::from_value(top).expect(read),
    )
}

fn hour() -> LastHour {
    // The seven steps end at 2023-11-14 22:14:20.
    let steps = [[5, 0, 0, 0], [4, 1, 0, 1], [4, 1, 0, 0], [0, 9, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0], [2, 0, 0, 0]];
    let rule =
        |name: &str, mode: &str, points: &[[u32; 4]]| json!({ "name": name, "mode": mode, "points": points });
    last_hour(json!({
        "until": 1_700_000_060_000_u64,
        "stepSeconds": 10,
        "points": steps,
        "rules": [rule("strict", "enforce", &steps), rule("soft", "shadow", &[[3, 0, 2, 0]; 7])],
    }))
}

#[test]
fn counts_are_the_servers_and_shadow_denials_are_separate() {
    let summary = hour().summary;
    assert_eq!((summary.requests, summary.allowed, summary.denied, summary.degraded), (28, 17, 11, 1));
    assert_eq!(summary.from.as_deref(), Some("2023-11-14T22:13:10Z"));
    assert_eq!(summary.to.as_deref(), Some("2023-11-14T22:14:20Z"));
    let [strict, soft] = &summary.rules[..] else { panic!("{summary:?}") };
    assert_eq!((strict.allowed, strict.denied, strict.shadow_denied), (17, 11, 0));
    assert_eq!((soft.mode, soft.requests, soft.denied, soft.shadow_denied), ("shadow", 35, 0, 14));
}

#[test]
fn the_worst_minute_is_the_six_steps_with_the_most_denials() {
    let (start, steps) = hour().worst_minute().expect("a minute");
    assert_eq!((start, steps.len()), (1_699_999_990_000_000, 6), "the first of two");
    assert_eq!(steps.iter().map(|step| step.denied).sum::<u64>(), 11);
    let quiet = last_hour(json!({ "until": 60_000, "stepSeconds": 10, "points": [[1, 0, 0, 0]], "rules": [] }));
    assert!(quiet.worst_minute().is_none());
}

#[test]
fn the_text_has_the_counts_and_escapes_names() {
    let text = hour().text();
    let head = "28 requests, 17 allowed, 11 denied (39.2 %)\n\
                from 2023-11-14T22:13:10Z to 2023-11-14T22:14:20Z, as http://admin.test counted\n\
                1 were decided without the store\n";
    assert!(text.starts_with(head), "{text}");
    assert!(text.contains("soft (shadow)") && text.contains("\\u{1b}[31mann"), "{text}");
    let early = last_hour(json!({ "until": null, "stepSeconds": 10, "points": [], "rules": [] }));
    assert!(early.text().contains("has not run for 10 s yet"), "{}", early.text());
    assert!(early.html().contains("No request was denied in any minute."));
}

#[test]
fn values_of_a_hostile_server_are_escaped() {
    let name = "\u{1b}[2J\u{9b}31m\u{202e}";
    let points = [[u32::MAX; 4]; 400].as_slice();
    let fetched = last_hour(json!({
        "until": u64::MAX, "stepSeconds": 3_600, "points": points,
        "rules": [{ "name": name, "mode": name, "points": points }],
    }));
    let summary = LastHourSummary {
        most_denied: vec![CurrentlyDenied {
            tenant: name.to_owned(),
            identifier: name.to_owned(),
            denied_per_second: Thousandths(1_000),
            requests_per_second: Thousandths(1_000),
        }],
        ..fetched.summary
    };
    let fetched = LastHour { summary, ..fetched };
    let json = super::super::json(&fetched.summary).expect("JSON");
    for shown in [fetched.text(), json.clone()] {
        let acts = |character: char| character != '\n' && crate::telemetry::escape::is_dangerous(character);
        assert_eq!(shown.chars().find(|character| acts(*character)), None, "{shown}");
        assert!(shown.contains("31m"), "{shown}");
    }
    let read: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(read["rules"][0]["name"], name, "a JSON parser restores the name");
    assert!(fetched.html().contains("</html>"));
}

#[test]
fn the_report_shows_every_part_that_a_server_counts() {
    let html = hour().html();
    for part in ["http://admin.test", "Rule ", "strict", "Most denied clients", "The worst minute", "22:13:10"] {
        assert!(html.contains(part), "{part}: {html}");
    }
}
