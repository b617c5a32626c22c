//! API keys: whoever sends a key in a header field is its owner.
//!
//! Only hashes of keys are kept. They are found by a hash of their own, seeded anew at every start, and compared in
//! constant time, so how long a wrong key takes says nothing about the right ones.
//!
//! Keys that come and go while requests are answered are [`LiveKeys`].
//!
//! Keys can also be taken as they come, unverified: then a key is a name that its sender claims, of a kind of its own.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use hashbrown::HashMap;
use http::header::{HeaderMap, HeaderName};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::{Principal, Reason, Unauthorized, only};
use crate::identity::IDENTIFIER_BYTES_MAX;

/// The most keys of one list. More belong into a database.
pub const KEYS_MAX: usize = 100_000;

/// The longest key, in bytes. No real key is longer, and hashing what is would cost whoever is asked, not who sends it.
pub const KEY_BYTES_MAX: usize = 1_024;

/// The SHA-256 of a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyHash([u8; 32]);

/// The hash of a key is no secret by itself, but those of short keys can be guessed: it is not shown.
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

    /// The hash itself.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// A hash from its 64 hexadecimal digits.
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

/// Who has which key.
type Owners = HashMap<KeyHash, Arc<Principal>, foldhash::quality::RandomState>;

/// Keys that are exchanged while requests are answered, all at once. Several fields may share them.
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
    /// Puts these keys in the place of all that were there; of two owners of one key the last counts.
    pub fn replace(&self, keys: impl IntoIterator<Item = (KeyHash, Principal)>) {
        self.0.store(Arc::new(owners(keys)));
    }

    /// How many keys there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.load().len()
    }

    /// Whether there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.load().is_empty()
    }
}

fn owners(keys: impl IntoIterator<Item = (KeyHash, Principal)>) -> Owners {
    keys.into_iter().map(|(hash, owner)| (hash, Arc::new(owner))).collect()
}

/// What a request says about keys.
#[derive(Debug)]
pub(super) enum KeyLooked {
    Absent,
    Owner(Arc<Principal>),
    Claimed(Box<str>),
    Unknown,
}

impl ApiKeys {
    /// These keys in this field; of two owners of one key the last counts.
    #[must_use]
    pub fn new(header: HeaderName, keys: impl IntoIterator<Item = (KeyHash, Principal)>) -> Self {
        Self { header, owners: owners(keys), live: None, is_verified: true }
    }

    /// The same, and these as well.
    #[must_use]
    pub fn with_live(self, live: Arc<LiveKeys>) -> Self {
        Self { live: Some(live), ..self }
    }

    /// The same, but a key that is not among them is taken for the name of its sender.
    #[must_use]
    pub fn unverified(self) -> Self {
        Self { is_verified: false, ..self }
    }

    /// The field.
    #[must_use]
    pub fn header(&self) -> &HeaderName {
        &self.header
    }

    /// How many keys there are, those apart that come and go.
    #[must_use]
    pub fn len(&self) -> usize {
        self.owners.len()
    }

    /// Whether there is no key, those apart that come and go.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    pub(super) fn look(&self, headers: &HeaderMap) -> Result<KeyLooked, Unauthorized> {
        if self.is_spelled_otherwise(headers) {
            return Err(Unauthorized::new(Reason::Repeated, Some(self.header.clone())));
        }
        let Some(key) = only(headers, &self.header)? else { return Ok(KeyLooked::Absent) };
        if let Some(owner) = self.owner(key.as_bytes()) {
            return Ok(KeyLooked::Owner(owner));
        }
        if self.is_verified {
            return Ok(KeyLooked::Unknown);
        }
        let name = key.to_str().ok().filter(|name| (1..=IDENTIFIER_BYTES_MAX).contains(&name.len()));
        let name = name.filter(|name| !name.contains(|each: char| each.is_control()));
        name.map(|name| KeyLooked::Claimed(name.into()))
            .ok_or_else(|| Unauthorized::new(Reason::UnknownKey, Some(self.header.clone())))
    }

    /// Whether the field is there with `_` for `-`. Many applications cannot tell the two apart, so a key that is sent like
    /// this would count with them and not with us.
    fn is_spelled_otherwise(&self, headers: &HeaderMap) -> bool {
        let header = self.header.as_str();
        let is_same =
            |name: &str| name.bytes().zip(header.bytes()).all(|(one, other)| one == other || is_twin(one, other));
        headers
            .keys()
            .map(HeaderName::as_str)
            .any(|name| name.len() == header.len() && name != header && is_same(name))
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

/// Whether two letters of names are one where names become variables.
const fn is_twin(one: u8, other: u8) -> bool {
    matches!((one, other), (b'-', b'_') | (b'_', b'-'))
}
