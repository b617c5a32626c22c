//! Batches of requests between the reader thread and the deciding thread. One buffer holds the texts of all requests of a
//! batch, so a request needs no allocation of its own.

use std::net::IpAddr;

use sluicegate::identify::address::hops::{Hop, x_forwarded_for};

use super::format::{LineError, LogLine};

/// The requests per batch: enough to make the channel cheap, few enough for a core's cache.
const REQUESTS_PER_BATCH: usize = 2_048;
/// The text per batch, give or take a line. It bounds the memory for logs with long lines.
const TEXT_BYTES_PER_BATCH: usize = 512 << 10;

/// A batch of requests.
#[derive(Debug, Default)]
pub(super) struct RequestBatch {
    text: String,
    requests: Vec<PackedRequest>,
}

/// A request whose texts are consecutive in the buffer of the batch.
#[derive(Clone, Copy, Debug)]
struct PackedRequest {
    at_micros: u64,
    line: u64,
    log: u32,
    /// The start of its texts.
    start: u32,
    peer: IpAddr,
    /// The length of each text, in the order at [`TEXTS`].
    lengths: [u32; TEXTS],
}

/// The number of texts: method, path, forwarded, identity, tenant, tier.
const TEXTS: usize = 6;

/// A request of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LoggedRequest<'a> {
    pub(super) at_micros: u64,
    pub(super) line: u64,
    pub(super) log: usize,
    /// The address of the connection to the server that wrote the log.
    pub(super) peer: IpAddr,
    pub(super) method: &'a str,
    /// The path without the query.
    pub(super) path: &'a str,
    /// The list of addresses before the peer; may be empty.
    pub(super) forwarded: &'a str,
    /// The client's name; empty if the log has none.
    pub(super) identity: &'a str,
    pub(super) tenant: &'a str,
    pub(super) tier: &'a str,
}

/// The position of a line in the logs.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinePosition {
    pub(super) log: usize,
    pub(super) line: u64,
}

impl RequestBatch {
    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.requests.clear();
    }

    /// True if the batch should be sent.
    pub(super) fn is_full(&self) -> bool {
        self.requests.len() >= REQUESTS_PER_BATCH || self.text.len() >= TEXT_BYTES_PER_BATCH
    }

    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Adds a line. [`RequestBatch::set_time`] then sets its decision time.
    pub(super) fn push(&mut self, position: LinePosition, line: &LogLine<'_>) -> Result<(), LineError> {
        let (peer, forwarded) = peer(line.client)?;
        let texts = [
            line.method,
            path(line.target),
            forwarded,
            line.identity.unwrap_or_default(),
            line.tenant.unwrap_or_default(),
            line.tier.unwrap_or_default(),
        ];
        let start = self.text.len();
        let mut lengths = [0; TEXTS];
        for (length, text) in lengths.iter_mut().zip(texts) {
            let Ok(text) = std::str::from_utf8(text) else {
                self.text.truncate(start);
                return Err(LineError::NotText);
            };
            self.text.push_str(text);
            // The lengths of lines and batches are far below 2³².
            *length = text.len() as u32;
        }
        let (log, start) = (position.log as u32, start as u32);
        self.requests.push(PackedRequest {
            at_micros: line.at_micros,
            line: position.line,
            log,
            start,
            peer,
            lengths,
        });
        Ok(())
    }

    /// Sets the decision time of the last request.
    pub(super) fn set_time(&mut self, at_micros: u64) {
        if let Some(last) = self.requests.last_mut() {
            last.at_micros = at_micros;
        }
    }

    /// Removes the last request.
    pub(super) fn pop(&mut self) -> Option<LinePosition> {
        let last = self.requests.pop()?;
        self.text.truncate(last.start as usize);
        Some(LinePosition { log: last.log as usize, line: last.line })
    }

    /// Removes the request before the last one.
    pub(super) fn pop_before_last(&mut self) -> Option<LinePosition> {
        let index = self.requests.len().checked_sub(2)?;
        let packed = self.requests.remove(index);
        Some(LinePosition { log: packed.log as usize, line: packed.line })
    }

    /// Moves the last request to another batch.
    pub(super) fn move_last_to(&mut self, other: &mut Self) {
        let Some(last) = self.requests.pop() else { return };
        let start = other.text.len() as u32;
        other.text.push_str(&self.text[last.start as usize..]);
        self.text.truncate(last.start as usize);
        other.requests.push(PackedRequest { start, ..last });
    }

    /// All requests, in order.
    pub(super) fn requests(&self) -> impl Iterator<Item = LoggedRequest<'_>> {
        self.requests.iter().map(|packed| {
            let mut start = packed.start as usize;
            let mut texts = packed.lengths.iter().map(|length| {
                let text = &self.text[start..start + *length as usize];
                start += text.len();
                text
            });
            let mut next = || texts.next().unwrap_or_default();
            LoggedRequest {
                at_micros: packed.at_micros,
                line: packed.line,
                log: packed.log as usize,
                peer: packed.peer,
                method: next(),
                path: next(),
                forwarded: next(),
                identity: next(),
                tenant: next(),
                tier: next(),
            }
        })
    }
}

/// The last address of a list, and the list before it. Usually, the list is a single address.
fn peer(client: &[u8]) -> Result<(IpAddr, &[u8]), LineError> {
    let alone = std::str::from_utf8(client).ok().and_then(|client| client.parse().ok());
    if let Some(peer) = alone {
        return Ok((peer, &[]));
    }
    let Some(Hop::Address(peer)) = x_forwarded_for(client).next() else { return Err(LineError::BadAddress) };
    let before = memchr::memrchr(b',', client).map_or(&client[..0], |comma| &client[..comma]);
    Ok((peer, before.trim_ascii()))
}

/// The path of a request target: without the query, and without the scheme and host of the absolute form.
fn path(target: &[u8]) -> &[u8] {
    let end = target.iter().position(|byte| matches!(byte, b'?' | b'#')).unwrap_or(target.len());
    let target = &target[..end];
    if target.starts_with(b"/") {
        return target;
    }
    let schemes: [&[u8]; 2] = [b"http://", b"https://"];
    let starts = |scheme: &&[u8]| {
        let start = target.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
        start.then(|| &target[scheme.len()..])
    };
    match schemes.iter().find_map(starts) {
        Some(rest) => memchr::memchr(b'/', rest).map_or(b"/", |slash| &rest[slash..]),
        None => target,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(client: &str, target: &str) -> Result<String, LineError> {
        let mut batch = RequestBatch::default();
        let line =
            LogLine { client: client.as_bytes(), target: target.as_bytes(), method: b"GET", ..LogLine::default() };
        batch.push(LinePosition { log: 0, line: 1 }, &line)?;
        let logged = batch.requests().next().unwrap();
        Ok(format!("{} {} [{}]", logged.peer, logged.path, logged.forwarded))
    }

    #[test]
    fn the_last_address_is_the_peer_and_paths_lose_their_query() {
        for (client, target, expected) in [
            ("192.0.2.7", "/a?b", "192.0.2.7 /a []"),
            ("192.0.2.7:4711", "/a#b", "192.0.2.7 /a []"),
            ("2001:db8::1", "HTTP://host/a/b?c", "2001:db8::1 /a/b []"),
            ("x, 192.0.2.1 , [2001:db8::1]:80", "https://host", "2001:db8::1 / [x, 192.0.2.1]"),
            ("192.0.2.7", "*", "192.0.2.7 * []"),
        ] {
            assert_eq!(one(client, target).as_deref(), Ok(expected));
        }
        assert_eq!(one("host.example", "/"), Err(LineError::BadAddress));
        assert_eq!(one("192.0.2.7, unknown", "/"), Err(LineError::BadAddress));
    }

    #[test]
    fn removing_a_request_keeps_the_others_unchanged() {
        let mut batch = RequestBatch::default();
        let line = |target: &'static str| LogLine {
            client: b"192.0.2.7",
            method: b"GET",
            target: target.as_bytes(),
            identity: Some(b"alice"),
            ..LogLine::default()
        };
        for (number, target) in (1..).zip(["/one", "/two", "/three"]) {
            batch.push(LinePosition { log: 0, line: number }, &line(target)).unwrap();
        }
        let bad = LogLine { identity: Some(b"\xff"), ..line("/bad") };
        assert_eq!(batch.push(LinePosition { log: 0, line: 4 }, &bad), Err(LineError::NotText));
        assert_eq!(batch.pop_before_last().unwrap().line, 2);
        let paths = |batch: &RequestBatch| batch.requests().map(|each| each.path.to_owned()).collect::<Vec<_>>();
        assert_eq!(paths(&batch), ["/one", "/three"]);
        let mut other = RequestBatch::default();
        batch.move_last_to(&mut other);
        assert_eq!((paths(&batch), paths(&other)), (vec!["/one".to_owned()], vec!["/three".to_owned()]));
        assert_eq!((other.pop().unwrap().line, other.is_empty()), (3, true));
        batch.push(LinePosition { log: 0, line: 5 }, &line("/five")).unwrap();
        assert_eq!(paths(&batch), ["/one", "/five"]);
        assert!(batch.requests().all(|each| each.identity == "alice"));
    }
}
