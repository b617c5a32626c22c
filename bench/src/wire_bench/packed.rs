//! Requests as bytes, packed before the clock starts.

use super::CONNECTIONS;
use crate::socket_load::{Load, Protocol};

/// How many identities ask.
pub(super) const IDENTITIES: usize = 10_000;
/// One unit per so many seconds, and so many at once: nobody is denied.
pub(super) const PERIOD_SECS: u64 = 10;
pub(super) const CAPACITY: u64 = 30_000_000;
/// Batches of deep pipelines are made for so many requests in all, which is enough to go around all identities.
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

/// Our own check of this identity.
pub(super) fn check_body(resource: &str, identifier: &str) -> String {
    format!(r#"{{"resource":"{resource}","identifier":"{identifier}"}}"#)
}

/// Commands of all identities, so many at once.
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

fn command(words: &[String]) -> Vec<u8> {
    let mut command = redis::Cmd::new();
    words.iter().for_each(|word| {
        command.arg(word);
    });
    command.get_packed_command()
}
