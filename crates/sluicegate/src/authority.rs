//! Hosts: the authority of a request (`HOST` or `HOST:PORT`), the host that rules and routes see, and host patterns.
//!
//! Two grammars exist on purpose. [`is_authority`] is the grammar of RFC 9110 §7.2, which a server accepts before it knows
//! the front door. [`is_strict_authority`] is the subset that every upstream reads alike, which a gateway forwards.
//! Rules and routes compare one form of a host, [`matched_host`], so they cannot disagree about it.

use std::borrow::Cow;
use std::net::Ipv6Addr;

use crate::pattern::Pattern;

/// The longest host name, in bytes (RFC 1035).
pub const HOST_BYTES_MAX: usize = 253;

/// The most digits in a port.
const PORT_DIGITS_MAX: usize = 5;

/// True for `HOST` or `HOST:PORT` in the grammar of RFC 9110 §7.2, without user information.
///
/// The host is an IPv6 address in brackets or a registered name. The port may be empty and has at most five digits.
#[must_use]
pub fn is_authority(value: &[u8]) -> bool {
    let Some(end) = host_end(value) else { return false };
    let (host, port) = value.split_at(end);
    let is_name_byte = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=%".contains(byte);
    (host.starts_with(b"[") || host.iter().all(is_name_byte)) && port.iter().skip(1).all(u8::is_ascii_digit)
}

/// True for an authority that every reader understands alike: the host is an IPv6 address in brackets or a
/// [host name](is_host_name) of at most [`HOST_BYTES_MAX`] bytes, and a port, if present, is a number up to 65535.
#[must_use]
pub fn is_strict_authority(text: &str) -> bool {
    let Some(end) = host_end(text.as_bytes()) else { return false };
    let (host, port) = text.split_at(end);
    let is_digits = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let is_port = |port: &str| is_digits(port) && port.parse::<u16>().is_ok();
    (host.starts_with('[') || (host.len() <= HOST_BYTES_MAX && is_host_name(host)))
        && port.strip_prefix(':').is_none_or(is_port)
}

/// The host of an authority without its port and brackets. `None` if the text is no authority.
#[must_use]
pub fn bare_host(text: &str) -> Option<&str> {
    let end = host_end(text.as_bytes()).filter(|_| is_authority(text.as_bytes()))?;
    let host = &text[..end];
    Some(host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host))
}

/// The length of the host at the start of an authority. `None` if the host is empty, if its brackets hold no IPv6 address,
/// or if more follows than a colon and five bytes.
fn host_end(value: &[u8]) -> Option<usize> {
    let end = match value.strip_prefix(b"[") {
        Some(literal) => {
            let end = literal.iter().position(|byte| *byte == b']')?;
            str::from_utf8(&literal[..end]).ok()?.parse::<Ipv6Addr>().ok()?;
            end + 2
        }
        None => value.iter().position(|byte| *byte == b':').unwrap_or(value.len()),
    };
    let is_port = match &value[end..] {
        [] => true,
        [colon, port @ ..] => *colon == b':' && port.len() <= PORT_DIGITS_MAX,
    };
    (end > 0 && is_port).then_some(end)
}

/// True for a non-empty name of ASCII letters, digits, `-`, `.` and `_`, which includes IPv4 addresses.
#[must_use]
pub fn is_host_name(name: &str) -> bool {
    let is_name_byte = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    !name.is_empty() && name.bytes().all(is_name_byte)
}

/// The host that rules and routes compare: in lower case, without user information, port and trailing dots.
/// `None` if nothing remains.
///
/// This accepts every text, because an invalid host that had no form here would escape the rules for any host (`*`).
#[must_use]
pub fn matched_host(authority: &str) -> Option<Cow<'_, str>> {
    let named = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let end = match named.find(']') {
        Some(bracket) => bracket + 1,
        None => named.find(':').unwrap_or(named.len()),
    };
    let host = named[..end].trim_end_matches('.');
    match host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        _ if host.is_empty() => None,
        true => Some(host.to_ascii_lowercase().into()),
        false => Some(host.into()),
    }
}

/// A pattern for [hosts](matched_host): a name or an address, in which `*` matches any run of characters.
///
/// `*.example.com` matches every name below `example.com`, at any depth, and not `example.com` itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPattern(Pattern);

impl HostPattern {
    /// Reads a pattern of at most [`HOST_BYTES_MAX`] bytes. `None` if the text has a port or a byte that no host has.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'*');
        let inside = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let is_address = inside.is_some_and(|inside| inside.parse::<Ipv6Addr>().is_ok());
        let is_pattern = is_address || text.bytes().all(is_part);
        ((1..=HOST_BYTES_MAX).contains(&text.len()) && is_pattern)
            .then(|| Self(Pattern::new(text.to_ascii_lowercase().trim_end_matches('.'))))
    }

    /// True if the pattern has no star.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.0.is_exact()
    }

    /// The number of bytes that are no stars: the more, the more specific the pattern.
    #[must_use]
    pub fn fixed_bytes(&self) -> usize {
        self.0.text().bytes().filter(|byte| *byte != b'*').count()
    }

    /// The pattern in lower case, without trailing dots.
    #[must_use]
    pub fn text(&self) -> String {
        self.0.text()
    }

    /// True if the pattern matches `host`, which is in the form of [`matched_host`].
    #[must_use]
    pub fn matches(&self, host: &str) -> bool {
        self.0.matches(host)
    }
}

impl From<HostPattern> for Pattern {
    fn from(pattern: HostPattern) -> Self {
        pattern.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_is_a_name_or_an_address_with_an_optional_port() {
        for host in
            ["a", "a.example", "127.0.0.1:1", "a:", "a_b", "xn--bcher-kva.example:65535", "[::1]", "[::1]:", "a$b"]
        {
            assert!(is_authority(host.as_bytes()), "{host}");
        }
        for host in
            ["", ":80", "a b", "a/b", "a@b", "a:b", "a:123456", "a:-1", "[::1", "::1", "[a]", "[::1]x", "a?b", "é"]
        {
            assert!(!is_authority(host.as_bytes()), "{host}");
        }
    }

    #[test]
    fn a_bare_host_has_no_port_and_no_brackets() {
        for (text, host) in [("a.example:80", Some("a.example")), ("[::1]:80", Some("::1")), ("u@a", None)] {
            assert_eq!(bare_host(text), host, "{text}");
        }
    }

    #[test]
    fn a_strict_authority_is_an_authority_that_every_upstream_reads_alike() {
        for host in ["a", "api.example.com:8080", "[::1]:80", "[::1]", "127.0.0.1:65535", "a_b:0"] {
            assert!(is_strict_authority(host) && is_authority(host.as_bytes()), "{host}");
        }
        for host in [
            "", " ", "a b", "a/b", "u@h", "a,b", "a:x", "a:", "a:+1", "a:65536", "[::1", "[x]", "a\"b", "é",
            "a%41",
        ] {
            assert!(!is_strict_authority(host), "{host}");
        }
        assert!(is_strict_authority(&"a".repeat(HOST_BYTES_MAX)));
        assert!(!is_strict_authority(&"a".repeat(HOST_BYTES_MAX + 1)));
    }

    #[test]
    fn a_host_has_one_form_for_rules_and_routes() {
        for (written, expected) in [
            ("api.example", Some("api.example")),
            ("API.Example:8443", Some("api.example")),
            ("api.example.", Some("api.example")),
            ("api.example.:80", Some("api.example")),
            ("[2001:DB8::1]:80", Some("[2001:db8::1]")),
            ("[::1]", Some("[::1]")),
            ("user@api.example:1", Some("api.example")),
            ("a$b", Some("a$b")),
            ("", None),
            (":80", None),
        ] {
            assert_eq!(matched_host(written).as_deref(), expected, "{written}");
        }
    }

    #[test]
    fn host_patterns_are_names_addresses_or_globs_without_a_port() {
        for (pattern, host, is_match) in [
            ("API.Example.com", "api.example.com", true),
            ("api.example.com.", "api.example.com", true),
            ("*.example.com", "a.b.example.com", true),
            ("*.example.com", "example.com", false),
            ("*.example.com", "evil-example.com", false),
            ("api-*.example.com", "api-eu.example.com", true),
            ("192.0.2.7", "192.0.2.7", true),
            ("[::1]", "[::1]", true),
        ] {
            let parsed = HostPattern::parse(pattern).expect("a pattern");
            assert_eq!(parsed.matches(host), is_match, "{pattern} on {host}");
        }
        for text in ["", "a:80", "a b", "*.[::1]", "[::1", "é.example"] {
            assert_eq!(HostPattern::parse(text), None, "{text}");
        }
        assert_eq!(HostPattern::parse(&"a".repeat(HOST_BYTES_MAX + 1)), None);
    }
}
