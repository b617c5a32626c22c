//! The cache of verified tokens: the same token costs a hash the next time instead of a signature check.
//!
//! The key of an entry is the SHA-256 of the token: no other token with the same hash can be made, and a leaked cache
//! contains no tokens. An entry is valid only until its token expires, and only while the signing key is among its
//! issuer's keys. The cache is bounded and evicts the oldest entry; a miss costs one verification.

use super::claims::Claims;
use super::keys::Key;
use hashbrown::HashMap;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use sluicegate_core::Timestamp;
use std::collections::VecDeque;
use std::sync::Arc;

/// The most cached tokens: about 20 MB with short names, 110 MB if every name has the maximum length.
pub const VERIFIED_MAX: usize = 65_536;

/// Enough shards that two threads seldom need the same one.
const SHARDS: usize = 64;

/// The hash that identifies a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// The fingerprint of a token.
    pub(super) fn of(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }
}

#[derive(Debug)]
struct CacheEntry {
    claims: Arc<Claims>,
    key: Arc<Key>,
}

#[derive(Debug, Default)]
struct CacheShard {
    entries: HashMap<Fingerprint, CacheEntry, foldhash::fast::RandomState>,
    /// The same fingerprints, oldest first.
    ages: VecDeque<Fingerprint>,
}

/// The cache.
#[derive(Debug)]
pub(super) struct Verified {
    shards: Box<[Mutex<CacheShard>]>,
    entries_per_shard_max: usize,
}

impl Verified {
    /// A cache of at most about `entries_max` tokens.
    pub(super) fn new(entries_max: usize) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { shards, entries_per_shard_max: entries_max.div_ceil(SHARDS) }
    }

    /// The claims of a verified token that is still valid.
    pub(super) fn get(&self, fingerprint: &Fingerprint, now: Timestamp) -> Option<Arc<Claims>> {
        let shard = self.shard(fingerprint).lock();
        let CacheEntry { claims, key } = shard.entries.get(fingerprint)?;
        (now < claims.expires_at && key.is_usable(now)).then(|| Arc::clone(claims))
    }

    /// Caches a token that `key` has signed.
    pub(super) fn insert(&self, fingerprint: Fingerprint, claims: Arc<Claims>, key: Arc<Key>) {
        let mut shard = self.shard(&fingerprint).lock();
        if shard.entries.insert(fingerprint, CacheEntry { claims, key }).is_some() {
            return;
        }
        shard.ages.push_back(fingerprint);
        if shard.ages.len() > self.entries_per_shard_max
            && let Some(oldest) = shard.ages.pop_front()
        {
            shard.entries.remove(&oldest);
        }
    }

    fn shard(&self, fingerprint: &Fingerprint) -> &Mutex<CacheShard> {
        &self.shards[usize::from(fingerprint.0[0]) % self.shards.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::super::claims_cache::CachedClaims;
    use super::*;

    fn claims() -> Arc<Claims> {
        Arc::new(Claims {
            identifier: "a".into(),
            tier: None,
            tenant: None,
            issuer: "i".into(),
            expires_at: Timestamp::from_micros(100),
            kept: CachedClaims::nothing(),
        })
    }

    #[test]
    fn an_entry_counts_until_its_token_expires_and_while_its_key_is_usable() {
        let (verified, key) = (Verified::new(VERIFIED_MAX), Key::for_tests());
        let fingerprint = Fingerprint::of("token");
        assert_eq!(verified.get(&fingerprint, Timestamp::now(1)), None);
        verified.insert(fingerprint, claims(), Arc::clone(&key));
        assert!(verified.get(&fingerprint, Timestamp::now(99)).is_some());
        assert!(verified.get(&fingerprint, Timestamp::now(100)).is_none());
        assert!(verified.get(&Fingerprint::of("token "), Timestamp::now(1)).is_none());
        key.retire();
        assert!(verified.get(&fingerprint, Timestamp::now(1)).is_none());
    }

    #[test]
    fn the_oldest_make_room_and_the_set_never_grows_beyond_its_bound() {
        let (verified, key) = (Verified::new(256), Key::for_tests());
        let fingerprints: Vec<_> = (0..5_000).map(|number| Fingerprint::of(&number.to_string())).collect();
        for fingerprint in &fingerprints {
            // Only a new entry takes a place in the queue, not one that is replaced.
            verified.insert(*fingerprint, claims(), Arc::clone(&key));
            verified.insert(*fingerprint, claims(), Arc::clone(&key));
            assert!(verified.get(fingerprint, Timestamp::now(1)).is_some());
        }
        let sizes = verified.shards.iter().map(|shard| {
            let shard = shard.lock();
            assert_eq!(shard.entries.len(), shard.ages.len());
            shard.entries.len()
        });
        assert_eq!(sizes.sum::<usize>(), 256);
        let is_known = |fingerprint: &&Fingerprint| verified.get(fingerprint, Timestamp::now(1)).is_some();
        assert_eq!(fingerprints[..2_000].iter().filter(is_known).count(), 0);
    }
}
