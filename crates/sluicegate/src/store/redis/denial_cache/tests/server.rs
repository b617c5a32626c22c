//! A simulated server, which is the core: from charges and states to the reply of a call.

use crate::store::redis::KeyEncoder;
use crate::store::redis::denial_cache::insert::CallStart;
use crate::store::redis::denial_cache::{CacheMoment, DenialCache, partition_of};
use crate::store::redis::protocol::arguments::{Operation, ScriptInput};
use crate::store::redis::protocol::replay::Replay;
use crate::store::redis::protocol::reply::{
    DecisionResult, FoundLimit, FoundLimits, ParsedReply, all_fit, wait_for_all,
};
use crate::store::{Charge, Key};
use sluicegate_core::{Quota, State, Timestamp};
use smallvec::SmallVec;
use std::num::NonZeroU32;

/// One decision of a call, and the states that it finds.
pub(crate) struct Decision<'a> {
    pub(crate) operation: Operation,
    pub(crate) times: u32,
    pub(crate) charges: &'a [Charge<'a>],
    pub(crate) states: Vec<Option<State>>,
}

/// Passes these decisions of one call to the denial cache, made at the server's `now`. `shown` returns the part of a
/// state that the reply contains.
pub(crate) fn answer(
    cache: &DenialCache,
    call_start: CallStart,
    decisions: Vec<Decision<'_>>,
    now: Timestamp,
    received_at: CacheMoment,
    shown: impl Fn(&FoundLimit<'_>) -> Option<State>,
) {
    let encoder = KeyEncoder::default();
    let mut input = ScriptInput::new(&encoder, now).cacheable();
    for decision in &decisions {
        match NonZeroU32::new(decision.times) {
            Some(times) if decision.times > 1 => input.add_times(times, decision.charges),
            _ => input.add(decision.operation, decision.charges),
        }
    }
    let mut decided: SmallVec<[DecisionResult<'_>; 1]> = SmallVec::new();
    for (call_start, decision) in input.decisions.iter().zip(decisions) {
        let limits = &input.limits[call_start.limits.clone()];
        let found = limits.iter().zip(decision.states).map(|(limit, state)| {
            let at = limit.quota.aligned(now, limit.seed);
            let outcome = limit.quota.outcome(state.as_ref(), limit.cost, at);
            FoundLimit { limit: *limit, at, outcome, state }
        });
        let mut found: SmallVec<[FoundLimit<'_>; 2]> = found.collect();
        wait_for_all(&mut found.iter_mut().collect::<SmallVec<[_; 2]>>());
        let (operation, times) = (call_start.operation, call_start.times);
        let admitted = match operation {
            Operation::Charge => Replay::new(found.clone(), times).admitted(),
            _ => u32::from(all_fit(&found)),
        };
        found.iter_mut().for_each(|found_limit| found_limit.state = shown(found_limit));
        decided.push(DecisionResult { operation, times, admitted, found, usage: FoundLimits::new() });
    }
    cache.observe(call_start, &input, &ParsedReply { now, damaged: 0, decisions: decided }, received_at);
}

/// The whole state, as the script returns it for most algorithms.
pub(crate) fn all(found_limit: &FoundLimit<'_>) -> Option<State> {
    found_limit.state.clone()
}

/// The partition of a key.
pub(crate) fn partition(key: &Key<'_>) -> u16 {
    partition_of(&KeyEncoder::default().encode(key))
}

/// The states of exhausted limits, all charged at `now`.
pub(crate) fn drained(charges: &[Charge<'_>], now: Timestamp) -> Vec<Option<State>> {
    let all =
        |quota: &Quota| quota.charge(None, sluicegate_core::Cost::new(u32::try_from(quota.limit()).unwrap()), now);
    charges.iter().flat_map(|charge| charge.quotas).map(all).collect()
}
