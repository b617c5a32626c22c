//! Access to the metrics, and the media type of their response.

use crate::health::Health;
use crate::http::HttpEndpoints;
use crate::metrics::CONTENT_TYPE;
use crate::testing::{TOKEN, ask, engine, hourly};

#[tokio::test]
async fn metrics_are_text_for_clients_that_may_read() {
    let admin = HttpEndpoints::new(&engine(vec![hourly("api", 1)]), &Health::default()).admin;
    let bearer = format!("Bearer {TOKEN}");
    let known = [("authorization", bearer.as_str())];
    let got = ask(&admin, "GET", "/metrics", &known, "").await;
    assert_eq!((got.status, got.header("content-type")), (200, CONTENT_TYPE));
    assert_eq!(got.header("cache-control"), "no-store");
    assert!(got.body.contains("\nsluicegate_store_up 1\n"), "{}", got.body);
    let head = ask(&admin, "HEAD", "/metrics", &known, "").await;
    assert_eq!((head.status, head.body.as_str(), head.header("content-type")), (200, "", CONTENT_TYPE));
    let posted = ask(&admin, "POST", "/metrics", &known, "").await;
    assert_eq!((posted.status, posted.header("allow")), (405, "GET,HEAD"));
    // Clients on other machines need the token.
    for headers in [&[][..], &[("authorization", "Bearer wrong")]] {
        let refused = ask(&admin, "GET", "/metrics", headers, "").await;
        assert_eq!((refused.status, refused.header("www-authenticate")), (401, "Bearer"));
        assert!(!refused.body.contains("sluicegate_"), "{}", refused.body);
    }
}
