//! Headers with unexpected keys, extensions and locations.

use super::super::keyring::{Json, Keyring, quoted};
use super::super::{EC, RSA};
use super::{Case, TokenErrorKind as Kind, case};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = names_of_keys();
    cases.extend(extensions());
    cases.extend(keys_in_the_header());
    cases.extend(damaged());
    cases
}

fn names_of_keys() -> Vec<Case> {
    let signer = &Keyring::get().rsa;
    let named = |kid: &str| signer.token_with(&signer.header().with("kid", kid), &Json::claims(RSA));
    let mut cases = Vec::new();
    for kid in [
        "other",
        "",
        "RSA",
        "rsa ",
        "rs",
        "../../dev/null",
        "/dev/null",
        "' OR '1'='1",
        "rsa' UNION SELECT 'canary",
        "${jndi:ldap://canary.example}",
        "rsa\\u0000",
        "rsa\\u0000other",
        "|canary",
        "*",
        "r\\u0455a",
    ] {
        cases.push(case(format!("kid {kid:?}"), Kind::UnknownKey, named(&quoted(kid))));
    }
    for (name, kid) in [
        ("kid too long", quoted(&"k".repeat(129))),
        ("kid of 5 kB", quoted(&"k".repeat(5_000))),
        ("kid is a number", "7".to_owned()),
        ("kid is null", "null".to_owned()),
        ("kid is a list", "[\"rsa\"]".to_owned()),
        ("kid is an object", "{\"rsa\":1}".to_owned()),
        ("kid is true", "true".to_owned()),
    ] {
        cases.push(case(name, Kind::Malformed, named(&kid)));
    }
    cases.push(case("kid of a key of the same issuer that did not sign", Kind::Algorithm, {
        let signer = &Keyring::get().p256;
        signer.token_with(&signer.header().with("kid", "\"p384\""), &Json::claims(EC))
    }));
    cases
}

fn extensions() -> Vec<Case> {
    let signer = &Keyring::get().p256;
    let mut cases = Vec::new();
    for (name, value) in [
        ("crit", "[\"exp\"]"),
        ("crit", "[]"),
        ("crit", "[\"b64\"]"),
        ("crit", "[\"http://example.com/UNDEFINED\"]"),
        ("crit", "null"),
        ("crit", "\"exp\""),
        ("b64", "false"),
        ("b64", "\"false\""),
        ("b64", "0"),
        ("b64", "null"),
        ("zip", "\"DEF\""),
        ("enc", "\"A256GCM\""),
    ] {
        let token = signer.token_with(&signer.header().with(name, value), &Json::claims(EC));
        cases.push(case(format!("{name}: {value}"), Kind::Malformed, token));
    }
    cases
}

/// The token carries its own key, and a valid signature by it.
fn keys_in_the_header() -> Vec<Case> {
    let keyring = Keyring::get();
    let mut cases = Vec::new();
    for (signer, issuer) in [(&keyring.other_rsa, RSA), (&keyring.other_p256, EC)] {
        let key = signer.jwk().to_string();
        let set = format!("\"https://evil.example/{}\"", signer.kid);
        let chain = format!("[{}]", quoted(&super::super::keyring::encoded(&signer.public_der)));
        for (name, value) in
            [("jwk", &key), ("jku", &set), ("x5u", &set), ("x5c", &chain), ("x5t", &quoted("AAAA"))]
        {
            let token = signer.token_with(&signer.header().with(name, value), &Json::claims(issuer));
            cases.push(case(format!("own key by {name} at {issuer}"), Kind::Signature, token));
        }
        let header = signer.header().with("jwk", &key).with("kid", "\"mine\"");
        let token = signer.token_with(&header, &Json::claims(issuer));
        cases.push(case(format!("own key by jwk with its own name at {issuer}"), Kind::UnknownKey, token));
    }
    cases
}

fn damaged() -> Vec<Case> {
    let signer = &Keyring::get().rsa;
    let claims = Json::claims(RSA).to_string();
    let header = signer.header();
    let text = header.to_string();
    let mut cases = vec![
        case("alg twice", Kind::Malformed, header.clone().and("alg", "\"RS256\"").to_string()),
        case("alg twice, none first", Kind::Malformed, format!("{{\"alg\":\"none\",{}", &text[1..])),
        case("alg twice, none last", Kind::Malformed, header.clone().and("alg", "\"none\"").to_string()),
        case("alg twice, once escaped", Kind::Malformed, header.clone().and("\\u0061lg", "\"RS256\"").to_string()),
        case("kid twice", Kind::Malformed, header.clone().and("kid", "\"rsa\"").to_string()),
        case("typ twice", Kind::Malformed, header.clone().and("typ", "1").and("typ", "2").to_string()),
        case("crit by an escape", Kind::Malformed, header.and("\\u0063rit", "[\"exp\"]").to_string()),
        case("header with a byte order mark", Kind::Malformed, format!("\u{feff}{text}")),
        case("header with something after it", Kind::Malformed, format!("{text}x")),
        case("header with another after it", Kind::Malformed, format!("{text}{text}")),
        case("header with a NUL after it", Kind::Malformed, format!("{text}\0")),
        case("header in a list", Kind::Malformed, format!("[{text}]")),
        case("header in a string", Kind::Malformed, "\"{}\"".to_owned()),
        case("header with a comment", Kind::Malformed, format!("/* */{text}")),
        case("header with a comma too many", Kind::Malformed, text.replace('}', ",}")),
        case("header without its end", Kind::Malformed, text.replace('}', "")),
        case("header in single quotes", Kind::Malformed, text.replace('"', "'")),
    ];
    // The cases above are headers; here they become tokens with valid signatures.
    for case in &mut cases {
        case.token = signer.signed(&case.token, &claims);
    }
    let utf16: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    cases.push(case("header in UTF-16", Kind::Malformed, signer.signed(utf16, &claims)));
    cases.push(case("header that is no text", Kind::Malformed, signer.signed([0xff, 0xfe, 0x00], &claims)));
    cases
}
