//! The answer of one limit: an [`Outcome`], a [`Standing`], and both together as a [`Verdict`].
//!
//! Denied is an answer here, not an error: nothing in this crate can fail to decide.

use crate::time::Micros;

/// Whether one limit has room for a cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// There is room.
    Allowed,
    /// There is no room now.
    Denied {
        /// Exactly how long until there is room, if nobody else takes it: one microsecond less is too early.
        retry_after: Micros,
    },
    /// There can never be room for this cost: it is more than the limit holds when whole, or more than an
    /// identity without history can have. Waiting does not help.
    NeverAdmissible,
}

impl Outcome {
    /// True if there is room.
    #[must_use]
    pub const fn is_allowed(self) -> bool {
        matches!(self, Self::Allowed)
    }
}

/// How a limit stands at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Units that would pass right now.
    pub remaining: u64,
    /// Time until the limit is whole again if nothing more is charged.
    pub reset_after: Micros,
}

/// What one limit says to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whether this limit has room for the cost.
    pub outcome: Outcome,
    /// The most this limit ever lets pass at once.
    pub limit: u64,
    /// Units left: after the charge if the whole request was allowed, otherwise as they are.
    pub remaining: u64,
    /// Time until the limit is whole again.
    pub reset_after: Micros,
}

impl Verdict {
    pub(crate) const fn new(outcome: Outcome, limit: u64, standing: Standing) -> Self {
        Self { outcome, limit, remaining: standing.remaining, reset_after: standing.reset_after }
    }
}
