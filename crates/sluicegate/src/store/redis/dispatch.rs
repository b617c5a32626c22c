//! How an operation reaches the servers: coalesced with other requests, in a call of its own, or in one call per slot.

use super::client::transport::Transport;
use super::coalesce::call::charge_coalesced;
use super::cross_slot::reserve::{execute_parts, reserve};
use super::cross_slot::usage::charge_usage;
use super::denial_cache::{PendingRefund, partition_of};
use super::lease_reset::PendingReset;
use super::protocol::arguments::Operation;
use super::protocol::reply::{DecisionResult, ParsedReply};
use super::request::{Part, Request};
use super::shared::ClockSource;
use crate::store::{Reply, StoreError};
use futures_util::future::BoxFuture;

/// Charges or reports, coalesced with concurrent requests where that is possible.
pub(crate) async fn charge<T: Transport>(
    request: &Request<'_, '_, T>,
    operation: Operation,
) -> Result<Reply, StoreError> {
    let can_coalesce = request.store.clock == ClockSource::Server
        && request.has_limits()
        && (request.charges.len() == 1 || request.parts().len() == 1 && request.has_distinct_keys());
    if can_coalesce && let Some(reply) = charge_coalesced(request, operation).await? {
        return Ok(reply);
    }
    act(request, operation).await
}

/// Executes the operation in calls of its own. The future is boxed because it is large and rarely needed: coalesced
/// charges should not reserve space for it.
pub(crate) fn act<'f, T: Transport>(
    request: &'f Request<'_, '_, T>,
    operation: Operation,
) -> BoxFuture<'f, Result<Reply, StoreError>> {
    Box::pin(async move {
        let pending_refund = pending_refund(request, operation);
        let pending_reset = PendingReset::start(request, operation);
        let result = perform(request, operation).await;
        if result.is_ok() {
            pending_refund.into_iter().for_each(PendingRefund::confirm);
            pending_reset.into_iter().for_each(PendingReset::confirm);
        }
        result
    })
}

/// The guard to hold while this operation is in flight; none unless it gives something back.
fn pending_refund<T: Transport>(request: &Request<'_, '_, T>, operation: Operation) -> Option<PendingRefund> {
    let store = request.store;
    let cache = store.denial_cache.as_ref().filter(|_| operation.gives_back())?;
    let partitions = request.charges.iter().map(|charge| partition_of(&store.encoder.encode(&charge.key)));
    Some(PendingRefund::new(cache, partitions, request.deadline))
}

async fn perform<T: Transport>(request: &Request<'_, '_, T>, operation: Operation) -> Result<Reply, StoreError> {
    if !request.has_limits() {
        return Ok(Reply { now: request.now, verdicts: Default::default() });
    }
    if request.charges.len() > 1 {
        let parts = request.parts();
        if parts.len() > 1 {
            return act_in_parts(request, operation, parts).await;
        }
    }
    let mut input = request.input();
    input.add(operation, request.charges);
    let ParsedReply { now, decisions, .. } = match request.execute(input).await {
        Err(error) if error.is_multi_key() => {
            let all = (0..request.charges.len()).collect();
            return act_in_parts(request, operation, request.parts_by_key(all)).await;
        }
        result => result?,
    };
    Ok(Reply { now, verdicts: decisions.iter().flat_map(DecisionResult::verdicts).collect() })
}

async fn act_in_parts<T: Transport>(
    request: &Request<'_, '_, T>,
    operation: Operation,
    parts: Vec<Part>,
) -> Result<Reply, StoreError> {
    match operation {
        Operation::Charge if request.has_usage() => charge_usage(request, parts).await,
        Operation::Charge => reserve(request, parts).await,
        other => execute_parts(request, other, parts).await,
    }
}
