//! Every form of a hop, and that elements to the left do not change those to the right.

use proptest::prelude::*;

use super::*;

fn address(text: &str) -> Hop {
    Hop::Address(text.parse().expect("an address"))
}

#[track_caller]
fn check(hops: Hops<'_>, expected: &[Option<&str>]) {
    let expected: Vec<Hop> = expected.iter().map(|hop| hop.map_or(Hop::Unreadable, address)).collect();
    assert_eq!(hops.collect::<Vec<Hop>>(), expected);
}

#[test]
fn nodes_are_read_with_and_without_ports() {
    for (text, expected) in [
        ("192.0.2.1", "192.0.2.1"),
        ("192.0.2.1:80", "192.0.2.1"),
        ("192.0.2.1:0", "192.0.2.1"),
        ("192.0.2.1:65535", "192.0.2.1"),
        ("192.0.2.1:_hidden", "192.0.2.1"),
        ("2001:db8::1", "2001:db8::1"),
        ("2001:DB8::1", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("[2001:db8::1]:443", "2001:db8::1"),
        ("[2001:db8::1]:_a.b-c", "2001:db8::1"),
        ("::", "::"),
        ("fe80::1%eth0", "fe80::1"),
        ("[fe80::1%25eth0]:80", "fe80::1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("[::ffff:c000:201]:80", "192.0.2.1"),
        ("64:ff9b::192.0.2.1", "192.0.2.1"),
        ("[64:ff9b::c000:201]", "192.0.2.1"),
    ] {
        assert_eq!(node(text), Some(expected.parse().expect("an address")), "{text}");
    }
}

#[test]
fn invalid_nodes_are_unreadable() {
    for text in [
        "",
        " ",
        "unknown",
        "_hidden",
        "localhost",
        "example.com",
        "192.0.2",
        "192.0.2.1.1",
        "192.0.2.256",
        "192.0.2.01",
        "0xc0.0.2.1",
        "3221225985",
        "192.0.2.1:",
        "192.0.2.1:65536",
        "192.0.2.1:+80",
        "192.0.2.1:80:80",
        "192.0.2.1:_",
        "192.0.2.1:_ü",
        "[192.0.2.1]",
        "[192.0.2.1]:80",
        "[2001:db8::1",
        "2001:db8::1]",
        "[2001:db8::1]80",
        "[2001:db8::1]:",
        "[2001:db8::1]:80 ",
        "[]",
        "[[::1]]",
        "fe80::1%",
        "fe80::1%a b",
        "%eth0",
        "2001:db8:::1",
        "1:2:3:4:5:6:7:8:9",
        "192.0.2.1 192.0.2.2",
        "192.0.2.1/32",
        "\"192.0.2.1\"",
        "192.0.2.1\0",
        "１９２.0.2.1",
    ] {
        assert_eq!(node(text), None, "{text:?}");
    }
}

#[test]
fn x_forwarded_for_is_read_from_the_right() {
    check(x_forwarded_for(b"192.0.2.1"), &[Some("192.0.2.1")]);
    check(x_forwarded_for(b"192.0.2.1, 192.0.2.2"), &[Some("192.0.2.2"), Some("192.0.2.1")]);
    check(x_forwarded_for(b"192.0.2.1,\t[2001:db8::1]:8 "), &[Some("2001:db8::1"), Some("192.0.2.1")]);
    check(x_forwarded_for(b""), &[None]);
    check(x_forwarded_for(b","), &[None, None]);
    check(x_forwarded_for(b"192.0.2.1,"), &[None, Some("192.0.2.1")]);
    check(x_forwarded_for(b"\xff\xfe, 192.0.2.1"), &[Some("192.0.2.1"), None]);
    check(x_forwarded_for(b"\"192.0.2.9, 192.0.2.1"), &[Some("192.0.2.1"), None]);
}

#[test]
fn forwarded_is_read_from_the_right() {
    check(forwarded(b"for=192.0.2.43, for=198.51.100.17"), &[Some("198.51.100.17"), Some("192.0.2.43")]);
    check(forwarded(b"FOR=192.0.2.60;proto=http;By=203.0.113.43"), &[Some("192.0.2.60")]);
    check(forwarded(b"proto=http;for=192.0.2.60"), &[Some("192.0.2.60")]);
    check(forwarded(br#"For="[2001:db8:cafe::17]:4711""#), &[Some("2001:db8:cafe::17")]);
    check(
        forwarded(br#"for="192.0.2.1:80";host="a,b;c\",d", for=192.0.2.2"#),
        &[Some("192.0.2.2"), Some("192.0.2.1")],
    );
    check(forwarded(br#"for=192.0.2.1;ext="\\";by=x, for=192.0.2.2"#), &[Some("192.0.2.2"), Some("192.0.2.1")]);
    check(forwarded(b";;for=192.0.2.1; ;proto=https ; "), &[Some("192.0.2.1")]);
    check(forwarded(b"for=192.0.2.1:80 , for=2001:db8::1"), &[Some("2001:db8::1"), Some("192.0.2.1")]);
}

#[test]
fn an_element_without_one_readable_for_has_no_address() {
    for element in [
        "",
        ";",
        "proto=https",
        "for",
        "for=",
        "for=\"\"",
        "=192.0.2.1",
        "for=unknown",
        "for=\"_gazonk\"",
        "for=192.0.2.1;for=192.0.2.1",
        "for=192.0.2.1;FOR=192.0.2.2",
        "for=\"192.0.2.1",
        "for=192.0.2.1\"",
        "for=\"192.0.2.1\"x",
        "for=\"192.0.2.1\"proto=http",
        "for=\"192.0.2.\\1\"",
        "for =192.0.2.1",
        "for= 192.0.2.1",
        "f\u{1}or=1;for=192.0.2.1",
        "192.0.2.1",
    ] {
        check(forwarded(element.as_bytes()), &[None]);
    }
}

/// The hostile element comes first, because the proxy appends its own.
#[test]
fn an_open_quote_of_the_client_swallows_nothing() {
    for spoof in [r#"for="192.0.2.9"#, r#"for="192.0.2.9\"#, r#"""#, r#"for=\"#, r#"for="a, for=b"#, "for=\"\\\""]
    {
        let line = format!("{spoof}, for=198.51.100.7;proto=https");
        assert_eq!(forwarded(line.as_bytes()).next(), Some(address("198.51.100.7")), "{line}");
        let line = format!(r#"{spoof}, for="[2001:db8::7]:80";host="a,b""#);
        assert_eq!(forwarded(line.as_bytes()).next(), Some(address("2001:db8::7")), "{line}");
    }
}

/// Bytes that a client may put into a line, with a preference for those that have a meaning.
fn hostile_text() -> impl Strategy<Value = Vec<u8>> {
    let meaningful = prop::sample::select(br#"",;=\[]:%. for"#.to_vec());
    prop::collection::vec(prop_oneof![3 => meaningful, 1 => any::<u8>()], 0..60)
}

fn written_element() -> impl Strategy<Value = (String, IpAddr)> {
    let address = prop_oneof![any::<Ipv4Addr>().prop_map(IpAddr::V4), any::<Ipv6Addr>().prop_map(IpAddr::V6)];
    let more = prop::sample::select(vec!["", ";proto=https", r#";host="a, for=192.0.2.66""#, r#";x="\"";by=_me"#]);
    (address, more).prop_map(|(address, more)| {
        let node = if address.is_ipv6() { format!("\"[{address}]:80\"") } else { address.to_string() };
        (format!("for={node}{more}"), normalised(address))
    })
}

proptest! {
    #[test]
    fn anything_is_a_list_of_hops(line in hostile_text()) {
        let commas = line.iter().filter(|&&byte| byte == b',').count();
        prop_assert_eq!(x_forwarded_for(&line).count(), commas + 1);
        prop_assert!((1..=commas + 1).contains(&forwarded(&line).count()));
    }

    #[test]
    fn the_hop_that_a_proxy_appended_is_read_after_any_prefix(
        spoof in hostile_text(),
        (element, address) in written_element(),
    ) {
        let line = [&spoof[..], b", ", element.as_bytes()].concat();
        prop_assert_eq!(forwarded(&line).next(), Some(Hop::Address(address)));
        let line = [&spoof[..], b", ", address.to_string().as_bytes()].concat();
        prop_assert_eq!(x_forwarded_for(&line).next(), Some(Hop::Address(address)));
    }

    #[test]
    fn an_address_is_read_as_it_is_written(address: Ipv6Addr, port: u16) {
        let expected = Some(normalised(IpAddr::V6(address)));
        prop_assert_eq!(node(&address.to_string()), expected);
        prop_assert_eq!(node(&format!("[{address}]:{port}")), expected);
    }
}
