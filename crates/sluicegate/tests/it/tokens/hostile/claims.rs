//! Claims with the wrong value or type, or given twice; all with valid signatures.

use super::super::keyring::{Json, Keyring, quoted};
use super::super::{AUDIENCE, EC, ED, LEEWAY_SECONDS, NOW_SECONDS, RSA};
use super::{Case, TokenErrorKind as Kind, case};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = types();
    cases.extend(times());
    cases.extend(issuers_and_audiences());
    cases.extend(texts());
    cases.extend(twice());
    cases.extend(damaged());
    cases
}

fn signed(claims: &Json) -> String {
    Keyring::get().ed.token(claims)
}

/// Every checked claim, absent and in every wrong type.
fn types() -> Vec<Case> {
    let mut cases = Vec::new();
    for name in ["iss", "aud", "sub", "exp"] {
        cases.push(case(format!("no {name}"), Kind::Claim, signed(&Json::claims(ED).without(name))));
    }
    for name in ["iss", "aud", "sub", "exp", "nbf", "iat", "tier", "org"] {
        let mut values = vec!["null", "true", "{}", "{\"a\":\"api\"}", "[7]", "[[]]", "-7", "7.5", "1e3"];
        match name {
            "exp" | "nbf" | "iat" => values.extend(["\"1800000600\"", "[]", "[\"api\"]"]),
            "aud" => values.extend(["7", "[\"api\",7]", "[\"api\",null]", "[[\"api\"]]"]),
            _ => values.extend(["7", "[]", "[\"api\"]"]),
        }
        for value in values {
            let token = signed(&Json::claims(ED).with(name, value));
            cases.push(case(format!("{name} is {value}"), Kind::Claim, token));
        }
    }
    cases
}

fn times() -> Vec<Case> {
    let with = |name: &str, value: &str| signed(&Json::claims(ED).with(name, value));
    let (past, future) = (NOW_SECONDS - LEEWAY_SECONDS, NOW_SECONDS + LEEWAY_SECONDS + 1);
    let mut cases = vec![
        case("expired just now", Kind::Expired, with("exp", &past.to_string())),
        case("expired a second ago", Kind::Expired, with("exp", &(past - 1).to_string())),
        case("expired in 1970", Kind::Expired, with("exp", "0")),
        case("expired a second after 1970", Kind::Expired, with("exp", "1")),
        case("nbf a second too late", Kind::NotYetValid, with("nbf", &future.to_string())),
        case("nbf in the year 9999", Kind::NotYetValid, with("nbf", "253402300799")),
        case("iat a second too late", Kind::NotYetValid, with("iat", &future.to_string())),
        case("nbf in milliseconds", Kind::Claim, with("nbf", "1800000000000")),
        case("expired, although nbf is wrong too", Kind::Expired, {
            signed(&Json::claims(ED).with("exp", "7").with("nbf", "\"x\""))
        }),
    ];
    for value in [
        "253402300800",
        "1800000600000",
        "9007199254740993",
        "1000000000000000000",
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551615",
        "18446744073709551616",
        "100000000000000000000000000000",
        "1e18",
        "1e400",
        "1800000600.0",
        "1.8000006e9",
        "-0",
        "-1800000600",
        "-9223372036854775808",
    ] {
        let kind = if value == "1e400" { Kind::Malformed } else { Kind::Claim };
        cases.push(case(format!("exp {value}"), kind, with("exp", value)));
    }
    for value in ["0x6b49d200", "+1800000600", "01800000600", "1_800_000_600", "1800000600n", "NaN", "Infinity"] {
        cases.push(case(format!("exp {value}, which is no JSON"), Kind::Malformed, with("exp", value)));
    }
    cases
}

fn issuers_and_audiences() -> Vec<Case> {
    let keyring = Keyring::get();
    let mut cases = vec![
        // One issuer of ours signs claims of another.
        case("RSA issuer's claims by the EC issuer", Kind::Algorithm, {
            keyring.p256.token_with(&keyring.p256.header().with("kid", "\"rsa\""), &Json::claims(RSA))
        }),
        case("EC issuer's claims by the RSA issuer", Kind::UnknownKey, keyring.rsa.token(&Json::claims(EC))),
    ];
    for issuer in [
        "",
        "https://evil.example",
        "https://ed.example/",
        "https://ED.example",
        "https://ed.example ",
        "http://ed.example",
        "ed.example",
        "https://ed.example\\u0000",
        "https://ed.example.evil.example",
        "https://ed.example#",
        "https://\\u0435d.example",
        "*",
    ] {
        let token = signed(&Json::claims(ED).with("iss", &quoted(issuer)));
        cases.push(case(format!("iss {issuer:?}"), Kind::Issuer, token));
    }
    for audience in [
        "\"\"",
        "\"other\"",
        "\"API\"",
        "\"api \"",
        "\"ap\"",
        "\"apis\"",
        "\"api,other\"",
        "\"api other\"",
        "\"*\"",
        "[]",
        "[\"\"]",
        "[\"other\",\"another\"]",
        "\"api\\u0000\"",
    ] {
        let token = signed(&Json::claims(ED).with("aud", audience));
        cases.push(case(format!("aud {audience}"), Kind::Audience, token));
    }
    assert_eq!(AUDIENCE, "api");
    cases
}

fn texts() -> Vec<Case> {
    let mut cases = Vec::new();
    for name in ["sub", "tier", "org"] {
        let bytes_max = if name == "sub" { 1_024 } else { 256 };
        let values = [
            ("empty", String::new()),
            ("too long", "x".repeat(bytes_max + 1)),
            ("too long in bytes", "é".repeat(bytes_max / 2 + 1)),
            ("with CRLF", "a\\r\\nX-Canary: 1".to_owned()),
            ("with a newline", "a\\n".to_owned()),
            ("with a NUL", "alice\\u0000".to_owned()),
            ("with an escape", "\\u001b[31m".to_owned()),
            ("with a delete", "a\u{7f}".to_owned()),
            ("with a control of Latin-1", "a\u{85}b".to_owned()),
        ];
        for (what, value) in values {
            cases.push(case(
                format!("{name} {what}"),
                Kind::Claim,
                signed(&Json::claims(ED).with(name, &quoted(&value))),
            ));
        }
        let lone = signed(&Json::claims(ED).with(name, "\"\\ud800\""));
        cases.push(case(format!("{name} with half a character"), Kind::Malformed, lone));
    }
    cases
}

/// The same name twice: a reader of the first and a reader of the last would accept different values.
fn twice() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, value) in [
        ("iss", quoted(ED)),
        ("aud", quoted(AUDIENCE)),
        ("sub", quoted("root")),
        ("exp", (NOW_SECONDS + 600).to_string()),
        ("exp", "7".to_owned()),
    ] {
        let token = signed(&Json::claims(ED).and(name, &value));
        cases.push(case(format!("{name} twice, then {value}"), Kind::Malformed, token));
    }
    for (name, escaped) in [("iss", "i\\u0073s"), ("aud", "\\u0061ud"), ("sub", "su\\u0062"), ("exp", "\\u0065xp")]
    {
        let value = if name == "exp" { "1900000000".to_owned() } else { quoted("root") };
        let token = signed(&Json::claims(ED).and(escaped, &value));
        cases.push(case(format!("{name} twice, once as {escaped}"), Kind::Malformed, token));
    }
    for name in ["nbf", "iat", "tier", "org", "jti", "scope", ""] {
        let value = if matches!(name, "nbf" | "iat") { "1" } else { "\"a\"" };
        let token = signed(&Json::claims(ED).and(name, value).and(name, value));
        cases.push(case(format!("{name:?} twice, the same both times"), Kind::Malformed, token));
    }
    cases
}

fn damaged() -> Vec<Case> {
    let text = Json::claims(ED).to_string();
    let (signer, header) = (&Keyring::get().ed, Keyring::get().ed.header().to_string());
    let mut cases = Vec::new();
    for (name, payload) in [
        ("a list around", format!("[{text}]")),
        ("a string around", format!("{text:?}")),
        ("null", "null".to_owned()),
        ("an empty list", "[]".to_owned()),
        ("a byte order mark", format!("\u{feff}{text}")),
        ("something after", format!("{text}x")),
        ("another after", format!("{text}{text}")),
        ("a NUL after", format!("{text}\0")),
        ("no end", text.replace('}', "")),
        ("a comma too many", text.replace('}', ",}")),
        ("a comment", text.replace('{', "{/* */")),
        ("single quotes", text.replace('"', "'")),
        ("a raw newline in a text", text.replace("alice", "ali\nce")),
        ("names without quotes", text.replace("\"sub\"", "sub")),
        ("a token inside", signer.token(&Json::claims(ED))),
        ("deep lists", text.replace('}', &format!(",\"x\":{}{}}}", "[".repeat(1_000), "]".repeat(1_000)))),
        ("deep objects", text.replace('}', &format!(",\"x\":{}1{}}}", "{\"x\":".repeat(700), "}".repeat(700)))),
    ] {
        cases.push(case(format!("payload: {name}"), Kind::Malformed, signer.signed(&header, payload)));
    }
    let not_text = [text.as_bytes(), &[0xc3, 0x28]].concat();
    cases.push(case("payload: bytes that are no text", Kind::Malformed, signer.signed(&header, not_text)));
    let inside = text.replace("alice", "\u{0}").into_bytes();
    let inside: Vec<u8> = inside.into_iter().map(|byte| if byte == 0 { 0xff } else { byte }).collect();
    cases.push(case("payload: a text that is no text", Kind::Malformed, signer.signed(&header, inside)));
    let empty = signer.signed(&header, "{}");
    cases.push(case("payload: nothing claimed", Kind::Claim, empty));
    cases
}
