//! Which header fields do not pass: those about one connection, and those that only the gateway may set.
//!
//! Names are compared as gateways behind us may read them, so `X_Forwarded_For` counts as `X-Forwarded-For`: many
//! applications cannot tell the two apart. Everything that `Connection` names goes as well, and all of it before
//! any field of ours is set, so that nobody can name one of those.

use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;

/// Fields that are taken out, most of which fit without an allocation. A head is bounded, and so is this.
type Names = SmallVec<[HeaderName; 8]>;

/// What a request said about its connection before that was taken out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wishes {
    /// To go on with WebSocket: `Connection: upgrade` and `Upgrade: websocket`.
    pub(super) websocket: bool,
    /// To be sent trailers, which is the one thing that `TE` may say.
    pub(super) trailers: bool,
}

/// Whose word about the way of a request counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sender {
    /// A proxy that is trusted to say where a request came from.
    TrustedProxy,
    /// Anybody.
    Anybody,
}

/// Takes out of a request what does not pass.
pub(super) fn clean_request(headers: &mut HeaderMap, sender: Sender) -> Wishes {
    let wishes = wishes(headers);
    let mut gone = named_by_connection(headers);
    gone.extend(length_beside_coding(headers));
    gone.extend(headers.keys().filter(|name| fate_in_request(name.as_str(), sender) == Fate::Goes).cloned());
    remove(headers, gone);
    wishes
}

/// Takes out of an answer what is about the connection to the upstream.
pub(super) fn clean_answer(headers: &mut HeaderMap) {
    let mut gone = named_by_connection(headers);
    gone.extend(length_beside_coding(headers));
    gone.extend(headers.keys().filter(|name| is_hop_by_hop(name.as_str())).cloned());
    remove(headers, gone);
}

/// Whether an upstream has agreed to go on with WebSocket.
pub(super) fn agrees_to_websocket(headers: &HeaderMap) -> bool {
    wishes(headers).websocket
}

/// Says that the connection goes on with WebSocket.
pub(super) fn say_websocket(headers: &mut HeaderMap) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
}

/// A length that stands beside a transfer coding says nothing (RFC 9112 §6.3), and must not be believed once the
/// coding is gone.
fn length_beside_coding(headers: &HeaderMap) -> Option<HeaderName> {
    headers.contains_key(header::TRANSFER_ENCODING).then_some(header::CONTENT_LENGTH)
}

fn remove(headers: &mut HeaderMap, names: Names) {
    for name in names {
        headers.remove(name);
    }
}

fn wishes(headers: &HeaderMap) -> Wishes {
    let says =
        |field: HeaderName, word: &str| tokens(headers, &field).any(|token| token.eq_ignore_ascii_case(word));
    let websocket = headers.contains_key(header::UPGRADE)
        && says(header::CONNECTION, "upgrade")
        && only(headers, &header::UPGRADE).is_some_and(|protocol| protocol.eq_ignore_ascii_case("websocket"));
    Wishes { websocket, trailers: headers.contains_key(header::TE) && says(header::TE, "trailers") }
}

/// The value of a field that stands there once.
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

/// All that `Connection` names, but what is taken out anyway.
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
enum Fate {
    Stays,
    Goes,
}

fn fate_in_request(name: &str, sender: Sender) -> Fate {
    let goes = match name.as_bytes() {
        [b'x', ..] => is_owned(name, sender),
        [b'f', ..] => is(name, "forwarded") && (sender == Sender::Anybody || name != "forwarded"),
        // Only with the other spelling: these two are the frame of the request, and ours to set.
        [b'h' | b'c', ..] if name.contains('_') => {
            is(name, "host") || is(name, "content-length") || is(name, "connection")
        }
        _ => is_hop_by_hop(name),
    };
    if goes { Fate::Goes } else { Fate::Stays }
}

/// Whether only the gateway may say this to an upstream, or a proxy before it.
fn is_owned(name: &str, sender: Sender) -> bool {
    let is_ours = starts(name, "x-sluicegate-") || starts(name, "x-ratelimit-");
    let is_of_proxies = starts(name, "x-forwarded-") || is(name, "x-real-ip") || is(name, "x-request-id");
    is_ours || (is_of_proxies && (sender == Sender::Anybody || name.contains('_')))
}

/// Whether a field is about one connection (RFC 9110 §7.6.1), or settles how its message is framed.
fn is_hop_by_hop(name: &str) -> bool {
    match name.as_bytes() {
        [b'c', ..] => is(name, "connection"),
        // We have told the client to go on ourselves, by asking for the body.
        [b'e', ..] => is(name, "expect"),
        [b'k', ..] => is(name, "keep-alive"),
        [b'p', ..] => starts(name, "proxy-") || name == "proxy",
        [b't', ..] => is(name, "te") || is(name, "trailer") || is(name, "transfer-encoding"),
        [b'u', ..] => is(name, "upgrade"),
        [b'h', ..] => is(name, "http2-settings"),
        _ => false,
    }
}

/// Whether `name` is `known`, with `_` for `-`.
fn is(name: &str, known: &str) -> bool {
    name.len() == known.len() && starts(name, known)
}

/// Whether `name` starts with `known`, with `_` for `-`.
fn starts(name: &str, known: &str) -> bool {
    let same = |(one, other): (u8, u8)| one == other || (one == b'_' && other == b'-');
    name.len() >= known.len() && name.bytes().zip(known.bytes()).all(same)
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
    fn what_is_about_the_connection_does_not_pass() {
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
        let wishes = clean_request(&mut request, Sender::Anybody);
        // The length is none of one beside a transfer coding.
        assert_eq!(left(&request), ["accept", "authorization", "host", "x-kept"]);
        assert_eq!(wishes, Wishes { websocket: false, trailers: true });
    }

    #[test]
    fn only_the_gateway_says_what_it_owns_in_either_spelling() {
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
            ("x-forward", "stays"),
        ];
        let mut request = headers(&spoofed);
        clean_request(&mut request, Sender::Anybody);
        assert_eq!(left(&request), ["x-forward"]);

        let mut request = headers(&spoofed);
        clean_request(&mut request, Sender::TrustedProxy);
        let believed =
            ["forwarded", "x-forward", "x-forwarded-anything", "x-forwarded-for", "x-real-ip", "x-request-id"];
        assert_eq!(left(&request), believed);
    }

    #[test]
    fn websocket_takes_both_fields_and_nothing_else_is_an_upgrade() {
        let wish = |fields: &[(&str, &str)]| clean_request(&mut headers(fields), Sender::Anybody).websocket;
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
    fn an_answer_loses_what_is_about_its_connection() {
        let mut answer = headers(&[
            ("connection", "close, x-hop"),
            ("x-hop", "1"),
            ("keep-alive", "timeout=5"),
            ("transfer-encoding", "chunked"),
            ("proxy-authenticate", "Basic"),
            ("retry-after", "3"),
            ("etag", "x"),
        ]);
        clean_answer(&mut answer);
        assert_eq!(left(&answer), ["etag", "retry-after"]);
    }
}
