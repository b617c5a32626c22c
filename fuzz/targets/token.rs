//! Signed tokens. The input is the JSON of a header, the JSON of a payload, and bytes that select how to damage a valid
//! token, each on a line.
//!
//! Properties: a second parser accepts the same JSON. A token is valid if
//! it is exactly the signed text, and invalid if any single character differs.

#![no_main]

use std::pin::pin;
use std::sync::LazyLock;
use std::task::{Context, Poll, Waker};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use sha2::Sha256;
use sluicegate::core::Timestamp;
use sluicegate::identify::token::{IssuerOptions, Keys, Tokens, try_header, try_payload};

const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";
const NOW_SECONDS: u64 = 1_705_312_800;
const NOW: Timestamp = Timestamp::from_micros(NOW_SECONDS * 1_000_000);

static TOKENS: LazyLock<Tokens> = LazyLock::new(|| {
    let keys = Keys::secret(SECRET).expect("long enough");
    Tokens::new(vec![IssuerOptions::new("me", ["api"], keys)]).expect("good settings")
});

fuzz_target!(|bytes: &[u8]| {
    let mut lines = bytes.splitn(3, |byte| *byte == b'\n');
    let (header, payload) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let damage = lines.next().unwrap_or_default();
    let (good_header, good_payload) = (try_header(header).is_ok(), try_payload(&TOKENS, payload, NOW).is_ok());
    assert!(!good_header || is_header(header), "{}", header.escape_ascii());
    assert!(!good_payload || is_payload(payload), "{}", payload.escape_ascii());
    if let Ok(text) = str::from_utf8(bytes) {
        assert!(!is_verified(text), "nobody has signed this");
    }
    let token = signed(header, payload);
    let verified = is_verified(&token);
    assert!(!verified || (good_header && good_payload), "a part of it was refused");
    let plain = signed(br#"{"alg":"HS256"}"#, payload);
    assert_eq!(is_verified(&plain), good_payload && plain.len() <= sluicegate::identify::token::TOKEN_BYTES_MAX);
    if verified {
        assert!(!is_verified(&unsigned(header, payload)));
    }
    for good in [&token, &plain] {
        let damaged = damaged(good, damage);
        assert!(damaged == *good || !is_verified(&damaged), "{good} is not {damaged}");
    }
});

/// With fixed keys the future is ready at once.
fn is_verified(token: &str) -> bool {
    let verifying = pin!(TOKENS.verify(token, NOW));
    match verifying.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(verified) => verified.is_ok(),
        Poll::Pending => panic!("fixed keys have to be fetched"),
    }
}

fn signed(header: &[u8], payload: &[u8]) -> String {
    let message = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(payload));
    let mut signing = Hmac::<Sha256>::new_from_slice(SECRET).expect("any length will do");
    signing.update(message.as_bytes());
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(signing.finalize().into_bytes()))
}

fn unsigned(header: &[u8], payload: &[u8]) -> String {
    format!("{}.{}.", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(payload))
}

/// Replaces, inserts or removes characters; each edit takes a position, an operation and a character from the bytes.
fn damaged(token: &str, damage: &[u8]) -> String {
    const CHARACTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.=";
    let mut characters: Vec<u8> = token.bytes().collect();
    for step in damage.chunks_exact(4) {
        let at = usize::from(u16::from_be_bytes([step[0], step[1]])) % (characters.len() + 1);
        let character = CHARACTERS[usize::from(step[3]) % CHARACTERS.len()];
        match step[2] % 4 {
            0 => characters.insert(at, character),
            1 if at < characters.len() => drop(characters.remove(at)),
            2 => characters.truncate(at),
            _ if at < characters.len() => characters[at] = character,
            _ => {}
        }
    }
    String::from_utf8(characters).expect("only ASCII was put in")
}

fn is_header(json: &[u8]) -> bool {
    let Ok(Value::Object(members)) = serde_json::from_slice(json) else { return false };
    let unknown = ["crit", "enc", "zip"].iter().any(|name| members.contains_key(*name));
    let has_algorithm = members.get("alg").and_then(Value::as_str).is_some_and(|name| name != "none");
    has_algorithm && !unknown && members.get("kid").is_none_or(Value::is_string)
}

fn is_payload(json: &[u8]) -> bool {
    let Ok(Value::Object(members)) = serde_json::from_slice(json) else { return false };
    let seconds = |name: &str| members.get(name).and_then(Value::as_u64);
    let is_for_us = match members.get("aud") {
        Some(Value::Array(names)) => names.iter().any(|name| name == "api"),
        Some(name) => name == "api",
        None => false,
    };
    let is_good_now = seconds("exp").is_some_and(|end| end > NOW_SECONDS)
        && (!members.contains_key("nbf") || seconds("nbf").is_some_and(|start| start <= NOW_SECONDS));
    let names_somebody = members.get("sub").and_then(Value::as_str).is_some_and(|name| !name.is_empty());
    is_for_us && is_good_now && names_somebody && members.get("iss").is_some_and(|issuer| issuer == "me")
}
