//! From what a denied decision found to what is kept of it.

use super::table::{Entry, Limit};
use super::{Denials, Local, Moment, Question, identity, is_beyond};
use crate::store::{Charge, Key};
use sluicegate_core::decision::Group;
use sluicegate_core::{Outcome, State, Timestamp};
use smallvec::SmallVec;

/// The most limits that a decision may have to be kept: beyond that it would not be small.
const LIMITS_MAX: usize = 16;
/// How long a cost is denied from here that never passes, in nanoseconds: its other numbers should not grow old.
const NEVER_LASTS: Local = 60_000_000_000;

/// What a server said of one limit.
#[derive(Clone, Debug)]
pub(in crate::store::redis) struct Seen {
    /// The state before anything was charged.
    pub(in crate::store::redis) state: Option<State>,
    /// The time by which the limit saw now.
    pub(in crate::store::redis) at: Timestamp,
}

impl Denials {
    /// Keeps what a question has found: all limits of `charges` as they were `seen`, at the server's `now`. It is kept
    /// only if an enforced limit denied. `slot_of` says in which slot a key is.
    pub(in crate::store::redis) fn remember(
        &self,
        question: Question,
        charges: &[Charge<'_>],
        now: Timestamp,
        answered: Moment,
        seen: impl IntoIterator<Item = Seen>,
        slot_of: impl Fn(&Key<'_>) -> u16,
    ) {
        let mut lasts: Option<Local> = None;
        let mut limits: SmallVec<[Limit; 1]> = SmallVec::new();
        let quotas = charges.iter().flat_map(|charge| charge.quotas.iter().map(move |quota| (charge, quota)));
        for ((charge, quota), Seen { state, at }) in quotas.zip(seen) {
            if limits.len() == LIMITS_MAX {
                return;
            }
            let denied = match quota.outcome(state.as_ref(), charge.cost, at) {
                _ if charge.group != Group::Enforced => None,
                Outcome::Denied { retry_after } => Some(retry_after.as_micros().saturating_mul(1_000)),
                Outcome::NeverAdmissible if is_beyond(quota, charge) => Some(NEVER_LASTS),
                Outcome::NeverAdmissible | Outcome::Allowed => None,
            };
            lasts = lasts.max(denied);
            limits.push(Limit { state, at, slot: denied.map(|_| slot_of(&charge.key)) });
        }
        let Some(lasts) = lasts else { return };
        let Question { identity, asked, era, since } = question;
        let identity = identity.unwrap_or_else(|| identity::of(charges));
        let ends = asked.saturating_add(lasts);
        let entry = Entry { identity, asked, answered: answered.local, ends, era, since, now, limits };
        if era == answered.era && self.is_remembered(&entry) {
            self.table.keep(entry, answered.local, |old| old.era == era && self.is_remembered(old));
        }
    }
}
