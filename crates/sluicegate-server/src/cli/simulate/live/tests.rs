//! What is made of a server's answers.

use serde_json::json;

use super::*;

fn live(history: serde_json::Value) -> Live {
    let top = json!({ "mostDenied": [{
        "tenant": "default", "identifier": "\u{1b}[31mann", "kind": "named",
        "deniedPerSecond": 1.5, "requestsPerSecond": 2.000,
    }] });
    let read = "a server's answer";
    Live::new(
        "http://admin.test".to_owned(),
        serde_json::from_value(history).expect(read),
        serde_json::from_value(top).expect(read),
    )
}

fn hour() -> Live {
    // The seven steps end at 2023-11-14 22:14:20.
    let steps = [[5, 0, 0, 0], [4, 1, 0, 1], [4, 1, 0, 0], [0, 9, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0], [2, 0, 0, 0]];
    let rule =
        |name: &str, mode: &str, points: &[[u32; 4]]| json!({ "name": name, "mode": mode, "points": points });
    live(json!({
        "until": 1_700_000_060_000_u64,
        "stepSeconds": 10,
        "points": steps,
        "rules": [rule("strict", "enforce", &steps), rule("soft", "shadow", &[[3, 0, 2, 0]; 7])],
    }))
}

#[test]
fn counts_are_those_of_the_server_and_shadows_are_told_apart() {
    let summary = hour().summary;
    assert_eq!((summary.requests, summary.allowed, summary.denied, summary.degraded), (28, 17, 11, 1));
    assert_eq!(summary.from.as_deref(), Some("2023-11-14T22:13:10Z"));
    assert_eq!(summary.to.as_deref(), Some("2023-11-14T22:14:20Z"));
    let [strict, soft] = &summary.rules[..] else { panic!("{summary:?}") };
    assert_eq!((strict.allowed, strict.denied, strict.shadow_denied), (17, 11, 0));
    assert_eq!((soft.mode, soft.requests, soft.denied, soft.shadow_denied), ("shadow", 35, 0, 14));
}

#[test]
fn the_worst_minute_is_the_six_steps_with_most_denials() {
    let (start, steps) = hour().worst_minute().expect("a minute");
    assert_eq!((start, steps.len()), (1_699_999_990_000_000, 6), "the first of two");
    assert_eq!(steps.iter().map(|step| step.denied).sum::<u64>(), 11);
    let quiet = live(json!({ "until": 60_000, "stepSeconds": 10, "points": [[1, 0, 0, 0]], "rules": [] }));
    assert!(quiet.worst_minute().is_none());
}

#[test]
fn the_text_says_what_was_counted_and_nothing_in_it_acts_on_a_terminal() {
    let text = text(&hour());
    let head = "28 requests, 17 allowed, 11 denied (39.2 %)\n\
                from 2023-11-14T22:13:10Z to 2023-11-14T22:14:20Z, as http://admin.test counted\n\
                1 were decided without the store\n";
    assert!(text.starts_with(head), "{text}");
    assert!(text.contains("soft (shadow)") && text.contains("\\u{1b}[31mann"), "{text}");
    let early = live(json!({ "until": null, "stepSeconds": 10, "points": [], "rules": [] }));
    assert!(super::text(&early).contains("has not run for 10 s yet"), "{}", super::text(&early));
    assert!(early.html().contains("Nothing was denied in any minute."));
}

#[test]
fn not_even_a_server_that_lies_acts_on_the_terminal() {
    let name = "\u{1b}[2J\u{9b}31m\u{202e}";
    let points = [[u32::MAX; 4]; 400].as_slice();
    let told = live(json!({
        "until": u64::MAX, "stepSeconds": 3_600, "points": points,
        "rules": [{ "name": name, "mode": name, "points": points }],
    }));
    let summary = LiveSummary {
        most_denied: vec![Denied {
            tenant: name.to_owned(),
            identifier: name.to_owned(),
            denied_per_second: 1.into(),
            requests_per_second: 1.into(),
        }],
        ..told.summary
    };
    let told = Live { summary, ..told };
    let json = super::super::json(&told.summary).expect("JSON");
    for shown in [text(&told), json.clone()] {
        let acts = |character: char| character != '\n' && crate::telemetry::escape::is_dangerous(character);
        assert_eq!(shown.chars().find(|character| acts(*character)), None, "{shown}");
        assert!(shown.contains("31m"), "{shown}");
    }
    let read: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(read["rules"][0]["name"], name, "a program reads what was sent");
    assert!(told.html().contains("</html>"));
}

#[test]
fn the_report_shows_every_part_that_a_server_keeps() {
    let html = hour().html();
    for part in ["http://admin.test", "Rule ", "strict", "Who is denied most", "The worst minute", "22:13:10"] {
        assert!(html.contains(part), "{part}: {html}");
    }
}
