//! The keys of an issuer. The key, never the token, determines the algorithms that it is good for.
//!
//! A set contains either one shared secret or public keys, never both, so that a public key cannot be used as a
//! secret. A key set cannot express that a token was revoked.

use super::error::{KeysError, TokenError, TokenErrorKind};
use super::jwks;
use super::parts::{Header, Signed};
use super::remote::{KeySource, Remote};
use jsonwebtoken::crypto::aws_lc;
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind};
use sluicegate_core::Timestamp;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The shortest shared secret, in bytes: as long as the shortest hash that is used with it.
pub const SECRET_BYTES_MIN: usize = 32;

/// The shortest RSA key, in bits. Shorter ones can be broken.
pub const RSA_BITS_MIN: usize = 2_048;

/// The longest RSA key, in bits. Longer ones are slow, and the library does not support them.
pub const RSA_BITS_MAX: usize = 8_192;

/// The most keys that are tried on one token. Only tokens that name no key, or keys that share a name, need more than
/// one. Each costs a whole verification, which the client gets for free.
const TRIED_MAX: usize = 4;

/// The origin of an issuer's keys.
///
/// ```
/// use sluicegate::identify::token::Keys;
///
/// assert!(Keys::secret(b"0123456789abcdef0123456789abcdef").is_ok());
/// let error = Keys::secret(b"hunter2").unwrap_err();
/// assert_eq!(error.to_string(), "the secret has 7 bytes: use at least 32, for example from `openssl rand -hex 32`");
/// ```
#[derive(Debug)]
pub struct Keys(pub(super) Origin);

#[derive(Debug)]
pub(super) enum Origin {
    Fixed(KeySet),
    Remote(Arc<Remote>),
}

impl Keys {
    /// A secret that is shared with the issuer, for HS256, HS384 and HS512.
    ///
    /// # Errors
    /// If it has fewer than [`SECRET_BYTES_MIN`] bytes.
    pub fn secret(secret: &[u8]) -> Result<Self, KeysError> {
        if secret.len() < SECRET_BYTES_MIN {
            let (bytes, min) = (secret.len(), SECRET_BYTES_MIN);
            return Err(KeysError::new(format!(
                "the secret has {bytes} bytes: use at least {min}, for example from `openssl rand -hex 32`"
            )));
        }
        Ok(Self::fixed(vec![Key::new(None, DecodingKey::from_secret(secret), AlgorithmFamily::Hmac.algorithms())]))
    }

    /// One public key in PEM (`PUBLIC KEY` or `RSA PUBLIC KEY`): RSA for RS and PS, P-256 for ES256, P-384 for ES384,
    /// Ed25519 for EdDSA.
    ///
    /// # Errors
    /// If it is anything else: a private key or a certificate, an RSA key that is too short, another curve.
    pub fn public_key(pem: &[u8]) -> Result<Self, KeysError> {
        let (key, algorithms) = public_key(pem)?;
        Ok(Self::fixed(vec![Key::new(None, key, algorithms)]))
    }

    /// A JSON Web Key Set with public keys.
    ///
    /// # Errors
    /// If it does not parse as a set, contains a secret, or contains no usable key.
    pub fn jwks(json: &str) -> Result<Self, KeysError> {
        Ok(Self(Origin::Fixed(jwks::read(json)?.set)))
    }

    /// A JSON Web Key Set that `source` fetches: about every `refresh`, and when a token names an unknown key. If
    /// fetches fail, the last set is valid for `keep`.
    ///
    /// A task must run [`Tokens::keep_keys_fresh`](super::Tokens::keep_keys_fresh).
    #[must_use]
    pub fn remote(source: Arc<dyn KeySource>, refresh: Duration, keep: Duration) -> Self {
        Self(Origin::Remote(Arc::new(Remote::new(source, refresh, keep))))
    }

    fn fixed(keys: Vec<Key>) -> Self {
        Self(Origin::Fixed(KeySet::new(keys)))
    }

    /// The key that signed a token.
    pub(super) async fn signer(
        &self,
        header: &Header<'_>,
        signed: &Signed<'_>,
        now: Timestamp,
    ) -> Result<Arc<Key>, TokenError> {
        match &self.0 {
            Origin::Fixed(set) => set.candidates(header).map_err(TokenError::from)?.signer(header, signed),
            Origin::Remote(remote) => {
                let set = remote.set(now).await?;
                match set.candidates(header) {
                    Err(NoCandidate::Unknown) => {
                        let set = remote.renewed(now, |set| set.candidates(header).is_ok()).await?;
                        set.candidates(header).map_err(TokenError::from)?.signer(header, signed)
                    }
                    candidates => candidates.map_err(TokenError::from)?.signer(header, signed),
                }
            }
        }
    }
}

fn public_key(pem: &[u8]) -> Result<(DecodingKey, &'static [Algorithm]), KeysError> {
    let text = std::str::from_utf8(pem).map_err(|_| KeysError::new("the public key is not PEM"))?;
    if text.contains("PRIVATE KEY") {
        return Err(KeysError::new("this is a private key: give the public one, and keep this one to the issuer"));
    }
    if text.contains("BEGIN CERTIFICATE") {
        return Err(KeysError::new(
            "this is a certificate: give its public key, by `openssl x509 -pubkey -noout`",
        ));
    }
    let key = DecodingKey::from_rsa_pem(pem).or_else(|_| DecodingKey::from_ec_pem(pem));
    let key = key.or_else(|_| DecodingKey::from_ed_pem(pem));
    let key = key
        .map_err(|_| KeysError::new("this is not a public key in PEM: RSA, P-256, P-384 and Ed25519 are known"))?;
    let algorithms = algorithms_of(&key)?;
    Ok((key, algorithms))
}

/// The algorithms of a public key, if there is any.
pub(super) fn algorithms_of(key: &DecodingKey) -> Result<&'static [Algorithm], KeysError> {
    match (key.family(), key.kind()) {
        (AlgorithmFamily::Rsa, DecodingKeyKind::RsaModulusExponent { n, .. }) => rsa_algorithms(n),
        (AlgorithmFamily::Rsa, DecodingKeyKind::SecretOrDer(der)) => {
            let components = (aws_lc::DEFAULT_PROVIDER.key_utils.rsa_pub_components_from_public_key)(der);
            let (modulus, _) = components.map_err(|_| KeysError::new("the RSA key is damaged"))?;
            rsa_algorithms(&modulus)
        }
        // Uncompressed points: one byte of form, then both coordinates.
        (AlgorithmFamily::Ec, DecodingKeyKind::SecretOrDer(point)) if point.first() == Some(&4) => {
            match point.len() {
                65 => Ok(&[Algorithm::ES256]),
                97 => Ok(&[Algorithm::ES384]),
                _ => Err(KeysError::new("the curve is neither P-256 nor P-384")),
            }
        }
        (AlgorithmFamily::Ed, DecodingKeyKind::SecretOrDer(point)) if point.len() == 32 => Ok(&[Algorithm::EdDSA]),
        _ => Err(KeysError::new("the key is not a public key that is known here")),
    }
}

fn rsa_algorithms(modulus: &[u8]) -> Result<&'static [Algorithm], KeysError> {
    const ALGORITHMS: &[Algorithm] = &[
        Algorithm::RS256,
        Algorithm::RS384,
        Algorithm::RS512,
        Algorithm::PS256,
        Algorithm::PS384,
        Algorithm::PS512,
    ];
    let zeros = modulus.iter().take_while(|byte| **byte == 0).count();
    let leading = modulus.get(zeros).map_or(0, |byte| byte.leading_zeros() as usize);
    let bits = (modulus.len() - zeros) * 8 - leading;
    if (RSA_BITS_MIN..=RSA_BITS_MAX).contains(&bits) {
        return Ok(ALGORITHMS);
    }
    Err(KeysError::new(format!("the RSA key has {bits} bits: use {RSA_BITS_MIN} to {RSA_BITS_MAX}")))
}

/// One key and its algorithms.
#[derive(Debug)]
pub(super) struct Key {
    kid: Option<Box<str>>,
    key: DecodingKey,
    algorithms: Box<[Algorithm]>,
    /// The first instant, in microseconds, at which the key and all tokens that it has signed are no longer valid.
    usable_until: AtomicU64,
}

impl Key {
    /// A key that is valid until it is retired.
    pub(super) fn new(kid: Option<Box<str>>, key: DecodingKey, algorithms: &[Algorithm]) -> Self {
        Self { kid, key, algorithms: algorithms.into(), usable_until: AtomicU64::new(u64::MAX) }
    }

    /// True if the key is valid at `now`.
    pub(super) fn is_usable(&self, now: Timestamp) -> bool {
        now.as_micros() < self.usable_until.load(Ordering::Acquire)
    }

    /// Retires the key and all tokens that it has signed.
    pub(super) fn retire(&self) {
        self.usable_until.store(0, Ordering::Release);
    }

    fn is_same(&self, other: &Self) -> bool {
        let is_same_key = match (self.key.kind(), other.key.kind()) {
            (DecodingKeyKind::SecretOrDer(one), DecodingKeyKind::SecretOrDer(two)) => one == two,
            (
                DecodingKeyKind::RsaModulusExponent { n: one_n, e: one_e },
                DecodingKeyKind::RsaModulusExponent { n: two_n, e: two_e },
            ) => one_n == two_n && one_e == two_e,
            _ => false,
        };
        is_same_key && self.kid == other.kid && self.algorithms == other.algorithms
    }

    fn has_signed(&self, algorithm: Algorithm, signed: &Signed<'_>) -> bool {
        // The provider is explicit, so that the result does not depend on the provider that the process has
        // installed.
        let verifier = (aws_lc::DEFAULT_PROVIDER.verifier_factory)(&algorithm, &self.key);
        verifier.is_ok_and(|verifier| verifier.verify(signed.message, &signed.signature).is_ok())
    }

    #[cfg(test)]
    pub(super) fn for_tests() -> Arc<Self> {
        Arc::new(Self::new(None, DecodingKey::from_secret(&[7; SECRET_BYTES_MIN]), &[Algorithm::HS256]))
    }
}

/// All keys of an issuer at one time.
#[derive(Debug)]
pub(super) struct KeySet {
    keys: Vec<Arc<Key>>,
}

/// The keys that may have signed a token, by its header.
pub(super) struct Candidates<'a>(Vec<&'a Arc<Key>>);

/// Why there is no such key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoCandidate {
    /// No key has that name.
    Unknown,
    /// The keys of that name have other algorithms.
    Algorithm,
    /// More keys fit than are tried: the token names none of many, or several share the name.
    TooMany,
}

impl KeySet {
    pub(super) fn new(keys: Vec<Key>) -> Self {
        Self { keys: keys.into_iter().map(Arc::new).collect() }
    }

    /// The number of keys.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Takes over from `old`: keys in both sets stay valid, and those only in `old` retire. Returns whether the sets
    /// differ.
    pub(super) fn take_over(&mut self, old: &Self) -> bool {
        let mut is_different = self.keys.len() != old.keys.len();
        for key in &mut self.keys {
            match old.keys.iter().find(|known| known.is_same(key)) {
                Some(known) => *key = Arc::clone(known),
                None => is_different = true,
            }
        }
        let is_kept = |known: &&Arc<Key>| self.keys.iter().any(|key| Arc::ptr_eq(key, known));
        old.keys.iter().filter(|known| !is_kept(known)).for_each(|known| known.retire());
        is_different
    }

    /// Makes all keys valid until `until`.
    pub(super) fn extend(&self, until: Timestamp) {
        for key in &self.keys {
            key.usable_until.store(until.as_micros(), Ordering::Release);
        }
    }

    /// True if the set is valid at `now`.
    pub(super) fn is_usable(&self, now: Timestamp) -> bool {
        self.keys.iter().all(|key| key.is_usable(now))
    }

    /// The keys to try for a token with this header: those of the name in the header, or else those without a name.
    pub(super) fn candidates(&self, header: &Header<'_>) -> Result<Candidates<'_>, NoCandidate> {
        let mut keys: Vec<_> = match header.kid.as_deref() {
            Some(kid) => {
                let named: Vec<_> = self.keys.iter().filter(|key| key.kid.as_deref() == Some(kid)).collect();
                if named.is_empty() { self.keys.iter().filter(|key| key.kid.is_none()).collect() } else { named }
            }
            None => self.keys.iter().collect(),
        };
        if keys.is_empty() {
            return Err(NoCandidate::Unknown);
        }
        keys.retain(|key| key.algorithms.contains(&header.algorithm));
        match keys.len() {
            0 => Err(NoCandidate::Algorithm),
            1..=TRIED_MAX => Ok(Candidates(keys)),
            _ => Err(NoCandidate::TooMany),
        }
    }
}

impl Candidates<'_> {
    /// The key that signed this.
    fn signer(self, header: &Header<'_>, signed: &Signed<'_>) -> Result<Arc<Key>, TokenError> {
        let signer = self.0.into_iter().find(|key| key.has_signed(header.algorithm, signed));
        signer
            .cloned()
            .ok_or_else(|| TokenError::new(TokenErrorKind::Signature, "the signature is not the issuer's"))
    }
}

impl From<NoCandidate> for TokenError {
    fn from(problem: NoCandidate) -> Self {
        match problem {
            NoCandidate::Unknown => Self::new(TokenErrorKind::UnknownKey, "the issuer has no key of that name"),
            NoCandidate::Algorithm => {
                Self::new(TokenErrorKind::Algorithm, "the issuer's key is not for the algorithm of the header")
            }
            NoCandidate::TooMany => {
                Self::new(TokenErrorKind::UnknownKey, "more of the issuer's keys fit the token than are tried")
            }
        }
    }
}
