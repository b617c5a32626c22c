//! The order of sources, and invalid credentials.

use super::api_key::KeyHash;
use super::*;
use crate::identity::Identity;

const KEY: HeaderName = HeaderName::from_static("x-api-key");

fn keys() -> ApiKeys {
    let owner = Principal { identifier: "demo".into(), tier: Some("free".into()), tenant: Some("shop".into()) };
    ApiKeys::new(KEY, [(KeyHash::of(b"demo-key"), owner)])
}

fn look(identify: &Identify, fields: &[(HeaderName, &[u8])]) -> Result<String, Reason> {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        headers.append(name, HeaderValue::from_bytes(value).expect("a value"));
    }
    match identify.look(&headers, IpAddr::from([192, 0, 2, 7]), Timestamp::now(0)) {
        Ok(Lookup::Known(client)) => {
            Ok(format!("{:?} {} {:?}", client.identity(), client.tenant(), client.tier()))
        }
        Ok(Lookup::Unverified(_)) => Ok("unverified".to_owned()),
        Err(error) => Err(error.reason()),
    }
}

#[test]
fn a_known_key_is_its_owner_and_no_key_is_an_address() {
    let identify = Identify::new(vec![Source::ApiKeys(keys()), Source::Address]);
    assert_eq!(look(&identify, &[(KEY, b"demo-key")]), Ok("Named(\"demo\") shop Some(\"free\")".to_owned()));
    assert_eq!(look(&identify, &[]), Ok("Address(192.0.2.7) default None".to_owned()));
}

#[test]
fn a_key_that_is_wrong_never_falls_back_to_the_address() {
    let identify = Identify::new(vec![Source::ApiKeys(keys()), Source::Address]);
    for key in [&b"wrong"[..], b"", b"demo-key ", b"Demo-key", b"\xff\xfe", b"192.0.2.7"] {
        assert_eq!(look(&identify, &[(KEY, key)]), Ok("unverified".to_owned()), "{key:?}");
    }
    assert_eq!(look(&identify, &[(KEY, b"demo-key"), (KEY, b"demo-key")]), Err(Reason::Repeated));
}

/// An application that turns header fields into variables would accept such a key, and the address would be charged
/// for it.
#[test]
fn a_key_in_a_field_that_looks_the_same_is_refused() {
    let identify = Identify::new(vec![Source::ApiKeys(keys()), Source::Address]);
    for name in ["x_api_key", "x-api_key", "x_api-key", "x.api.key", "x-api.key"] {
        let twin = HeaderName::from_static(name);
        assert_eq!(look(&identify, &[(twin.clone(), b"demo-key")]), Err(Reason::Repeated), "{name}");
        assert_eq!(look(&identify, &[(KEY, b"demo-key"), (twin, b"other")]), Err(Reason::Repeated), "{name}");
    }
    for name in ["x_api_keys", "xaapiakey", "x-api-ke"] {
        let other = HeaderName::from_static(name);
        assert_eq!(look(&identify, &[(other, b"x")]), Ok("Address(192.0.2.7) default None".to_owned()), "{name}");
    }
}

#[test]
fn without_a_source_that_applies_a_request_is_unauthorized() {
    let identify = Identify::new(vec![Source::ApiKeys(keys())]);
    assert_eq!(look(&identify, &[]), Err(Reason::Missing));
    let error = identify.look(&HeaderMap::new(), IpAddr::from([192, 0, 2, 7]), Timestamp::now(0)).unwrap_err();
    assert_eq!(error.to_string(), "the request has no credential: send `x-api-key`");
}

#[test]
fn the_first_source_that_applies_answers() {
    let identify = Identify::new(vec![Source::Address, Source::ApiKeys(keys())]);
    assert_eq!(look(&identify, &[(KEY, b"demo-key")]), Ok("Address(192.0.2.7) default None".to_owned()));
}

#[test]
fn an_unverified_key_is_a_name_of_its_own_kind() {
    let identify = Identify::new(vec![Source::ApiKeys(keys().unverified())]);
    assert_eq!(look(&identify, &[(KEY, b"demo")]), Ok("Claimed(\"demo\") default None".to_owned()));
    assert_eq!(look(&identify, &[(KEY, b"demo-key")]), Ok("Named(\"demo\") shop Some(\"free\")".to_owned()));
    for key in [&b""[..], b"\xff", b"a\tb", &[b'x'; 1_025]] {
        assert_eq!(look(&identify, &[(KEY, key)]), Err(Reason::UnknownKey), "{key:?}");
    }
}

#[test]
fn ipv6_is_counted_by_its_network() {
    let identify = Identify::new(vec![Source::Address]).ipv6_prefix(48);
    let peer: IpAddr = "2001:db8:1:2::3".parse().unwrap();
    let headers = HeaderMap::new();
    let Ok(Lookup::Known(client)) = identify.look(&headers, peer, Timestamp::now(0)) else { panic!() };
    assert_eq!(client.identity(), Identity::Address("2001:db8:1::".parse().unwrap()));
    assert_eq!((client.address(), client.counted().to_string()), (peer, "2001:db8:1::".to_owned()));
}

#[test]
fn hashes_are_read_from_hexadecimal_digits_only() {
    let digits = "c48a01f49fd0f2cc404bc3cbbc80e91457a3d41bb429a695243de4c61794155c";
    assert_eq!(KeyHash::from_hex(digits), Some(KeyHash::of(b"demo-key")));
    assert_eq!(KeyHash::from_hex(&digits.to_uppercase()), Some(KeyHash::of(b"demo-key")));
    for wrong in ["", &digits[1..], &format!("{digits}0"), &digits.replace('c', "g"), &digits.replace('c', "é")] {
        assert_eq!(KeyHash::from_hex(wrong), None, "{wrong}");
    }
    assert_eq!(format!("{:?}", KeyHash::of(b"demo-key")), "KeyHash(…)");
}

#[test]
fn keys_beyond_the_bound_are_unknown() {
    let longest = "k".repeat(api_key::KEY_BYTES_MAX);
    let longer = format!("{longest}k");
    let owner = Principal { identifier: "demo".into(), tier: None, tenant: None };
    let hashes = [&longest, &longer].map(|key| (KeyHash::of(key.as_bytes()), owner.clone()));
    let identify = Identify::new(vec![Source::ApiKeys(ApiKeys::new(KEY, hashes))]);
    assert_eq!(look(&identify, &[(KEY, longest.as_bytes())]), Ok("Named(\"demo\") default None".to_owned()));
    assert_eq!(look(&identify, &[(KEY, longer.as_bytes())]), Ok("unverified".to_owned()));
}
