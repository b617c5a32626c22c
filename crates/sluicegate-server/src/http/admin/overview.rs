//! Samples the state of the server for the event stream of the admin API.
//!
//! Only the busiest rules and a few identities are part of a sample, so its size is bounded.

use std::collections::HashMap;

use sluicegate::clock::Clock as _;
use sluicegate::core::Timestamp;
use sluicegate::rules::{Limits, Rule};
use sluicegate::store::{self, Store as _};

use super::top::busy_identity;
use crate::admin_api::{
    BusyIdentity, LatencyCounts, Overview, RemainingCounts, RequestCounts, RuleOverview, StoreState, Text,
};
use crate::engine::Engine;
use crate::health::Health;
use crate::metrics::{DURATION_MICROS, RATIO_MILLIONTHS, RuleCounts};

/// The most rules in one sample.
const RULES_SHOWN: usize = 50;
/// The most identities in each list.
const IDENTITIES_SHOWN: usize = 10;

/// Takes samples and tracks how busy each rule is.
#[derive(Debug)]
pub(super) struct OverviewSampler {
    engine: Engine,
    health: Health,
    /// For each rule: its decisions up to the last sample, and its activity, which halves with every sample.
    activity: HashMap<Box<str>, (u64, u64)>,
}

impl OverviewSampler {
    pub(super) fn new(engine: Engine, health: Health) -> Self {
        Self { engine, health, activity: HashMap::new() }
    }

    /// Takes a sample, as JSON.
    pub(super) fn sample(&mut self) -> String {
        let engine = self.engine.clone();
        let limiter = engine.limiter();
        let (now, rules) = (limiter.clock().now(), limiter.rules());
        let snapshot = limiter.observer().metrics().snapshot();
        let totals = engine.totals();
        self.follow(&snapshot.rules);
        let by_name: HashMap<&str, &Rule> = rules.rules().iter().map(|rule| (rule.space.name(), rule)).collect();
        let line = |counts| rule_overview(counts, by_name.get(&*counts.name).copied());
        let overview = Overview {
            at: limiter.clock().time_of_day().as_micros() / 1_000,
            version: env!("CARGO_PKG_VERSION").into(),
            health: self.health.report(&engine).1,
            store: store_state(&engine),
            requests: RequestCounts {
                allowed: totals.allowed,
                denied: totals.denied,
                undecided: totals.undecided,
                degraded: totals.degraded,
            },
            tracked_keys: engine.tracked_keys(),
            latency: LatencyCounts {
                bounds_micros: DURATION_MICROS.to_vec(),
                decisions: snapshot.decisions.counts.to_vec(),
                charges: snapshot.charges.counts.to_vec(),
            },
            remaining: remaining(&snapshot.rules),
            rules_from: if engine.source().database().is_some() { "database" } else { "file" }.into(),
            rule_count: rules.rules().len(),
            rules: self.busiest(&snapshot.rules).into_iter().map(line).collect(),
            heaviest: identities(&engine, now, true),
            most_denied: identities(&engine, now, false),
        };
        // Serialization of these types does not fail.
        serde_json::to_string(&overview).unwrap_or_default()
    }

    /// Updates the activity of each rule.
    fn follow(&mut self, rules: &[RuleCounts]) {
        let follow = |rule: &RuleCounts| {
            let all = rule.outcomes.all();
            let (before, busy) = self.activity.get(&rule.name).copied().unwrap_or((all, 0));
            (rule.name.clone(), (all, busy / 2 + all.saturating_sub(before)))
        };
        self.activity = rules.iter().map(follow).collect();
    }

    /// The busiest rules. Equally busy rules keep their order.
    fn busiest<'r>(&self, rules: &'r [RuleCounts]) -> Vec<&'r RuleCounts> {
        let busy = |rule: &RuleCounts| {
            let now = self.activity.get(&rule.name).map_or(0, |(_, busy)| *busy);
            std::cmp::Reverse((now, rule.outcomes.all()))
        };
        let mut busiest: Vec<&RuleCounts> = rules.iter().collect();
        busiest.sort_by_key(|rule| busy(rule));
        busiest.truncate(RULES_SHOWN);
        busiest
    }
}

fn remaining(rules: &[RuleCounts]) -> RemainingCounts {
    let mut counts = vec![0; RATIO_MILLIONTHS.len() + 1];
    for rule in rules {
        counts.iter_mut().zip(rule.remaining.counts).for_each(|(sum, count)| *sum += count);
    }
    RemainingCounts { bounds_millionths: RATIO_MILLIONTHS.to_vec(), counts }
}

fn identities(engine: &Engine, now: Timestamp, is_heaviest: bool) -> Vec<BusyIdentity> {
    let hot = engine.hot();
    let listed =
        if is_heaviest { hot.heaviest(IDENTITIES_SHOWN, now) } else { hot.most_denied(IDENTITIES_SHOWN, now) };
    listed.iter().map(busy_identity).collect()
}

fn store_state(engine: &Engine) -> StoreState {
    let store = engine.limiter().store();
    let (state, error_class) = match store.health() {
        store::Health::Up => ("up", None),
        store::Health::Partial { class } => ("partial", Some(class.name().into())),
        store::Health::Down { class } => ("down", Some(class.name().into())),
    };
    StoreState { kind: store.name().into(), state: state.into(), error_class }
}

fn rule_overview(counts: &RuleCounts, rule: Option<&Rule>) -> RuleOverview {
    let outcomes = counts.outcomes;
    let quotas = rule.map_or(&[][..], |rule| match &rule.limits {
        Limits::All { quotas, .. } => quotas,
        Limits::Unlimited => &[],
    });
    RuleOverview {
        name: counts.name.to_string(),
        mode: rule.map(|rule| rule.mode.name().into()),
        on_store_failure: rule.map(|rule| rule.on_store_failure.name().into()),
        algorithms: quotas.iter().map(|quota| Text::from(quota.algorithm())).collect(),
        allowed: outcomes.allowed,
        denied: outcomes.denied,
        shadow_denied: outcomes.shadow_denied,
        degraded: outcomes.degraded,
        remaining: counts.remaining.counts.to_vec(),
    }
}
