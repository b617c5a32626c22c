//! What one line or one span says of a decision: one outcome, and the limit that speaks for it.

use super::LimitOutcome;
use crate::decision::{Decision, LimitReport};
use crate::rules::Mode;

/// A decision in one word, in the words of metrics.
///
/// A decision has an outcome for every limit. This is the one that a reader wants to know first: that it was denied,
/// else that a rule which only watches would have denied it, else how it came to be allowed.
#[derive(Clone, Copy, Debug)]
pub struct Headline<'d> {
    /// The word.
    pub outcome: LimitOutcome,
    /// The limit that speaks for it; none if no rule that decides limits the request.
    pub limit: Option<LimitReport<'d>>,
}

impl<'d> Headline<'d> {
    /// The headline of a decision.
    #[must_use]
    pub fn of(decision: &'d Decision) -> Self {
        let speaks = decision.tightest();
        if !decision.is_allowed() {
            let is_share = decision.is_degraded();
            let outcome = if is_share { LimitOutcome::FallbackDenied } else { LimitOutcome::Denied };
            return Self { outcome, limit: speaks };
        }
        let shadow = |limit: &LimitReport<'_>| limit.mode != Mode::Enforce && !limit.verdict.outcome.is_allowed();
        if let Some(limit) = decision.limits().find(shadow) {
            return Self { outcome: LimitOutcome::ShadowDenied, limit: Some(limit) };
        }
        let outcome = match decision.degradation() {
            None => LimitOutcome::Allowed,
            Some(degradation) if degradation.open.is_empty() => LimitOutcome::FallbackAllowed,
            Some(_) => LimitOutcome::FailedOpen,
        };
        Self { outcome, limit: speaks }
    }
}
