//! Permits on Redis: which decisions may have them, how a permit answers a request, and how unused permits are given
//! back.
//!
//! A lease is a call that charges a decision more often than its waiters need. [`LeaseTerms`] bound the surplus.
//! [`GrantState`] keeps the states that the script found, and the core decides every further request on them, exactly as
//! it decided the waiters. So the numbers of an answer are those of the store at the charge, advanced by the time since
//! then. Permits that this instance holds count as remaining, because they are available here.
//!
//! Unused permits are undone, not refunded, for the reason that [`reservation`](super::super::cross_slot::reservation)
//! gives: at most once, each key in a call of its own, and only enforced limits. Limits in shadow mode stay charged,
//! because they may never have been charged for these permits.

use crate::store::leases::table::KeyDigest;
use crate::store::leases::{Generation, Grant, PermitReturn, Uptime};
use crate::store::redis::client::call::Resend;
use crate::store::redis::client::transport::Transport;
use crate::store::redis::denial_cache::DenialCache;
use crate::store::redis::protocol::arguments::undo;
use crate::store::redis::protocol::key::KeyEncoder;
use crate::store::redis::protocol::replay::SeededState;
use crate::store::redis::protocol::scripts;
use crate::store::redis::request::has_usage;
use crate::store::redis::undo::{UNDO_TIMEOUT, UndoCall};
use crate::store::{Charge, Lease, Reply, Verdicts};
use futures_util::future::join_all;
use sluicegate_core::decision::{ChargeMode, is_charged};
use sluicegate_core::{Cost, Micros, Outcome, Quota, Timestamp};
use smallvec::SmallVec;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// The lease of a planned decision.
#[derive(Debug)]
pub(crate) struct LeasePlan {
    pub(crate) terms: LeaseTerms,
    /// The data that giving permits back needs.
    pub(crate) paid: Arc<PaidCharges>,
}

impl LeasePlan {
    /// The lease of the decision over these charges, if it may have one.
    pub(crate) fn of(encoder: &KeyEncoder, charges: &[Charge<'_>]) -> Option<Self> {
        LeaseTerms::of(charges).map(|terms| Self { terms, paid: Arc::new(PaidCharges::of(encoder, charges)) })
    }
}

/// The terms on which permits of a decision may be charged in advance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeaseTerms {
    /// The lifetime of a permit: the shortest of the rules involved.
    pub(crate) ttl: Micros,
    /// The most permits that may be held.
    pub(crate) most: u32,
    /// The keys of the enforced limits.
    pub(crate) keys: SmallVec<[KeyDigest; 2]>,
}

impl LeaseTerms {
    /// The terms of this decision. `None` unless every enforced charge with a cost has a lease and fits into it, and is only
    /// charged if the request is allowed.
    pub(crate) fn of(charges: &[Charge<'_>]) -> Option<Self> {
        if has_usage(charges) {
            return None;
        }
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

/// How many permits of this cost may be held under this limit; `None` for none. Only token buckets without credits can
/// be leased.
fn most_permits(quota: &Quota, cost: Cost) -> Option<u32> {
    let Quota::TokenBucket(bucket) = quota else { return None };
    // An undo gives back all permits as one cost, which must fit its type.
    let units = Lease::most_held(quota).min(u32::MAX.into());
    let permits = u32::try_from(units / cost.units()).ok()?;
    (bucket.credits() == 0 && permits > 0).then_some(permits)
}

/// Whether the charge is enforced and takes units.
fn is_paid(charge: &Charge<'_>) -> bool {
    charge.mode == ChargeMode::Enforced && !charge.cost.is_zero() && !charge.quotas.is_empty()
}

/// The data of a grant: states to answer from, and charges to give back.
#[derive(Clone, Debug)]
pub(crate) struct GrantState {
    /// When the reply arrived. The server's clock then showed at least the time of the charge.
    pub(crate) received: Uptime,
    /// The states of all limits, in the order of the charges, after the requests decided so far.
    pub(crate) states: SmallVec<[SeededState; 2]>,
    /// The data that giving permits back needs.
    pub(crate) paid: Arc<PaidCharges>,
}

/// Answers a request with a permit of this grant. `charges` are those of the leased decision.
pub(crate) fn reply(grant: &mut Grant<GrantState>, charges: &[Charge<'_>], now: Uptime) -> Reply {
    let at = grant.charged_at.plus(now.since(grant.state.received));
    Reply { now: at, verdicts: grant.state.decide(charges, at) }
}

impl GrantState {
    /// Decides one more request. Enforced limits have room for it, because its permit is already charged.
    fn decide(&mut self, charges: &[Charge<'_>], now: Timestamp) -> Verdicts {
        let limits = || charges.iter().flat_map(|charge| charge.quotas.iter().map(move |quota| (charge, quota)));
        let votes: SmallVec<[(ChargeMode, Outcome); 2]> = limits()
            .zip(&self.states)
            .map(|((charge, quota), found)| {
                let at = quota.aligned(now, found.seed);
                let outcome = match charge.mode {
                    ChargeMode::Enforced => Outcome::Allowed,
                    ChargeMode::Shadow(_) => quota.outcome(found.state.as_ref(), charge.cost, at),
                };
                (charge.mode, outcome)
            })
            .collect();
        let verdict = |(((charge, quota), found), (mode, outcome)): (((_, &Quota), &mut SeededState), &(_, _))| {
            let charge: &Charge<'_> = charge;
            let at = quota.aligned(now, found.seed);
            if is_charged(votes.iter().copied(), *mode) {
                found.state = quota.charge(found.state.take(), charge.cost, at);
            }
            quota.verdict(*outcome, found.state.as_ref(), at)
        };
        limits().zip(&mut self.states).zip(&votes).map(verdict).collect()
    }
}

/// The charges of one permit: every enforced limit, by key.
#[derive(Debug)]
pub(crate) struct PaidCharges {
    keys: Vec<(Vec<u8>, Vec<PaidLimit>)>,
    /// The rules, each with the cost of a permit.
    rules: Vec<(Box<str>, Cost)>,
}

#[derive(Debug)]
struct PaidLimit {
    quota: Quota,
    cost: Cost,
}

impl PaidCharges {
    /// The charges of one permit of this decision.
    pub(crate) fn of(encoder: &KeyEncoder, charges: &[Charge<'_>]) -> Self {
        let limit = |quota: &Quota, cost| PaidLimit { quota: quota.clone(), cost };
        let keys = charges.iter().filter(|charge| is_paid(charge)).map(|charge| {
            let limits = charge.quotas.iter().map(|quota| limit(quota, charge.cost)).collect();
            (encoder.encode(&charge.key), limits)
        });
        let rule = |charge: &Charge<'_>| (charge.key.space.name().into(), charge.cost);
        let rules = charges.iter().filter(|charge| is_paid(charge)).map(rule);
        Self { keys: keys.collect(), rules: rules.collect() }
    }

    /// The rules, each with the cost of so many permits.
    pub(crate) fn tokens(&self, permits: u32) -> impl Iterator<Item = (&str, u64)> {
        self.rules.iter().map(move |(rule, cost)| (&**rule, cost.units().saturating_mul(permits.into())))
    }

    /// The calls that give permits back: one for each key, because Redis rejects a call with several keys while their
    /// slot migrates. Keys that have refilled completely within `elapsed` need no call.
    fn undos(&self, back: &PermitReturn<GrantState>, elapsed: Micros) -> impl Iterator<Item = UndoCall> {
        let &PermitReturn { permits, charged_at, generation: Generation(generation), .. } = back;
        let resend = Resend::OnceInGeneration(generation);
        let is_worth_it = move |limit: &PaidLimit| match &limit.quota {
            Quota::TokenBucket(bucket) => bucket.refilling(limit.all(permits).units()) > elapsed,
            _ => false,
        };
        let keys = self.keys.iter().filter(move |(_, limits)| limits.iter().any(is_worth_it));
        keys.map(move |(key, limits)| {
            let limits = limits.iter().enumerate();
            let limits = limits.map(|(index, limit)| (index, &limit.quota, limit.all(permits)));
            UndoCall {
                script: &scripts::CHARGE,
                keys: vec![key.clone()],
                arguments: undo(charged_at, limits),
                resend,
            }
        })
    }
}

impl PaidLimit {
    /// The cost of so many permits. [`most_permits`] bounds it.
    fn all(&self, permits: u32) -> Cost {
        Cost::new(self.cost.get().saturating_mul(permits))
    }
}

/// Gives permits back, once, in a task of its own that does not have to be awaited. Undos that cannot be delivered
/// within [`UNDO_TIMEOUT`] are lost.
pub(crate) fn give_back(
    transport: &impl Transport,
    denial_cache: Option<&Arc<DenialCache>>,
    returns: impl IntoIterator<Item = PermitReturn<GrantState>>,
    now: Uptime,
) -> Option<JoinHandle<()>> {
    let undos = |back: PermitReturn<GrantState>| {
        let GrantState { received, paid, .. } = &back.state;
        paid.undos(&back, now.since(*received)).collect::<Vec<_>>()
    };
    let undos: Vec<UndoCall> = returns.into_iter().flat_map(undos).collect();
    if undos.is_empty() {
        return None;
    }
    let (transport, cache) = (transport.clone(), denial_cache.cloned());
    let deadline = Instant::now() + UNDO_TIMEOUT;
    // A runtime ends before the futures of its tasks are dropped. Without one, nothing can be sent.
    let runtime = Handle::try_current().ok()?;
    Some(runtime.spawn(async move {
        join_all(undos.iter().map(|undo| undo.send(&transport, cache.as_ref(), deadline))).await;
    }))
}
