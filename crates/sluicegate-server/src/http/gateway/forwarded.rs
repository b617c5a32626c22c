//! What an upstream is told about the way of a request: `X-Forwarded-For`, `-Proto`, `-Host` and `Forwarded` (RFC 7239).
//!
//! What a client says about it has been taken out before ([`super::names`]). What is still there comes from a proxy
//! that is trusted: it is kept, and we add the address that the request came from.

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

/// How a client reached us.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hop<'a> {
    /// From where, as the socket says.
    pub(super) peer: IpAddr,
    /// Which host it asked for.
    pub(super) host: Option<&'a HeaderValue>,
    /// `http` or `https`.
    pub(super) scheme: &'static str,
}

/// Adds a hop to what the request says about its way.
pub(super) fn add(headers: &mut HeaderMap, hop: Hop<'_>) {
    let mut room = BytesMut::with_capacity(BYTES_USUAL);
    let peer = hop.peer.to_canonical();
    // Written once for both fields, which does not fail.
    let mut address = SmallVec::<[u8; ADDRESS_BYTES_MAX]>::new();
    let _ = write!(address, "{peer}");
    append(headers, FOR, &mut room, &[&address]);
    let (open, close) = if peer.is_ipv6() { ("for=\"[", "]\"") } else { ("for=", "") };
    // A host that was checked holds neither quotes nor backslashes.
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

/// Sets a field to what it holds, all its lines in order, and then these parts of one more.
fn append(headers: &mut HeaderMap, name: HeaderName, room: &mut BytesMut, parts: &[&[u8]]) {
    for line in headers.get_all(&name) {
        room.put_slice(line.as_bytes());
        room.put_slice(b", ");
    }
    parts.iter().for_each(|part| room.put_slice(part));
    // Everything that is put there is visible ASCII.
    if let Ok(value) = HeaderValue::from_maybe_shared(room.split().freeze()) {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(before: &[(HeaderName, &'static str)], peer: &str, host: Option<&'static str>) -> Vec<String> {
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
    fn the_first_hop_is_told_in_both_forms() {
        assert_eq!(
            told(&[], "192.0.2.7", Some("api.example.com:8080")),
            [
                "192.0.2.7",
                r#"for=192.0.2.7;host="api.example.com:8080";proto=http"#,
                "http",
                "api.example.com:8080"
            ]
        );
        assert_eq!(
            told(&[], "2001:db8::7", None),
            ["2001:db8::7", r#"for="[2001:db8::7]";proto=http"#, "http", ""]
        );
        assert_eq!(told(&[], "::ffff:192.0.2.7", None)[0], "192.0.2.7");
    }

    #[test]
    fn what_a_trusted_proxy_said_is_kept_and_added_to() {
        let before = [
            (FOR, "198.51.100.1"),
            (FOR, "203.0.113.2, 203.0.113.3"),
            (header::FORWARDED, "for=198.51.100.1;proto=https"),
            (PROTO, "https"),
            (HOST, "shop.example"),
        ];
        assert_eq!(
            told(&before, "192.0.2.7", Some("inner")),
            [
                "198.51.100.1, 203.0.113.2, 203.0.113.3, 192.0.2.7",
                r#"for=198.51.100.1;proto=https, for=192.0.2.7;host="inner";proto=http"#,
                "https",
                "shop.example",
            ]
        );
    }
}
