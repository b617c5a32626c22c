//! Texts that are almost tokens.

use super::super::keyring::{Json, Keyring, encoded};
use super::super::{EC, RSA};
use super::{Case, TokenErrorKind as Kind, case};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = parts();
    cases.extend(encodings());
    cases.extend(sizes());
    cases
}

fn parts() -> Vec<Case> {
    let signer = &Keyring::get().p256;
    let token = signer.token(&Json::claims(EC));
    let [header, payload, signature]: [&str; 3] = token.split('.').collect::<Vec<_>>().try_into().unwrap();
    [
        ("nothing", String::new()),
        ("one dot", ".".to_owned()),
        ("two dots", "..".to_owned()),
        ("three dots", "...".to_owned()),
        ("a word", "canary".to_owned()),
        ("only a header", header.to_owned()),
        ("no signature and no dot", format!("{header}.{payload}")),
        ("no signature", format!("{header}.{payload}.")),
        ("no payload", format!("{header}..{signature}")),
        ("no header", format!(".{payload}.{signature}")),
        ("a dot before", format!(".{token}")),
        ("a dot after", format!("{token}.")),
        ("four parts", format!("{token}.{signature}")),
        ("five parts, as if encrypted", format!("{header}.{signature}.{signature}.{payload}.{signature}")),
        ("two tokens", format!("{token},{token}")),
        ("two tokens with a space", format!("{token} {token}")),
        (
            "JSON serialization",
            format!(r#"{{"payload":"{payload}","protected":"{header}","signature":"{signature}"}}"#),
        ),
        ("header and payload swapped", signer.message_signed(&format!("{payload}.{header}"))),
        ("payload twice", format!("{payload}.{payload}.{signature}")),
        ("scheme in front", format!("Bearer {token}")),
        ("in quotes", format!("\"{token}\"")),
        ("in brackets", format!("<{token}>")),
    ]
    .into_iter()
    .map(|(name, token)| case(name, Kind::Malformed, token))
    .collect()
}

fn encodings() -> Vec<Case> {
    let signer = &Keyring::get().p256;
    let token = signer.token(&Json::claims(EC));
    let mut cases = Vec::new();
    for (name, text) in [
        ("space", " "),
        ("newline", "\n"),
        ("CRLF", "\r\n"),
        ("tab", "\t"),
        ("NUL", "\0"),
        ("padding", "="),
        ("twice padding", "=="),
        ("percent", "%3D"),
        ("letter beyond ASCII", "é"),
        ("zero-width space", "\u{200b}"),
    ] {
        cases.push(case(format!("{name} after"), Kind::Malformed, format!("{token}{text}")));
        cases.push(case(format!("{name} before"), Kind::Malformed, format!("{text}{token}")));
        cases.push(case(format!("{name} inside"), Kind::Malformed, token.replacen('.', &format!("{text}."), 1)));
    }
    // Validly signed: only the encoding of the bytes is wrong. The claims need both letters in which the alphabets
    // differ, and a length that needs padding.
    let header = signer.header().to_string();
    let claims = Json::claims(EC).with("x", "\"???>>>~~~\"").to_string();
    let standard = format!("{}.{}", encoded(&header), STANDARD_NO_PAD.encode(&claims));
    assert!(standard.contains(['+', '/']));
    cases.push(case("the other alphabet", Kind::Malformed, signer.message_signed(&standard)));
    let padded =
        (0..3).map(|length| Json::claims(EC).with("x", &format!("\"{}\"", "x".repeat(length))).to_string());
    let padded = padded.map(|claims| URL_SAFE.encode(claims)).find(|claims| claims.ends_with('=')).unwrap();
    let padded = signer.message_signed(&format!("{}.{padded}", encoded(&header)));
    cases.push(case("payload with padding, signed", Kind::Malformed, padded));
    cases.push(case("bits left over in the signature", Kind::Malformed, with_bits_left_over(&token)));
    cases
}

/// 64 bytes end in a letter with only two significant bits: any other letter with the same two bits would decode to
/// the same bytes.
fn with_bits_left_over(token: &str) -> String {
    let (message, last) = token.split_at(token.len() - 1);
    let next = match last {
        "A" => 'B',
        "Q" => 'R',
        "g" => 'h',
        "w" => 'x',
        other => panic!("{other} is not the last letter of 64 bytes"),
    };
    format!("{message}{next}")
}

fn sizes() -> Vec<Case> {
    let signer = &Keyring::get().rsa;
    let filled =
        |length: usize| signer.token(&Json::claims(RSA).with("x", &format!("\"{}\"", "x".repeat(length))));
    // The longest readable token would be accepted, and one more base64 letter is not.
    let length = (0..9_000).rev().step_by(1).find(|length| filled_length(*length, signer) <= 8_192).unwrap();
    assert!(super::verify(&super::tokens(), &filled(length)).is_ok());
    vec![
        case("one byte too long", Kind::Malformed, filled(length + 1)),
        case("a megabyte", Kind::Malformed, filled(1_000_000)),
        case("a megabyte of dots", Kind::Malformed, ".".repeat(1_000_000)),
    ]
}

/// The length of such a token, without signing it.
fn filled_length(length: usize, signer: &super::super::keyring::Signer) -> usize {
    let claims = Json::claims(RSA).with("x", "\"\"").to_string().len() + length;
    let base64 = |bytes: usize| (bytes * 4).div_ceil(3);
    base64(signer.header().to_string().len()) + 1 + base64(claims) + 1 + base64(256)
}
