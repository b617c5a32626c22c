//! The same charge several times in a row: what each of them is told.
//!
//! The script says what it found before the first, and how many were admitted. What follows from that is computed here,
//! by the core, one charge after the other.

use super::denials::Seen;
use super::reply::{Finding, Found, all_fit, uncharged};
use crate::store::Verdicts;
use sluicegate_core::decision::is_charged;
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
