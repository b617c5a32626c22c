//! The fast path of a charge: enforced limits with existing states that each fit one word, and no usage that is charged
//! even on a denial. It costs one lookup and one
//! write per limit. All other charges take the [general path](super::general_path).
//!
//! The fast path writes only after it is certain to succeed, so the general path can start over.

use super::packed::{Packed, Unpacked};
use super::targets::{shard_at, shard_of};
use super::{MemoryStore, table};
use crate::store::key::Digest;
use crate::store::{Charge, Verdicts};
use sluicegate_core::decision::ChargeMode;
use sluicegate_core::{Algorithm as _, Cost, Outcome, Quota, Timestamp, Verdict};
use smallvec::SmallVec;

/// The maximum number of limits on the fast path; its buffers are this large.
const LIMITS_MAX: usize = 4;

/// One limit and the location of its state.
struct FastTarget<'a> {
    quota: &'a Quota,
    cost: Cost,
    digest: Digest,
    shard: usize,
    /// The instant on the time scale of the quota.
    at: Timestamp,
}

/// The verdict of one limit, and the state after a charge.
struct LimitCheck {
    verdict: Verdict,
    /// The cell, its word now, and its word if all limits have room.
    found: table::CellIndex,
    word: Packed,
    charged: Packed,
}

impl MemoryStore {
    /// Charges one limit, which is the most frequent request.
    #[inline]
    pub(super) fn charge_one_fast(&self, charges: &[Charge<'_>], now: Timestamp) -> Option<Verdict> {
        let [charge] = charges else { return None };
        let [quota] = charge.quotas else { return None };
        let digest = charge.key.digest().of_limit(0, quota.algorithm_index());
        let at = self.time_for(quota, digest, now);
        let mut shard = self.shards[self.shard_index(digest)].0.lock();
        let word = shard.word(digest)?;
        let (packed, verdict) = decide(quota, *word, charge.cost, at, self.epoch)?;
        *word = packed;
        Some(verdict)
    }

    /// Charges several limits, all or nothing.
    #[inline(never)]
    pub(super) fn charge_several_fast(&self, charges: &[Charge<'_>], now: Timestamp) -> Option<Verdicts> {
        let targets = self.fast_targets(charges, now)?;
        let mut locked = self.lock(targets.iter().map(|target| target.shard));
        let mut all = SmallVec::<[LimitCheck; LIMITS_MAX]>::new();
        for target in &targets {
            let (found, word) = shard_at(&locked, target.shard).cell(target.digest)?;
            all.push(target.check(found, word, self.epoch)?);
        }
        if all.iter().all(|check| check.verdict.outcome.is_allowed()) {
            for (target, check) in targets.iter().zip(&all) {
                shard_of(&mut locked, target.shard).replace(check.found, check.charged);
            }
            return Some(all.iter().map(|check| check.verdict).collect());
        }
        targets.iter().zip(&all).map(|(target, check)| target.uncharged(check, self.epoch)).collect()
    }

    /// The locations of all limits; `None` if a limit needs the general path.
    fn fast_targets<'a>(
        &self,
        charges: &'a [Charge<'a>],
        now: Timestamp,
    ) -> Option<SmallVec<[FastTarget<'a>; LIMITS_MAX]>> {
        let mut targets = SmallVec::<[FastTarget<'a>; LIMITS_MAX]>::new();
        for charge in charges {
            if charge.mode != ChargeMode::Enforced || charge.cost.is_zero() || !charge.usage.is_zero() {
                return None;
            }
            let own = charge.key.digest();
            for (index, quota) in charge.quotas.iter().enumerate() {
                let digest = own.of_limit(index, quota.algorithm_index());
                // If two limits share a state, the second must see the result of the first.
                let is_twice = targets.iter().any(|target| target.digest == digest);
                if is_twice || targets.len() == LIMITS_MAX || !may_fit_a_word(quota) {
                    return None;
                }
                let (shard, at) = (self.shard_index(digest), self.time_for(quota, digest, now));
                targets.push(FastTarget { quota, cost: charge.cost, digest, shard, at });
            }
        }
        Some(targets)
    }
}

impl FastTarget<'_> {
    /// Decides the limit on the state in this word.
    #[inline]
    fn check(&self, found: table::CellIndex, word: Packed, epoch: Timestamp) -> Option<LimitCheck> {
        let (charged, verdict) = decide(self.quota, word, self.cost, self.at, epoch)?;
        Some(LimitCheck { verdict, found, word, charged })
    }

    /// The verdict of the limit if another limit denies, so that nothing is charged. Returns `None` if the state
    /// needs a repair, which takes the general path.
    fn uncharged(&self, check: &LimitCheck, epoch: Timestamp) -> Option<Verdict> {
        let Unpacked::State(before) = check.word.unpack(epoch) else { return None };
        if self.quota.repair(&before, self.at).is_some() {
            return None;
        }
        Some(match check.verdict.outcome {
            Outcome::Allowed => self.quota.verdict(Outcome::Allowed, Some(&before), self.at),
            _ => check.verdict,
        })
    }
}

/// Decides a limit on the state in a word, and returns the word after a charge. Returns `None` if the word holds no
/// such state, or if the state after the charge or a repair does not fit a word. Both take the general path.
#[inline(always)]
fn decide(quota: &Quota, word: Packed, cost: Cost, at: Timestamp, epoch: Timestamp) -> Option<(Packed, Verdict)> {
    match quota {
        Quota::TokenBucket(quota) => {
            let (state, verdict) = quota.decide(Some(word.as_token_bucket(epoch)?), cost, at);
            Some((Packed::token_bucket(&state?, epoch)?, verdict))
        }
        Quota::FixedWindow(quota) => {
            let (state, verdict) = quota.decide(Some(word.as_fixed_window(epoch)?), cost, at);
            Some((Packed::fixed_window(&state?, epoch)?, verdict))
        }
        _ => None,
    }
}

/// False if no state of this limit ever fits a word, so that a lookup is pointless.
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
    fn limits_with_states_larger_than_a_word_skip_the_fast_path() {
        let (store, space) = (MemoryStore::default(), KeySpace::new("rule"));
        let is_short = |other: Quota| {
            let quotas = [bucket().into(), other];
            let key = Key { space: &space, subject: Subject::default() };
            let charge = Charge {
                key,
                quotas: &quotas,
                cost: Cost::ONE,
                mode: ChargeMode::Enforced,
                lease: None,
                usage: Cost::ZERO,
            };
            store.fast_targets(&[charge], Timestamp::now(1)).is_some()
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
