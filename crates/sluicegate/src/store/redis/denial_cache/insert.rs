//! From the reply of a call to observations of its keys.
//!
//! Every call that may charge passes through here before its waiters are served: coalesced or single, with permits,
//! or one of several for the slots of a Cluster. A charge replaces existing observations of its keys. A denial
//! inserts those that are missing. So while no client is denied, the only cost is a stamp for each charged key.

use super::order::Execution;
use super::table::{Observation, ObservedLimit};
use super::{CacheMoment, DenialCache, LocalNanos, ROOM_AGE_MAX, digest_of, partition_of};
use crate::store::key::Digest;
use crate::store::redis::client::error::{CallError, Executed};
use crate::store::redis::protocol::arguments::ScriptInput;
use crate::store::redis::protocol::reply::{DecisionResult, FoundLimit, ParsedReply};
use sluicegate_core::decision::{ChargeMode, is_charged};
use sluicegate_core::{Cost, Outcome};
use smallvec::SmallVec;
use std::sync::Arc;
use tokio::time::Instant;

/// How long a limit that never admits anything counts as exhausted, in nanoseconds.
const NEVER_LASTS: LocalNanos = 60_000_000_000;
/// The most limits of an observed key, so that an observation stays small.
const LIMITS_MAX: usize = 16;

/// The moment before a call is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallStart {
    pub(crate) moment: CacheMoment,
    /// The time of the invalidation clock.
    pub(crate) since: u64,
}

/// A call in flight that may charge. If it gets no reply, the state of its keys is unknown.
#[must_use = "dropping it removes the observations of the keys"]
pub(crate) struct PendingCharge {
    cache: Arc<DenialCache>,
    call_start: CallStart,
    /// The keys that may be charged without a reply.
    keys: SmallVec<[Digest; 1]>,
}

/// The last result of a call for one key.
#[derive(Clone, Copy, Default)]
struct KeySummary {
    /// The number of the decision, counted from one, and the range of the key's limits in it.
    decision: usize,
    start: usize,
    end: usize,
    is_charged: bool,
    /// Whether usage was charged that did not fit.
    is_in_debt: bool,
    /// Whether the result is to be inserted, because the key belongs to a denial.
    is_cached: bool,
    /// Whether a decision has the key twice, so that its limits are not contiguous.
    is_twice: bool,
}

impl PendingCharge {
    /// The guard to hold while a call with this input is in flight. `moment` is the moment before it is sent.
    pub(crate) fn start(cache: Arc<DenialCache>, input: &ScriptInput<'_>, moment: CacheMoment) -> Self {
        let call_start = cache.call_start(moment);
        let may_charge = input.decisions.iter().any(|decision| decision.operation.charges());
        let keys = if may_charge { input.digests() } else { &[] };
        Self::new(cache, call_start, keys)
    }

    pub(crate) fn new(cache: Arc<DenialCache>, call_start: CallStart, keys: &[Digest]) -> Self {
        Self { cache, call_start, keys: keys.into() }
    }

    pub(crate) fn cache(&self) -> &DenialCache {
        &self.cache
    }

    /// The call has ended at this moment, with this result.
    pub(crate) fn complete(
        mut self,
        input: &ScriptInput<'_>,
        result: Result<&ParsedReply<'_>, &CallError>,
        moment: CacheMoment,
    ) {
        match result {
            Ok(parsed) => self.cache.observe(self.call_start, input, parsed, moment),
            Err(error) if error.executed == Executed::No => {}
            // The script may have run: dropping the guard removes the observations.
            Err(_) => return,
        }
        self.keys.clear();
    }
}

impl Drop for PendingCharge {
    fn drop(&mut self) {
        if !self.keys.is_empty() {
            let now = self.cache.local(Instant::now());
            self.keys.iter().for_each(|key| self.cache.table.give_up(*key, now));
        }
    }
}

impl DenialCache {
    /// The mark to take before a call is sent.
    pub(crate) fn call_start(&self, moment: CacheMoment) -> CallStart {
        // Read before the call is sent, so that any later invalidation also invalidates the observations of the
        // call.
        CallStart { moment, since: self.invalidations.now() }
    }

    /// Inserts or replaces the observations of this reply.
    pub(crate) fn observe(
        &self,
        call_start: CallStart,
        input: &ScriptInput<'_>,
        found: &ParsedReply<'_>,
        received_at: CacheMoment,
    ) {
        let CallStart { moment: sent_at, since } = call_start;
        let execution = Execution { now: found.now, sent_at: sent_at.local, received_at: received_at.local };
        let summary = last_results(input, &found.decisions);
        let mut after = StatesAfter { decisions: &found.decisions, last: None };
        for (index, (key, summary)) in input.digests().iter().zip(&summary).enumerate() {
            if summary.is_in_debt {
                // An exhausted key is not charged otherwise, so other instances believe what they have observed of it.
                self.unsent.add(partition_of(&input.keys[index]));
            }
            if !summary.is_cached && (!summary.is_charged || !self.table.holds(*key)) {
                if summary.is_charged {
                    self.table.charged(*key, &execution, self.epoch(received_at), None);
                }
                continue;
            }
            let is_possible = sent_at.generation == received_at.generation
                && !summary.is_twice
                && summary.end - summary.start <= LIMITS_MAX;
            let observation = is_possible.then(|| {
                let limits = &after.of(summary.decision)[summary.start..summary.end];
                let partition = partition_of(&input.keys[index]);
                let is_shown = shows_denials(&found.decisions[summary.decision - 1]);
                observation(
                    *key,
                    limits,
                    ObservationSource { execution, generation: sent_at.generation, since, partition, is_shown },
                )
            });
            let observation = observation.filter(|observation| self.is_valid(observation));
            self.settle(*key, *summary, &execution, received_at, observation);
        }
    }

    fn settle(
        &self,
        key: Digest,
        summary: KeySummary,
        execution: &Execution,
        received_at: CacheMoment,
        observation: Option<Observation>,
    ) {
        let epoch = self.epoch(received_at);
        match observation {
            Some(observation) if summary.is_cached => {
                let is_believed =
                    |old: &Observation| old.generation == received_at.generation && self.is_valid(old);
                self.table.keep(observation, epoch, summary.is_charged, is_believed);
            }
            observation if summary.is_charged => self.table.charged(key, execution, epoch, observation),
            _ => {}
        }
    }

    /// Grows whenever earlier observations become invalid and the server's time may have been set back.
    fn epoch(&self, moment: CacheMoment) -> u64 {
        moment.generation.wrapping_add(self.invalidations.all_invalidated_at())
    }
}

/// The limits of a call's decisions after their charges. They are computed once for consecutive keys of one
/// decision.
struct StatesAfter<'d, 'a> {
    decisions: &'d [DecisionResult<'a>],
    last: Option<(usize, SmallVec<[FoundLimit<'a>; 2]>)>,
}

impl<'a> StatesAfter<'_, 'a> {
    /// The limits after this decision, counted from one.
    fn of(&mut self, decision: usize) -> &[FoundLimit<'a>] {
        if self.last.as_ref().is_none_or(|(last, _)| *last != decision) {
            self.last = Some((decision, self.decisions[decision - 1].after()));
        }
        self.last.as_ref().map_or(&[], |(_, found)| found)
    }
}

/// The last result for each key of the call.
fn last_results(input: &ScriptInput<'_>, decisions: &[DecisionResult<'_>]) -> SmallVec<[KeySummary; 1]> {
    let mut keys: SmallVec<[KeySummary; 1]> = SmallVec::from_elem(KeySummary::default(), input.keys.len());
    for (number, decided) in (1..).zip(decisions) {
        let is_cached = decided.is_denial() || input.is_cacheable() && !decided.operation.charges();
        let votes = || decided.found.iter().map(|found_limit| (found_limit.limit.mode, found_limit.outcome));
        let is_charge = |mode| {
            decided.operation.charges()
                && decided.admitted > 0
                && (mode == ChargeMode::Enforced || is_charged(votes(), mode))
        };
        let mut last = usize::MAX;
        for (index, found_limit) in decided.found.iter().enumerate() {
            let key = found_limit.limit.key;
            let summary = &mut keys[key];
            if key != last {
                let is_twice = summary.is_twice || summary.decision == number;
                *summary = KeySummary { decision: number, start: index, is_twice, ..*summary };
            }
            summary.end = index + 1;
            summary.is_charged |= !found_limit.limit.cost.is_zero()
                && (is_charge(found_limit.limit.mode) || decided.has_usage(found_limit));
            summary.is_cached |= is_cached;
            summary.is_in_debt |= decided.is_denial() && decided.has_usage(found_limit);
            last = key;
        }
    }
    keys
}

/// The common data of all observations of a call.
#[derive(Clone, Copy)]
struct ObservationSource {
    execution: Execution,
    generation: u64,
    since: u64,
    partition: u16,
    /// Whether a log without room shows when it has room again.
    is_shown: bool,
}

/// Whether the reply shows when the limits have room again. The reply to an admitted charge does not: only the core
/// knows that the next charge would not fit.
fn shows_denials(decided: &DecisionResult<'_>) -> bool {
    !decided.operation.charges() || decided.admitted < decided.times
}

fn observation(key: Digest, found: &[FoundLimit<'_>], known: ObservationSource) -> Observation {
    let ObservationSource { execution, generation, since, partition, is_shown } = known;
    let limit = |found_limit: &FoundLimit<'_>| {
        let FoundLimit { limit, at, outcome, state } = found_limit;
        let denied = (is_shown && matches!(outcome, Outcome::Denied { .. })).then_some(limit.cost);
        ObservedLimit { state: state.clone(), at: *at, denied }
    };
    let quotas = digest_of(found.iter().map(|found_limit| found_limit.limit.quota));
    let ends =
        execution.sent_at.saturating_add(found.iter().map(lasts).max().unwrap_or_default().max(ROOM_AGE_MAX));
    let limits = found.iter().map(limit).collect();
    Observation { key, quotas, execution, ends, generation, since, partition, is_renewed: false, limits }
}

/// How long the limit stays exhausted.
fn lasts(found_limit: &FoundLimit<'_>) -> LocalNanos {
    match found_limit.limit.quota.outcome(found_limit.state.as_ref(), Cost::ONE, found_limit.at) {
        Outcome::Allowed => 0,
        Outcome::Denied { retry_after } => retry_after.as_micros().saturating_mul(1_000),
        Outcome::NeverAdmissible => NEVER_LASTS,
    }
}
