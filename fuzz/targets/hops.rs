//! The client's address behind proxies. The input is a line that selects how to parse the rest, a line that the client sends,
//! and lines that trusted proxies add.
//!
//! Properties: the client's line never changes the result, unless all entries of the proxies are proxies
//! themselves. The result is the peer or an address in the text. Addresses are parsed as the standard library
//! parses them.

#![no_main]

use std::net::{IpAddr, SocketAddr};
use std::sync::LazyLock;

use http::header::{FORWARDED, HeaderMap, HeaderName, HeaderValue};
use libfuzzer_sys::fuzz_target;
use sluicegate::identify::address::hops::{self, Hop, Hops};
use sluicegate::identify::address::{
    HOPS_MAX, TrustedHeader, TrustedProxies, X_FORWARDED_FOR, client_address, normalised,
};

const PEER: &str = "10.0.0.1";
const STRANGER: &str = "203.0.113.9";

static PROXIES: LazyLock<TrustedProxies> =
    LazyLock::new(|| TrustedProxies::parse(["10.0.0.0/8", "fd00::/8"]).expect("networks"));

fuzz_target!(|bytes: &[u8]| {
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let is_forwarded = lines.next().is_some_and(|line| line.starts_with(b"f"));
    let claimed = lines.next().unwrap_or_default();
    let added: Vec<&[u8]> = lines.collect();
    for line in added.iter().chain([&claimed]) {
        result_is_in_the_text(line, hops::x_forwarded_for(line), true);
        result_is_in_the_text(line, hops::forwarded(line), false);
    }
    if is_forwarded {
        is_not_moved_by_the_client(&FORWARDED, TrustedHeader::Forwarded, hops::forwarded, claimed, &added);
    } else {
        let field = TrustedHeader::XForwardedFor;
        is_not_moved_by_the_client(&X_FORWARDED_FOR, field, hops::x_forwarded_for, claimed, &added);
    }
    both_fields_agree_or_the_peer_is_it(claimed, &added);
});

fn result_is_in_the_text(line: &[u8], hops: Hops<'_>, is_plain: bool) {
    let found: Vec<Hop> = hops.collect();
    let candidates = addresses_in(line);
    for hop in &found {
        if let Hop::Address(address) = hop {
            assert!(candidates.contains(address), "{address} is not in {}", line.escape_ascii());
        }
    }
    if is_plain {
        let elements: Vec<&[u8]> = line.rsplit(|byte| *byte == b',').collect();
        assert_eq!(found.len(), elements.len());
        for (hop, element) in found.iter().zip(elements) {
            let text = str::from_utf8(element).unwrap_or_default().trim_matches([' ', '\t']);
            let plain = text.parse::<IpAddr>().or_else(|_| text.parse::<SocketAddr>().map(|socket| socket.ip()));
            if let Ok(address) = plain {
                assert_eq!(*hop, Hop::Address(normalised(address)), "{text}");
            }
        }
    }
}

/// Every address that a line could contain: each sequence of address characters, with or without a
/// port.
fn addresses_in(line: &[u8]) -> Vec<IpAddr> {
    let is_part = |byte: &u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.');
    let runs = line.split(|byte| !is_part(byte)).filter_map(|run| str::from_utf8(run).ok());
    let forms = runs.flat_map(|run| [Some(run), run.rsplit_once(':').map(|(address, _)| address)]);
    forms.flatten().filter_map(|text| text.parse().ok()).map(normalised).collect()
}

fn is_not_moved_by_the_client(
    name: &HeaderName,
    field: TrustedHeader,
    read: fn(&[u8]) -> Hops<'_>,
    claimed: &[u8],
    added: &[&[u8]],
) {
    let proxies = PROXIES.clone().header(field);
    let Some(honest) = headers(name, added) else { return };
    let peer = PEER.parse().expect("an address");
    let client = client_address(peer, &honest, &proxies);
    let hops: Vec<Hop> = added.iter().rev().flat_map(|line| read(line)).take(HOPS_MAX + 1).collect();
    let is_proxy = |hop: &Hop| matches!(hop, Hop::Address(address) if proxies.contains(*address));
    // The client's own text begins at the end of the chain.
    if hops.len() <= HOPS_MAX && hops.iter().all(is_proxy) {
        return;
    }
    let lines: Vec<&[u8]> = [claimed].into_iter().chain(added.iter().copied()).collect();
    if let Some(spoofed) = headers(name, &lines) {
        assert_eq!(client_address(peer, &spoofed, &proxies), client);
    }
    // A proxy may also append to the client's line. Its own text is then well-formed, because it wrote an address.
    if let (Some((first, rest)), Some(Hop::Address(_))) =
        (added.split_first(), hops.iter().find(|hop| !is_proxy(hop)))
    {
        let joined = [claimed, b", ", first].concat();
        let lines: Vec<&[u8]> = [&joined[..]].into_iter().chain(rest.iter().copied()).collect();
        if let Some(spoofed) = headers(name, &lines) {
            assert_eq!(client_address(peer, &spoofed, &proxies), client);
        }
    }
    let stranger = STRANGER.parse().expect("an address");
    assert_eq!(client_address(stranger, &honest, &proxies), stranger, "nobody trusts a stranger");
}

fn both_fields_agree_or_the_peer_is_it(forwarded: &[u8], added: &[&[u8]]) {
    let (Some(mut both), Some(one)) = (headers(&X_FORWARDED_FOR, added), headers(&FORWARDED, &[forwarded])) else {
        return;
    };
    let peer = PEER.parse().expect("an address");
    let by_x_forwarded_for = client_address(peer, &both, &PROXIES);
    let by_forwarded = client_address(peer, &one, &PROXIES);
    let has_both = !both.is_empty();
    both.extend(one);
    let client = client_address(peer, &both, &PROXIES);
    if has_both {
        assert!(client == peer || (client == by_x_forwarded_for && client == by_forwarded), "{both:?}");
    }
}

/// The lines as header fields; `None` if one of them is not a valid header value.
fn headers(name: &HeaderName, lines: &[&[u8]]) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for line in lines {
        headers.append(name, HeaderValue::from_bytes(line).ok()?);
    }
    Some(headers)
}
