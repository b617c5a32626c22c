//! The form of a token: three parts in base64url between two dots. The first is a header that names the claimed key
//! and algorithm.
//!
//! Nothing here is trusted. Other members of a header are ignored if they only locate keys (`jku`, `x5u`, `jwk`,
//! `x5c`), and rejected if ignoring them would change the meaning of the token.

use super::error::{TokenError, TokenErrorKind};
use super::members::{Member, Members};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::Algorithm;
use std::borrow::Cow;

/// The longest token, in bytes. Servers rarely accept more than this in one header line.
pub const TOKEN_BYTES_MAX: usize = 8_192;

/// The longest name of a key, in bytes: room for a fingerprint in hexadecimal with a prefix.
pub const KID_BYTES_MAX: usize = 128;

/// The three parts of a token.
#[derive(Debug)]
pub(super) struct Parts<'a> {
    /// The header, as JSON.
    pub(super) header: Vec<u8>,
    /// The payload, as JSON.
    pub(super) payload: Vec<u8>,
    /// The signed bytes and the signature.
    pub(super) signed: Signed<'a>,
}

/// The signed bytes and the signature.
#[derive(Debug)]
pub(super) struct Signed<'a> {
    /// Header and payload as they were sent.
    pub(super) message: &'a [u8],
    /// The signature over them.
    pub(super) signature: Vec<u8>,
}

/// The relevant members of a header.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Header<'a> {
    /// The claimed algorithm.
    pub(super) algorithm: Algorithm,
    /// The name of the claimed key.
    pub(super) kid: Option<Cow<'a, str>>,
}

impl<'a> Parts<'a> {
    /// Splits a token into its parts.
    pub(super) fn of(token: &'a str) -> Result<Self, TokenError> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(TokenError::malformed(format!("the token has more than {TOKEN_BYTES_MAX} bytes")));
        }
        let wrong_count = || TokenError::malformed("the token does not have three parts");
        let (message, signature) = token.rsplit_once('.').ok_or_else(wrong_count)?;
        // With more parts, the payload would contain a dot, which is not base64url.
        let (header, payload) = message.split_once('.').ok_or_else(wrong_count)?;
        let signed = Signed { message: message.as_bytes(), signature: decoded("signature", signature)? };
        Ok(Self { header: decoded("header", header)?, payload: decoded("payload", payload)?, signed })
    }
}

/// Exactly one text decodes to each sequence of bytes: no padding, no other alphabet, no leftover bits.
fn decoded(part: &str, text: &str) -> Result<Vec<u8>, TokenError> {
    if text.is_empty() {
        return Err(TokenError::malformed(format!("the {part} is empty")));
    }
    URL_SAFE_NO_PAD.decode(text).map_err(|_| TokenError::malformed(format!("the {part} is not base64url")))
}

impl<'a> Header<'a> {
    /// Reads the JSON of a header.
    pub(super) fn read(json: &'a [u8]) -> Result<Self, TokenError> {
        let members = Members::read(json);
        let members = members.map_err(|problem| TokenError::malformed(format!("the header {problem}")))?;
        refuse_extensions(&members)?;
        let algorithm = match members.get("alg") {
            Some(Member::Text(name)) => name.parse().map_err(|_| unknown_algorithm())?,
            _ => return Err(TokenError::malformed("the header's `alg` is absent or not a string")),
        };
        let kid = match members.get("kid") {
            None => None,
            Some(Member::Text(kid)) if kid.len() <= KID_BYTES_MAX => Some(kid.clone()),
            Some(_) => return Err(TokenError::malformed("the header's `kid` is not a string, or too long")),
        };
        Ok(Self { algorithm, kid })
    }
}

fn unknown_algorithm() -> TokenError {
    TokenError::new(TokenErrorKind::Algorithm, "the header's `alg` is not an algorithm that is used here")
}

/// Members that would change the meaning of the rest.
fn refuse_extensions(members: &Members<'_>) -> Result<(), TokenError> {
    for name in ["crit", "enc", "zip"] {
        if members.get(name).is_some() {
            return Err(TokenError::malformed(format!("the header has `{name}`, which is not done here")));
        }
    }
    match members.get("b64") {
        None | Some(Member::Truth(true)) => Ok(()),
        Some(_) => Err(TokenError::malformed("the header's `b64` requests a payload that is not encoded")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_the_algorithm_and_the_key_of_a_header_count() {
        let json =
            br#"{"alg":"ES256","kid":"a","typ":7,"jku":"https://evil.example","x5c":["AA"],"jwk":{},"b64":true}"#;
        let header = Header::read(json).unwrap();
        assert_eq!(header, Header { algorithm: Algorithm::ES256, kid: Some("a".into()) });
    }

    #[test]
    fn every_text_has_one_spelling() {
        for text in ["e30=", "e3 0", "e31", "e30\n", "e_0", "e+0/", "é"] {
            assert!(decoded("part", text).is_err() || text == "e_0", "{text}");
        }
        assert_eq!(decoded("part", "e30").unwrap(), b"{}");
    }

    proptest! {
        #[test]
        fn no_token_makes_it_panic(token in r"[A-Za-z0-9_\-.=]{0,120}") {
            if let Ok(parts) = Parts::of(&token) {
                let _ = Header::read(&parts.header);
            }
        }

        #[test]
        fn no_header_makes_it_panic(json in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Header::read(&json);
        }
    }
}
