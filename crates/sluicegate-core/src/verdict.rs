//! The result of one limit: an [`Outcome`], a [`Standing`], and the [`Verdict`] that combines them.
//!
//! A denial is a result, not an error: no function of this crate can fail to decide.

use crate::time::Micros;

/// Whether a limit has room for a cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// There is room.
    Allowed,
    /// There is no room now.
    Denied {
        /// The exact time until there is room, if no other request takes it; one microsecond less is too early.
        retry_after: Micros,
    },
    /// There is never room for this cost. It exceeds the full quota, or the quota that an identity without history
    /// can reach. Waiting does not help.
    NeverAdmissible,
}

impl Outcome {
    /// True if there is room.
    #[must_use]
    pub const fn is_allowed(self) -> bool {
        matches!(self, Self::Allowed)
    }
}

/// The state of a limit at one instant, for the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The units that would be admitted now.
    pub remaining: u64,
    /// The units charged beyond the limit, rounded up. Nothing is admitted until they are paid.
    pub debt: u64,
    /// The time until the limit is full again, if nothing more is charged.
    pub reset_after: Micros,
}

/// The verdict of one limit on one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whether the limit has room for the cost.
    pub outcome: Outcome,
    /// The maximum that the limit admits at once.
    pub limit: u64,
    /// The remaining units: after the charge if the whole request was allowed, otherwise the current ones.
    pub remaining: u64,
    /// The units charged beyond the limit, at the same instant as `remaining`. See [`Standing::debt`].
    pub debt: u64,
    /// The time until the limit is full again.
    pub reset_after: Micros,
}

impl Verdict {
    pub(crate) const fn new(outcome: Outcome, limit: u64, standing: Standing) -> Self {
        let Standing { remaining, debt, reset_after } = standing;
        Self { outcome, limit, remaining, debt, reset_after }
    }
}
