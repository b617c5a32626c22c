//! The examples run as users start them: their own code, on real sockets.

#[cfg(feature = "axum")]
#[path = "../../examples/axum_layer.rs"]
#[expect(dead_code, unreachable_pub, reason = "`main` only prints the address, which a test knows")]
mod axum_layer;
#[path = "../../examples/embed.rs"]
#[expect(dead_code, unreachable_pub, reason = "`main` only prints")]
mod embed;
#[path = "../../examples/hyper_service.rs"]
#[expect(dead_code, unreachable_pub, reason = "`main` only prints the address, which a test knows")]
mod hyper_service;
#[path = "../../examples/tonic_service.rs"]
#[expect(dead_code, unreachable_pub, reason = "`main` only prints the address, which a test knows")]
mod tonic_service;

use std::net::SocketAddr;

use sluicegate::clock::ManualClock;
use sluicegate::core::{Micros, Timestamp};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tonic::Code;
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Starts an example on a free port; it ends with the runtime of the test.
async fn start<F>(serve: impl FnOnce(TcpListener) -> F) -> SocketAddr
where
    F: Future<Output = Result<(), Error>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener));
    address
}

/// The whole response to `GET path` with these header lines.
async fn get(address: SocketAddr, path: &str, lines: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: t\r\n{lines}connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[track_caller]
fn check(answer: &str, status: &str, parts: &[&str]) {
    assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    parts.iter().for_each(|part| assert!(answer.contains(part), "no {part} in {answer}"));
}

#[tokio::test]
async fn embedded_limits_are_per_customer() {
    let clock = ManualClock::at(Timestamp::now(1_705_312_800_000_000));
    let limiter = embed::limiter(clock.clone()).unwrap();
    let mut printed = String::new();
    for customer in embed::CUSTOMERS {
        printed += &format!("{}\n", embed::send(&limiter, customer).await.unwrap());
    }
    assert_eq!(printed, "alice: sent\nalice: sent\nalice: sent\nalice: again in 1000 ms\nbob: sent\n");
    let shown = format!("--example embed\n{}```", printed.replace("1000 ms", "…"));
    assert!(
        include_str!("../../../../README.md").contains(&shown),
        "README.md shows another output than\n{shown}"
    );
    clock.advance(Micros::from_secs(1));
    assert_eq!(embed::send(&limiter, "alice").await.unwrap(), "alice: sent");
}

#[cfg(feature = "axum")]
#[tokio::test]
async fn axum_serves_known_clients_until_the_quota_is_used_up() {
    let address = start(axum_layer::serve).await;
    for left in ["2", "1", "0"] {
        let answer = get(address, "/hello", "x-api-key: demo-key\r\n").await;
        check(&answer, "200", &["hello demo\n", &format!("x-ratelimit-remaining: {left}\r\n")]);
    }
    let denied = get(address, "//hello/", "x-api-key: demo-key\r\n").await;
    check(&denied, "429", &["retry-after: ", "application/problem+json", r#""violated-policies":["hello"]"#]);
    check(&get(address, "/hello", "x-api-key: wrong\r\n").await, "401", &["www-authenticate: "]);
    check(&get(address, "/hello", "").await, "200", &["hello 127.0.0.1\n"]);
    let professional = get(address, "/hello", "x-api-key: pro-key\r\n").await;
    check(&professional, "200", &["hello professional\n", "x-ratelimit-limit: 100\r\n"]);
}

#[tokio::test]
async fn hyper_serves_an_address_until_the_quota_is_used_up() {
    let address = start(hyper_service::serve).await;
    for left in ["2", "1", "0"] {
        let answer = get(address, "/", "").await;
        check(&answer, "200", &["hello 127.0.0.1\n", &format!("x-ratelimit-remaining: {left}\r\n")]);
    }
    check(&get(address, "/", "").await, "429", &["retry-after: ", r#""violated-policies":["per-client"]"#]);
}

#[tokio::test]
async fn tonic_maps_denials_to_grpc_codes() {
    let address = start(tonic_service::serve).await;
    let channel = Endpoint::new(format!("http://{address}")).unwrap().connect().await.unwrap();
    let client = HealthClient::new(channel);
    let call = async |key: Option<&'static str>| {
        let mut request = tonic::Request::new(HealthCheckRequest::default());
        if let Some(key) = key {
            request.metadata_mut().insert("x-api-key", key.parse().unwrap());
        }
        client.clone().check(request).await
    };
    for left in ["2", "1", "0"] {
        assert_eq!(call(Some("demo-key")).await.unwrap().metadata().get("x-ratelimit-remaining").unwrap(), left);
    }
    let denied = call(Some("demo-key")).await.unwrap_err();
    assert_eq!(denied.code(), Code::ResourceExhausted, "{denied}");
    assert!(denied.message().starts_with("the quota is used up; try again in "), "{denied}");
    assert!(denied.metadata().contains_key("retry-after"), "{denied:?}");
    for key in [Some("wrong"), None] {
        assert_eq!(call(key).await.unwrap_err().code(), Code::Unauthenticated);
    }
}
