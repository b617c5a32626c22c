//! The short ways through the store: limits that all decide, and whose states are there and each fit a word. One look-up and
//! one write for each; everything else takes the [long way](super::batch).
//!
//! Nothing is written before it is certain that the short way leads to the end, so that the long way can begin anew.

use super::batch::{shard_at, shard_of};
use super::packed::{Packed, Unpacked};
use super::{MemoryStore, lines};
use crate::store::key::Digest;
use crate::store::{Charge, Verdicts};
use sluicegate_core::decision::Group;
use sluicegate_core::{Algorithm as _, Cost, Outcome, Quota, Timestamp, Verdict};
use smallvec::SmallVec;

/// The most limits for which the short way is taken: the room of everything that is kept on it.
const LIMITS_MAX: usize = 4;

/// One limit, and where its state is.
struct Place<'a> {
    quota: &'a Quota,
    cost: Cost,
    digest: Digest,
    shard: usize,
    /// The time by which the quota sees now.
    at: Timestamp,
}

/// What one limit says, and the state that a charge would leave.
struct Said {
    verdict: Verdict,
    /// The place in the table of the shard, the word there, and the one that belongs there if all limits have room.
    found: lines::Place,
    word: Packed,
    charged: Packed,
}

impl MemoryStore {
    /// One limit: what nearly every request is.
    #[inline]
    pub(super) fn charge_in_place(&self, charges: &[Charge<'_>], now: Timestamp) -> Option<Verdict> {
        let [charge] = charges else { return None };
        let [quota] = charge.quotas else { return None };
        let digest = charge.key.digest().of_limit(0, quota.algorithm_index());
        let at = quota.aligned(now, digest.1);
        let mut shard = self.shards[self.shard_index(digest)].0.lock();
        let word = shard.word(digest)?;
        let (packed, verdict) = decide(quota, *word, charge.cost, at, self.born)?;
        *word = packed;
        Some(verdict)
    }

    /// Several limits, all or nothing.
    #[inline(never)]
    pub(super) fn charge_several_in_place(&self, charges: &[Charge<'_>], now: Timestamp) -> Option<Verdicts> {
        let places = self.places(charges, now)?;
        let mut locked = self.lock(places.iter().map(|place| place.shard));
        let mut all = SmallVec::<[Said; LIMITS_MAX]>::new();
        for place in &places {
            let (found, word) = shard_at(&locked, place.shard).place(place.digest)?;
            all.push(place.said(found, word, self.born)?);
        }
        if all.iter().all(|said| said.verdict.outcome.is_allowed()) {
            for (place, said) in places.iter().zip(&all) {
                shard_of(&mut locked, place.shard).replace(said.found, said.charged);
            }
            return Some(all.iter().map(|said| said.verdict).collect());
        }
        places.iter().zip(&all).map(|(place, said)| place.uncharged(said, self.born)).collect()
    }

    /// Where the limits are, if the short way may lead there.
    fn places<'a>(&self, charges: &'a [Charge<'a>], now: Timestamp) -> Option<SmallVec<[Place<'a>; LIMITS_MAX]>> {
        let mut places = SmallVec::<[Place<'a>; LIMITS_MAX]>::new();
        for charge in charges {
            if charge.group != Group::Enforced || charge.cost.is_zero() {
                return None;
            }
            let own = charge.key.digest();
            for (index, quota) in charge.quotas.iter().enumerate() {
                let digest = own.of_limit(index, quota.algorithm_index());
                // One state that is asked twice: what the first leaves is what the second finds.
                let is_twice = places.iter().any(|place| place.digest == digest);
                if is_twice || places.len() == LIMITS_MAX || !may_fit_a_word(quota) {
                    return None;
                }
                let (shard, at) = (self.shard_index(digest), quota.aligned(now, digest.1));
                places.push(Place { quota, cost: charge.cost, digest, shard, at });
            }
        }
        Some(places)
    }
}

impl Place<'_> {
    /// What the limit says to the state in this word.
    #[inline]
    fn said(&self, found: lines::Place, word: Packed, born: Timestamp) -> Option<Said> {
        let (charged, verdict) = decide(self.quota, word, self.cost, self.at, born)?;
        Some(Said { verdict, found, word, charged })
    }

    /// What the limit says when another has no room: nothing is charged. A state that needs to be repaired takes the long way.
    fn uncharged(&self, said: &Said, born: Timestamp) -> Option<Verdict> {
        let Unpacked::State(before) = said.word.unpack(born) else { return None };
        if self.quota.repair(&before, self.at).is_some() {
            return None;
        }
        Some(match said.verdict.outcome {
            Outcome::Allowed => self.quota.verdict(Outcome::Allowed, Some(&before), self.at),
            _ => said.verdict,
        })
    }
}

/// What a limit says to the state in a word, and the word of the state after it. Nothing if the state is not there or has
/// outgrown its word, even by a mere repair: that takes the long way.
#[inline(always)]
fn decide(quota: &Quota, word: Packed, cost: Cost, at: Timestamp, born: Timestamp) -> Option<(Packed, Verdict)> {
    match quota {
        Quota::TokenBucket(quota) => {
            let (state, verdict) = quota.decide(Some(word.as_token_bucket(born)?), cost, at);
            Some((Packed::token_bucket(&state?, born)?, verdict))
        }
        Quota::FixedWindow(quota) => {
            let (state, verdict) = quota.decide(Some(word.as_fixed_window(born)?), cost, at);
            Some((Packed::fixed_window(&state?, born)?, verdict))
        }
        _ => None,
    }
}

/// False if no state of this limit ever fits a word: then it is not even looked for.
fn may_fit_a_word(quota: &Quota) -> bool {
    match quota {
        Quota::TokenBucket(bucket) => bucket.credits() == 0,
        Quota::FixedWindow(_) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Key, KeySpace, Subject};
    use sluicegate_core::algorithm::token_bucket::CREDIT_TTL_DEFAULT;
    use sluicegate_core::{Align, FixedWindow, Micros, Rate, SlidingCounter, SlidingWindow, TokenBucket};

    const SECOND: Micros = Micros::from_secs(1);

    #[test]
    fn limits_whose_states_never_fit_a_word_take_the_long_way_at_once() {
        let (store, space) = (MemoryStore::default(), KeySpace::new("rule"));
        let is_short = |other: Quota| {
            let quotas = [bucket().into(), other];
            let key = Key { space: &space, subject: Subject::default() };
            let charge = Charge { key, quotas: &quotas, cost: Cost::ONE, group: Group::Enforced, lease: None };
            store.places(&[charge], Timestamp::now(1)).is_some()
        };
        assert!(is_short(bucket().into()));
        assert!(is_short(FixedWindow::new(5, SECOND, Align::Epoch).unwrap().into()));
        assert!(!is_short(TokenBucket::with_credits(5, rate(), 5, CREDIT_TTL_DEFAULT).unwrap().into()));
        assert!(!is_short(SlidingWindow::new(5, SECOND).unwrap().into()));
        assert!(!is_short(SlidingCounter::new(5, SECOND).unwrap().into()));
    }

    fn bucket() -> TokenBucket {
        TokenBucket::new(5, rate()).unwrap()
    }

    fn rate() -> Rate {
        Rate::new(1, SECOND).unwrap()
    }
}
