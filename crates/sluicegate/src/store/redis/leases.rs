//! Decisions that were paid for ahead, on Redis: which may be, what a permit says when it is spent, and how what is left
//! is given back.
//!
//! A lease is a call that charges a decision more often than requests wait for it. [`Terms`] say how often at most,
//! [`Held`] is what remains of the answer: the states as the script found them, on which the core decides every further
//! request as it decided those that waited. So the numbers of an answer are the store's, as of the charge, with the time
//! since then added: what is held here counts as remaining, because here it is.
//!
//! What is given back is undone, not refunded, for the reasons of `reserved`: at most once, for every key by itself, and
//! only limits that decide. Those of shadow rules stay charged; they were perhaps never charged at all.

use super::arguments::undo;
use super::call::Repeat;
use super::deliver::Deliver;
use super::denials::Denials;
use super::key::KeyEncoder;
use super::reserved::{Undo, WITHIN};
use super::script;
use crate::store::leases::table::KeyDigest;
use crate::store::leases::{Generation, Grant, Moment, Return};
use crate::store::{Charge, Lease, Reply, Verdicts};
use futures_util::future::join_all;
use sluicegate_core::decision::{Group, is_charged};
use sluicegate_core::{Cost, Micros, Outcome, Quota, State, Timestamp};
use smallvec::SmallVec;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// The terms on which a decision may be paid for ahead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    /// How long a permit counts: as long as the strictest of the rules allows.
    pub(super) ttl: Micros,
    /// The most permits that may be held.
    pub(super) most: u32,
    /// The keys of the limits that decide.
    pub(super) keys: SmallVec<[KeyDigest; 2]>,
}

impl Terms {
    /// The terms of this decision, if everything that decides and costs anything has some.
    pub(super) fn of(charges: &[Charge<'_>]) -> Option<Self> {
        let mut terms: Option<Self> = None;
        for charge in charges.iter().filter(|charge| is_paid(charge)) {
            let Lease { ttl, .. } = charge.lease?;
            let terms = terms.get_or_insert_with(|| Self { ttl, most: u32::MAX, keys: SmallVec::new() });
            terms.ttl = terms.ttl.min(ttl);
            for quota in charge.quotas {
                terms.most = terms.most.min(most_permits(quota, charge.cost)?);
            }
            let digest = charge.key.digest();
            terms.keys.push((digest.0, digest.1));
        }
        terms
    }
}

/// How many permits of this cost may be held of this limit, if any may be.
fn most_permits(quota: &Quota, cost: Cost) -> Option<u32> {
    let Quota::TokenBucket(bucket) = quota else { return None };
    // What is given back is one cost, which has to fit its type.
    let units = Lease::most_held(quota).min(u32::MAX.into());
    let permits = u32::try_from(units / cost.units()).ok()?;
    (bucket.credits() == 0 && permits > 0).then_some(permits)
}

/// True if the charge decides, and takes something.
fn is_paid(charge: &Charge<'_>) -> bool {
    charge.group == Group::Enforced && !charge.cost.is_zero() && !charge.quotas.is_empty()
}

/// What goes with permits.
#[derive(Clone, Debug)]
pub(super) struct Held {
    /// When the answer was there: by then the store's clock showed at least the time of the charge.
    pub(super) received: Moment,
    /// The states of all limits, in the order of the charges, as the requests before have left them.
    pub(super) states: SmallVec<[FoundState; 2]>,
    /// What it takes to give them back.
    pub(super) paid: Arc<Paid>,
}

/// The state of one limit, and what picks its phase, if it has one.
#[derive(Clone, Debug)]
pub(super) struct FoundState {
    pub(super) state: Option<State>,
    pub(super) seed: u64,
}

/// Answers a request that a permit of this grant pays for. The charges are those that were paid.
pub(super) fn reply(grant: &mut Grant<Held>, charges: &[Charge<'_>], now: Moment) -> Reply {
    let at = grant.charged_at.plus(now.since(grant.state.received));
    Reply { now: at, verdicts: grant.state.decide(charges, at) }
}

impl Held {
    /// Decides one request more. Limits that are enforced have room for it, because it is charged already.
    fn decide(&mut self, charges: &[Charge<'_>], now: Timestamp) -> Verdicts {
        let limits = || charges.iter().flat_map(|charge| charge.quotas.iter().map(move |quota| (charge, quota)));
        let votes: SmallVec<[(Group, Outcome); 2]> = limits()
            .zip(&self.states)
            .map(|((charge, quota), found)| {
                let at = quota.aligned(now, found.seed);
                let outcome = match charge.group {
                    Group::Enforced => Outcome::Allowed,
                    Group::Shadow(_) => quota.outcome(found.state.as_ref(), charge.cost, at),
                };
                (charge.group, outcome)
            })
            .collect();
        let verdict = |(((charge, quota), found), (group, outcome)): (((_, &Quota), &mut FoundState), &(_, _))| {
            let charge: &Charge<'_> = charge;
            let at = quota.aligned(now, found.seed);
            if is_charged(votes.iter().copied(), *group) {
                found.state = quota.charge(found.state.take(), charge.cost, at);
            }
            quota.verdict(*outcome, found.state.as_ref(), at)
        };
        limits().zip(&mut self.states).zip(&votes).map(verdict).collect()
    }
}

/// What was paid for a permit: every limit that decides, by its key.
#[derive(Debug)]
pub(super) struct Paid {
    keys: Vec<(Vec<u8>, Vec<PaidLimit>)>,
    /// The rules, each with what a permit costs under it.
    rules: Vec<(Box<str>, Cost)>,
}

#[derive(Debug)]
struct PaidLimit {
    quota: Quota,
    cost: Cost,
}

impl Paid {
    /// What these charges pay.
    pub(super) fn of(encoder: &KeyEncoder, charges: &[Charge<'_>]) -> Self {
        let limit = |quota: &Quota, cost| PaidLimit { quota: quota.clone(), cost };
        let keys = charges.iter().filter(|charge| is_paid(charge)).map(|charge| {
            let limits = charge.quotas.iter().map(|quota| limit(quota, charge.cost)).collect();
            (encoder.encode(&charge.key), limits)
        });
        let rule = |charge: &Charge<'_>| (charge.key.space.name().into(), charge.cost);
        let rules = charges.iter().filter(|charge| is_paid(charge)).map(rule);
        Self { keys: keys.collect(), rules: rules.collect() }
    }

    /// The rules, each with what so many permits cost under it.
    pub(super) fn tokens(&self, permits: u32) -> impl Iterator<Item = (&str, u64)> {
        self.rules.iter().map(move |(rule, cost)| (&**rule, cost.units().saturating_mul(permits.into())))
    }

    /// What gives back so many permits, a call for every key, because one with several would be refused while their slot
    /// moves. None for keys to which time has given back everything in `elapsed`.
    fn undos(&self, back: &Return<Held>, elapsed: Micros) -> impl Iterator<Item = Undo> {
        let &Return { permits, charged_at, generation: Generation(era), .. } = back;
        let repeat = Repeat::NeverAndOnlyIn(era);
        let is_worth_it = move |limit: &PaidLimit| match &limit.quota {
            Quota::TokenBucket(bucket) => bucket.refilling(limit.all(permits).units()) > elapsed,
            _ => false,
        };
        let keys = self.keys.iter().filter(move |(_, limits)| limits.iter().any(is_worth_it));
        keys.map(move |(key, limits)| {
            let limits = limits.iter().enumerate();
            let limits = limits.map(|(index, limit)| (index, &limit.quota, limit.all(permits)));
            Undo { script: &script::CHARGE, keys: vec![key.clone()], arguments: undo(charged_at, limits), repeat }
        })
    }
}

impl PaidLimit {
    /// What so many permits cost: no more than [`most_permits`] allows.
    fn all(&self, permits: u32) -> Cost {
        Cost::new(self.cost.get().saturating_mul(permits))
    }
}

/// Gives back permits: once, in its own time and on a task of its own. The task ends when that is done; nobody has to wait
/// for it. What cannot be delivered is lost.
pub(super) fn give_back(
    delivery: &impl Deliver,
    denials: Option<&Arc<Denials>>,
    returns: impl IntoIterator<Item = Return<Held>>,
    now: Moment,
) -> Option<JoinHandle<()>> {
    let undos = |back: Return<Held>| {
        let Held { received, paid, .. } = &back.state;
        paid.undos(&back, now.since(*received)).collect::<Vec<_>>()
    };
    let undos: Vec<Undo> = returns.into_iter().flat_map(undos).collect();
    if undos.is_empty() {
        return None;
    }
    let (delivery, denials, deadline) = (delivery.clone(), denials.cloned(), Instant::now() + WITHIN);
    // Without a runtime, which ends before its tasks' futures are dropped, nobody could send anything any more.
    let runtime = Handle::try_current().ok()?;
    Some(runtime.spawn(async move {
        join_all(undos.iter().map(|undo| undo.send(&delivery, denials.as_ref(), deadline))).await;
    }))
}

#[cfg(test)]
mod tests;
