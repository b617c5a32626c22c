//! The address of the client of a request: the peer of the connection, or what trusted proxies say about it.
//!
//! Whoever sends a request chooses its header fields, so a field about the client's address is worth nothing unless a
//! proxy wrote it. [`TrustedProxies`] says which peers are such proxies and which field they write; nobody is one
//! unless named. Each proxy appends the address of its own peer, so the fields are read **from the right**: trusted
//! proxies are passed, and the first address that is none of them is the client. What stands left of it was written
//! by the client and changes nothing, however long or broken it is.
//!
//! Whatever cannot be read on this way (`unknown`, an obfuscated name, an empty element, more than [`HOPS_MAX`]
//! proxies) makes the peer the client: its quota is then shared by all that come through it, which is wrong for
//! some and gains nobody anything. `X-Real-IP` and its like are never read.
//!
//! # Two fields for one thing
//!
//! A proxy that writes `X-Forwarded-For` mostly passes `Forwarded` (RFC 7239) on as the client sent it, and the other
//! way round. So neither can be preferred without knowing the proxy. By default ([`TrustedHeader::Either`]) whichever
//! is there counts, and if both are, they must lead to the same address, else the client is the peer. A client
//! can then move itself to the quota of its proxy, and never to another client's. Where that is too
//! coarse, name the field that the proxies write, and the other is not looked at.
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
//! // Without a trusted proxy in between, it is whoever sent it.
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

/// The most proxies in a row that are passed on the way to the client. Real chains have a handful; the bound keeps
/// the work small whatever the field holds.
pub const HOPS_MAX: usize = 32;

/// The part of an IPv6 address that is counted, in bits: whoever has one address has at least a /64 of them.
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

/// The one form of an address that can be written in several: IPv4 where it came mapped into IPv6
/// (`::ffff:192.0.2.1`) or through NAT64 (`64:ff9b::192.0.2.1`, RFC 6052), else as it is.
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

/// The address that stands for a client where addresses are counted: IPv4 as it is, IPv6 by its network of
/// `ipv6_prefix` bits; more than 128 count as 128.
#[must_use]
pub fn counted(address: IpAddr, ipv6_prefix: u8) -> IpAddr {
    match normalised(address) {
        IpAddr::V4(v4) => IpAddr::V4(v4),
        IpAddr::V6(v6) => {
            let host_bits = u128::BITS.saturating_sub(u32::from(ipv6_prefix));
            // A shift by all 128 bits is none that the processor has.
            let mask = u128::MAX.checked_shl(host_bits).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask))
        }
    }
}

/// The well-known prefix of RFC 6052, `64:ff9b::/96`.
const NAT64: u128 = 0x0064_ff9b << 96;

/// What the lines of one field say, all of them together in their order.
fn found_in(
    headers: &HeaderMap,
    name: &HeaderName,
    hops_of: fn(&[u8]) -> hops::Hops<'_>,
    proxies: &TrustedProxies,
) -> Option<IpAddr> {
    let lines = headers.get_all(name).iter().rev();
    nearest_stranger(lines.flat_map(|line| hops_of(line.as_bytes())), proxies)
}

/// The first address from the right that is no trusted proxy's; the last one if all of them are.
fn nearest_stranger(hops: impl Iterator<Item = Hop>, proxies: &TrustedProxies) -> Option<IpAddr> {
    let mut passed = None;
    // One more than may be passed, to tell a chain that ends there from one that goes on.
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
    // A trusted proxy that asks on its own behalf.
    passed
}

#[cfg(test)]
mod tests;
