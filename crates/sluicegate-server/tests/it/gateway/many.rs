//! Many requests at once.

use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt as _;
use tokio::sync::Barrier;

use super::http2::connect;
use super::{AMPLE, Gateway};

const REQUESTS: usize = 1_000;
/// The limit of open streams on one HTTP/2 connection.
const PER_CONNECTION: usize = 100;

/// The upstream responds only after all requests have arrived. A request that waits for another would cause a timeout.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_requests_are_under_way_at_once() {
    let barrier = Arc::new(Barrier::new(REQUESTS));
    let router = axum::Router::new().fallback(move |request: axum::extract::Request| {
        let barrier = Arc::clone(&barrier);
        async move {
            barrier.wait().await;
            request.uri().path().to_owned()
        }
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, router).await });
    let section = format!("routes: [{{ path: /**, upstream: 'http://{address}' }}]");
    let gateway = Gateway::with_rules("thousand", &section, AMPLE);

    let mut answers = Vec::new();
    for first in (0..REQUESTS).step_by(PER_CONNECTION) {
        let sender = connect(gateway.address()).await;
        for number in first..first + PER_CONNECTION {
            let mut sender = sender.clone();
            answers.push(tokio::spawn(async move {
                let request = Request::get(format!("http://t/{number}")).body(Body::empty()).expect("a request");
                let response = sender.send_request(request).await.expect("an answer");
                let status = response.status().as_u16();
                let body = response.into_body().collect().await.expect("whole").to_bytes();
                assert_eq!((status, body), (200, format!("/{number}").into()));
            }));
        }
    }
    for answer in answers {
        answer.await.expect("no panic");
    }
}
