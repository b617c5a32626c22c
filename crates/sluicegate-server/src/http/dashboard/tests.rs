//! What the dashboard reads, and that it costs nothing while nobody does.

use serde_json::{Value, json};
use sluicegate::Request;
use sluicegate::rules::pattern::Pattern;

use super::feed::Reader;
use super::*;
use crate::http::Routers;
use crate::testing::{TOKEN, app, ask, hourly};

fn feed(app: &App) -> Feed {
    Feed::new(Onlooker::new(app.clone(), Health::default()))
}

async fn next(reader: &mut Reader) -> Value {
    serde_json::from_str(&reader.next().await.expect("a word")).expect("JSON")
}

#[tokio::test(start_paused = true)]
async fn counts_are_told_once_per_second_with_the_busiest_rules_first() {
    let mut idle = hourly("idle", 9);
    idle.selector.resource = Some(Pattern::new("nothing"));
    let app = app(vec![idle, hourly("busy", 2)]);
    let feed = feed(&app);
    let mut reader = feed.read().expect("a place");
    assert_eq!(
        next(&mut reader).await["requests"],
        json!({"allowed": 0, "denied": 0, "undecided": 0, "degraded": 0})
    );
    for _ in 0..3 {
        app.limiter().check(&Request::new("r", "alice")).await.expect("decided");
    }
    let before = tokio::time::Instant::now();
    let overview = next(&mut reader).await;
    assert_eq!(before.elapsed().as_secs(), 1);
    assert_eq!(overview["requests"], json!({"allowed": 2, "denied": 1, "undecided": 0, "degraded": 0}));
    let rules = overview["rules"].as_array().expect("a list");
    assert_eq!((&rules[0]["name"], &rules[0]["denied"]), (&json!("busy"), &json!(1)));
    assert_eq!(overview["latency"]["decisions"].as_array().expect("a list").len(), 20);
    assert_eq!(overview["store"], json!({"kind": "memory", "state": "up", "trouble": null}));
}

#[tokio::test(start_paused = true)]
async fn whoever_comes_later_is_told_at_once_and_whoever_comes_after_all_have_gone_is_told_anew() {
    let app = app(vec![hourly("r", 9)]);
    let feed = feed(&app);
    let mut first = feed.read().expect("a place");
    let told = next(&mut first).await;
    let mut second = feed.read().expect("a place");
    let before = tokio::time::Instant::now();
    assert_eq!(next(&mut second).await, told);
    assert_eq!(before.elapsed().as_micros(), 0);
    drop((first, second));
    // Nobody looks any more, so nothing is looked at.
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    app.limiter().check(&Request::new("r", "alice")).await.expect("decided");
    let mut third = feed.read().expect("a place");
    assert_eq!(next(&mut third).await["requests"]["allowed"], json!(1));
}

#[tokio::test]
async fn only_so_many_may_watch() {
    let feed = feed(&app(Vec::new()));
    let readers: Vec<Reader> = (0..64).map(|_| feed.read().expect("a place")).collect();
    let refused = crate::testing::reply(feed.read().expect_err("no place").into_response()).await;
    assert_eq!(refused.status, 503, "{refused:?}");
    drop(readers);
    assert!(feed.read().is_ok());
}

#[tokio::test]
async fn from_elsewhere_the_page_needs_no_token_but_all_it_shows_does() {
    let admin = Routers::new(&app(Vec::new()), &Health::default()).admin;
    assert_eq!(ask(&admin, "GET", "/", &[], "").await.status, 200);
    for path in ["/admin/v1/events", "/admin/v1/history"] {
        assert_eq!(ask(&admin, "GET", path, &[], "").await.status, 401, "{path}");
    }
    let authorization = [("authorization", &*format!("Bearer {TOKEN}"))];
    assert_eq!(ask(&admin, "GET", "/admin/v1/history", &authorization, "").await.status, 200);
}
