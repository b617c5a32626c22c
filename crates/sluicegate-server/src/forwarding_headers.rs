//! The header fields that reverse proxies, CDNs and load balancers add to the requests that they forward.
//!
//! The comparison of names treats `_` and `.` as `-`, as applications may do.

/// Whether a header field marks a request as forwarded, in any spelling.
pub(crate) fn is_forwarding(name: &str) -> bool {
    let is_one_of = |known: &[&str]| known.iter().any(|known| is(name, known));
    match name.as_bytes() {
        [b'x', ..] => {
            starts(name, "x-forwarded-")
                || starts(name, "x-original-")
                || is_one_of(&[
                    "x-forwarded",
                    "x-real-ip",
                    "x-rewrite-url",
                    "x-client-ip",
                    "x-cluster-client-ip",
                    "x-envoy-external-address",
                ])
        }
        [b'c', ..] => is_one_of(&["cf-connecting-ip", "client-ip"]) || is_trace(name),
        [b'f', ..] => is_one_of(&["forwarded", "forwarded-for", "fastly-client-ip"]),
        [b't', ..] => is(name, "true-client-ip"),
        [b'v', ..] => is_trace(name),
        _ => false,
    }
}

/// Whether a header field lists the proxies that a request has passed, for loop detection.
pub(crate) fn is_trace(name: &str) -> bool {
    is(name, "via") || is(name, "cdn-loop")
}

/// Whether `name` is `known`, with `_` or `.` for `-`.
pub(crate) fn is(name: &str, known: &str) -> bool {
    name.len() == known.len() && starts(name, known)
}

/// Whether `name` starts with `known`, with `_` or `.` for `-`: applications that turn fields into variables do so.
pub(crate) fn starts(name: &str, known: &str) -> bool {
    let same = |(one, other): (u8, u8)| one == other || (matches!(one, b'_' | b'.') && other == b'-');
    name.len() >= known.len() && name.bytes().zip(known.bytes()).all(same)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_forwarding_field_is_recognized_in_every_spelling() {
        for name in [
            "via",
            "forwarded",
            "x-forwarded",
            "x-forwarded-for",
            "x-forwarded-anything",
            "x-original-url",
            "x-real-ip",
            "x-rewrite-url",
            "x-client-ip",
            "x-cluster-client-ip",
            "x-envoy-external-address",
            "true-client-ip",
            "cf-connecting-ip",
            "client-ip",
            "fastly-client-ip",
            "cdn-loop",
        ] {
            for spelling in [name.to_owned(), name.replace('-', "_"), name.replace('-', ".")] {
                assert!(is_forwarding(&spelling), "{spelling}");
            }
        }
        for name in ["x-forward", "x-request-id", "accept", "cookie", "te", "from", "vary", "x-forwardedly"] {
            assert!(!is_forwarding(name), "{name}");
        }
    }
}
