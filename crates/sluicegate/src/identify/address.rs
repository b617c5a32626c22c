//! The address of a request's client: the peer of the connection, or the address that trusted proxies report.
//!
//! A client chooses its own header fields, so a field about the client's address is worthless unless a proxy wrote
//! it. [`TrustedProxies`] lists the peers that are such proxies, and the field that they write; no peer is trusted by
//! default. Each proxy appends the address of its own peer, so the fields are read **from the right**: trusted
//! proxies are skipped, and the first other address is the client. The client wrote everything to the left of it,
//! which changes nothing, however long or broken it is.
//!
//! If the chain contains an element that cannot be read (`unknown`, an obfuscated name, an empty element, more than
//! [`HOPS_MAX`] proxies), the peer is the client. All clients behind it then share its quota, which is inexact for
//! some and benefits none. `X-Real-IP` and similar fields are never read.
//!
//! # Two fields for one thing
//!
//! A proxy that writes `X-Forwarded-For` usually passes the client's own `Forwarded` (RFC 7239) on, and the other way
//! round. So neither can be preferred without knowing the proxy. By default ([`TrustedHeader::Either`]) the field
//! that is present counts. If both are present, they must lead to the same address, else the peer is the client. A
//! client can then move itself to the quota of its proxy, and never to another client's. Where that is too coarse,
//! configure the field that the proxies write, and the other is ignored.
//!
//! ```
//! use http::HeaderMap;
//! use sluicegate::identify::address::{TrustedProxies, client_address, counted};
//!
//! let proxies = TrustedProxies::parse(["10.0.0.0/8"])?;
//! let mut headers = HeaderMap::new();
//! // The client claims to be 192.0.2.1; our proxy adds where the request really came from.
//! headers.insert("x-forwarded-for", "192.0.2.1, 198.51.100.7".parse()?);
//!
//! let client = client_address("10.1.2.3".parse()?, &headers, &proxies);
//! assert_eq!(client.to_string(), "198.51.100.7");
//! // Without a trusted proxy in between, it is the peer.
//! let client = client_address("203.0.113.9".parse()?, &headers, &proxies);
//! assert_eq!(client.to_string(), "203.0.113.9");
//!
//! assert_eq!(counted("2001:db8:1:2:3:4:5:6".parse()?, 64).to_string(), "2001:db8:1:2::");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod hops;
mod trusted;

use std::net::{IpAddr, Ipv6Addr};

use http::header::{FORWARDED, HeaderMap, HeaderName};

use self::hops::Hop;
pub use self::trusted::{InvalidNetwork, NETWORKS_MAX, TrustedHeader, TrustedProxies};

/// The field that nearly every proxy writes.
pub const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The most consecutive proxies in a chain. Real chains have a handful; the bound limits the work for a long field.
pub const HOPS_MAX: usize = 32;

/// The prefix length by which IPv6 addresses are counted, in bits: a client with one address usually has at least a
/// /64.
pub const IPV6_PREFIX_BITS: u8 = 64;

/// The address of the client of a request that came from `peer`, as [`normalised`] has it.
#[must_use]
pub fn client_address(peer: IpAddr, headers: &HeaderMap, proxies: &TrustedProxies) -> IpAddr {
    let peer = normalised(peer);
    if !proxies.contains(peer) {
        return peer;
    }
    let by_x_forwarded_for = || found_in(headers, &X_FORWARDED_FOR, hops::x_forwarded_for, proxies);
    let by_forwarded = || found_in(headers, &FORWARDED, hops::forwarded, proxies);
    let client = match proxies.trusted_header() {
        TrustedHeader::XForwardedFor => by_x_forwarded_for(),
        TrustedHeader::Forwarded => by_forwarded(),
        TrustedHeader::Either => {
            match (headers.contains_key(&X_FORWARDED_FOR), headers.contains_key(&FORWARDED)) {
                (true, true) => by_x_forwarded_for().filter(|client| by_forwarded() == Some(*client)),
                (true, false) => by_x_forwarded_for(),
                (false, _) => by_forwarded(),
            }
        }
    };
    client.unwrap_or(peer)
}

/// The canonical form of an address with several spellings: IPv4 if it is mapped into IPv6 (`::ffff:192.0.2.1`) or
/// comes through NAT64 (`64:ff9b::192.0.2.1`, RFC 6052), else unchanged.
#[must_use]
pub fn normalised(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) if v6.to_bits() >> 32 == NAT64 >> 32 => {
            let [.., a, b, c, d] = v6.octets();
            IpAddr::from([a, b, c, d])
        }
        canonical => canonical,
    }
}

/// The address by which a client is counted: IPv4 as it is, IPv6 by its network of `ipv6_prefix` bits; more than 128
/// count as 128.
#[must_use]
pub fn counted(address: IpAddr, ipv6_prefix: u8) -> IpAddr {
    match normalised(address) {
        IpAddr::V4(v4) => IpAddr::V4(v4),
        IpAddr::V6(v6) => {
            let host_bits = u128::BITS.saturating_sub(u32::from(ipv6_prefix));
            // A shift by all 128 bits overflows.
            let mask = u128::MAX.checked_shl(host_bits).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask))
        }
    }
}

/// The well-known prefix of RFC 6052, `64:ff9b::/96`.
const NAT64: u128 = 0x0064_ff9b << 96;

/// The values of all lines of one field, in their order.
fn found_in(
    headers: &HeaderMap,
    name: &HeaderName,
    hops_of: fn(&[u8]) -> hops::Hops<'_>,
    proxies: &TrustedProxies,
) -> Option<IpAddr> {
    let lines = headers.get_all(name).iter().rev();
    nearest_stranger(lines.flat_map(|line| hops_of(line.as_bytes())), proxies)
}

/// The first address from the right that is not a trusted proxy's; the last one if all of them are.
fn nearest_stranger(hops: impl Iterator<Item = Hop>, proxies: &TrustedProxies) -> Option<IpAddr> {
    let mut passed = None;
    // One more than the bound, to distinguish a chain that ends there from a longer one.
    for (count, hop) in hops.take(HOPS_MAX + 1).enumerate() {
        let Hop::Address(address) = hop else {
            return None;
        };
        if !proxies.contains(address) {
            return Some(address);
        }
        if count == HOPS_MAX {
            return None;
        }
        passed = Some(address);
    }
    // A trusted proxy that sends a request of its own.
    passed
}

#[cfg(test)]
mod tests;
