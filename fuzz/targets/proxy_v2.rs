//! The header of the PROXY protocol, version 2, in which a load balancer reports the client's address.
//!
//! Properties: the parsed client has the address and port at the offsets of the
//! specification. A truncated header is an error, and no length leads beyond its bound.

#![no_main]

use std::net::{IpAddr, SocketAddr};

use libfuzzer_sys::fuzz_target;

#[rustfmt::skip]
#[path = "../../crates/sluicegate-server/src/net/proxy_header.rs"]
mod proxy_header;

use proxy_header::{FIXED_BYTES, ProxiedClient, REST_BYTES_MAX, client, rest_bytes};

fuzz_target!(|bytes: &[u8]| {
    let Some((fixed, rest)) = bytes.split_first_chunk::<FIXED_BYTES>() else { return };
    let Ok(length) = rest_bytes(fixed) else { return };
    assert!(length <= REST_BYTES_MAX);
    assert_eq!(length, usize::from(fixed[14]) * 256 + usize::from(fixed[15]));
    assert_eq!(fixed[..12], *b"\r\n\r\n\0\r\nQUIT\n");
    let Some(rest) = rest.get(..length) else { return };
    match client(fixed, rest) {
        Ok(ProxiedClient::At(found)) => {
            assert_eq!(fixed[12], 0x21, "only PROXY names a client");
            assert!(is_there(fixed[13], rest, found), "{found} is not in {}", rest.escape_ascii());
            is_refused_when_cut(fixed, rest);
            is_written_back(found);
        }
        Ok(ProxiedClient::Sender) => assert!(fixed[12] == 0x20 || fixed[13] == 0),
        Err(_) => {}
    }
});

/// The offsets of the source address and of the source port for an address family.
fn is_there(family: u8, rest: &[u8], found: SocketAddr) -> bool {
    let address = match found.ip() {
        IpAddr::V4(address) if family == 0x11 => address.octets().to_vec(),
        IpAddr::V6(address) if family == 0x21 => address.octets().to_vec(),
        _ => return false,
    };
    let port = 2 * address.len();
    rest.starts_with(&address) && rest[port..port + 2] == found.port().to_be_bytes()
}

fn is_refused_when_cut(fixed: &[u8; FIXED_BYTES], rest: &[u8]) {
    let needed = if fixed[13] == 0x11 { 12 } else { 36 };
    for end in 0..needed {
        assert!(client(fixed, &rest[..end]).is_err(), "{end} of {needed} bytes will do");
    }
}

/// A header written for a client parses to the same client.
fn is_written_back(found: SocketAddr) {
    let (family, address) = match found.ip() {
        IpAddr::V4(address) => (0x11, address.octets().to_vec()),
        IpAddr::V6(address) => (0x21, address.octets().to_vec()),
    };
    let rest = [&address[..], &address, &found.port().to_be_bytes(), &[0, 80]].concat();
    let length = u16::try_from(rest.len()).expect("short").to_be_bytes();
    let fixed = [b"\r\n\r\n\0\r\nQUIT\n".as_slice(), &[0x21, family], &length].concat();
    let fixed: [u8; FIXED_BYTES] = fixed.try_into().expect("sixteen bytes");
    assert_eq!((rest_bytes(&fixed), client(&fixed, &rest)), (Ok(rest.len()), Ok(ProxiedClient::At(found))));
}
