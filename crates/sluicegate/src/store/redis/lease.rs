//! Leases on Redis: permits that this instance charges in advance and spends locally.
//!
//! [`LocalLeases`] spends held permits, computes how many extra permits a call requests, and stores the permits that it
//! returns. [`grant`] defines the terms of a lease, answers a request from a permit and gives unused permits back. The
//! bookkeeping itself, without clock and I/O, is in `store/leases`.

pub(crate) mod grant;
#[cfg(test)]
mod tests;

use crate::instances::Instances;
use crate::store::key::Digest;
use crate::store::leases::table::KeyDigest;
use crate::store::leases::{CallResult, Generation, Grant, LeaseTable, PermitRequest, PermitReturn, Uptime};
use crate::store::redis::protocol::planned_charge::decision_digest;
use crate::store::redis::protocol::replay::Replay;
use crate::store::{Charge, Reply};
use grant::{GrantState, LeasePlan, LeaseTerms, reply};
use parking_lot::Mutex;
use sluicegate_core::{Micros, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How often expired permits are given back. Refill gives most of them back sooner; only slow limits profit from less.
pub(crate) const SWEEP_INTERVAL: Duration = Duration::from_millis(50);

/// The instant before a call was sent, and the generation of the server's data at that time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentAt {
    at: Uptime,
    generation: Generation,
}

/// The permits that a call returned and no waiter needs.
pub(crate) struct Leftover<'r, 'a> {
    pub(crate) replay: &'r Replay<'a>,
    pub(crate) permits: usize,
    /// Whether the server admitted less than the call requested.
    pub(crate) is_denied: bool,
}

/// The permits that this instance holds.
#[derive(Debug)]
pub(crate) struct LocalLeases {
    table: LeaseTable<Digest, GrantState>,
    /// How many instances share the limits, as last counted.
    pub(crate) instances: Mutex<Instances>,
    started: Instant,
}

impl LocalLeases {
    /// No permits yet.
    pub(crate) fn new() -> Self {
        Self { table: LeaseTable::default(), instances: Mutex::default(), started: Instant::now() }
    }

    /// The time since this store was started.
    pub(crate) fn uptime(&self) -> Uptime {
        let micros = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        Uptime::after(Micros::from_micros(micros))
    }

    /// The mark to take before a call is sent.
    pub(crate) fn about_to_send(&self, generation: u64) -> SentAt {
        SentAt { at: self.uptime(), generation: Generation(generation) }
    }

    /// Answers the request from a permit, if this instance holds one.
    pub(crate) fn spend(&self, charges: &[Charge<'_>], generation: impl FnOnce() -> u64) -> Option<Reply> {
        if charges.iter().all(|charge| charge.lease.is_none()) {
            return None;
        }
        let (now, generation) = (self.uptime(), Generation(generation()));
        self.table.spend(&decision_digest(charges), now, generation, |grant| reply(grant, charges, now))
    }

    /// How many permits a call may request beyond those of its waiters, and the expired permits to give back.
    pub(crate) fn request_permits(
        &self,
        id: Digest,
        lease: &LeasePlan,
        sent: SentAt,
    ) -> (u32, impl IntoIterator<Item = PermitReturn<GrantState>>) {
        let LeaseTerms { ttl, most, keys } = &lease.terms;
        let request = PermitRequest::new(*ttl, *most, &self.instances.lock());
        self.table.request(&id, &request, keys, sent.at, sent.generation)
    }

    /// Stores the permits that remain after all waiters of a call have been served.
    pub(crate) fn store(
        &self,
        id: Digest,
        lease: &LeasePlan,
        sent: SentAt,
        charged_at: Timestamp,
        leftover: Leftover<'_, '_>,
    ) {
        let LeasePlan { terms, paid } = lease;
        let Leftover { replay, permits, is_denied } = leftover;
        let (now, permits) = (self.uptime(), u32::try_from(permits).unwrap_or(u32::MAX));
        let remaining = replay.room().saturating_sub(permits.into());
        let grant = (permits > 0).then(|| Grant {
            permits,
            charged_at,
            ends: sent.at.plus(terms.ttl),
            generation: sent.generation,
            state: GrantState { received: now, states: replay.states().collect(), paid: Arc::clone(paid) },
        });
        self.table.record(&id, CallResult { grant, remaining, is_denied }, now);
    }

    /// A call that may have requested permits got no reply.
    pub(crate) fn call_failed(&self, id: Digest) {
        self.table.call_failed(&id);
    }

    /// Takes the expired permits out, to be given back.
    pub(crate) fn sweep(&self, generation: u64) -> Vec<PermitReturn<GrantState>> {
        self.table.sweep(self.uptime(), |_| Generation(generation))
    }

    /// Takes all permits out, to be given back. From now on none are requested.
    pub(crate) fn close(&self, generation: u64) -> Vec<PermitReturn<GrantState>> {
        self.table.close(|_| Generation(generation))
    }

    /// Drops the permits of these keys without giving them back, and those that calls in flight will return.
    pub(crate) fn forfeit(&self, keys: &[KeyDigest]) {
        self.table.forfeit(keys);
    }

    /// How many tokens are held, by rule name.
    pub(crate) fn tokens(&self) -> Vec<(Box<str>, u64)> {
        let mut tokens: BTreeMap<Box<str>, u64> = BTreeMap::new();
        self.table.for_each(|grant| {
            for (rule, held) in grant.state.paid.tokens(grant.permits) {
                *tokens.entry(rule.into()).or_default() += held;
            }
        });
        tokens.into_iter().collect()
    }
}
