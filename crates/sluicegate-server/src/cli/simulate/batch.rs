//! Requests on their way from the thread that reads to the one that decides, many at a time: one text for all their
//! names, and no allocation for any of them.

use std::net::IpAddr;

use sluicegate::identify::address::hops::{Hop, x_forwarded_for};

use super::format::{Fault, Line};

/// How many requests travel together: enough to make the hand-over cheap, few enough to stay in a core's cache.
const REQUESTS_PER_BATCH: usize = 2_048;
/// How much text travels together, give or take a line: a log of long lines takes no more memory than another.
const TEXT_BYTES_PER_BATCH: usize = 512 << 10;

/// Requests and their texts.
#[derive(Debug, Default)]
pub(super) struct Batch {
    text: String,
    requests: Vec<Packed>,
}

/// A request whose texts stand one after the other in the batch.
#[derive(Clone, Copy, Debug)]
struct Packed {
    at_micros: u64,
    line: u64,
    log: u32,
    /// Where its texts begin.
    start: u32,
    peer: IpAddr,
    /// How long each text is, in the order of [`TEXTS`].
    lengths: [u32; TEXTS],
}

/// Method, path, forwarded, identity, tenant, tier.
const TEXTS: usize = 6;

/// A request of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Logged<'a> {
    pub(super) at_micros: u64,
    pub(super) line: u64,
    pub(super) log: usize,
    /// Who sent it to whoever logged it.
    pub(super) peer: IpAddr,
    pub(super) method: &'a str,
    /// The path without the query.
    pub(super) path: &'a str,
    /// What stood before the peer in a list of addresses; empty if nothing did.
    pub(super) forwarded: &'a str,
    /// Who asks, if the log names somebody; empty if not.
    pub(super) identity: &'a str,
    pub(super) tenant: &'a str,
    pub(super) tier: &'a str,
}

/// Where a line stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    pub(super) log: usize,
    pub(super) line: u64,
}

impl Batch {
    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.requests.clear();
    }

    /// True if it is time to hand it over.
    pub(super) fn is_full(&self) -> bool {
        self.requests.len() >= REQUESTS_PER_BATCH || self.text.len() >= TEXT_BYTES_PER_BATCH
    }

    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Takes a line in. Its time is set afterwards, by [`Batch::set_time`].
    pub(super) fn push(&mut self, origin: Origin, line: &Line<'_>) -> Result<(), Fault> {
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
                return Err(Fault::NotText);
            };
            self.text.push_str(text);
            // Lines are bounded far below 2³², and so are batches.
            *length = text.len() as u32;
        }
        let (log, start) = (origin.log as u32, start as u32);
        self.requests.push(Packed { at_micros: line.at_micros, line: origin.line, log, start, peer, lengths });
        Ok(())
    }

    /// Says when the last request is decided.
    pub(super) fn set_time(&mut self, at_micros: u64) {
        if let Some(last) = self.requests.last_mut() {
            last.at_micros = at_micros;
        }
    }

    /// Takes the last request out.
    pub(super) fn pop(&mut self) -> Option<Origin> {
        let last = self.requests.pop()?;
        self.text.truncate(last.start as usize);
        Some(Origin { log: last.log as usize, line: last.line })
    }

    /// Takes the last but one out.
    pub(super) fn pop_before_last(&mut self) -> Option<Origin> {
        let place = self.requests.len().checked_sub(2)?;
        let packed = self.requests.remove(place);
        Some(Origin { log: packed.log as usize, line: packed.line })
    }

    /// Moves the last request to another batch.
    pub(super) fn move_last_to(&mut self, other: &mut Self) {
        let Some(last) = self.requests.pop() else { return };
        let start = other.text.len() as u32;
        other.text.push_str(&self.text[last.start as usize..]);
        self.text.truncate(last.start as usize);
        other.requests.push(Packed { start, ..last });
    }

    /// All requests, in order.
    pub(super) fn requests(&self) -> impl Iterator<Item = Logged<'_>> {
        self.requests.iter().map(|packed| {
            let mut start = packed.start as usize;
            let mut texts = packed.lengths.iter().map(|length| {
                let text = &self.text[start..start + *length as usize];
                start += text.len();
                text
            });
            let mut next = || texts.next().unwrap_or_default();
            Logged {
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

/// The last address of a list, and what stands before it. Nearly always it is one address.
fn peer(client: &[u8]) -> Result<(IpAddr, &[u8]), Fault> {
    let alone = std::str::from_utf8(client).ok().and_then(|client| client.parse().ok());
    if let Some(peer) = alone {
        return Ok((peer, &[]));
    }
    let Some(Hop::Address(peer)) = x_forwarded_for(client).next() else { return Err(Fault::BadAddress) };
    let before = memchr::memrchr(b',', client).map_or(&client[..0], |comma| &client[..comma]);
    Ok((peer, before.trim_ascii()))
}

/// The path of a target: without the query, and without the scheme and the host that a proxy is sent.
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

    fn one(client: &str, target: &str) -> Result<String, Fault> {
        let mut batch = Batch::default();
        let line =
            Line { client: client.as_bytes(), target: target.as_bytes(), method: b"GET", ..Line::default() };
        batch.push(Origin { log: 0, line: 1 }, &line)?;
        let logged = batch.requests().next().unwrap();
        Ok(format!("{} {} [{}]", logged.peer, logged.path, logged.forwarded))
    }

    #[test]
    fn the_last_address_is_the_peer_and_paths_have_no_query() {
        for (client, target, expected) in [
            ("192.0.2.7", "/a?b", "192.0.2.7 /a []"),
            ("192.0.2.7:4711", "/a#b", "192.0.2.7 /a []"),
            ("2001:db8::1", "HTTP://host/a/b?c", "2001:db8::1 /a/b []"),
            ("x, 192.0.2.1 , [2001:db8::1]:80", "https://host", "2001:db8::1 / [x, 192.0.2.1]"),
            ("192.0.2.7", "*", "192.0.2.7 * []"),
        ] {
            assert_eq!(one(client, target).as_deref(), Ok(expected));
        }
        assert_eq!(one("host.example", "/"), Err(Fault::BadAddress));
        assert_eq!(one("192.0.2.7, unknown", "/"), Err(Fault::BadAddress));
    }

    #[test]
    fn what_is_taken_out_leaves_the_others_as_they_were() {
        let mut batch = Batch::default();
        let line = |target: &'static str| Line {
            client: b"192.0.2.7",
            method: b"GET",
            target: target.as_bytes(),
            identity: Some(b"alice"),
            ..Line::default()
        };
        for (number, target) in (1..).zip(["/one", "/two", "/three"]) {
            batch.push(Origin { log: 0, line: number }, &line(target)).unwrap();
        }
        let bad = Line { identity: Some(b"\xff"), ..line("/bad") };
        assert_eq!(batch.push(Origin { log: 0, line: 4 }, &bad), Err(Fault::NotText));
        assert_eq!(batch.pop_before_last().unwrap().line, 2);
        let paths = |batch: &Batch| batch.requests().map(|each| each.path.to_owned()).collect::<Vec<_>>();
        assert_eq!(paths(&batch), ["/one", "/three"]);
        let mut other = Batch::default();
        batch.move_last_to(&mut other);
        assert_eq!((paths(&batch), paths(&other)), (vec!["/one".to_owned()], vec!["/three".to_owned()]));
        assert_eq!((other.pop().unwrap().line, other.is_empty()), (3, true));
        batch.push(Origin { log: 0, line: 5 }, &line("/five")).unwrap();
        assert_eq!(paths(&batch), ["/one", "/five"]);
        assert!(batch.requests().all(|each| each.identity == "alice"));
    }
}
