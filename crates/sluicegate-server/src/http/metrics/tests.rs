//! Who may read the metrics, and how they are answered.

use crate::http::Routers;
use crate::http::health::Health;
use crate::metrics::CONTENT_TYPE;
use crate::testing::{TOKEN, app, ask, hourly};

#[tokio::test]
async fn they_are_text_for_whoever_may_read() {
    let admin = Routers::new(&app(vec![hourly("api", 1)]), &Health::default()).admin;
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
    // From another machine, the token is needed.
    for headers in [&[][..], &[("authorization", "Bearer wrong")]] {
        let refused = ask(&admin, "GET", "/metrics", headers, "").await;
        assert_eq!((refused.status, refused.header("www-authenticate")), (401, "Bearer"));
        assert!(!refused.body.contains("sluicegate_"), "{}", refused.body);
    }
}
