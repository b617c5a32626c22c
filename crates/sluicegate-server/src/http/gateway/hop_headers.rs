//! Removes header fields that must not pass the gateway: hop-by-hop fields, and fields that only the gateway may set.
//!
//! Names are compared as applications may read them: `X_Forwarded_For` counts as `X-Forwarded-For`, because many
//! applications cannot distinguish the two. Every field that `Connection` names is removed as well. All of this
//! happens before the gateway sets its own fields, so a client cannot have one of those removed.

use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;

use crate::forwarding_headers::{is, is_forwarding, is_trace, starts};

/// Names of fields to remove. Most lists fit without an allocation, and the bound of the head bounds them.
type Names = SmallVec<[HeaderName; 8]>;

/// The options in a request's hop-by-hop fields, before these are removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ConnectionOptions {
    /// Upgrade to WebSocket: `Connection: upgrade` and `Upgrade: websocket`.
    pub(super) websocket: bool,
    /// Trailers are accepted: `TE: trailers`, the only option of `TE` that counts.
    pub(super) trailers: bool,
}

/// The trust in the forwarding fields of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sender {
    /// A proxy whose forwarding fields count.
    TrustedProxy,
    /// Any other peer.
    Untrusted,
}

/// Removes the fields of a request that must not pass, and returns its connection options.
pub(super) fn clean_request(headers: &mut HeaderMap, sender: Sender) -> ConnectionOptions {
    let connection_options = connection_options(headers);
    let mut gone = named_by_connection(headers);
    gone.extend(length_beside_coding(headers));
    gone.extend(
        headers
            .keys()
            .filter(|name| disposition_in_request(name.as_str(), sender) == Disposition::Remove)
            .cloned(),
    );
    remove(headers, gone);
    connection_options
}

/// Removes the hop-by-hop fields of an upstream's response.
pub(super) fn clean_response(headers: &mut HeaderMap) {
    let mut gone = named_by_connection(headers);
    gone.extend(length_beside_coding(headers));
    gone.extend(headers.keys().filter(|name| is_hop_by_hop(name.as_str())).cloned());
    remove(headers, gone);
}

/// True if an upstream has accepted the upgrade to WebSocket.
pub(super) fn accepts_websocket(headers: &HeaderMap) -> bool {
    connection_options(headers).websocket
}

/// Sets the fields of an upgrade to WebSocket.
pub(super) fn set_websocket(headers: &mut HeaderMap) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
}

/// Beside a transfer coding a length is void (RFC 9112 §6.3). It must not count once the coding is removed.
fn length_beside_coding(headers: &HeaderMap) -> Option<HeaderName> {
    headers.contains_key(header::TRANSFER_ENCODING).then_some(header::CONTENT_LENGTH)
}

fn remove(headers: &mut HeaderMap, names: Names) {
    for name in names {
        headers.remove(name);
    }
}

/// The upgrade and the trailers that a message requests.
pub(super) fn connection_options(headers: &HeaderMap) -> ConnectionOptions {
    let lists =
        |field: HeaderName, word: &str| tokens(headers, &field).any(|token| token.eq_ignore_ascii_case(word));
    let websocket = headers.contains_key(header::UPGRADE)
        && lists(header::CONNECTION, "upgrade")
        && only(headers, &header::UPGRADE).is_some_and(|protocol| protocol.eq_ignore_ascii_case("websocket"));
    ConnectionOptions { websocket, trailers: headers.contains_key(header::TE) && lists(header::TE, "trailers") }
}

/// The value of a field that occurs once.
fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(only), None) => only.to_str().ok(),
        _ => None,
    }
}

fn tokens<'h>(headers: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'h str> {
    let texts = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(',')).map(str::trim)
}

/// The names in `Connection`, except those that are removed anyway.
fn named_by_connection(headers: &HeaderMap) -> Names {
    if !headers.contains_key(header::CONNECTION) {
        return Names::new();
    }
    let named = tokens(headers, &header::CONNECTION);
    let is_usual =
        |token: &&str| ["keep-alive", "close", "upgrade"].iter().any(|word| token.eq_ignore_ascii_case(word));
    named.filter(|token| !is_usual(token)).filter_map(|token| token.parse().ok()).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disposition {
    Keep,
    Remove,
}

fn disposition_in_request(name: &str, sender: Sender) -> Disposition {
    let is_trusted = sender == Sender::TrustedProxy && !is_respelled(name);
    // The traces of proxies stay, so that a loop through several of them is detected.
    let goes = match name.as_bytes() {
        _ if is_forwarding(name) && !is_trace(name) => !is_trusted,
        [b'x', ..] => is_owned(name) || (is(name, "x-request-id") && !is_trusted),
        // Only in the other spelling: the gateway itself sets the length.
        [b'c', ..] if is_respelled(name) && is(name, "content-length") => true,
        _ => is_hop_by_hop(name),
    };
    if goes { Disposition::Remove } else { Disposition::Keep }
}

/// True for a field that only the gateway may set.
fn is_owned(name: &str) -> bool {
    starts(name, "x-sluicegate-") || starts(name, "x-ratelimit-")
}

/// True if the name contains a character that applications treat as `-`.
fn is_respelled(name: &str) -> bool {
    name.contains(['_', '.'])
}

/// True for a hop-by-hop field (RFC 9110 §7.6.1), and for fields that frame the message.
fn is_hop_by_hop(name: &str) -> bool {
    match name.as_bytes() {
        [b'c', ..] => is(name, "connection"),
        // The gateway itself sends `100 Continue`, by reading the body.
        [b'e', ..] => is(name, "expect"),
        [b'k', ..] => is(name, "keep-alive"),
        [b'p', ..] => starts(name, "proxy-") || name == "proxy",
        [b't', ..] => is(name, "te") || is(name, "trailer") || is(name, "transfer-encoding"),
        [b'u', ..] => is(name, "upgrade"),
        [b'h', ..] => is(name, "http2-settings"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&str, &str)]) -> HeaderMap {
        let parse = |(name, value): &(&str, &str)| {
            (name.parse::<HeaderName>().expect("a name"), value.parse().expect("a value"))
        };
        let mut headers = HeaderMap::new();
        for (name, value) in fields.iter().map(parse) {
            headers.append(name, value);
        }
        headers
    }

    fn left(headers: &HeaderMap) -> Vec<&str> {
        let mut names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn hop_by_hop_fields_are_removed() {
        let mut request = headers(&[
            ("connection", "keep-alive, X-Secret , te"),
            ("connection", "x-other, X-Sluicegate-Identifier, (bad)"),
            ("keep-alive", "timeout=5"),
            ("te", "gzip, trailers"),
            ("trailer", "x"),
            ("transfer-encoding", "chunked"),
            ("transfer_encoding", "chunked"),
            ("content_length", "7"),
            ("upgrade", "h2c"),
            ("http2-settings", "AAMAAABk"),
            ("expect", "100-continue"),
            ("proxy-authorization", "Basic x"),
            ("proxy-connection", "close"),
            ("proxy", "http://evil"),
            ("x-secret", "1"),
            ("x-other", "2"),
            ("x-kept", "3"),
            ("host", "t"),
            ("content-length", "3"),
            ("authorization", "Bearer x"),
            ("accept", "*/*"),
        ]);
        let connection_options = clean_request(&mut request, Sender::Untrusted);
        // Beside a transfer coding the length is removed.
        assert_eq!(left(&request), ["accept", "authorization", "host", "x-kept"]);
        assert_eq!(connection_options, ConnectionOptions { websocket: false, trailers: true });
    }

    #[test]
    fn fields_of_the_gateway_are_removed_in_either_spelling() {
        let spoofed = [
            ("x-forwarded-for", "1.2.3.4"),
            ("x_forwarded_for", "1.2.3.4"),
            ("x-forwarded_host", "evil"),
            ("x-forwarded-anything", "1"),
            ("forwarded", "for=1.2.3.4"),
            ("x-real-ip", "1.2.3.4"),
            ("x_real_ip", "1.2.3.4"),
            ("x-ratelimit-limit", "9"),
            ("x_ratelimit_remaining", "9"),
            ("x-sluicegate-identifier", "root"),
            ("x_sluicegate_identifier", "root"),
            ("x-request-id", "1"),
            ("x_request-id", "1"),
            ("x.sluicegate.identifier", "root"),
            ("x.forwarded.for", "1.2.3.4"),
            ("x-original-url", "/admin"),
            ("x-rewrite-url", "/admin"),
            ("x_rewrite_url", "/admin"),
            ("x-client-ip", "1.2.3.4"),
            ("x-cluster-client-ip", "1.2.3.4"),
            ("true-client-ip", "1.2.3.4"),
            ("true_client_ip", "1.2.3.4"),
            ("cf-connecting-ip", "1.2.3.4"),
            ("cf.connecting.ip", "1.2.3.4"),
            ("client-ip", "1.2.3.4"),
            ("x-forwarded", "for=1.2.3.4"),
            ("x-envoy-external-address", "1.2.3.4"),
            ("fastly.client.ip", "1.2.3.4"),
            ("x-forward", "stays"),
        ];
        let mut request = headers(&spoofed);
        clean_request(&mut request, Sender::Untrusted);
        assert_eq!(left(&request), ["x-forward"]);

        let mut request = headers(&spoofed);
        clean_request(&mut request, Sender::TrustedProxy);
        let believed = [
            "cf-connecting-ip",
            "client-ip",
            "forwarded",
            "true-client-ip",
            "x-client-ip",
            "x-cluster-client-ip",
            "x-envoy-external-address",
            "x-forward",
            "x-forwarded",
            "x-forwarded-anything",
            "x-forwarded-for",
            "x-original-url",
            "x-real-ip",
            "x-request-id",
            "x-rewrite-url",
        ];
        assert_eq!(left(&request), believed);
    }

    #[test]
    fn only_a_websocket_with_both_fields_is_an_upgrade() {
        let wish = |fields: &[(&str, &str)]| clean_request(&mut headers(fields), Sender::Untrusted).websocket;
        assert!(wish(&[("connection", "keep-alive, Upgrade"), ("upgrade", "WebSocket")]));
        for fields in [
            &[("connection", "upgrade")][..],
            &[("upgrade", "websocket")],
            &[("connection", "keep-alive"), ("upgrade", "websocket")],
            &[("connection", "upgrade"), ("upgrade", "h2c")],
            &[("connection", "upgrade"), ("upgrade", "websocket, h2c")],
            &[("connection", "upgrade"), ("upgrade", "websocket"), ("upgrade", "h2c")],
        ] {
            assert!(!wish(fields), "{fields:?}");
        }
    }

    #[test]
    fn responses_lose_hop_by_hop_fields() {
        let mut answer = headers(&[
            ("connection", "close, x-hop"),
            ("x-hop", "1"),
            ("keep-alive", "timeout=5"),
            ("transfer-encoding", "chunked"),
            ("proxy-authenticate", "Basic"),
            ("retry-after", "3"),
            ("etag", "x"),
        ]);
        clean_response(&mut answer);
        assert_eq!(left(&answer), ["etag", "retry-after"]);
    }
}
