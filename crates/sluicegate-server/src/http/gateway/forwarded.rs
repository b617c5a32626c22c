//! The forwarding fields for the upstream: `X-Forwarded-For`, `-Proto`, `-Host` and `Forwarded` (RFC 7239).
//!
//! The client's own fields have already been removed ([`super::hop_headers`]). Fields that remain come from a trusted
//! proxy. They are kept, and the gateway appends the address of its peer.

use std::io::Write as _;
use std::net::IpAddr;

use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use bytes::{BufMut as _, BytesMut};
use smallvec::SmallVec;

const FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Room for one address, a host and a scheme, with their names.
const BYTES_USUAL: usize = 160;

/// Bytes of the longest address, an IPv6 one.
const ADDRESS_BYTES_MAX: usize = 39;

/// The last hop of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hop<'a> {
    /// The address of the peer.
    pub(super) peer: IpAddr,
    /// The requested host.
    pub(super) host: Option<&'a HeaderValue>,
    /// `http` or `https`.
    pub(super) scheme: &'static str,
}

/// Appends a hop to the forwarding fields.
pub(super) fn add(headers: &mut HeaderMap, hop: Hop<'_>) {
    let mut room = BytesMut::with_capacity(BYTES_USUAL);
    let peer = hop.peer.to_canonical();
    // One buffer serves both fields. Writing to it does not fail.
    let mut address = SmallVec::<[u8; ADDRESS_BYTES_MAX]>::new();
    let _ = write!(address, "{peer}");
    append(headers, FOR, &mut room, &[&address]);
    let (open, close) = if peer.is_ipv6() { ("for=\"[", "]\"") } else { ("for=", "") };
    // A validated host contains neither quotes nor backslashes.
    let (name, host, end) = hop.host.map_or(("", &b""[..], ""), |host| (";host=\"", host.as_bytes(), "\""));
    let [open, close, name, end, scheme] = [open, close, name, end, hop.scheme].map(str::as_bytes);
    append(headers, header::FORWARDED, &mut room, &[open, &address, close, name, host, end, b";proto=", scheme]);
    if !headers.contains_key(PROTO) {
        headers.insert(PROTO, HeaderValue::from_static(hop.scheme));
    }
    if let Some(host) = hop.host
        && !headers.contains_key(HOST)
    {
        headers.insert(HOST, host.clone());
    }
}

/// Sets a field to its current lines in order, followed by these parts.
fn append(headers: &mut HeaderMap, name: HeaderName, room: &mut BytesMut, parts: &[&[u8]]) {
    for line in headers.get_all(&name) {
        room.put_slice(line.as_bytes());
        room.put_slice(b", ");
    }
    parts.iter().for_each(|part| room.put_slice(part));
    // All parts are visible ASCII.
    if let Ok(value) = HeaderValue::from_maybe_shared(room.split().freeze()) {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(before: &[(HeaderName, &'static str)], peer: &str, host: Option<&'static str>) -> Vec<String> {
        let mut headers = HeaderMap::new();
        for (name, value) in before {
            headers.append(name, HeaderValue::from_static(value));
        }
        let host = host.map(HeaderValue::from_static);
        let peer = peer.parse().expect("an address");
        add(&mut headers, Hop { peer, host: host.as_ref(), scheme: "http" });
        let text = |name: HeaderName| {
            let value = headers.get(name).map(|value| value.to_str().expect("ASCII").to_owned());
            value.unwrap_or_default()
        };
        [FOR, header::FORWARDED, PROTO, HOST].map(text).to_vec()
    }

    #[test]
    fn the_first_hop_is_sent_in_both_fields() {
        assert_eq!(
            fields(&[], "192.0.2.7", Some("api.example.com:8080")),
            [
                "192.0.2.7",
                r#"for=192.0.2.7;host="api.example.com:8080";proto=http"#,
                "http",
                "api.example.com:8080"
            ]
        );
        assert_eq!(
            fields(&[], "2001:db8::7", None),
            ["2001:db8::7", r#"for="[2001:db8::7]";proto=http"#, "http", ""]
        );
        assert_eq!(fields(&[], "::ffff:192.0.2.7", None)[0], "192.0.2.7");
    }

    #[test]
    fn fields_of_a_trusted_proxy_are_extended() {
        let before = [
            (FOR, "198.51.100.1"),
            (FOR, "203.0.113.2, 203.0.113.3"),
            (header::FORWARDED, "for=198.51.100.1;proto=https"),
            (PROTO, "https"),
            (HOST, "shop.example"),
        ];
        assert_eq!(
            fields(&before, "192.0.2.7", Some("inner")),
            [
                "198.51.100.1, 203.0.113.2, 203.0.113.3, 192.0.2.7",
                r#"for=198.51.100.1;proto=https, for=192.0.2.7;host="inner";proto=http"#,
                "https",
                "shop.example",
            ]
        );
    }
}
