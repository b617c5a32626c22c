//! Parses JSON Web Key Sets.
//!
//! A set that does not parse is rejected as a whole. Single keys for another purpose, or that cannot be used, are
//! skipped and reported: issuers publish keys for encryption, new curves and old sizes beside the relevant ones. A
//! shared secret rejects the whole set, because sets are published.

use super::error::KeysError;
use super::keys::{Key, KeySet, algorithms_of};
use super::parts::KID_BYTES_MAX;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;
use serde_json::value::RawValue;

/// The longest key set, in bytes. Large sets of today have 20 kB.
pub const JWKS_BYTES_MAX: usize = 262_144;

/// The most keys in a set. Issuers have two or three, and some have a few for each of their customers.
pub const JWKS_KEYS_MAX: usize = 64;

/// The keys of a set, and the keys that were skipped.
#[derive(Debug)]
pub(super) struct Jwks {
    /// The usable keys: at least one.
    pub(super) set: KeySet,
    /// Why each of the others was skipped.
    pub(super) skipped: Vec<String>,
}

#[derive(Deserialize)]
struct Document<'a> {
    #[serde(borrow)]
    keys: Vec<&'a RawValue>,
}

/// Reads a key set.
pub(super) fn read(json: &str) -> Result<Jwks, KeysError> {
    if json.len() > JWKS_BYTES_MAX {
        return Err(KeysError::new(format!("the key set has more than {JWKS_BYTES_MAX} bytes")));
    }
    let document: Document<'_> = serde_json::from_str(json)
        .map_err(|_| KeysError::new("this is not a JSON Web Key Set: it needs `{\"keys\":[…]}`"))?;
    if document.keys.len() > JWKS_KEYS_MAX {
        let count = document.keys.len();
        return Err(KeysError::new(format!("the key set has {count} keys: at most {JWKS_KEYS_MAX} are read")));
    }
    let (mut keys, mut skipped) = (Vec::new(), Vec::new());
    for (index, json) in document.keys.iter().enumerate() {
        match read_key(json.get()) {
            Ok(key) => keys.push(key),
            Err(UnusableKey::Skipped(reason)) => skipped.push(format!("key {}: {reason}", index + 1)),
            Err(UnusableKey::Secret) => {
                return Err(KeysError::new(
                    "the key set holds a shared secret (`\"kty\":\"oct\"`): a secret does not belong in a set, and \
                     never beside public keys",
                ));
            }
        }
    }
    if keys.is_empty() {
        let reasons = if skipped.is_empty() { "it is empty".to_owned() } else { skipped.join("; ") };
        return Err(KeysError::new(format!("the key set has no key that can be used: {reasons}")));
    }
    Ok(Jwks { set: KeySet::new(keys), skipped })
}

enum UnusableKey {
    Skipped(String),
    Secret,
}

fn skip(reason: impl Into<String>) -> UnusableKey {
    UnusableKey::Skipped(reason.into())
}

fn read_key(json: &str) -> Result<Key, UnusableKey> {
    let jwk: Jwk = serde_json::from_str(json).map_err(|_| skip("it is not understood"))?;
    check_type(&jwk)?;
    check_use(&jwk)?;
    let key = DecodingKey::from_jwk(&jwk).map_err(|_| skip("its numbers are not base64url"))?;
    let fitting = algorithms_of(&key).map_err(|error| skip(error.to_string()))?;
    let algorithms = match jwk.common.key_algorithm {
        None => fitting.to_vec(),
        Some(named) => match Algorithm::try_from(named) {
            Ok(algorithm) if fitting.contains(&algorithm) => vec![algorithm],
            _ => return Err(skip("its `alg` is not one for such a key that is used here")),
        },
    };
    let kid = jwk.common.key_id.map(String::into_boxed_str);
    if kid.as_ref().is_some_and(|kid| kid.len() > KID_BYTES_MAX) {
        return Err(skip(format!("its `kid` has more than {KID_BYTES_MAX} bytes")));
    }
    Ok(Key::new(kid, key, &algorithms))
}

/// The library reads the numbers of a key without checking its curve.
fn check_type(jwk: &Jwk) -> Result<(), UnusableKey> {
    let is_known = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => true,
        AlgorithmParameters::EllipticCurve(key) => match key.curve {
            EllipticCurve::P256 => has_length(&key.x, 32) && has_length(&key.y, 32),
            EllipticCurve::P384 => has_length(&key.x, 48) && has_length(&key.y, 48),
            _ => false,
        },
        AlgorithmParameters::OctetKeyPair(key) => key.curve == EllipticCurve::Ed25519 && has_length(&key.x, 32),
        AlgorithmParameters::OctetKey(_) => return Err(UnusableKey::Secret),
        _ => false,
    };
    if is_known { Ok(()) } else { Err(skip("its type or its curve is not used here")) }
}

/// True if unpadded base64url of this length decodes to `bytes` bytes.
fn has_length(text: &str, bytes: usize) -> bool {
    text.len() == (bytes * 4).div_ceil(3)
}

fn check_use(jwk: &Jwk) -> Result<(), UnusableKey> {
    if jwk.common.public_key_use.as_ref().is_some_and(|purpose| *purpose != PublicKeyUse::Signature) {
        return Err(skip("its `use` is not `sig`"));
    }
    let operations = jwk.common.key_operations.as_ref();
    if operations.is_some_and(|operations| !operations.contains(&KeyOperations::Verify)) {
        return Err(skip("its `key_ops` do not hold `verify`"));
    }
    Ok(())
}
