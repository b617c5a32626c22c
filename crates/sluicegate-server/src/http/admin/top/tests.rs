//! The lists of the busiest identities.

use serde_json::{Value, json};
use sluicegate::Request;
use sluicegate::top_k::LABEL_CHARACTERS_MAX;

use super::*;
use crate::health::Health;
use crate::http::HttpEndpoints;
use crate::testing::{Reply, TOKEN, ask, engine, hourly};

async fn get(engine: &Engine, path: &str) -> Reply {
    let admin = HttpEndpoints::new(engine, &Health::default()).admin;
    ask(&admin, "GET", path, &[("authorization", &format!("Bearer {TOKEN}"))], "").await
}

async fn check(engine: &Engine, tenant: &str, identity: Identity<'_>, times: usize) {
    let request = Request { identity, ..Request::new("r", "nobody").tenant(tenant) };
    for _ in 0..times {
        engine.limiter().check(&request).await.expect("decided");
    }
}

/// Tenant, kind and identifier of every entry.
fn names(list: &Value) -> Vec<[&str; 3]> {
    let entries = list.as_array().expect("a list").iter();
    entries
        .map(|entry| ["tenant", "kind", "identifier"].map(|field| entry[field].as_str().expect("text")))
        .collect()
}

#[tokio::test]
async fn the_heaviest_and_the_most_denied_are_listed_with_their_rates() {
    let engine = engine(vec![hourly("r", 3_000)]);
    let address = Identity::Address([192, 0, 2, 7].into());
    check(&engine, "acme", Identity::Named("alice"), 2_500).await;
    check(&engine, "acme", Identity::Named("mallory"), 5_000).await;
    check(&engine, "acme", address, 1_000).await;
    let top = get(&engine, "/admin/v1/top").await;
    assert_eq!(
        (top.status, top.header("content-type"), top.header("cache-control")),
        (200, "application/json", "no-store")
    );
    let top = top.json();
    let mallory = ["acme", "named", "mallory"];
    assert_eq!(names(&top["heaviest"]), [mallory, ["acme", "named", "alice"], ["acme", "address", "192.0.2.7"]]);
    assert_eq!(names(&top["mostDenied"]), [mallory]);
    assert_eq!(
        (&top["halfLifeSeconds"], &top["sampledOneIn"], &top["skipped"]),
        (&json!(10), &json!(8), &json!(0))
    );
    let number = |list: &str, field: &str| top[list][0][field].as_f64().expect("a number");
    // 5,000 are at most 346 per second at this half-life. The error is 6 times √(7·5000) of them, and less if they
    // took long.
    for list in ["heaviest", "mostDenied"] {
        assert!((0.001..=430.0).contains(&number(list, "requestsPerSecond")), "{top}");
        assert!((0.001..=200.0).contains(&number(list, "deniedPerSecond")), "{top}");
        assert!(number(list, "error") == 0.0 && number(list, "deniedError") == 0.0, "{top}");
    }
}

#[tokio::test]
async fn hostile_names_stay_text() {
    let engine = engine(vec![hourly("r", 1)]);
    let odd = "\"}],<script>alert('é')</script>\\u0000 \u{202e}🚦";
    let long = format!("{}end", "ö".repeat(LABEL_CHARACTERS_MAX));
    check(&engine, odd, Identity::Named(odd), 400).await;
    check(&engine, "t", Identity::Named(&long), 200).await;
    let top = get(&engine, "/admin/v1/top").await.json();
    let shown = "ö".repeat(LABEL_CHARACTERS_MAX);
    assert_eq!(names(&top["heaviest"]), [[odd, "named", odd], ["t", "named", &*shown]]);
}

#[tokio::test]
async fn the_limit_is_a_number_from_1_to_1024() {
    let engine = engine(vec![hourly("r", 1)]);
    for number in 0..30 {
        check(&engine, "t", Identity::Named(&format!("user-{number}")), 200).await;
    }
    for (query, listed) in [("", 20), ("?", 20), ("?limit=1", 1), ("?limit=25", 25), ("?limit=1024", 30)] {
        let top = get(&engine, &format!("/admin/v1/top{query}")).await.json();
        assert_eq!(top["heaviest"].as_array().map(Vec::len), Some(listed), "{query}");
        assert_eq!(top["mostDenied"].as_array().map(Vec::len), Some(listed), "{query}");
    }
    for query in
        ["?limit=0", "?limit=1025", "?limit=", "?limit", "?limit=-1", "?limit=1&limit=1", "?limits=1", "?x"]
    {
        let refused = get(&engine, &format!("/admin/v1/top{query}")).await;
        assert_eq!((refused.status, refused.header("content-type")), (400, "application/problem+json"), "{query}");
    }
}

#[tokio::test]
async fn from_another_machine_it_needs_the_token_and_it_is_only_read() {
    let admin = HttpEndpoints::new(&engine(Vec::new()), &Health::default()).admin;
    assert_eq!(ask(&admin, "GET", "/admin/v1/top", &[], "").await.status, 401);
    let posted = ask(&admin, "POST", "/admin/v1/top", &[], "").await;
    assert_eq!((posted.status, posted.header("allow")), (405, "GET,HEAD"));
}
