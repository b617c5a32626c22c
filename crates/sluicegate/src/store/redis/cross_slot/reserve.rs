//! One request over keys that no single call can reach: on a Cluster, its subjects lie in different slots.
//!
//! Several calls cannot be atomic, so the parts of a request are charged in order and released if a later part denies:
//! 1. The enforced limits are charged part by part, the narrowest subject first, because it is the most likely to deny.
//!    An admitted request has been charged everywhere, so no limit ever admits more than it allows.
//! 2. At the first denial, at an error, or when the client disconnects, the parts charged so far are released
//!    ([`reservation`](super::reservation)). The limits are then as if the request had never been charged, however many
//!    requests do the same concurrently. A release that is lost leaves its units charged: that denies too much for a
//!    while, and never too little.
//! 3. Limits in shadow mode are only peeked at until the request has passed, and charged then. Those of the last part
//!    are decided together with it.
//!
//! Between steps 1 and 2 the reservation counts for every other request. A request may be denied for units that are
//! reserved by requests that are about to be denied: at most their costs, until they are released. No order avoids
//! this. With the widest subject first, clients that are over their own limit would hold units of the shared limit.
//!
//! While a slot migrates, Redis rejects a call with several of its keys (`TRYAGAIN`), but serves each key alone. A part
//! that is rejected for this reason is split by key, and so are its release and its peek.
//!
//! The verdicts of a denied request are those of a single call: limits that were charged and released show their state
//! from before. The instants of the parts differ by the time between the calls.

use super::reservation::Reservation;
use crate::store::redis::client::error::CallError;
use crate::store::redis::client::transport::Transport;
use crate::store::redis::protocol::arguments::Operation;
use crate::store::redis::protocol::reply::{
    DecisionResult, FoundLimits, ParsedReply, all_fit, uncharged, verdicts, wait_for_all,
};
use crate::store::redis::request::{Part, Request};
use crate::store::{Charge, Reply, StoreError, Verdicts};
use futures_util::future::{OptionFuture, join, join_all, try_join_all};
use sluicegate_core::decision::ChargeMode;
use sluicegate_core::{Quota, Timestamp};
use std::collections::VecDeque;
use tokio::time::timeout_at;

/// The result of one operation on one part.
struct PartResult<'a> {
    part: Part,
    operation: Operation,
    now: Timestamp,
    found: FoundLimits<'a>,
    /// The verdicts, if usage is charged in any case.
    with_usage: Option<Verdicts>,
}

/// Executes the operation on all parts concurrently, with one call for each part.
pub(crate) async fn execute_parts<T: Transport>(
    request: &Request<'_, '_, T>,
    operation: Operation,
    parts: Vec<Part>,
) -> Result<Reply, StoreError> {
    let calls = parts.into_iter().map(|part| execute_part(request, operation, part));
    // Each call ends, also if another one fails.
    let results = join_all(calls).await.into_iter().collect::<Result<Vec<_>, _>>()?;
    let mut results: Vec<PartResult<'_>> = results.into_iter().flatten().collect();
    wait_for_all_parts(&mut results);
    let verdicts = |result: &PartResult<'_>| {
        result.with_usage.clone().unwrap_or_else(|| verdicts(result.operation, &result.found))
    };
    Ok(reply(request, results.iter().map(|result| (result, verdicts(result)))))
}

/// Charges all parts in order, or none.
pub(crate) async fn reserve<T: Transport>(
    request: &Request<'_, '_, T>,
    parts: Vec<Part>,
) -> Result<Reply, StoreError> {
    let decides = |part: &Part| part.iter().any(|index| is_enforced(request, *index));
    let (enforced, mut shadow): (Vec<Part>, Vec<Part>) = parts.into_iter().partition(decides);
    let mut enforced = VecDeque::from(enforced);
    let mut results: Vec<PartResult<'_>> = Vec::new();
    let mut reservation = Reservation::new(request);
    while let Some(part) = enforced.pop_front() {
        let of_part = match reserve_part(request, &part, enforced.is_empty()).await {
            Err(error) if error.is_multi_key() && request.parts_by_key(part.clone()).len() > 1 => {
                let (first, more): (Vec<Part>, Vec<Part>) =
                    request.parts_by_key(part).into_iter().partition(decides);
                first.into_iter().rev().for_each(|part| enforced.push_front(part));
                shadow.extend(more);
                continue;
            }
            result => result?,
        };
        if !of_part.iter().all(|result| all_fit(&result.found)) {
            let rest = enforced.into_iter().chain(shadow).collect();
            return Ok(deny(request, reservation, results, of_part, rest).await);
        }
        let charged = of_part.iter().filter(|result| result.operation != Operation::Peek);
        charged.for_each(|result| reservation.add(result.part.clone(), result.now));
        results.extend(of_part);
    }
    reservation.keep();
    let is_peek = |result: &mut PartResult<'_>| result.operation == Operation::Peek;
    shadow.extend(results.extract_if(.., is_peek).map(|result| result.part));
    Ok(pass(request, results, shadow).await)
}

/// Charges the enforced limits of this part: as a reservation, unless it is the last part that decides. Limits in shadow
/// mode are peeked at until then.
async fn reserve_part<'r, T: Transport>(
    request: &Request<'r, '_, T>,
    part: &Part,
    is_last: bool,
) -> Result<Vec<PartResult<'r>>, CallError> {
    if is_last {
        return Ok(vec![execute_once(request, Operation::Charge, part.clone()).await?]);
    }
    let (enforced, shadow): (Part, Part) = part.iter().partition(|index| is_enforced(request, **index));
    if shadow.is_empty() {
        return Ok(vec![execute_once(request, Operation::Reserve, enforced).await?]);
    }
    execute_together(request, vec![(Operation::Reserve, enforced), (Operation::Peek, shadow)]).await
}

/// All enforced limits have been charged: charges the limits in shadow mode. A shadow limit that cannot be reached does
/// not change the decision and is shown as uncharged.
async fn pass<'r, T: Transport>(
    request: &Request<'r, '_, T>,
    mut results: Vec<PartResult<'r>>,
    shadow: Vec<Part>,
) -> Reply {
    let charged = join_all(shadow.into_iter().map(|part| execute_part(request, Operation::Charge, part))).await;
    results.extend(charged.into_iter().flatten().flatten());
    reply(request, results.iter().map(|result| (result, verdicts(result.operation, &result.found))))
}

/// `denied` denies: releases the parts that were charged before it and peeks at the rest. A limit that cannot be reached
/// does not change the denial and is shown as uncharged.
async fn deny<'r, T: Transport>(
    request: &Request<'r, '_, T>,
    reservation: Reservation<'_, 'r, '_, T>,
    mut results: Vec<PartResult<'r>>,
    denied: Vec<PartResult<'r>>,
    rest: Vec<Part>,
) -> Reply {
    // The next request should see the release, if that takes no longer than this request may wait.
    let released = timeout_at(request.deadline, OptionFuture::from(reservation.release()));
    let peeks = join_all(rest.into_iter().map(|part| execute_part(request, Operation::Peek, part)));
    let (_, rest) = join(released, peeks).await;
    results.extend(denied);
    results.extend(rest.into_iter().flatten().flatten());
    wait_for_all_parts(&mut results);
    reply(request, results.iter().map(|result| (result, uncharged(&result.found).collect())))
}

/// Executes the operation in one call, or in one call for each key if the server rejects the keys together.
async fn execute_part<'r, T: Transport>(
    request: &Request<'r, '_, T>,
    operation: Operation,
    part: Part,
) -> Result<Vec<PartResult<'r>>, CallError> {
    match execute_once(request, operation, part.clone()).await {
        Err(error) if error.is_multi_key() => {
            let parts = request.parts_by_key(part).into_iter();
            try_join_all(parts.map(|part| execute_once(request, operation, part))).await
        }
        result => Ok(vec![result?]),
    }
}

async fn execute_once<'r, T: Transport>(
    request: &Request<'r, '_, T>,
    operation: Operation,
    part: Part,
) -> Result<PartResult<'r>, CallError> {
    let mut results = execute_together(request, vec![(operation, part)]).await?;
    // One operation has one result.
    Ok(results.remove(0))
}

async fn execute_together<'r, T: Transport>(
    request: &Request<'r, '_, T>,
    operations: Vec<(Operation, Part)>,
) -> Result<Vec<PartResult<'r>>, CallError> {
    let mut input = request.input().cacheable();
    for (operation, part) in &operations {
        input.add(*operation, part.iter().map(|index| &request.charges[*index]));
    }
    let ParsedReply { now, decisions, .. } = request.execute(input).await?;
    let result = |((operation, part), decided): (_, DecisionResult<'r>)| PartResult {
        part,
        operation,
        now,
        with_usage: (!decided.usage.is_empty()).then(|| decided.verdicts()),
        found: decided.found,
    };
    Ok(operations.into_iter().zip(decisions).map(result).collect())
}

fn is_enforced<T>(request: &Request<'_, '_, T>, index: usize) -> bool {
    request.charges[index].mode == ChargeMode::Enforced
}

/// All verdicts, in the order of the charges.
fn reply<'f, 'r: 'f, T>(
    request: &Request<'r, '_, T>,
    results: impl Iterator<Item = (&'f PartResult<'r>, Verdicts)>,
) -> Reply {
    let mut now = Timestamp::default();
    let mut of_charges: Vec<Option<Verdicts>> = vec![None; request.charges.len()];
    for (result, verdicts) in results {
        now = now.max(result.now);
        let mut verdicts = verdicts.into_iter();
        for index in &result.part {
            let count = request.charges[*index].quotas.len();
            of_charges[*index] = Some(verdicts.by_ref().take(count).collect());
        }
    }
    let unseen = |charge: &Charge<'_>| -> Verdicts {
        let verdict = |quota: &Quota| quota.verdict(quota.outcome(None, charge.cost, now), None, now);
        charge.quotas.iter().map(verdict).collect()
    };
    let of_charge = |(charge, verdicts): (_, Option<Verdicts>)| verdicts.unwrap_or_else(|| unseen(charge));
    Reply { now, verdicts: request.charges.iter().zip(of_charges).flat_map(of_charge).collect() }
}

/// Applies [`wait_for_all`] to the limits of all parts.
fn wait_for_all_parts(results: &mut [PartResult<'_>]) {
    wait_for_all(&mut results.iter_mut().flat_map(|result| &mut result.found).collect::<Vec<_>>());
}
