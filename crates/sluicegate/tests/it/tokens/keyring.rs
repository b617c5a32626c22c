//! Real keys of every kind, created once, and tokens that they sign: any header, any payload, any algorithm.

use super::{AUDIENCE, NOW_SECONDS};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, crypto};
use rcgen::{
    KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PKCS_RSA_SHA256, PublicKeyData as _,
    RsaKeySize,
};
use std::sync::LazyLock;

/// The secret shared with the issuer of secrets.
pub(super) const SHARED: &[u8] = b"this is shared with one issuer only, and long enough for SHA-512";

/// A key pair and its default algorithm.
pub(super) struct Signer {
    key: EncodingKey,
    pub(super) algorithm: Algorithm,
    pub(super) kid: &'static str,
    pub(super) public_pem: String,
    /// The public key with its type, in DER.
    pub(super) public_der: Vec<u8>,
    /// The public key alone: a point, or the numbers of an RSA key.
    pub(super) public_raw: Vec<u8>,
}

/// All keys of the tests.
pub(super) struct Keyring {
    pub(super) rsa: Signer,
    pub(super) other_rsa: Signer,
    pub(super) p256: Signer,
    pub(super) other_p256: Signer,
    pub(super) p384: Signer,
    pub(super) ed: Signer,
    pub(super) other_ed: Signer,
}

impl Keyring {
    /// Shared by all tests of a run, because creating RSA keys is slow.
    pub(super) fn get() -> &'static Self {
        static KEYRING: LazyLock<Keyring> = LazyLock::new(|| {
            let rsa = |kid| {
                let pair = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap();
                let key = EncodingKey::from_rsa_pem(pair.serialize_pem().as_bytes()).unwrap();
                Signer::new(&pair, key, Algorithm::RS256, kid)
            };
            let ec = |curve, algorithm, kid| {
                let pair = KeyPair::generate_for(curve).unwrap();
                let key = EncodingKey::from_ec_pem(pair.serialize_pem().as_bytes()).unwrap();
                Signer::new(&pair, key, algorithm, kid)
            };
            let ed = |kid| {
                let pair = KeyPair::generate_for(&PKCS_ED25519).unwrap();
                let key = EncodingKey::from_ed_pem(pair.serialize_pem().as_bytes()).unwrap();
                Signer::new(&pair, key, Algorithm::EdDSA, kid)
            };
            Keyring {
                rsa: rsa("rsa"),
                other_rsa: rsa("rsa"),
                p256: ec(&PKCS_ECDSA_P256_SHA256, Algorithm::ES256, "p256"),
                other_p256: ec(&PKCS_ECDSA_P256_SHA256, Algorithm::ES256, "p256"),
                p384: ec(&PKCS_ECDSA_P384_SHA384, Algorithm::ES384, "p384"),
                ed: ed("ed"),
                other_ed: ed("ed"),
            }
        });
        &KEYRING
    }
}

impl Signer {
    fn new(pair: &KeyPair, key: EncodingKey, algorithm: Algorithm, kid: &'static str) -> Self {
        let (public_pem, public_raw) = (pair.public_key_pem(), pair.public_key_raw().to_vec());
        Self { key, algorithm, kid, public_pem, public_der: pair.subject_public_key_info(), public_raw }
    }

    /// A signer with arbitrary bytes as its secret.
    pub(super) fn secret(secret: &[u8], algorithm: Algorithm) -> Self {
        let key = EncodingKey::from_secret(secret);
        let (public_pem, public_der, public_raw) = Default::default();
        Self { key, algorithm, kid: "secret", public_pem, public_der, public_raw }
    }

    /// The public key as a JSON Web Key without `alg`.
    pub(super) fn jwk(&self) -> serde_json::Value {
        let mut jwk = match self.algorithm {
            // The library accepts a private key of this kind only without the public one.
            Algorithm::EdDSA => {
                serde_json::json!({ "kty": "OKP", "crv": "Ed25519", "x": encoded(&self.public_raw) })
            }
            algorithm => serde_json::to_value(Jwk::from_encoding_key(&self.key, algorithm).unwrap()).unwrap(),
        };
        jwk = without(jwk, "alg");
        jwk["kid"] = self.kid.into();
        jwk
    }

    /// The usual header.
    pub(super) fn header(&self) -> Json {
        Json::default().with("alg", &quoted(&format!("{:?}", self.algorithm))).with("kid", &quoted(self.kid))
    }

    /// A token with these claims and the usual header.
    pub(super) fn token(&self, claims: &Json) -> String {
        self.token_with(&self.header(), claims)
    }

    /// A token with this header and these claims.
    pub(super) fn token_with(&self, header: &Json, claims: &Json) -> String {
        self.signed(header.to_string(), claims.to_string())
    }

    /// A token of any two texts, with a valid signature.
    pub(super) fn signed(&self, header: impl AsRef<[u8]>, payload: impl AsRef<[u8]>) -> String {
        self.message_signed(&format!("{}.{}", encoded(header), encoded(payload)))
    }

    /// Any text, with a valid signature.
    pub(super) fn message_signed(&self, message: &str) -> String {
        format!("{message}.{}", self.signature(message, self.algorithm))
    }

    /// A valid signature by any algorithm that the key supports.
    pub(super) fn signature(&self, message: &str, algorithm: Algorithm) -> String {
        crypto::sign(message.as_bytes(), &self.key, algorithm).unwrap()
    }
}

/// The key set of these signers.
pub(super) fn jwks(signers: &[&Signer]) -> String {
    jwks_of(signers.iter().map(|signer| signer.jwk()))
}

/// The key set of these keys.
pub(super) fn jwks_of(keys: impl IntoIterator<Item = serde_json::Value>) -> String {
    let keys: Vec<_> = keys.into_iter().collect();
    serde_json::json!({ "keys": keys }).to_string()
}

/// A key without one of its members.
pub(super) fn without(mut jwk: serde_json::Value, name: &str) -> serde_json::Value {
    jwk.as_object_mut().unwrap().remove(name);
    jwk
}

pub(super) fn encoded(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

pub(super) fn quoted(text: &str) -> String {
    format!("\"{text}\"")
}

/// A JSON object as text, in which a name may occur twice.
#[derive(Clone, Default)]
pub(super) struct Json(Vec<(String, String)>);

impl Json {
    /// Claims that are valid at the time of the tests, for the given issuer.
    pub(super) fn claims(issuer: &str) -> Self {
        Self::default()
            .with("iss", &quoted(issuer))
            .with("aud", &quoted(AUDIENCE))
            .with("sub", &quoted("alice"))
            .with("exp", &(NOW_SECONDS + 600).to_string())
    }

    /// Adds or replaces a member.
    pub(super) fn with(mut self, name: &str, value: &str) -> Self {
        match self.0.iter_mut().find(|member| member.0 == name) {
            Some(member) => member.1 = value.to_owned(),
            None => self.0.push((name.to_owned(), value.to_owned())),
        }
        self
    }

    /// Adds a member, even if it exists already.
    pub(super) fn and(mut self, name: &str, value: &str) -> Self {
        self.0.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Removes a member.
    pub(super) fn without(mut self, name: &str) -> Self {
        self.0.retain(|member| member.0 != name);
        self
    }
}

impl std::fmt::Display for Json {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let members: Vec<_> = self.0.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
        write!(formatter, "{{{}}}", members.join(","))
    }
}
