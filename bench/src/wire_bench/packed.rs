//! Requests as bytes, encoded before the clock starts.

use super::CONNECTIONS;
use crate::socket_load::{Load, Protocol, grpc};
use prost::Message;
use sluicegate_testkit::envoy_client::{self, Descriptor, Question};

/// The number of identities.
pub(super) const IDENTITIES: usize = 10_000;
/// Envoy's domain, which Sluicegate's rules call a tenant.
pub(super) const DOMAIN: &str = "edge";
/// One unit per this many seconds, with a burst of the same number: no request is denied.
pub(super) const PERIOD_SECS: u64 = 10;
pub(super) const CAPACITY: u64 = 30_000_000;
/// The total number of requests in the batches of deep pipelines, enough to cycle through all identities.
const REQUESTS: usize = 20_480;

/// The name of an identity.
pub(super) fn name(index: usize) -> String {
    format!("user-{index:019}")
}

/// A POST of this text.
fn post(path: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// Posts of all identities, one at a time.
pub(super) fn http(path: &str, body: impl Fn(&str) -> String) -> Load {
    let batches = (0..IDENTITIES).map(|index| post(path, &body(&name(index)))).collect();
    Load { connections: CONNECTIONS, batches, depth: 1, protocol: Protocol::Http }
}

/// Posts of one identity.
pub(super) fn http_of_one(path: &str, body: &str) -> Load {
    Load { connections: CONNECTIONS, batches: vec![post(path, body)], depth: 1, protocol: Protocol::Http }
}

/// Sluicegate's own check of this identity.
pub(super) fn check_body(resource: &str, identifier: &str) -> String {
    format!(r#"{{"resource":"{resource}","identifier":"{identifier}"}}"#)
}

/// Commands for all identities, this many per batch.
pub(super) fn resp(depth: usize, words: impl Fn(&str) -> Vec<String>) -> Load {
    let batch = |number: usize| {
        let indices = (0..depth).map(|at| (number * depth + at) % IDENTITIES);
        indices.flat_map(|index| command(&words(&name(index)))).collect()
    };
    let batches = (0..REQUESTS / depth).map(batch).collect();
    Load { connections: CONNECTIONS, batches, depth, protocol: Protocol::Resp }
}

/// `CL.THROTTLE` of all identities.
pub(super) fn throttle(depth: usize) -> Load {
    resp(depth, |name| {
        let numbers = [CAPACITY - 1, 1, PERIOD_SECS].map(|number| number.to_string());
        [vec!["CL.THROTTLE".to_owned(), name.to_owned()], numbers.to_vec()].concat()
    })
}

/// `GET` of all identities.
pub(super) fn get(depth: usize) -> Load {
    resp(depth, |name| vec!["GET".to_owned(), name.to_owned()])
}

/// Calls of a method for all identities, with this many in flight on each of this many connections.
pub(super) fn grpc(
    (connections, depth): (usize, usize),
    path: &'static str,
    message: impl Fn(&str) -> Vec<u8>,
) -> Load {
    let batches = (0..IDENTITIES).map(|index| grpc::frame(&message(&name(index)))).collect();
    Load { connections, batches, depth, protocol: Protocol::Grpc(path) }
}

/// Envoy's request for all identities.
pub(super) fn should_rate_limit(shape: (usize, usize)) -> Load {
    grpc(shape, envoy_client::PATH, |name| question(name).encode_to_vec())
}

/// Envoy's request for one of them.
pub(super) fn question(name: &str) -> Question {
    Question::new(DOMAIN, [Descriptor::new(&[("user", name)])])
}

/// throttlecrab's check of all identities over HTTP.
pub(super) fn throttlecrab_http() -> Load {
    http("/throttle", |name| {
        format!(
            r#"{{"key":"{name}","max_burst":{CAPACITY},"count_per_period":1,"period":{PERIOD_SECS},"quantity":1}}"#
        )
    })
}

/// throttlecrab's name for `CL.THROTTLE`, of all identities.
pub(super) fn throttlecrab_resp(depth: usize) -> Load {
    resp(depth, |name| {
        let numbers = [CAPACITY, 1, PERIOD_SECS].map(|number| number.to_string());
        [vec!["THROTTLE".to_owned(), name.to_owned()], numbers.to_vec()].concat()
    })
}

/// throttlecrab's check of all identities over gRPC.
pub(super) fn throttlecrab_grpc(shape: (usize, usize)) -> Load {
    let number = |number: u64| i32::try_from(number).unwrap_or(i32::MAX);
    grpc(shape, "/throttlecrab.RateLimiter/Throttle", |name| {
        let (max_burst, period) = (number(CAPACITY), number(PERIOD_SECS));
        let request = Throttle { key: name.to_owned(), max_burst, count_per_period: 1, period, quantity: 1 };
        request.encode_to_vec()
    })
}

/// throttlecrab's `ThrottleRequest`.
#[derive(Clone, PartialEq, Message)]
struct Throttle {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(int32, tag = "2")]
    max_burst: i32,
    #[prost(int32, tag = "3")]
    count_per_period: i32,
    #[prost(int32, tag = "4")]
    period: i32,
    #[prost(int32, tag = "5")]
    quantity: i32,
}

fn command(words: &[String]) -> Vec<u8> {
    let mut command = redis::Cmd::new();
    words.iter().for_each(|word| {
        command.arg(word);
    });
    command.get_packed_command()
}
