//! The addresses in a forwarding field, from the last to the first.
//!
//! A hop is the address that one proxy recorded for its own peer. Both fields are lists to which every proxy appends,
//! on the same line or on a new one, so only the right end is known to come from a proxy. Parsing therefore starts at
//! the right: a quote that the client left open cannot hide a proxy's element after it.
//!
//! These are total functions of bytes: any input is a list of hops, and invalid elements are [`Hop::Unreadable`].
//! They read only as far left as the caller requests. Trust is the caller's concern.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::normalised;

/// The address that one proxy recorded for its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hop {
    /// The address of the peer, as [`normalised`] returns it. A port is dropped.
    Address(IpAddr),
    /// Not an address: hidden (`unknown`, `_name`), missing or malformed.
    Unreadable,
}

/// The hops of one line, from the right.
#[derive(Clone, Debug)]
pub struct Hops<'a> {
    /// The rest of the line; `None` once its first element was taken.
    rest: Option<&'a [u8]>,
    form: HopFormat,
}

#[derive(Clone, Copy, Debug)]
enum HopFormat {
    XForwardedFor,
    Forwarded,
}

/// The hops of a line of `X-Forwarded-For`: addresses with or without ports, separated by commas.
///
/// ```
/// use sluicegate::identify::address::hops::{Hop, x_forwarded_for};
///
/// let hops: Vec<Hop> = x_forwarded_for(b"unknown, [2001:db8::7]:4711, 192.0.2.1").collect();
/// let address = |text: &str| Hop::Address(text.parse().expect("an address"));
/// assert_eq!(hops, [address("192.0.2.1"), address("2001:db8::7"), Hop::Unreadable]);
/// ```
#[must_use]
pub fn x_forwarded_for(line: &[u8]) -> Hops<'_> {
    Hops { rest: Some(line), form: HopFormat::XForwardedFor }
}

/// The hops of a line of `Forwarded`: the `for` of each element, as in RFC 7239.
///
/// ```
/// use sluicegate::identify::address::hops::{Hop, forwarded};
///
/// let hops: Vec<Hop> = forwarded(br#"for=_hidden, For="[2001:db8::7]:80";proto=https"#).collect();
/// assert_eq!(hops, [Hop::Address("2001:db8::7".parse()?), Hop::Unreadable]);
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[must_use]
pub fn forwarded(line: &[u8]) -> Hops<'_> {
    Hops { rest: Some(line), form: HopFormat::Forwarded }
}

impl Iterator for Hops<'_> {
    type Item = Hop;

    fn next(&mut self) -> Option<Hop> {
        let rest = self.rest.take()?;
        let comma = match self.form {
            HopFormat::XForwardedFor => rest.iter().rposition(|&byte| byte == b','),
            HopFormat::Forwarded => last_unquoted_comma(rest),
        };
        let element = match comma {
            Some(comma) => {
                self.rest = Some(&rest[..comma]);
                &rest[comma + 1..]
            }
            None => rest,
        };
        let address = match self.form {
            HopFormat::XForwardedFor => text(element).and_then(node),
            HopFormat::Forwarded => text(element).and_then(address_of_element),
        };
        Some(address.map_or(Hop::Unreadable, Hop::Address))
    }
}

/// The text of an element without surrounding blanks.
fn text(element: &[u8]) -> Option<&str> {
    str::from_utf8(element).ok().map(|text| text.trim_matches([' ', '\t']))
}

/// The start of the last element. Read from the right, a quote opens a string that ends at the next quote with an
/// even number of backslashes before it.
fn last_unquoted_comma(line: &[u8]) -> Option<usize> {
    let mut is_quoted = false;
    for (at, &byte) in line.iter().enumerate().rev() {
        match byte {
            b'"' => is_quoted = !is_quoted || is_escaped(line, at),
            b',' if !is_quoted => return Some(at),
            _ => {}
        }
    }
    None
}

fn is_escaped(line: &[u8], at: usize) -> bool {
    line[..at].iter().rev().take_while(|&&byte| byte == b'\\').count() % 2 == 1
}

/// The address in the only `for` of an element such as `for="[2001:db8::1]:80";by=203.0.113.43`. Pairs may be empty
/// by the grammar, and have blanks around them as many proxies write them.
fn address_of_element(element: &str) -> Option<IpAddr> {
    let mut found = None;
    let mut rest = element;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ';']);
        if rest.is_empty() {
            return found.and_then(node);
        }
        let (name, value, after) = pair(rest)?;
        if name.eq_ignore_ascii_case("for") && found.replace(value).is_some() {
            return None;
        }
        rest = after.trim_start_matches([' ', '\t']);
        if !rest.is_empty() && !rest.starts_with(';') {
            return None;
        }
    }
}

/// Splits `name=value` off the front: name, value without its quotes, and the rest.
///
/// A quoted string is not unescaped: a valid address needs no backslash.
fn pair(text: &str) -> Option<(&str, &str, &str)> {
    let (name, rest) = text.split_once('=')?;
    if name.is_empty() || !name.bytes().all(is_token) {
        return None;
    }
    let Some(quoted) = rest.strip_prefix('"') else {
        let end = rest.find(';').unwrap_or(rest.len());
        let (value, after) = rest.split_at(end);
        return (!value.contains('"')).then_some((name, value.trim_end_matches([' ', '\t']), after));
    };
    let bytes = quoted.as_bytes();
    let end = (0..bytes.len()).find(|&at| bytes[at] == b'"' && !is_escaped(bytes, at))?;
    Some((name, &quoted[..end], &quoted[end + 1..]))
}

/// The bytes of a token as in RFC 9110.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// The address of a node: `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]`, `[2001:db8::1]:80`, each IPv6
/// address also with a zone (`fe80::1%eth0`), which means something on the proxy's own machine only.
#[must_use]
pub fn node(text: &str) -> Option<IpAddr> {
    let address = match text.strip_prefix('[') {
        Some(bracketed) => {
            let (address, after) = bracketed.split_once(']')?;
            if !after.is_empty() && !after.strip_prefix(':').is_some_and(is_port) {
                return None;
            }
            IpAddr::V6(ipv6(address)?)
        }
        None => bare(text)?,
    };
    Some(normalised(address))
}

/// An address without brackets. With one colon at most it is IPv4, with a port or without.
fn bare(text: &str) -> Option<IpAddr> {
    match text.split_once(':') {
        Some((address, port)) if !port.contains(':') => {
            is_port(port).then_some(())?;
            address.parse::<Ipv4Addr>().ok().map(IpAddr::V4)
        }
        Some(_) => ipv6(text).map(IpAddr::V6),
        None => text.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
    }
}

fn ipv6(text: &str) -> Option<Ipv6Addr> {
    match text.split_once('%') {
        Some((address, zone)) => {
            let is_zone = !zone.is_empty() && zone.bytes().all(|byte| byte.is_ascii_graphic());
            address.parse().ok().filter(|_| is_zone)
        }
        None => text.parse().ok(),
    }
}

/// A port, or RFC 7239's stand-in for one that is kept secret, as in `_4f2`.
fn is_port(text: &str) -> bool {
    match text.strip_prefix('_') {
        Some(hidden) => {
            !hidden.is_empty() && hidden.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        }
        None => text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok(),
    }
}

#[cfg(test)]
mod tests;
