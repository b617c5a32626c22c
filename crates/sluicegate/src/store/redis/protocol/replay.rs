//! The verdicts of a charge that is repeated in one call.
//!
//! The script returns the state before the first repetition, and how many were admitted. The core computes the
//! verdicts of each repetition from that.

use crate::store::Verdicts;
use crate::store::redis::protocol::arguments::RequestedLimit;
use crate::store::redis::protocol::reply::{FoundLimit, FoundLimits, all_fit, uncharged, wait_for_all};
use sluicegate_core::State;
use sluicegate_core::decision::{ChargeMode, is_charged};
use smallvec::SmallVec;

/// The verdicts of the first repetition, the second, and so on. Once a repetition changes nothing, all that follow
/// equal it; a denial is the usual case.
#[derive(Debug)]
pub(crate) struct Replay<'a> {
    /// The limits as the next repetition finds them.
    found: FoundLimits<'a>,
    left: u32,
    /// The verdicts of all further repetitions, once they are all equal.
    settled: Option<Verdicts>,
}

/// The state of one limit, and the seed of its phase.
#[derive(Clone, Debug)]
pub(crate) struct SeededState {
    pub(crate) state: Option<State>,
    pub(crate) seed: u64,
}

impl<'a> Replay<'a> {
    /// `times` repetitions, of which the first finds the limits in these states.
    pub(crate) fn new(found: FoundLimits<'a>, times: u32) -> Self {
        Self { found, left: times, settled: None }
    }

    /// How many of the remaining repetitions are admitted.
    pub(crate) fn admitted(mut self) -> u32 {
        let times = self.left;
        while self.left > 0 && all_fit(&self.found) {
            if !self.charge() {
                return times;
            }
            self.foresee();
            self.left -= 1;
        }
        times - self.left
    }

    /// The limits after all repetitions.
    pub(crate) fn after(mut self) -> FoundLimits<'a> {
        while self.left > 0 && all_fit(&self.found) && self.charge() {
            self.foresee();
            self.left -= 1;
        }
        self.found
    }

    /// The states that the next repetition would find.
    pub(crate) fn states(&self) -> impl Iterator<Item = SeededState> {
        let found = |found_limit: &FoundLimit<'_>| SeededState {
            state: found_limit.state.clone(),
            seed: found_limit.limit.seed,
        };
        self.found.iter().map(found)
    }

    /// How many further repetitions the current states would admit.
    pub(crate) fn room(&self) -> u64 {
        let is_paid = |limit: &RequestedLimit<'_>| limit.mode == ChargeMode::Enforced && !limit.cost.is_zero();
        let room = |found_limit: &FoundLimit<'_>| {
            let FoundLimit { limit, at, outcome, state } = found_limit;
            limit.quota.verdict(*outcome, state.as_ref(), *at).remaining / limit.cost.units()
        };
        self.found.iter().filter(|found_limit| is_paid(&found_limit.limit)).map(room).min().unwrap_or(u64::MAX)
    }

    /// Charges the next repetition. Returns false if that changes nothing.
    fn charge(&mut self) -> bool {
        let votes = || self.found.iter().map(|found_limit| (found_limit.limit.mode, found_limit.outcome));
        let charged = |mode| is_charged(votes(), mode);
        let charged: SmallVec<[bool; 4]> = self
            .found
            .iter()
            .map(|found_limit| !found_limit.limit.cost.is_zero() && charged(found_limit.limit.mode))
            .collect();
        for (found_limit, _) in self.found.iter_mut().zip(&charged).filter(|(_, charged)| **charged) {
            found_limit.state =
                found_limit.limit.quota.charge(found_limit.state.take(), found_limit.limit.cost, found_limit.at);
        }
        charged.contains(&true)
    }

    /// Computes the outcomes of the repetition after that.
    fn foresee(&mut self) {
        for found_limit in &mut self.found {
            found_limit.outcome = found_limit.limit.quota.outcome(
                found_limit.state.as_ref(),
                found_limit.limit.cost,
                found_limit.at,
            );
        }
        wait_for_all(&mut self.found.iter_mut().collect::<SmallVec<[_; 2]>>());
    }
}

impl Iterator for Replay<'_> {
    type Item = Verdicts;

    fn next(&mut self) -> Option<Verdicts> {
        self.left = self.left.checked_sub(1)?;
        if let Some(verdicts) = &self.settled {
            return Some(verdicts.clone());
        }
        let changes = self.charge();
        let verdicts: Verdicts = uncharged(&self.found).collect();
        if changes {
            self.foresee();
        } else {
            self.settled = Some(verdicts.clone());
        }
        Some(verdicts)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl ExactSizeIterator for Replay<'_> {}

#[cfg(test)]
mod tests {
    use crate::identity::Identity;
    use crate::store::redis::KeyEncoder;
    use crate::store::redis::client::call::ScriptReply;
    use crate::store::redis::protocol::arguments::{ScriptInput, TIMES_MAX};
    use crate::store::redis::protocol::reply::ParsedReply;
    use crate::store::{Charge, Key, KeySpace, Subject};
    use sluicegate_core::decision::ChargeMode;
    use sluicegate_core::{Cost, Micros, Quota, SlidingWindow, Timestamp};
    use std::num::NonZeroU32;

    /// The verdicts of `times` charges of a log with three units an hour, or the error in the reply. The time is the
    /// first second of the second hour.
    fn remaining(times: u32, body: &str) -> Result<Vec<(bool, u64, u64)>, String> {
        let quotas: [Quota; 1] = [SlidingWindow::new(3, Micros::from_secs(3_600)).unwrap().into()];
        let (space, encoder) = (KeySpace::new("api"), KeyEncoder::default());
        let subject = Subject { tenant: None, identity: Some(Identity::Named("alice")), address: None };
        let key = Key { space: &space, subject };
        let charges = [Charge {
            key,
            quotas: &quotas,
            cost: Cost::ONE,
            mode: ChargeMode::Enforced,
            lease: None,
            usage: Cost::ZERO,
        }];
        let mut input = ScriptInput::new(&encoder, Timestamp::default());
        input.add_times(NonZeroU32::new(times).unwrap(), &charges);
        let answer = ScriptReply { now: Timestamp::now(3_600_000_000), body: body.as_bytes().to_vec() };
        let found = ParsedReply::read(&answer, &input).map_err(|error| format!("{error:?}"))?;
        let decided = found.decisions.into_iter().next().unwrap();
        let verdicts_of_all = decided.replay().map(|verdicts| {
            let verdict = &verdicts[0];
            let wait = match verdict.outcome {
                sluicegate_core::Outcome::Denied { retry_after } => retry_after.as_micros(),
                _ => 0,
            };
            (verdict.outcome.is_allowed(), verdict.remaining, wait)
        });
        Ok(verdicts_of_all.collect())
    }

    #[test]
    fn each_repetition_has_the_verdict_of_a_single_charge() {
        // One unit, charged a second ago. The first denial waits for it.
        let verdicts_of_all = remaining(4, "0 x2 +l1,3599000000,3599000000,1").unwrap();
        let wait = 3_599_000_000;
        assert_eq!(verdicts_of_all, [(true, 1, 0), (true, 0, 0), (false, 0, wait), (false, 0, wait)]);
        assert_eq!(remaining(2, "0 x2 +-").unwrap(), [(true, 2, 0), (true, 1, 0)]);
    }

    #[test]
    fn a_count_that_contradicts_the_core_is_an_error() {
        for body in ["0 x1 +-", "0 x3 +-", "0 +-", "0 y2 +-", "0 x +-", "0 x2", "0 x2 +- +-"] {
            remaining(2, body).unwrap_err();
        }
        assert!(remaining(2, "0 x1 +-").unwrap_err().contains("disagree"));
        // A single decision has no count.
        remaining(1, "0 x1 +-").unwrap_err();
        assert_eq!(remaining(1, "0 +-").unwrap(), [(true, 2, 0)]);
    }

    #[test]
    fn repetitions_are_bounded() {
        let verdicts_of_all = remaining(u32::MAX, "0 x3 +-").unwrap();
        assert_eq!(verdicts_of_all.len(), TIMES_MAX as usize);
    }
}
