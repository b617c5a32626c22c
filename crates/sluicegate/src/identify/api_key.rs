//! API keys in a header field. A key identifies its owner.
//!
//! Only hashes of keys are stored. Lookups use a second hash with a new seed at every start, and comparisons take
//! constant time, so the time that a wrong key takes reveals nothing about valid ones.
//!
//! [`LiveKeys`] are keys that change while requests are served.
//!
//! Keys can also be accepted unverified. A key is then a name that the client claims, which is an identity of a kind
//! of its own.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use hashbrown::HashMap;
use http::header::{HeaderMap, HeaderName};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::{Principal, Reason, Unauthorized, is_spelled_otherwise, only};
use crate::identity::IDENTIFIER_BYTES_MAX;

/// The most keys of one list. Larger sets belong in a database.
pub const KEYS_MAX: usize = 100_000;

/// The longest key, in bytes. No real key is longer, and hashing a longer one would cost the server time.
pub const KEY_BYTES_MAX: usize = 1_024;

/// The SHA-256 of a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyHash([u8; 32]);

/// The hash of a key is not a secret by itself, but the hashes of short keys can be guessed, so it is not shown.
impl fmt::Debug for KeyHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("KeyHash(…)")
    }
}

impl KeyHash {
    /// The hash of `key`.
    #[must_use]
    pub fn of(key: &[u8]) -> Self {
        Self(Sha256::digest(key).into())
    }

    /// The 32 bytes of the hash.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Reads a hash from its 64 hexadecimal digits.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        let digits: Vec<u8> = text
            .bytes()
            .map(|byte| char::from(byte).to_digit(16).map(|digit| digit as u8))
            .collect::<Option<_>>()?;
        let bytes: Vec<u8> = digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect();
        if digits.len() == 64 { bytes.try_into().ok().map(Self) } else { None }
    }
}

/// The keys of one header field.
///
/// ```
/// use http::header::HeaderName;
/// use sluicegate::identify::Principal;
/// use sluicegate::identify::api_key::{ApiKeys, KeyHash};
///
/// let owner = Principal { identifier: "demo".into(), tier: None, tenant: None };
/// let keys = ApiKeys::new(HeaderName::from_static("x-api-key"), [(KeyHash::of(b"demo-key"), owner)]);
/// assert_eq!(keys.len(), 1);
/// ```
#[derive(Debug)]
pub struct ApiKeys {
    header: HeaderName,
    owners: Owners,
    live: Option<Arc<LiveKeys>>,
    is_verified: bool,
}

/// The owners of keys.
type Owners = HashMap<KeyHash, Arc<Principal>, foldhash::quality::RandomState>;

/// Keys that can be replaced while requests are served, all at once. Several fields may share them.
///
/// ```
/// use std::sync::Arc;
/// use http::header::HeaderName;
/// use sluicegate::identify::Principal;
/// use sluicegate::identify::api_key::{ApiKeys, KeyHash, LiveKeys};
///
/// let live = Arc::new(LiveKeys::default());
/// let keys = ApiKeys::new(HeaderName::from_static("x-api-key"), []).with_live(Arc::clone(&live));
/// let owner = Principal { identifier: "demo".into(), tier: None, tenant: None };
/// live.replace([(KeyHash::of(b"demo-key"), owner)]);
/// assert_eq!(live.len(), 1);
/// # drop(keys);
/// ```
#[derive(Debug, Default)]
pub struct LiveKeys(ArcSwap<Owners>);

impl LiveKeys {
    /// Replaces all keys. If a key occurs twice, the last owner counts.
    pub fn replace(&self, keys: impl IntoIterator<Item = (KeyHash, Principal)>) {
        self.0.store(Arc::new(owners(keys)));
    }

    /// The number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.load().len()
    }

    /// True if there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.load().is_empty()
    }
}

fn owners(keys: impl IntoIterator<Item = (KeyHash, Principal)>) -> Owners {
    keys.into_iter().map(|(hash, owner)| (hash, Arc::new(owner))).collect()
}

/// The result of a lookup.
#[derive(Debug)]
pub(super) enum KeyLookup {
    Absent,
    Owner(Arc<Principal>),
    Claimed(Box<str>),
    Unknown,
}

impl ApiKeys {
    /// Accepts these keys in this field. If a key occurs twice, the last owner counts.
    #[must_use]
    pub fn new(header: HeaderName, keys: impl IntoIterator<Item = (KeyHash, Principal)>) -> Self {
        Self { header, owners: owners(keys), live: None, is_verified: true }
    }

    /// The same, and accepts these keys as well.
    #[must_use]
    pub fn with_live(self, live: Arc<LiveKeys>) -> Self {
        Self { live: Some(live), ..self }
    }

    /// The same, but a key that is not in the list is a name that the client claims.
    #[must_use]
    pub fn unverified(self) -> Self {
        Self { is_verified: false, ..self }
    }

    /// The header field.
    #[must_use]
    pub fn header(&self) -> &HeaderName {
        &self.header
    }

    /// The number of keys, without [`LiveKeys`].
    #[must_use]
    pub fn len(&self) -> usize {
        self.owners.len()
    }

    /// True if there is no key, [`LiveKeys`] aside.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    pub(super) fn look(&self, headers: &HeaderMap) -> Result<KeyLookup, Unauthorized> {
        if is_spelled_otherwise(&self.header, headers) {
            return Err(Unauthorized::new(Reason::Repeated, Some(self.header.clone())));
        }
        let Some(key) = only(headers, &self.header)? else { return Ok(KeyLookup::Absent) };
        if let Some(owner) = self.owner(key.as_bytes()) {
            return Ok(KeyLookup::Owner(owner));
        }
        if self.is_verified {
            return Ok(KeyLookup::Unknown);
        }
        let name = key.to_str().ok().filter(|name| (1..=IDENTIFIER_BYTES_MAX).contains(&name.len()));
        let name = name.filter(|name| !name.contains(|each: char| each.is_control()));
        name.map(|name| KeyLookup::Claimed(name.into()))
            .ok_or_else(|| Unauthorized::new(Reason::UnknownKey, Some(self.header.clone())))
    }

    fn owner(&self, key: &[u8]) -> Option<Arc<Principal>> {
        if key.len() > KEY_BYTES_MAX {
            return None;
        }
        let hash = KeyHash::of(key);
        found(&self.owners, &hash).or_else(|| found(&self.live.as_ref()?.0.load(), &hash))
    }
}

fn found(owners: &Owners, hash: &KeyHash) -> Option<Arc<Principal>> {
    let (known, owner) = owners.get_key_value(hash)?;
    bool::from(known.0.ct_eq(&hash.0)).then(|| Arc::clone(owner))
}
