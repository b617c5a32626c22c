//! The same charge several times in a row: what each of them is told.
//!
//! The script says what it found before the first, and how many were admitted. What follows from that is computed here,
//! by the core, one charge after the other.

use super::arguments::Limit;
use super::denials::Seen;
use super::leases::FoundState;
use super::reply::{Finding, Found, all_fit, uncharged};
use crate::store::Verdicts;
use sluicegate_core::decision::{Group, is_charged};
use smallvec::SmallVec;

/// The verdicts of the same charge, the first, the second and so on. Once one changes nothing any more, all that follow
/// are like it; a denial is one of these.
#[derive(Debug)]
pub(super) struct Replay<'a> {
    /// The limits as the next one finds them.
    findings: Found<'a>,
    left: u32,
    /// What everybody is told from now on.
    settled: Option<Verdicts>,
}

impl<'a> Replay<'a> {
    /// `times` charges, of which the first finds the limits so.
    pub(super) fn new(findings: Found<'a>, times: u32) -> Self {
        Self { findings, left: times, settled: None }
    }

    /// How many of those that are left are admitted.
    pub(super) fn admitted(mut self) -> u32 {
        let times = self.left;
        while self.left > 0 && all_fit(&self.findings) {
            if !self.charge() {
                return times;
            }
            self.foresee();
            self.left -= 1;
        }
        times - self.left
    }

    /// The limits as the next one would find them.
    pub(super) fn seen(&self) -> impl Iterator<Item = Seen> {
        self.findings.iter().map(Finding::seen)
    }

    /// The states as the next one would find them.
    pub(super) fn states(&self) -> impl Iterator<Item = FoundState> {
        let found = |finding: &Finding<'_>| FoundState { state: finding.state.clone(), seed: finding.limit.seed };
        self.findings.iter().map(found)
    }

    /// How many more would be admitted by what the next one would find, however many are left here.
    pub(super) fn room(&self) -> u64 {
        let is_paid = |limit: &Limit<'_>| limit.group == Group::Enforced && !limit.cost.is_zero();
        let room = |finding: &Finding<'_>| {
            let Finding { limit, at, outcome, state } = finding;
            limit.quota.verdict(*outcome, state.as_ref(), *at).remaining / limit.cost.units()
        };
        self.findings.iter().filter(|finding| is_paid(&finding.limit)).map(room).min().unwrap_or(u64::MAX)
    }

    /// Charges what the next one charges. False if that changes nothing.
    fn charge(&mut self) -> bool {
        let votes = || self.findings.iter().map(|finding| (finding.limit.group, finding.outcome));
        let charged = |group| is_charged(votes(), group);
        let charged: SmallVec<[bool; 4]> = self
            .findings
            .iter()
            .map(|finding| !finding.limit.cost.is_zero() && charged(finding.limit.group))
            .collect();
        for (finding, _) in self.findings.iter_mut().zip(&charged).filter(|(_, charged)| **charged) {
            finding.state = finding.limit.quota.charge(finding.state.take(), finding.limit.cost, finding.at);
        }
        charged.contains(&true)
    }

    /// What the one after that will find.
    fn foresee(&mut self) {
        for finding in &mut self.findings {
            finding.outcome = finding.limit.quota.outcome(finding.state.as_ref(), finding.limit.cost, finding.at);
        }
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
        let verdicts: Verdicts = uncharged(&self.findings).collect();
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
    use crate::store::redis::arguments::{Message, TIMES_MAX};
    use crate::store::redis::call::Answer;
    use crate::store::redis::reply::Findings;
    use crate::store::{Charge, Key, KeySpace, Subject};
    use sluicegate_core::decision::Group;
    use sluicegate_core::{Cost, Micros, Quota, SlidingWindow, Timestamp};
    use std::num::NonZeroU32;

    /// What each of `times` is told of a log of three units an hour, or what is wrong with the reply. The time is the
    /// first second of the second hour.
    fn remaining(times: u32, body: &str) -> Result<Vec<(bool, u64, u64)>, String> {
        let quotas: [Quota; 1] = [SlidingWindow::new(3, Micros::from_secs(3_600)).unwrap().into()];
        let (space, encoder) = (KeySpace::new("api"), KeyEncoder::default());
        let subject = Subject { tenant: None, identity: Some(Identity::Named("alice")), address: None };
        let key = Key { space: &space, subject };
        let charges = [Charge { key, quotas: &quotas, cost: Cost::ONE, group: Group::Enforced, lease: None }];
        let mut message = Message::new(&encoder, Timestamp::default());
        message.add_times(NonZeroU32::new(times).unwrap(), &charges);
        let answer = Answer { now: Timestamp::now(3_600_000_000), body: body.as_bytes().to_vec() };
        let findings = Findings::read(&answer, &message).map_err(|trouble| format!("{trouble:?}"))?;
        let decided = findings.decisions.into_iter().next().unwrap();
        let told = decided.replay().map(|verdicts| {
            let verdict = &verdicts[0];
            let wait = match verdict.outcome {
                sluicegate_core::Outcome::Denied { retry_after } => retry_after.as_micros(),
                _ => 0,
            };
            (verdict.outcome.is_allowed(), verdict.remaining, wait)
        });
        Ok(told.collect())
    }

    #[test]
    fn each_is_told_what_it_would_be_told_alone() {
        // One unit of a second ago, which the first that is denied waits for.
        let told = remaining(4, "0 x2 +l1,3599000000,3599000000,1").unwrap();
        let wait = 3_599_000_000;
        assert_eq!(told, [(true, 1, 0), (true, 0, 0), (false, 0, wait), (false, 0, wait)]);
        assert_eq!(remaining(2, "0 x2 +-").unwrap(), [(true, 2, 0), (true, 1, 0)]);
    }

    #[test]
    fn a_count_that_the_core_does_not_share_makes_no_sense() {
        for body in ["0 x1 +-", "0 x3 +-", "0 +-", "0 y2 +-", "0 x +-", "0 x2", "0 x2 +- +-"] {
            remaining(2, body).unwrap_err();
        }
        assert!(remaining(2, "0 x1 +-").unwrap_err().contains("disagree"));
        // Who asks once is told no count.
        remaining(1, "0 x1 +-").unwrap_err();
        assert_eq!(remaining(1, "0 +-").unwrap(), [(true, 2, 0)]);
    }

    #[test]
    fn nobody_asks_for_more_than_the_bound() {
        let told = remaining(u32::MAX, "0 x3 +-").unwrap();
        assert_eq!(told.len(), TIMES_MAX as usize);
    }
}
