//! The PROXY protocol header, version 2: the client address that a load balancer sends before all other bytes.
//!
//! Pure functions over bytes, by HAProxy's specification: sixteen fixed bytes, of which the last two are the length of the
//! rest, then the addresses, then extension fields, which are ignored. Only TCP connections are supported. Any deviation is
//! [`InvalidProxyHeader`], because an ambiguous header would let its sender choose any address.
//!
//! [`super::admission`] decides which peers may send a header.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// The length of the fixed part.
pub(super) const FIXED_BYTES: usize = 16;
/// The maximum length of the rest: the longest addresses (216 bytes for UNIX sockets) and 304 bytes of extension fields,
/// as HAProxy sends with all of them enabled.
pub(super) const REST_BYTES_MAX: usize = 520;

/// No HTTP request, no TLS handshake and no RESP command begins like this.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// An invalid header and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the PROXY header {0}")]
pub(super) struct InvalidProxyHeader(&'static str);

/// The client that a header names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProxiedClient {
    /// The sender itself: a health check, or a client of unknown address.
    Sender,
    /// The client with this address.
    At(SocketAddr),
}

/// The length of the rest.
pub(super) fn rest_bytes(fixed: &[u8; FIXED_BYTES]) -> Result<usize, InvalidProxyHeader> {
    let [signature @ .., version_and_command, _family, high, low] = fixed;
    if signature != SIGNATURE {
        return Err(InvalidProxyHeader("is missing, or not of version 2"));
    }
    if version_and_command >> 4 != 2 {
        return Err(InvalidProxyHeader("is not of version 2"));
    }
    match usize::from(u16::from_be_bytes([*high, *low])) {
        rest if rest <= REST_BYTES_MAX => Ok(rest),
        _ => Err(InvalidProxyHeader("is too long")),
    }
}

/// The client that the header names. The length of `rest` is that of [`rest_bytes`].
pub(super) fn client(fixed: &[u8; FIXED_BYTES], rest: &[u8]) -> Result<ProxiedClient, InvalidProxyHeader> {
    let [.., version_and_command, family, _, _] = *fixed;
    match (version_and_command & 0x0f, family) {
        // LOCAL: addresses, if present, are ignored.
        (0, _) => Ok(ProxiedClient::Sender),
        (1, 0x00) => Ok(ProxiedClient::Sender),
        (1, 0x11) => ipv4(rest).map(ProxiedClient::At),
        (1, 0x21) => ipv6(rest).map(ProxiedClient::At),
        (1, _) => Err(InvalidProxyHeader("is of a connection that is not TCP")),
        _ => Err(InvalidProxyHeader("has an unknown command")),
    }
}

/// Source and destination address, source and destination port.
fn ipv4(rest: &[u8]) -> Result<SocketAddr, InvalidProxyHeader> {
    let (source, rest) = rest.split_first_chunk::<4>().ok_or(SHORT)?;
    let (ports, _) = rest.get(4..).and_then(<[u8]>::split_first_chunk::<4>).ok_or(SHORT)?;
    Ok(SocketAddr::from((Ipv4Addr::from(*source), u16::from_be_bytes([ports[0], ports[1]]))))
}

fn ipv6(rest: &[u8]) -> Result<SocketAddr, InvalidProxyHeader> {
    let (source, rest) = rest.split_first_chunk::<16>().ok_or(SHORT)?;
    let (ports, _) = rest.get(16..).and_then(<[u8]>::split_first_chunk::<4>).ok_or(SHORT)?;
    Ok(SocketAddr::from((Ipv6Addr::from(*source), u16::from_be_bytes([ports[0], ports[1]]))))
}

const SHORT: InvalidProxyHeader = InvalidProxyHeader("is too short for its addresses");

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header(version_and_command: u8, family: u8, rest: &[u8]) -> ([u8; FIXED_BYTES], Vec<u8>) {
        let length = u16::try_from(rest.len()).expect("short").to_be_bytes();
        let fixed = [SIGNATURE.as_slice(), &[version_and_command, family], &length].concat();
        (fixed.try_into().expect("sixteen"), rest.to_vec())
    }

    fn read(version_and_command: u8, family: u8, rest: &[u8]) -> Result<ProxiedClient, InvalidProxyHeader> {
        let (fixed, rest) = header(version_and_command, family, rest);
        assert_eq!(rest_bytes(&fixed)?, rest.len());
        client(&fixed, &rest)
    }

    const IPV4: [u8; 12] = [198, 51, 100, 7, 10, 0, 0, 1, 0x12, 0x34, 0x1f, 0x90];

    #[test]
    fn the_client_is_the_source_address() {
        let expected = "198.51.100.7:4660".parse().expect("an address");
        assert_eq!(read(0x21, 0x11, &IPV4), Ok(ProxiedClient::At(expected)));
        // Extension fields after the addresses are ignored.
        assert_eq!(read(0x21, 0x11, &[&IPV4[..], &[4, 0, 1, 0]].concat()), Ok(ProxiedClient::At(expected)));

        let source: Ipv6Addr = "2001:db8::7".parse().expect("an address");
        let rest = [&source.octets()[..], &[0; 16], &[0, 80, 1, 187]].concat();
        assert_eq!(read(0x21, 0x21, &rest), Ok(ProxiedClient::At(SocketAddr::from((source, 80)))));
    }

    #[test]
    fn a_header_without_addresses_names_the_sender() {
        assert_eq!(read(0x20, 0x00, &[]), Ok(ProxiedClient::Sender));
        assert_eq!(read(0x20, 0x11, &IPV4), Ok(ProxiedClient::Sender));
        assert_eq!(read(0x20, 0x55, &[1]), Ok(ProxiedClient::Sender));
        assert_eq!(read(0x21, 0x00, &[]), Ok(ProxiedClient::Sender));
    }

    #[test]
    fn invalid_headers_are_rejected() {
        for (version_and_command, family, rest) in [
            (0x11, 0x11, &IPV4[..]),
            (0x31, 0x11, &IPV4),
            (0x22, 0x11, &IPV4),
            (0x2f, 0x11, &IPV4),
            (0x21, 0x12, &IPV4),
            (0x21, 0x22, &[0; 36]),
            (0x21, 0x31, &[0; 216]),
            (0x21, 0x01, &[]),
            (0x21, 0x11, &IPV4[..11]),
            (0x21, 0x11, &[]),
            (0x21, 0x21, &[0; 35]),
            (0x21, 0x11, &[0; REST_BYTES_MAX + 1]),
        ] {
            let found = read(version_and_command, family, rest);
            assert!(found.is_err(), "{version_and_command:x} {family:x}: {found:?}");
        }
        for text in [b"GET / HTTP/1.1\r\n", b"PROXY TCP4 1.2.3", &[0; 16], b"\r\n\r\n\0\r\nQUIT\r!\x11\0\x0c"] {
            assert!(rest_bytes(text).is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_cause_a_panic(fixed: [u8; FIXED_BYTES], rest in prop::collection::vec(any::<u8>(), 0..600)) {
            let _ = rest_bytes(&fixed);
            let _ = client(&fixed, &rest);
        }

        #[test]
        fn every_client_is_found(source: [u8; 4], port: u16, more in prop::collection::vec(any::<u8>(), 0..300)) {
            let [high, low] = port.to_be_bytes();
            let rest = [&source[..], &[0; 4], &[high, low, 0, 0], &more].concat();
            prop_assert_eq!(read(0x21, 0x11, &rest), Ok(ProxiedClient::At(SocketAddr::from((Ipv4Addr::from(source), port)))));
        }
    }
}
