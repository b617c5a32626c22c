//! Who sends a request to the gateway: the owner of an API key, or else an address.
//!
//! A key that is sent counts even when it is wrong: a request with an unknown, empty or repeated key is 401 and
//! never gets the quota of its address instead, so guessing keys and forging them gains nothing. Only hashes of
//! keys are kept, and they are compared in constant time.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use axum::http::StatusCode;
use axum::http::header::{self, HeaderMap, HeaderValue};
use sha2::{Digest as _, Sha256};
use sluicegate::Identity;
use subtle::ConstantTimeEq as _;

use crate::problem::Problem;

/// The header that carries the key.
const API_KEY: &str = "x-api-key";

/// Whoever has an IPv6 address has at least a /64 of them, so that is what is counted.
const IPV6_PREFIX_BITS: u32 = 64;

/// A key that opens the gateway.
#[derive(Debug)]
pub(super) struct ApiKey {
    sha256: [u8; 32],
    /// Who sends it.
    identifier: &'static str,
}

/// The key of the demo application: the SHA-256 of `demo-key`.
pub(super) const DEMO_KEYS: &[ApiKey] = &[ApiKey { sha256: DEMO_KEY_SHA256, identifier: "demo" }];

#[rustfmt::skip]
const DEMO_KEY_SHA256: [u8; 32] = [
    0xc4, 0x8a, 0x01, 0xf4, 0x9f, 0xd0, 0xf2, 0xcc, 0x40, 0x4b, 0xc3, 0xcb, 0xbc, 0x80, 0xe9, 0x14,
    0x57, 0xa3, 0xd4, 0x1b, 0xb4, 0x29, 0xa6, 0x95, 0x24, 0x3d, 0xe4, 0xc6, 0x17, 0x94, 0x15, 0x5c,
];

/// Who sends a request, and from where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Client {
    /// Whose quota it is.
    pub(super) identity: Identity<'static>,
    /// The address, as rules count by it.
    pub(super) address: IpAddr,
}

/// Finds out who sends a request.
pub(super) fn identify(headers: &HeaderMap, peer: SocketAddr, keys: &[ApiKey]) -> Result<Client, Problem> {
    let address = counted_address(peer.ip());
    let identity = match sent_key(headers)? {
        Some(key) => Identity::Named(owner(key, keys).ok_or_else(unauthorized)?),
        None => Identity::Address(address),
    };
    Ok(Client { identity, address })
}

/// The key of the only header that carries one; `None` if there is no such header.
fn sent_key(headers: &HeaderMap) -> Result<Option<&[u8]>, Problem> {
    let mut values = headers.get_all(API_KEY).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(only), None) => Ok(Some(only.as_bytes())),
        // A proxy in front may have believed another one than we would.
        (Some(_), Some(_)) => Err(unauthorized()),
    }
}

/// Whose key it is. Every known key is looked at, whichever fits.
fn owner(key: &[u8], keys: &[ApiKey]) -> Option<&'static str> {
    let sha256 = Sha256::digest(key);
    keys.iter().fold(None, |found, known| {
        if bool::from(known.sha256.as_slice().ct_eq(&sha256)) { Some(known.identifier) } else { found }
    })
}

fn unauthorized() -> Problem {
    let detail = "the API key is not known; send `X-API-Key` once with a key that exists, or leave the header out";
    // RFC 9110 wants a challenge with every 401; keys in a header of their own have no registered scheme.
    let challenge = HeaderValue::from_static("ApiKey realm=\"sluicegate\"");
    Problem::new(StatusCode::UNAUTHORIZED, detail).header(header::WWW_AUTHENTICATE, challenge)
}

/// The address that stands for a client: IPv4 also where it came mapped into IPv6, IPv6 by its network.
fn counted_address(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(v4) => IpAddr::V4(v4),
        IpAddr::V6(v6) => {
            let host_bits = u128::BITS - IPV6_PREFIX_BITS;
            IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() >> host_bits << host_bits))
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse as _;

    use super::*;

    fn identify_with(peer: &str, keys: &[&[u8]]) -> Result<Client, StatusCode> {
        let mut headers = HeaderMap::new();
        for key in keys {
            headers.append(API_KEY, HeaderValue::from_bytes(key).expect("valid"));
        }
        identify(&headers, peer.parse().expect("an address"), DEMO_KEYS)
            .map_err(|problem| problem.into_response().status())
    }

    #[test]
    fn the_demo_key_is_kept_as_its_hash() {
        assert_eq!(Sha256::digest(b"demo-key").as_slice(), DEMO_KEY_SHA256);
    }

    #[test]
    fn a_known_key_is_its_owner() {
        let client = identify_with("192.0.2.7:1", &[b"demo-key"]).expect("known");
        assert_eq!(client.identity, Identity::Named("demo"));
        assert_eq!(client.address, IpAddr::from([192, 0, 2, 7]));
    }

    #[test]
    fn a_key_that_is_wrong_never_falls_back_to_the_address() {
        for keys in [
            &[&b"wrong"[..]][..],
            &[b""],
            &[b"demo-key "],
            &[b"Demo-Key"],
            &[b"demo-key, demo-key"],
            &[b"\xff\xfe"],
            &[b"demo-key", b"demo-key"],
            &[b"demo-key", b"wrong"],
            &[&DEMO_KEY_SHA256.map(|byte| byte | 0x80)],
        ] {
            assert_eq!(identify_with("192.0.2.7:1", keys), Err(StatusCode::UNAUTHORIZED), "{keys:?}");
        }
    }

    #[test]
    fn without_a_key_it_is_the_address_as_it_is_counted() {
        for (peer, counted) in [
            ("192.0.2.7:1", "192.0.2.7"),
            ("[::ffff:192.0.2.7]:1", "192.0.2.7"),
            ("[2001:db8:1:2:3:4:5:6]:1", "2001:db8:1:2::"),
            ("[2001:db8:1:2:ffff:ffff:ffff:ffff]:1", "2001:db8:1:2::"),
            ("[2001:db8:1:3::1]:1", "2001:db8:1:3::"),
            ("[::1]:1", "::"),
        ] {
            let address: IpAddr = counted.parse().expect("an address");
            let client = identify_with(peer, &[]).expect("an address is enough");
            assert_eq!(client, Client { identity: Identity::Address(address), address }, "{peer}");
        }
    }
}
