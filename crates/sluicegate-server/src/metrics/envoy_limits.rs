//! Metrics with the names of `envoyproxy/ratelimit`, for dashboards and tests that query them: hits by the path of a limit, and
//! calls of Envoy.
//!
//! Labels are the domain and the first two levels of the path, all of which come from the configuration; limits further down
//! count under the same labels. A rule set with limits of that project has these series, any other has none.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use sluicegate::core::{Cost, Micros, Outcome, Verdict};
use sluicegate::decision::LimitOutcome;
use sluicegate::observe::DecisionEvent;
use sluicegate::rules::RuleSet;
use sluicegate::rules::envoy::listing::Level;

use super::DURATION_MICROS;
use super::histogram::{Durations, HistogramSnapshot, duration_bucket};

/// The share of a limit from which on hits are near it, in tenths.
const NEAR_TENTHS: u64 = 8;

/// A kind of hits, with the name of its metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HitKind {
    Total,
    Over,
    Near,
    Within,
    Shadow,
}

impl HitKind {
    pub(super) const ALL: [Self; 5] = [Self::Total, Self::Over, Self::Near, Self::Within, Self::Shadow];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Total => "ratelimit_service_rate_limit_total_hits",
            Self::Over => "ratelimit_service_rate_limit_over_limit",
            Self::Near => "ratelimit_service_rate_limit_near_limit",
            Self::Within => "ratelimit_service_rate_limit_within_limit",
            Self::Shadow => "ratelimit_service_rate_limit_shadow_mode",
        }
    }

    pub(super) const fn help(self) -> &'static str {
        match self {
            Self::Total => "Hits of all requests.",
            Self::Over => "Hits beyond the limit.",
            Self::Near => "Hits above eight tenths of the limit.",
            Self::Within => "Hits of requests within the limit.",
            Self::Shadow => "Hits of requests beyond the limit that shadow mode has allowed.",
        }
    }
}

/// The labels of a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PathLabels {
    pub(super) domain: Box<str>,
    pub(super) key1: Box<str>,
    pub(super) key2: Option<Box<str>>,
}

impl PathLabels {
    fn of(domain: &str, path: &[Level<'_>]) -> Self {
        let label = |level: &Level<'_>| label(level).into();
        let key1 = path.first().map(label).unwrap_or_default();
        Self { domain: escaped(domain).into(), key1, key2: path.get(1).map(label) }
    }
}

/// `key` or `key_value`. An address has no dots, because they separate levels in the names of statsd.
fn label((key, value): &Level<'_>) -> String {
    let value = value.map(|value| match value.parse::<std::net::Ipv4Addr>() {
        Ok(_) => value.replace('.', "_"),
        Err(_) => value.to_owned(),
    });
    escaped(&value.map_or_else(|| (*key).to_owned(), |value| format!("{key}_{value}")))
}

fn escaped(text: &str) -> String {
    text.replace([':', '|'], "_")
}

/// The hits of one path, by [`HitKind`].
#[derive(Debug, Default)]
pub(super) struct Hits([AtomicU64; HitKind::ALL.len()]);

impl Hits {
    fn add(&self, kind: HitKind, hits: u64) {
        if hits > 0 {
            self.0[kind as usize].fetch_add(hits, Ordering::Relaxed);
        }
    }

    pub(super) fn get(&self, kind: HitKind) -> u64 {
        self.0[kind as usize].load(Ordering::Relaxed)
    }

    /// Counts the hits of one request. A denied one has charged none, unless it reports usage.
    fn count(&self, hits: u64, verdict: &Verdict, is_shadow: bool) {
        self.add(HitKind::Total, hits);
        let limit = verdict.limit;
        let near = limit / 10 * NEAR_TENTHS + limit % 10 * NEAR_TENTHS / 10;
        // Only reported usage is charged beyond the limit, so a debt contains the hits of this request.
        let used = match verdict.debt {
            0 => limit.saturating_sub(verdict.remaining),
            debt => limit.saturating_add(debt).saturating_sub(hits),
        };
        if verdict.outcome == Outcome::Allowed {
            self.add(HitKind::Within, hits);
            self.add(HitKind::Near, used.saturating_sub(near).min(hits));
            return;
        }
        // Only the part beyond the limit is over it, unless the limit was exhausted before.
        let over = if used >= limit { hits } else { (used.saturating_add(hits)).saturating_sub(limit) };
        self.add(HitKind::Over, over);
        if used < limit {
            self.add(HitKind::Near, limit - near.max(used));
        }
        if is_shadow {
            self.add(HitKind::Shadow, hits);
        }
    }
}

/// The paths of a rule set.
#[derive(Debug, Default)]
struct Paths {
    /// The counters of each rule, by its metric slot.
    by_slot: HashMap<u32, Arc<Hits>>,
    by_labels: HashMap<PathLabels, Arc<Hits>>,
}

/// How a call of Envoy failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallError {
    /// The store could not decide.
    Store,
    /// The request is invalid or forbidden.
    Request,
}

impl CallError {
    pub(super) const ALL: [Self; 2] = [Self::Store, Self::Request];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Store => "redis_error",
            Self::Request => "service_error",
        }
    }
}

/// The metrics.
#[derive(Debug, Default)]
pub(crate) struct EnvoyLimits {
    /// Whether the rules have limits of `envoyproxy/ratelimit`, or may get some.
    is_on: AtomicBool,
    paths: ArcSwap<Paths>,
    calls: Durations,
    errors: [AtomicU64; CallError::ALL.len()],
}

/// The numbers of all calls.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallCounts {
    pub(super) durations: HistogramSnapshot<{ DURATION_MICROS.len() + 1 }>,
    pub(super) errors: [(CallError, u64); CallError::ALL.len()],
}

impl EnvoyLimits {
    /// Prepares for other rules. The paths that stay keep their counts.
    pub(super) fn rules_replaced(&self, rules: &RuleSet) {
        self.is_on.store(rules.envoy().is_some(), Ordering::Relaxed);
        let before = self.paths.load();
        let mut paths = Paths::default();
        if let Some(envoy) = rules.envoy() {
            envoy.for_each_limit(|limit| {
                let Some(slot) = rules.slots().get(limit.rule).filter(|_| limit.limit.is_some()) else { return };
                let labels = PathLabels::of(limit.domain, limit.path);
                let known = || before.by_labels.get(&labels).cloned().unwrap_or_default();
                let hits = Arc::clone(paths.by_labels.entry(labels.clone()).or_insert_with(known));
                paths.by_slot.insert(*slot, hits);
            });
        }
        self.paths.store(Arc::new(paths));
    }

    /// Counts the hits of a descriptor. Other requests pass this on the hot path.
    #[inline]
    pub(super) fn decided(&self, decided: &DecisionEvent<'_>) {
        if decided.request.descriptor.is_some() && self.is_on() {
            self.count(decided);
        }
    }

    #[inline(never)]
    fn count(&self, decided: &DecisionEvent<'_>) {
        let hits = decided.request.cost.map_or(1, Cost::units);
        let paths = self.paths.load();
        decided.decision.for_each_outcome(|event| {
            let counters = event.slot.and_then(|slot| paths.by_slot.get(&slot));
            if let Some((counters, verdict)) = counters.zip(event.verdict) {
                counters.count(hits, &verdict, event.outcome == LimitOutcome::ShadowDenied);
            }
        });
    }

    /// Counts a call.
    pub(crate) fn called(&self, took: Micros, error: Option<CallError>) {
        let micros = took.as_micros();
        self.calls.counts[duration_bucket(micros)].fetch_add(1, Ordering::Relaxed);
        self.calls.sum.fetch_add(micros, Ordering::Relaxed);
        if let Some(error) = error {
            self.errors[error as usize].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether these metrics are shown.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    pub(super) fn calls(&self) -> CallCounts {
        let mut durations = HistogramSnapshot::default();
        durations.add(&self.calls);
        let errors = CallError::ALL.map(|error| (error, self.errors[error as usize].load(Ordering::Relaxed)));
        CallCounts { durations, errors }
    }

    /// The hits of all paths, in the order of their labels.
    pub(super) fn hits(&self) -> Vec<(PathLabels, Arc<Hits>)> {
        let paths = self.paths.load();
        let mut hits: Vec<_> =
            paths.by_labels.iter().map(|(labels, hits)| (labels.clone(), Arc::clone(hits))).collect();
        hits.sort_by(|one, other| one.0.cmp(&other.0));
        hits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hits by kind after requests of this many hits against a limit of ten, as the original counts them.
    #[test]
    fn hits_are_split_as_the_original_splits_them() {
        let verdict =
            |outcome, remaining| Verdict { outcome, limit: 10, remaining, debt: 0, reset_after: Micros::ZERO };
        let denied = Outcome::Denied { retry_after: Micros::from_secs(1) };
        let cases = [
            // hits, verdict, shadow: total, over, near, within, shadow
            (3, verdict(Outcome::Allowed, 7), false, [3, 0, 0, 3, 0]),
            (9, verdict(Outcome::Allowed, 1), false, [9, 0, 1, 9, 0]),
            (1, verdict(Outcome::Allowed, 0), false, [1, 0, 1, 1, 0]),
            (5, verdict(denied, 4), false, [5, 1, 2, 0, 0]),
            (5, verdict(denied, 1), false, [5, 4, 1, 0, 0]),
            (5, verdict(denied, 0), true, [5, 5, 0, 0, 5]),
            (20, verdict(Outcome::NeverAdmissible, 10), false, [20, 10, 2, 0, 0]),
        ];
        let in_debt = |debt| Verdict { debt, ..verdict(denied, 0) };
        let usage = [
            // Of 15 hits, 4 were within the limit, and two of these near it.
            (15, in_debt(11), false, [15, 11, 2, 0, 0]),
            (15, in_debt(15), false, [15, 15, 0, 0, 0]),
            (5, in_debt(40), false, [5, 5, 0, 0, 0]),
        ];
        for (count, verdict, is_shadow, expected) in cases.into_iter().chain(usage) {
            let hits = Hits::default();
            hits.count(count, &verdict, is_shadow);
            assert_eq!(HitKind::ALL.map(|kind| hits.get(kind)), expected, "{count} {verdict:?}");
        }
    }

    #[test]
    fn labels_are_keys_with_values_without_separators() {
        let labels = |path: &[Level<'_>]| {
            let PathLabels { domain, key1, key2 } = PathLabels::of("a:b", path);
            format!("{domain} {key1} {key2:?}")
        };
        assert_eq!(labels(&[("path", Some("/x|y"))]), "a_b path_/x_y None");
        let address = [("ip", Some("10.0.0.1")), ("host", Some("a.example")), ("more", None)];
        assert_eq!(labels(&address), "a_b ip_10_0_0_1 Some(\"host_a.example\")");
    }
}
