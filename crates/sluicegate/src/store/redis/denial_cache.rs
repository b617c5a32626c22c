//! The denial cache: answers denials without a call, until the client may pass again.
//!
//! An [`Observation`](table::Observation) is the last known state of a key. A denial by the server inserts one for
//! every key of the request. A later request over these keys is denied from the cache if one of its limits is
//! certain to deny. The numbers of the reply come from all observations of the request.
//!
//! A limit that had no room at a known server time has none now, because its charges only grow until units are given
//! back. The present server time is estimated twice, from the server time in the reply and a monotonic clock of this
//! process:
//! - **High**, counted from before the call was sent: an upper bound of the server's clock. If there is no room even
//!   then, the denial is certain. Otherwise the request goes to the server.
//! - **Low**, counted from after the reply arrived: a lower bound. The core computes the numbers of the reply at
//!   this instant. So no wait is too short, and none is too long by more than the round trip of that call.
//!
//! Three rules keep the numbers correct after further charges to the same keys:
//! - **Charges of this process** replace the observations of their keys before the client is answered: see
//!   [`insert`], and [`order`] for calls that overtake each other.
//! - **Charges of other processes** are invisible. An observation is valid for at most [`ROOM_AGE_MAX`], unless a
//!   limit of the key is exhausted: no process can charge such a key, because its limits are charged together or not
//!   at all. The exception is usage that has already happened. It only makes waits longer, so denials stay correct, and
//!   it is announced to the other processes as an invalidation.
//! - **A log** returns only a part of its state: it can deny only the cost that it denied before. Units that have
//!   left it since are not shown, for at most [`ROOM_AGE_MAX`].
//!
//! Four events invalidate observations:
//! - A refund, reset or undo by this process: [`invalidation`] invalidates all observations of the subject before
//!   the client is answered.
//! - A refund, reset, undo or usage that did not fit, by another process: [`broadcast`] reports it within
//!   [`EXCHANGE_AGE_MAX`].
//! - A loss of data: each new connection and each new owner of a key starts a new generation.
//! - A change of rules: an observation is valid only for the quotas that it was made with.
//!
//! Memory is bounded: see [`table`]. Peeks never use the cache.

pub(crate) mod broadcast;
pub(crate) mod insert;
mod invalidation;
#[cfg(all(test, sluicegate_loom))]
mod models;
mod order;
mod pending_refund;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use pending_refund::PendingRefund;

use crate::store::redis::client::topology;
use crate::store::redis::protocol::arguments;
use crate::store::redis::protocol::reply::{FoundLimit, FoundLimits, uncharged, wait_for_all};
use crate::store::{Charge, Reply};
use crate::sync::{AtomicU64, Ordering};
use broadcast::UnsentInvalidations;
use invalidation::InvalidationClock;
use sluicegate_core::decision::ChargeMode;
use sluicegate_core::{Cost, Micros, Outcome, Quota, Timestamp};
use smallvec::SmallVec;
use std::fmt;
use std::hash::Hash;
use table::{Observation, ObservationTable, ObservedLimit};
use tokio::time::Instant;

/// An instant of this process, in nanoseconds since an arbitrary origin.
pub(crate) type LocalNanos = u64;

/// How long an observation is valid if other processes may charge the key, or if their invalidations are not known.
const ROOM_AGE_MAX: LocalNanos = 1_000_000_000;
/// The age from which one request refreshes the observation at the server, while the others still use it. Without
/// this, all requests that meet an expired observation would go to the server at once.
const RENEWAL_AGE: LocalNanos = 900_000_000;
/// The longest time since the last exchange of invalidations for observations that are older than [`ROOM_AGE_MAX`].
const EXCHANGE_AGE_MAX: LocalNanos = 2_000_000_000;

/// The denial cache.
pub(crate) struct DenialCache {
    table: ObservationTable,
    invalidations: InvalidationClock,
    /// When the last successful exchange of invalidations began; 0 for none.
    last_exchange: AtomicU64,
    unsent: UnsentInvalidations,
    hits: AtomicU64,
    /// The zero of local time.
    origin: Instant,
}

/// The present: local time and data generation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheMoment {
    pub(crate) local: LocalNanos,
    /// The generation of the servers' data. State from another generation may be lost.
    pub(crate) generation: u64,
}

/// A denial under construction.
#[derive(Default)]
struct DenialDraft<'a> {
    found: FoundLimits<'a>,
    now: Timestamp,
    is_denied: bool,
}

impl DenialCache {
    /// An empty cache.
    pub(crate) fn new() -> Self {
        Self::of(ObservationTable::new(table::SETS), InvalidationClock::new(invalidation::PARTITIONS))
    }

    fn of(table: ObservationTable, invalidations: InvalidationClock) -> Self {
        let (last_exchange, hits) = (AtomicU64::new(0), AtomicU64::new(0));
        Self {
            table,
            invalidations,
            last_exchange,
            unsent: UnsentInvalidations::default(),
            hits,
            origin: Instant::now(),
        }
    }

    /// The local time of an instant.
    pub(crate) fn local(&self, instant: Instant) -> LocalNanos {
        u64::try_from(instant.duration_since(self.origin).as_nanos()).unwrap_or(u64::MAX)
    }

    /// How many denials came from the cache.
    pub(crate) fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    /// How many keys have an observation, including invalid ones.
    pub(crate) fn observed_keys(&self) -> usize {
        self.table.len()
    }

    /// The denial, if it is certain and all its numbers are known.
    pub(crate) fn lookup(&self, charges: &[Charge<'_>], moment: CacheMoment) -> Option<Reply> {
        // While no client is denied, the lookup costs only this check.
        if self.table.len() == 0 {
            return None;
        }
        let mut answer = DenialDraft::default();
        for charge in charges.iter().filter(|charge| !charge.quotas.is_empty()) {
            let read = |observation: &mut Observation| self.read(observation, charge, moment, &mut answer);
            self.table.find(charge.key.digest(), moment.local, read)?;
        }
        if !answer.is_denied {
            return None;
        }
        self.hits.fetch_add(1, Ordering::Relaxed);
        wait_for_all(&mut answer.found.iter_mut().collect::<SmallVec<[_; 2]>>());
        Some(Reply { now: answer.now, verdicts: uncharged(&answer.found).collect() })
    }

    /// Adds the limits of this charge to the denial. `None` if the request has to go to the server.
    fn read<'a>(
        &self,
        observation: &mut Observation,
        charge: &Charge<'a>,
        moment: CacheMoment,
        answer: &mut DenialDraft<'a>,
    ) -> Option<()> {
        // Checked before the invalidations: an exchange records them before it records itself.
        let is_current = self.is_current(moment);
        if observation.quotas != digest_of(charge.quotas) || !self.is_believed(observation, moment) {
            return None;
        }
        let (high, low) = observation.execution.elapsed(moment.local);
        let is_closed = |observation: &Observation| is_current && observation.is_closed(charge.quotas, high);
        if !observation.is_young(moment.local) && !is_closed(observation) {
            return None;
        }
        for (limit, quota) in observation.limits.iter().zip(charge.quotas) {
            let at = limit.at.plus(low);
            let outcome = quota.outcome(limit.state.as_ref(), charge.cost, at);
            if matches!(outcome, Outcome::Denied { .. }) && !limit.can_deny(quota, charge.cost) {
                return None;
            }
            answer.is_denied |= charge.mode == ChargeMode::Enforced && is_certain(limit, quota, charge.cost, high);
            let found = arguments::RequestedLimit { quota, cost: charge.cost, mode: charge.mode, seed: 0, key: 0 };
            answer.found.push(FoundLimit { limit: found, at, outcome, state: limit.state.clone() });
        }
        answer.now = answer.now.max(observation.execution.now.plus(low));
        Some(())
    }

    /// Whether no event since then may have lost the state or given units back.
    fn is_believed(&self, observation: &Observation, moment: CacheMoment) -> bool {
        // After a step back of the clock, which a caller's clock may do, the observation proves nothing.
        let is_in_order =
            moment.generation == observation.generation && moment.local >= observation.execution.received_at;
        is_in_order && self.is_valid(observation)
    }

    fn is_valid(&self, observation: &Observation) -> bool {
        self.invalidations.is_valid_since(observation.since, [observation.partition])
    }

    /// Whether the last exchange of invalidations is recent.
    fn is_current(&self, moment: CacheMoment) -> bool {
        let last_exchange = self.last_exchange.load(Ordering::Acquire);
        last_exchange > 0 && moment.local.saturating_sub(last_exchange) <= EXCHANGE_AGE_MAX
    }

    /// Invalidates all observations in this partition.
    pub(crate) fn invalidate(&self, partition: u16) {
        self.invalidations.invalidate(partition);
    }

    /// Records an exchange that began at this instant. All its invalidations are already applied.
    fn record_exchange(&self, sent_at: LocalNanos) {
        self.last_exchange.store(sent_at.max(1), Ordering::Release);
    }
}

impl order::Execution {
    /// The time that has passed on the server since the execution: an upper and a lower bound.
    fn elapsed(&self, local: LocalNanos) -> (Micros, Micros) {
        let high = Micros::from_micros(local.saturating_sub(self.sent_at).div_ceil(1_000));
        let low = Micros::from_micros(local.saturating_sub(self.received_at) / 1_000);
        (high, low)
    }
}

impl Observation {
    /// Whether the observation is young enough to be valid although the key may have been charged since. The first
    /// request shortly before the end has to refresh it.
    fn is_young(&mut self, local: LocalNanos) -> bool {
        let age = local.saturating_sub(self.execution.sent_at);
        if age > RENEWAL_AGE && !self.is_renewed {
            self.is_renewed = true;
            return false;
        }
        age <= ROOM_AGE_MAX
    }

    /// Whether no process can have charged the key since, as far as the exchanged invalidations show.
    fn is_closed(&self, quotas: &[Quota], high: Micros) -> bool {
        self.limits.iter().zip(quotas).any(|(limit, quota)| limit.is_closed(quota, high))
    }
}

impl ObservedLimit {
    /// Whether the denial of this cost follows from the known part of the state.
    fn can_deny(&self, quota: &Quota, cost: Cost) -> bool {
        !is_log(quota) || self.denied == Some(cost)
    }

    /// Whether the limit was exhausted, and still is after this time.
    fn is_closed(&self, quota: &Quota, since: Micros) -> bool {
        let is_known = match quota {
            // Rules with other numbers may find room in the same state.
            Quota::TokenBucket(bucket) => !bucket.is_on_shared_state(),
            Quota::SlidingWindow(_) => quota.limit() == 0 || self.denied == Some(Cost::ONE),
            _ => true,
        };
        is_known && !quota.outcome(self.state.as_ref(), Cost::ONE, self.at.plus(since)).is_allowed()
    }
}

/// Without the thousands of observations.
impl fmt::Debug for DenialCache {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("DenialCache")
            .field("observed_keys", &self.observed_keys())
            .field("hits", &self.hits())
            .finish()
    }
}

/// The invalidation partition of a key, the same on every server.
pub(crate) fn partition_of(encoded: &[u8]) -> u16 {
    // Far below 2¹⁶.
    topology::slots::slot_of(encoded) % invalidation::PARTITIONS as u16
}

/// A digest of the quotas of a key.
fn digest_of<'q>(quotas: impl IntoIterator<Item = &'q Quota>) -> u64 {
    let quotas: SmallVec<[&Quota; 4]> = quotas.into_iter().collect();
    crate::store::key::digest_of(|hasher| quotas.hash(hasher)).0
}

fn is_log(quota: &Quota) -> bool {
    matches!(quota, Quota::SlidingWindow(_))
}

/// Whether the limit has no room for this cost, whatever was charged to it since.
fn is_certain(limit: &ObservedLimit, quota: &Quota, cost: Cost, since: Micros) -> bool {
    let at: Timestamp = limit.at.plus(since);
    match quota.outcome(limit.state.as_ref(), cost, at) {
        Outcome::Allowed => false,
        Outcome::Denied { .. } => limit.can_deny(quota, cost),
        // A new client that requests credits is denied as well, but its next charge gives it a history.
        Outcome::NeverAdmissible => is_beyond(quota, cost),
    }
}

/// Whether the cost is more than the limit ever holds.
fn is_beyond(quota: &Quota, cost: Cost) -> bool {
    cost.units() > quota.limit()
}
