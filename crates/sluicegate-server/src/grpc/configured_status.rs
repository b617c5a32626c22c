//! The status of a descriptor that a configuration of `envoyproxy/ratelimit` decides, with the numbers of that project.
//!
//! They differ from those of native rules:
//! - A limit has the numbers of the configuration, or of the descriptor itself, and a name only if the configuration has one.
//! - A limit in shadow mode is shown like any other, and its code is OK.
//! - A limit that is exceeded has nothing left, even if a smaller cost would fit.
//! - A descriptor with 0 hits is over its limit only if more than the limit has been charged.
//! - A fixed window is reset at its end, also if nothing has been charged in it.

use std::collections::HashMap;

use prost_types::Duration;
use sluicegate::core::{Quota, Timestamp, Verdict};
use sluicegate::rules::Mode;
use sluicegate::{Decision, LimitReport};

use super::descriptor::ResolvedDescriptor;
use super::messages::envoy::service::ratelimit::v3::rate_limit_response::{Code, DescriptorStatus, RateLimit};
use super::parsed_request::Hits;
use super::status::{code, narrowed, until_reset};

/// Microseconds in a second.
const SECOND: u64 = 1_000_000;

/// The remaining amount of an unlimited entry.
const UNLIMITED_REMAINING: u32 = u32::MAX;

/// The units that are charged to states which several descriptors of a request share: `envoyproxy/ratelimit` charges one after the
/// other, and each has a status of its own. Here they are one charge, so the numbers between them are derived.
#[derive(Debug, Default)]
pub(super) struct SharedStates<'d> {
    states: HashMap<StateKey<'d>, SharedState>,
}

/// The rule and the identifier.
type StateKey<'d> = (&'d str, &'d str);

#[derive(Debug, Default)]
struct SharedState {
    /// The descriptors that charge or check it.
    lines: usize,
    /// The hits that are charged together, the part of them that reports usage, and the hits that are charged afterwards, in
    /// shadow mode.
    hits: u64,
    usage: u64,
    watched: u64,
    /// The hits of those that have a status so far.
    told: u64,
}

/// A descriptor with its decision, and whether it is in `quota_mode` and does not deny, because another has room.
pub(super) type Decided<'d> = (&'d ResolvedDescriptor<'d>, Option<&'d Decision>, bool);

impl<'d> SharedStates<'d> {
    /// The states of these descriptors.
    pub(super) fn of(each: impl Iterator<Item = Decided<'d>>) -> Self {
        let mut shared = Self::default();
        for (line, decision, is_watched_quota) in each {
            let Some((key, _)) = decision.and_then(|decision| state_of(line, decision)) else { continue };
            let state = shared.states.entry(key).or_default();
            state.lines += 1;
            let cost = charged(line);
            if is_watched(line, is_watched_quota) {
                state.watched = state.watched.saturating_add(cost);
                continue;
            }
            state.hits = state.hits.saturating_add(cost);
            if is_report(line) {
                state.usage = state.usage.saturating_add(cost);
            }
        }
        shared
    }

    /// Whether a descriptor is over its limit and what remains of it, if others share its state.
    fn standing(
        &mut self,
        (line, decision, is_watched_quota): Decided<'d>,
        is_allowed: bool,
    ) -> Option<(bool, u32)> {
        let (key, verdict) = state_of(line, decision?)?;
        let state = self.states.get_mut(&key).filter(|state| state.lines > 1)?;
        let after = verdict.limit.saturating_add(verdict.debt).saturating_sub(verdict.remaining);
        // The hits that are counted in the verdict: checks come first, and charges in shadow mode last.
        let counted = match line.hits() {
            Hits::Check => 0,
            _ if !is_allowed => state.usage,
            _ if is_watched(line, is_watched_quota) => state.hits.saturating_add(state.watched),
            _ => state.hits,
        };
        let before = after.saturating_sub(counted);
        state.told = state.told.saturating_add(charged(line));
        let limit = u64::from(line.shown()?.0);
        let used = before.saturating_add(state.told);
        let is_over = used > limit;
        let shown = if is_allowed || is_report(line) { used } else { after };
        Some((is_over, if is_over { 0 } else { narrowed(limit.saturating_sub(shown)) }))
    }
}

/// The state of the hits of `line`, and its verdict. Only the charges to fixed windows add up to a count.
fn state_of<'d>(line: &'d ResolvedDescriptor<'d>, decision: &'d Decision) -> Option<(StateKey<'d>, Verdict)> {
    let is_refund = matches!(line.hits(), Hits::Refund(_));
    let report = decision.limits().next().filter(|_| !is_refund)?;
    let is_counted = matches!(report.quota, Quota::FixedWindow(_));
    is_counted.then_some(((report.rule, line.identifier()?), report.verdict))
}

/// The hits that `line` charges.
fn charged(line: &ResolvedDescriptor<'_>) -> u64 {
    if line.hits() == Hits::Check { 0 } else { line.cost() }
}

fn is_report(line: &ResolvedDescriptor<'_>) -> bool {
    matches!(line.hits(), Hits::Report(_))
}

/// True if the hits are charged in shadow mode.
fn is_watched(line: &ResolvedDescriptor<'_>, is_watched_quota: bool) -> bool {
    matches!(line.hits(), Hits::Charge(_)) && (line.is_shadow || is_watched_quota)
}

/// The status of a descriptor in a request that is allowed or not. In `quota_mode`, the code also shows whether a descriptor that
/// does not deny is over its limit.
pub(super) fn status<'d>(
    decided: Decided<'d>,
    is_allowed: bool,
    shared: &mut SharedStates<'d>,
) -> DescriptorStatus {
    let (line, decision, is_watched_quota) = decided;
    // A rule of such a configuration has one limit.
    let report = decision.and_then(|decision| Some((decision, decision.limits().next()?)));
    let (Some((requests_per_unit, unit, name)), Some((decision, report))) = (line.shown(), report) else {
        let limit_remaining = if line.is_unlimited() { UNLIMITED_REMAINING } else { 0 };
        return DescriptorStatus { code: Code::Ok.into(), limit_remaining, ..DescriptorStatus::default() };
    };
    let alone = || (line.is_over(&report.verdict), narrowed(report.verdict.remaining));
    let (is_over, remaining) = shared.standing(decided, is_allowed).unwrap_or_else(alone);
    let is_told = report.mode == Mode::Enforce || is_watched_quota;
    DescriptorStatus {
        code: code(!(is_over && is_told)).into(),
        current_limit: Some(RateLimit { requests_per_unit, unit: unit.number(), name: name.to_owned() }),
        limit_remaining: if is_over { 0 } else { remaining },
        duration_until_reset: Some(until_end(&report, decision.now())),
    }
}

/// The time to the end of a fixed window of whole seconds, counted in whole seconds. Other limits have no such end.
fn until_end(report: &LimitReport<'_>, now: Timestamp) -> Duration {
    let window = report.quota.window().as_micros();
    if !matches!(report.quota, Quota::FixedWindow(_)) || !window.is_multiple_of(SECOND) {
        return until_reset(report);
    }
    let window = window / SECOND;
    let seconds = window - now.as_micros() / SECOND % window;
    Duration { seconds: i64::try_from(seconds).unwrap_or(i64::MAX), nanos: 0 }
}
