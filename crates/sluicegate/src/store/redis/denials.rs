//! Denials that need not be asked for again: an identity that was denied is answered from here until it may pass.
//!
//! What a limit has charged only grows between two times that something is given back. So whoever has seen a state
//! without room, and knows the server's time, knows that the server would deny as well. The server's time is estimated
//! twice from the one it told with the state, by a clock of this process that never goes back:
//! - **High**, counted from the moment before the call was sent: the server's clock shows no more than that. If there
//!   is no room even then, the denial is certain. Otherwise the server is asked.
//! - **Low**, counted from the moment after the answer: the server's clock shows no less than that. The numbers of the
//!   answer are computed by the core at this instant, so nobody is told to come back too early; it is too late by no
//!   more than the round trip of the call.
//!
//! What gives back ends what is known, in four ways:
//! - Here, by a refund, a reset or an undo of this process: [`forgotten`] ends all that was learnt of the subject before
//!   the answer to it.
//! - Elsewhere, by those of others: [`notices`] tells, within [`UNHEARD_MAX`].
//! - By the loss of states: an era ends whenever a connection is opened or another server has a key.
//! - By other rules: quotas and groups are part of what is looked up. Costs are not, except where a log is among the
//!   limits: what a server tells of a log without room is true for one cost only.
//!
//! Memory is fixed: see [`table`]. Peeks neither use nor leave anything here.

mod asking;
mod forgotten;
mod giving_back;
mod identity;
#[cfg(all(test, sluicegate_loom))]
mod models;
mod notices;
mod remember;
mod table;
#[cfg(test)]
mod tests;

pub(super) use giving_back::GivingBack;
pub(super) use notices::{NoticeBoard, SCRIPT};
pub(super) use remember::Seen;

use super::topology;
use crate::store::key::Digest;
use crate::store::{Charge, Reply, Verdicts};
use crate::sync::{AtomicU64, Ordering};
use forgotten::Forgotten;
use notices::Unsent;
use sluicegate_core::{Micros, Outcome, Quota, Timestamp};
use std::fmt;
use table::{Entry, Limit, Table};
use tokio::time::Instant;

/// An instant of this process, in nanoseconds from an origin that does not matter.
pub(super) type Local = u64;

/// How long a denial is believed without news from others.
const UNHEARD_AGE_MAX: Local = 1_000_000_000;
/// How old the news from others may be for denials that are older than [`UNHEARD_AGE_MAX`].
const UNHEARD_MAX: Local = 2_000_000_000;

/// What is known of those who were denied.
pub(super) struct Denials {
    table: Table,
    forgotten: Forgotten,
    /// When others were last asked what they have given back, and answered. Nothing is 0.
    heard: AtomicU64,
    unsent: Unsent,
    answered: AtomicU64,
    /// Where local time starts.
    origin: Instant,
}

/// A request that is about to ask the server, and what that is worth afterwards.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question {
    identity: Option<Digest>,
    asked: Local,
    era: u64,
    /// What has been forgotten by then.
    since: u64,
}

/// What this process's clock and connections say at the moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    /// The time.
    pub(super) local: Local,
    /// The era of the servers: states of another one may be lost.
    pub(super) era: u64,
}

impl Denials {
    /// Nothing is known yet.
    pub(super) fn new() -> Self {
        Self::of(Table::new(table::BUCKETS), Forgotten::new(forgotten::SLOTS))
    }

    fn of(table: Table, forgotten: Forgotten) -> Self {
        let (heard, answered) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { table, forgotten, heard, unsent: Unsent::default(), answered, origin: Instant::now() }
    }

    /// Local time by the clock of this process.
    pub(super) fn local(&self, instant: Instant) -> Local {
        u64::try_from(instant.duration_since(self.origin).as_nanos()).unwrap_or(u64::MAX)
    }

    /// How many denials were answered from here.
    pub(super) fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// How many denials are kept, also those that say nothing any more.
    pub(super) fn kept(&self) -> usize {
        self.table.len()
    }

    /// The denial, if it is certain. Otherwise the question, from before it is sent: what the server answers to it may
    /// be remembered with it.
    pub(super) fn look(&self, charges: &[Charge<'_>], moment: Moment) -> Result<Reply, Question> {
        // Read before anything is sent, so that whatever is forgotten later ends what the answer teaches.
        let since = self.forgotten.now();
        let question = Question { identity: None, asked: moment.local, era: moment.era, since };
        // As long as nobody is denied, nobody pays for it.
        if self.table.len() == 0 {
            return Err(question);
        }
        let identity = identity::of(charges);
        let denial = self.table.find(identity, moment.local, |entry| self.answer(entry, charges, moment));
        match denial {
            Some(reply) => {
                self.answered.fetch_add(1, Ordering::Relaxed);
                Ok(reply)
            }
            None => Err(Question { identity: Some(identity), ..question }),
        }
    }

    fn answer(&self, entry: &Entry, charges: &[Charge<'_>], moment: Moment) -> Option<Reply> {
        if !self.is_believed(entry, moment) {
            return None;
        }
        let local = moment.local;
        let high = Micros::from_micros(local.saturating_sub(entry.asked).div_ceil(1_000));
        let low = Micros::from_micros((local - entry.answered) / 1_000);
        let denies = |(limit, quota, charge): (&Limit, &Quota, &Charge<'_>)| {
            limit.slot.is_some() && is_certain(limit, quota, charge, high)
        };
        if !limits(entry, charges).any(denies) {
            return None;
        }
        let verdict = |(limit, quota, charge): (&Limit, &Quota, &Charge<'_>)| {
            let (state, at) = (limit.state.as_ref(), limit.at.plus(low));
            quota.verdict(quota.outcome(state, charge.cost, at), state, at)
        };
        let verdicts: Verdicts = limits(entry, charges).map(verdict).collect();
        Some(Reply { now: entry.now.plus(low), verdicts })
    }

    /// Whether nothing has happened since that may have given something back.
    fn is_believed(&self, entry: &Entry, moment: Moment) -> bool {
        // First when others were heard, then what they said: it is written the other way round.
        let heard = self.heard.load(Ordering::Acquire);
        // A clock that went back, as a caller's may, tells nothing.
        let is_in_order = moment.era == entry.era && moment.local >= entry.answered;
        let is_young = moment.local.saturating_sub(entry.asked) <= UNHEARD_AGE_MAX;
        let is_heard = heard > 0 && moment.local.saturating_sub(heard) <= UNHEARD_MAX;
        is_in_order && (is_young || is_heard) && self.is_remembered(entry)
    }

    fn is_remembered(&self, entry: &Entry) -> bool {
        let slots = entry.limits.iter().filter_map(|limit| limit.slot);
        self.forgotten.is_nothing_since(entry.since, slots)
    }

    /// Ends what is known of the subjects in this slot, here and now.
    pub(super) fn forget(&self, slot: u16) {
        self.forgotten.forget(slot);
    }

    /// Takes note that others were asked at this instant, and that all they said has been forgotten.
    fn hear(&self, asked: Local) {
        self.heard.store(asked.max(1), Ordering::Release);
    }
}

/// Thousands of denials would tell nobody anything.
impl fmt::Debug for Denials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Denials").field("kept", &self.kept()).field("answered", &self.answered()).finish()
    }
}

/// In which slot what belongs to this key is forgotten, on every server the same.
pub(super) fn slot_of(encoded: &[u8]) -> u16 {
    // Far below 2¹⁶.
    topology::slots::slot_of(encoded) % forgotten::SLOTS as u16
}

/// All limits, each with its quota and the charge that it is of.
fn limits<'e, 'c>(
    entry: &'e Entry,
    charges: &'c [Charge<'c>],
) -> impl Iterator<Item = (&'e Limit, &'c Quota, &'c Charge<'c>)> {
    let quotas = charges.iter().flat_map(|charge| charge.quotas.iter().map(move |quota| (quota, charge)));
    entry.limits.iter().zip(quotas).map(|(limit, (quota, charge))| (limit, quota, charge))
}

/// Whether the limit has no room, however much more was charged to it since it was seen.
fn is_certain(limit: &Limit, quota: &Quota, charge: &Charge<'_>, since: Micros) -> bool {
    let at: Timestamp = limit.at.plus(since);
    match quota.outcome(limit.state.as_ref(), charge.cost, at) {
        Outcome::Allowed => false,
        Outcome::Denied { .. } => true,
        // A newcomer who asks for credits is denied as well, and it is the next charge that gives him a history.
        Outcome::NeverAdmissible => is_beyond(quota, charge),
    }
}

/// Whether the cost is more than the limit ever holds.
fn is_beyond(quota: &Quota, charge: &Charge<'_>) -> bool {
    charge.cost.units() > quota.limit()
}
