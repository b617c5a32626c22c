//! The event stream: its contents, its caps, and that it costs nothing without readers.

use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Value, json};
use sluicegate::Request;
use sluicegate::pattern::Pattern;

use super::*;
use crate::health::Health;
use crate::http::HttpEndpoints;
use crate::testing::{TOKEN, ask, engine, hourly};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn feed(engine: &Engine) -> EventFeed {
    EventFeed::new(OverviewSampler::new(engine.clone(), Health::default()))
}

async fn next(reader: &mut EventReader) -> Value {
    serde_json::from_str(&reader.next().await.expect("an event")).expect("JSON")
}

#[tokio::test(start_paused = true)]
async fn events_come_once_per_second_with_the_busiest_rules_first() {
    let mut idle = hourly("idle", 9);
    idle.selector.resource = Some(Pattern::new("nothing"));
    let engine = engine(vec![idle, hourly("busy", 2)]);
    let feed = feed(&engine);
    let mut reader = feed.subscribe(HERE).expect("below the cap");
    assert_eq!(
        next(&mut reader).await["requests"],
        json!({"allowed": 0, "denied": 0, "undecided": 0, "degraded": 0})
    );
    for _ in 0..3 {
        engine.limiter().check(&Request::new("r", "alice")).await.expect("decided");
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
async fn a_second_reader_gets_the_last_event_at_once_and_sampling_stops_without_readers() {
    let engine = engine(vec![hourly("r", 9)]);
    let feed = feed(&engine);
    let mut first = feed.subscribe(HERE).expect("below the cap");
    let event = next(&mut first).await;
    let mut second = feed.subscribe(HERE).expect("below the cap");
    let before = tokio::time::Instant::now();
    assert_eq!(next(&mut second).await, event);
    assert_eq!(before.elapsed().as_micros(), 0);
    drop((first, second));
    // Without a reader no sample is taken.
    tokio::time::sleep(Duration::from_secs(5)).await;
    engine.limiter().check(&Request::new("r", "alice")).await.expect("decided");
    let mut third = feed.subscribe(HERE).expect("below the cap");
    assert_eq!(next(&mut third).await["requests"]["allowed"], json!(1));
}

#[tokio::test]
async fn readers_are_capped_per_address_and_in_total() {
    let feed = feed(&engine(Vec::new()));
    let of_each = 0..READERS_PER_ADDRESS_MAX;
    let address = |index: u32| IpAddr::from([192, 0, 2, u8::try_from(index).expect("few")]);
    let mut readers: Vec<EventReader> =
        of_each.clone().map(|_| feed.subscribe(HERE).expect("below the cap")).collect();
    for same in [HERE, IpAddr::from([0, 0, 0, 0, 0, 0xffff, 0x7f00, 1])] {
        let refused = crate::testing::reply(feed.subscribe(same).expect_err("the cap").into_response()).await;
        assert_eq!(refused.status, 503, "{refused:?}");
        assert!(refused.body.contains("of this address"), "{refused:?}");
    }
    for index in 1..READERS_MAX / READERS_PER_ADDRESS_MAX {
        readers.extend(
            of_each.clone().map(|_| feed.subscribe(address(index)).expect("below the cap of this address")),
        );
    }
    let refused = crate::testing::reply(feed.subscribe(address(99)).expect_err("the cap").into_response()).await;
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.body.contains("64 readers"), "{refused:?}");
    drop(readers);
    assert!(feed.subscribe(HERE).is_ok());
}

#[tokio::test]
async fn remote_clients_need_a_token_for_the_data_but_not_for_the_page() {
    let admin = HttpEndpoints::new(&engine(Vec::new()), &Health::default()).admin;
    assert_eq!(ask(&admin, "GET", "/", &[], "").await.status, 200);
    for path in ["/admin/v1/events", "/admin/v1/history"] {
        assert_eq!(ask(&admin, "GET", path, &[], "").await.status, 401, "{path}");
    }
    let authorization = [("authorization", &*format!("Bearer {TOKEN}"))];
    assert_eq!(ask(&admin, "GET", "/admin/v1/history", &authorization, "").await.status, 200);
}
