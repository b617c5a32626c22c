//! How things stand, as the dashboard reads it.
//!
//! Counts are those since the start, so that a reader who missed some words still gets the right rates from two that it
//! has. Only the busiest rules are among them, and only a few identities.

use std::collections::HashMap;

use serde::Serialize;
use sluicegate::clock::Clock as _;
use sluicegate::core::Timestamp;
use sluicegate::rules::{Limits, Rule};
use sluicegate::store::{self, Store as _};

use crate::app::App;
use crate::http::health::{Health, Report};
use crate::http::top::Entry;
use crate::metrics::{DURATION_MICROS, RATIO_MILLIONTHS, RuleCounts};

/// The most rules that one look tells of.
const RULES_SHOWN: usize = 50;
/// The most identities in each list.
const IDENTITIES_SHOWN: usize = 10;

/// Looks again and again, and remembers how busy the rules were.
#[derive(Debug)]
pub(super) struct Onlooker {
    app: App,
    health: Health,
    /// How much was decided by each rule at the last look, and how busy it is: what is added counts half as much at every
    /// look after.
    busy: HashMap<Box<str>, (u64, u64)>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Overview<'a> {
    at: u64,
    version: &'static str,
    health: Report,
    store: Store,
    requests: Requests,
    tracked_keys: u64,
    latency: Latency<'a>,
    remaining: Remaining<'a>,
    /// `database`, where rules can be changed, or `file`.
    rules_from: &'static str,
    rule_count: usize,
    rules: Vec<RuleLine<'a>>,
    heaviest: Vec<Entry>,
    most_denied: Vec<Entry>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Store {
    kind: &'static str,
    state: &'static str,
    /// Why it does not answer.
    trouble: Option<&'static str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Requests {
    allowed: u64,
    denied: u64,
    undecided: u64,
    degraded: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Latency<'a> {
    bounds_micros: &'a [u64],
    decisions: &'a [u64],
    charges: &'a [u64],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Remaining<'a> {
    bounds_millionths: &'a [u64],
    counts: Vec<u64>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RuleLine<'a> {
    name: &'a str,
    /// None for limits that requests bring themselves.
    mode: Option<&'static str>,
    on_store_failure: Option<&'static str>,
    algorithms: Vec<&'static str>,
    allowed: u64,
    denied: u64,
    shadow_denied: u64,
    degraded: u64,
    remaining: &'a [u64],
}

impl Onlooker {
    pub(super) fn new(app: App, health: Health) -> Self {
        Self { app, health, busy: HashMap::new() }
    }

    /// How things stand, as JSON.
    pub(super) fn look(&mut self) -> String {
        let (app, limiter) = (self.app.clone(), self.app.limiter());
        let (now, rules) = (limiter.clock().now(), limiter.rules());
        let snapshot = limiter.observer().metrics().snapshot();
        let totals = app.totals();
        self.follow(&snapshot.rules);
        let by_name: HashMap<&str, &Rule> = rules.rules().iter().map(|rule| (rule.space.name(), rule)).collect();
        let line = |counts| RuleLine::new(counts, by_name.get(&*counts.name).copied());
        let overview = Overview {
            at: now.as_micros() / 1_000,
            version: env!("CARGO_PKG_VERSION"),
            health: self.health.report(&app).1,
            store: Store::of(&app),
            requests: Requests {
                allowed: totals.allowed,
                denied: totals.denied,
                undecided: totals.undecided,
                degraded: totals.degraded,
            },
            tracked_keys: app.tracked_keys(),
            latency: Latency {
                bounds_micros: &DURATION_MICROS,
                decisions: &snapshot.decisions.counts,
                charges: &snapshot.charges.counts,
            },
            remaining: remaining(&snapshot.rules),
            rules_from: if app.source().database().is_some() { "database" } else { "file" },
            rule_count: rules.rules().len(),
            rules: self.busiest(&snapshot.rules).into_iter().map(line).collect(),
            heaviest: identities(&app, now, true),
            most_denied: identities(&app, now, false),
        };
        // Nothing in it can fail to be written.
        serde_json::to_string(&overview).unwrap_or_default()
    }

    /// Takes note of what was added.
    fn follow(&mut self, rules: &[RuleCounts]) {
        let follow = |rule: &RuleCounts| {
            let all = rule.outcomes.all();
            let (before, busy) = self.busy.get(&rule.name).copied().unwrap_or((all, 0));
            (rule.name.clone(), (all, busy / 2 + all.saturating_sub(before)))
        };
        self.busy = rules.iter().map(follow).collect();
    }

    /// The busiest rules, in the order of the set where they are alike.
    fn busiest<'r>(&self, rules: &'r [RuleCounts]) -> Vec<&'r RuleCounts> {
        let busy = |rule: &RuleCounts| {
            let now = self.busy.get(&rule.name).map_or(0, |(_, busy)| *busy);
            std::cmp::Reverse((now, rule.outcomes.all()))
        };
        let mut busiest: Vec<&RuleCounts> = rules.iter().collect();
        busiest.sort_by_key(|rule| busy(rule));
        busiest.truncate(RULES_SHOWN);
        busiest
    }
}

fn remaining(rules: &[RuleCounts]) -> Remaining<'static> {
    let mut counts = vec![0; RATIO_MILLIONTHS.len() + 1];
    for rule in rules {
        counts.iter_mut().zip(rule.remaining.counts).for_each(|(sum, count)| *sum += count);
    }
    Remaining { bounds_millionths: &RATIO_MILLIONTHS, counts }
}

fn identities(app: &App, now: Timestamp, is_heaviest: bool) -> Vec<Entry> {
    let hot = app.hot();
    let listed =
        if is_heaviest { hot.heaviest(IDENTITIES_SHOWN, now) } else { hot.most_denied(IDENTITIES_SHOWN, now) };
    listed.iter().map(Entry::of).collect()
}

impl Store {
    fn of(app: &App) -> Self {
        let store = app.limiter().store();
        let kind = if store.is_shared() { "redis" } else { "memory" };
        match store.health() {
            store::Health::Up => Self { kind, state: "up", trouble: None },
            store::Health::Partial { class } => Self { kind, state: "partial", trouble: Some(class.name()) },
            store::Health::Down { class } => Self { kind, state: "down", trouble: Some(class.name()) },
        }
    }
}

impl<'a> RuleLine<'a> {
    fn new(counts: &'a RuleCounts, rule: Option<&Rule>) -> Self {
        let outcomes = counts.outcomes;
        let quotas = rule.map_or(&[][..], |rule| match &rule.limits {
            Limits::All { quotas, .. } => quotas,
            Limits::Unlimited => &[],
        });
        Self {
            name: &counts.name,
            mode: rule.map(|rule| rule.mode.name()),
            on_store_failure: rule.map(|rule| rule.on_store_failure.name()),
            algorithms: quotas.iter().map(|quota| quota.algorithm()).collect(),
            allowed: outcomes.allowed,
            denied: outcomes.denied,
            shadow_denied: outcomes.shadow_denied,
            degraded: outcomes.degraded,
            remaining: &counts.remaining.counts,
        }
    }
}
