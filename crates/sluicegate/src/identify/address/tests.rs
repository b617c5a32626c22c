//! The address by which a request is counted, and that a client cannot choose it.

use http::HeaderValue;
use proptest::prelude::*;

use super::*;

const PROXY: &str = "10.0.0.1";
const OTHER_PROXY: &str = "10.0.0.2";

fn proxies() -> TrustedProxies {
    TrustedProxies::parse(["10.0.0.0/8", "2001:db8:f::/48"]).expect("valid")
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn fields(lines: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(*name, HeaderValue::from_bytes(value.as_bytes()).expect("a value"));
    }
    headers
}

fn client(peer: &str, lines: &[(&'static str, &str)]) -> String {
    client_by(TrustedHeader::Either, peer, lines)
}

fn client_by(header: TrustedHeader, peer: &str, lines: &[(&'static str, &str)]) -> String {
    client_address(address(peer), &fields(lines), &proxies().header(header)).to_string()
}

/// Row 60: behind a balancer every client has its address, or a forged one.
#[test]
fn fields_of_an_untrusted_peer_are_ignored() {
    for line in [("x-forwarded-for", "1.2.3.4"), ("forwarded", "for=1.2.3.4"), ("x-real-ip", "1.2.3.4")] {
        assert_eq!(client("203.0.113.9", &[line]), "203.0.113.9");
    }
    let trusts_nobody = TrustedProxies::default();
    let headers = fields(&[("x-forwarded-for", "1.2.3.4")]);
    assert_eq!(client_address(address(PROXY), &headers, &trusts_nobody), address(PROXY));
}

#[test]
fn the_first_stranger_from_the_right_is_the_client() {
    for (value, expected) in [
        ("198.51.100.7", "198.51.100.7"),
        ("1.2.3.4, 198.51.100.7", "198.51.100.7"),
        ("1.2.3.4, 198.51.100.7, 10.9.9.9", "198.51.100.7"),
        ("1.2.3.4, 198.51.100.7:5000, 10.9.9.9:80, 2001:db8:f::1", "198.51.100.7"),
        ("garbage, unknown, 198.51.100.7", "198.51.100.7"),
        ("10.9.9.9, 198.51.100.7", "198.51.100.7"),
        ("::ffff:198.51.100.7, ::ffff:10.9.9.9", "198.51.100.7"),
        // A trusted machine that sends requests of its own, also through other proxies.
        ("10.9.9.9", "10.9.9.9"),
        ("10.8.8.8, 10.9.9.9", "10.8.8.8"),
    ] {
        assert_eq!(client(PROXY, &[("x-forwarded-for", value)]), expected, "{value}");
    }
}

#[test]
fn an_unreadable_chain_makes_the_peer_the_client() {
    for value in [
        "",
        ",",
        "unknown",
        "_hidden",
        "198.51.100.7, ",
        "198.51.100.7, unknown",
        "198.51.100.7, unknown, 10.9.9.9",
        "198.51.100.7, 10.9.9.9.9",
        "198.51.100.7 10.9.9.9",
    ] {
        assert_eq!(client(PROXY, &[("x-forwarded-for", value)]), PROXY, "{value:?}");
    }
    assert_eq!(client(PROXY, &[]), PROXY);
    assert_eq!(client("::ffff:10.0.0.1", &[]), PROXY);
}

#[test]
fn all_lines_of_a_field_are_one_list() {
    let lines = [("x-forwarded-for", "1.2.3.4"), ("x-forwarded-for", "198.51.100.7, 10.9.9.9")];
    assert_eq!(client(PROXY, &lines), "198.51.100.7");
    let lines = [("x-forwarded-for", "1.2.3.4, 198.51.100.7"), ("x-forwarded-for", OTHER_PROXY)];
    assert_eq!(client(PROXY, &lines), "198.51.100.7");
    let lines = [("forwarded", "for=1.2.3.4, for=198.51.100.7"), ("forwarded", "for=10.0.0.2;by=10.0.0.1")];
    assert_eq!(client(PROXY, &lines), "198.51.100.7");
    let lines = [("x-forwarded-for", "198.51.100.7"), ("x-forwarded-for", "")];
    assert_eq!(client(PROXY, &lines), PROXY);
}

#[test]
fn no_more_than_so_many_proxies_are_passed() {
    let chain = |proxies: usize| format!("198.51.100.7{}", ", 10.0.0.2".repeat(proxies));
    assert_eq!(client(PROXY, &[("x-forwarded-for", &chain(HOPS_MAX))]), "198.51.100.7");
    assert_eq!(client(PROXY, &[("x-forwarded-for", &chain(HOPS_MAX + 1))]), PROXY);
    let all_trusted = vec![OTHER_PROXY; HOPS_MAX].join(",");
    assert_eq!(client(PROXY, &[("x-forwarded-for", &all_trusted)]), OTHER_PROXY);
    // A client cannot exhaust the bound: its own elements are to the left of its address.
    let spoofed = format!("{}, 198.51.100.7", vec!["10.0.0.2"; 1_000].join(", "));
    assert_eq!(client(PROXY, &[("x-forwarded-for", &spoofed)]), "198.51.100.7");
}

#[test]
fn two_fields_must_agree_unless_one_is_named() {
    let written = ("x-forwarded-for", "198.51.100.7");
    let agrees = ("forwarded", "for=\"198.51.100.7:4711\";proto=https");
    for spoof in ["for=1.2.3.4", "for=_x", "", "for=10.9.9.9"] {
        let both = [written, ("forwarded", spoof)];
        assert_eq!(client(PROXY, &both), PROXY, "{spoof}");
        assert_eq!(client_by(TrustedHeader::XForwardedFor, PROXY, &both), "198.51.100.7", "{spoof}");
    }
    assert_eq!(client(PROXY, &[written, agrees]), "198.51.100.7");
    assert_eq!(client(PROXY, &[written]), "198.51.100.7");
    assert_eq!(client(PROXY, &[agrees]), "198.51.100.7");
    // A proxy that writes `Forwarded` and passes the client's other field on.
    let both = [("x-forwarded-for", "1.2.3.4"), agrees];
    assert_eq!(client(PROXY, &both), PROXY);
    assert_eq!(client_by(TrustedHeader::Forwarded, PROXY, &both), "198.51.100.7");
    assert_eq!(client_by(TrustedHeader::Forwarded, PROXY, &[written]), PROXY);
    assert_eq!(client_by(TrustedHeader::XForwardedFor, PROXY, &[agrees]), PROXY);
}

#[test]
fn an_address_counts_by_its_network() {
    for (text, prefix, expected) in [
        ("192.0.2.7", 64, "192.0.2.7"),
        ("192.0.2.7", 0, "192.0.2.7"),
        ("::ffff:192.0.2.7", 64, "192.0.2.7"),
        ("64:ff9b::192.0.2.7", 64, "192.0.2.7"),
        ("64:ff9b:1::192.0.2.7", 64, "64:ff9b:1::"),
        ("2001:db8:1:2:3:4:5:6", 64, "2001:db8:1:2::"),
        ("2001:db8:1:2:ffff:ffff:ffff:ffff", 64, "2001:db8:1:2::"),
        ("2001:db8:1:23ff::1", 56, "2001:db8:1:2300::"),
        ("2001:db8:1:2::1", 48, "2001:db8:1::"),
        ("2001:db8::1", 128, "2001:db8::1"),
        ("2001:db8::1", 200, "2001:db8::1"),
        ("2001:db8::1", 0, "::"),
        ("::1", 64, "::"),
    ] {
        assert_eq!(counted(address(text), prefix), address(expected), "{text}/{prefix}");
    }
}

fn stranger() -> impl Strategy<Value = IpAddr> {
    any::<[u8; 4]>().prop_map(IpAddr::from).prop_filter("no proxy", |address| !proxies().contains(*address))
}

fn hostile_value() -> impl Strategy<Value = String> {
    "[ -~]{0,40}|([0-9a-f.:,\\[\\]\"=; ]|for=|10\\.0\\.0\\.3|unknown){0,20}"
}

proptest! {
    /// Proxies append the peer's address. The client's own elements come first, on lines of their own or on the same
    /// line.
    #[test]
    fn fields_of_the_client_never_change_its_address(
        client in stranger(),
        mut spoofed in prop::collection::vec(hostile_value(), 0..4),
        passed in prop::collection::vec(any::<[u8; 3]>(), 0..HOPS_MAX),
        is_forwarded: bool,
        same_line: bool,
    ) {
        let hop = |address: IpAddr| if is_forwarded { format!("for={address}") } else { address.to_string() };
        let chain = [client].into_iter().chain(passed.iter().map(|&[b, c, d]| IpAddr::from([10, b, c, d])));
        let mut written = chain.map(hop).collect::<Vec<_>>().join(", ");
        if same_line && let Some(last) = spoofed.pop() {
            written = format!("{last}, {written}");
        }
        let (name, header) = if is_forwarded {
            ("forwarded", TrustedHeader::Forwarded)
        } else {
            ("x-forwarded-for", TrustedHeader::XForwardedFor)
        };
        spoofed.push(written);
        let lines: Vec<_> = spoofed.iter().map(|value| (name, value.as_str())).collect();
        for header in [header, TrustedHeader::Either] {
            let proxies = proxies().header(header);
            prop_assert_eq!(client_address(address(PROXY), &fields(&lines), &proxies), client);
        }
    }

    /// Whatever the other field contains, the client counts as itself or shares the quota of the proxy, never another
    /// client's.
    #[test]
    fn the_other_field_moves_a_client_to_its_proxy_at_most(client in stranger(), spoof in hostile_value()) {
        let seen = client.to_string();
        let headers = fields(&[("x-forwarded-for", &seen), ("forwarded", &spoof)]);
        let found = client_address(address(PROXY), &headers, &proxies());
        prop_assert!(found == client || found == address(PROXY), "{found}");
    }

    #[test]
    fn any_fields_from_anywhere_have_an_answer(
        peer in prop_oneof![any::<IpAddr>(), any::<[u8; 3]>().prop_map(|[b, c, d]| IpAddr::from([10, b, c, d]))],
        values in prop::collection::vec((any::<bool>(), hostile_value()), 0..6),
    ) {
        let names = |is_forwarded| if is_forwarded { "forwarded" } else { "x-forwarded-for" };
        let lines: Vec<_> = values.iter().map(|(is_forwarded, value)| (names(*is_forwarded), value.as_str())).collect();
        let found = client_address(peer, &fields(&lines), &proxies());
        prop_assert_eq!(normalised(found), found);
        prop_assert!(proxies().contains(peer) || found == normalised(peer));
    }

    #[test]
    fn addresses_of_a_network_share_its_prefix(address: Ipv6Addr, other: u128, prefix in 1..=128_u8) {
        let other = Ipv6Addr::from_bits(address.to_bits() ^ other.checked_shr(u32::from(prefix)).unwrap_or(0));
        let is_ipv6 = |address: Ipv6Addr| normalised(address.into()).is_ipv6();
        prop_assume!(is_ipv6(address) && is_ipv6(other));
        prop_assert_eq!(counted(address.into(), prefix), counted(other.into(), prefix));
        prop_assert_eq!(counted(counted(address.into(), prefix), prefix), counted(address.into(), prefix));
    }
}
