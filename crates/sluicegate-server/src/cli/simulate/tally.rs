//! The tally of a replay: totals, and the data for the report by rule, client and time. All of it is bounded, whatever the log
//! contains.

use sluicegate::decision::{Decision, LimitEvent, LimitOutcome};
use sluicegate::rules::{Mode, Rule, RuleSet};

use super::batch::LoggedRequest;
use super::clients::{ClientTable, LoggedClient};
use super::timeline::Timeline;
use super::weekly_heatmap::WeeklyHeatmap;
use super::worst_minute::WorstMinute;

/// The most rules with a timeline; all rules are counted.
pub(super) const RULES_DRAWN_MAX: usize = 32;

/// Allowed and denied requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RequestCount {
    pub(super) allowed: u64,
    pub(super) denied: u64,
}

impl RequestCount {
    pub(super) fn add(&mut self, is_allowed: bool) {
        self.allowed += u64::from(is_allowed);
        self.denied += u64::from(!is_allowed);
    }

    pub(super) fn total(self) -> u64 {
        self.allowed + self.denied
    }

    pub(super) fn and(self, other: Self) -> Self {
        Self { allowed: self.allowed + other.allowed, denied: self.denied + other.denied }
    }
}

/// The tally of one rule. A rule in shadow mode counts the requests that it would have denied as denied.
#[derive(Clone, Debug)]
pub(super) struct RuleTally {
    pub(super) name: Box<str>,
    pub(super) mode: Mode,
    pub(super) count: RequestCount,
    pub(super) timeline: Option<Timeline>,
}

/// The tally of all requests.
#[derive(Debug)]
pub(super) struct ReplayTally {
    pub(super) requests: RequestCount,
    /// Of the allowed requests, those with an exempt path.
    pub(super) exempt: u64,
    pub(super) unauthorized: u64,
    pub(super) rules: Vec<RuleTally>,
    pub(super) first_micros: Option<u64>,
    pub(super) last_micros: u64,
    pub(super) timeline: Timeline,
    pub(super) heatmap: WeeklyHeatmap,
    pub(super) clients: ClientTable,
    pub(super) minutes: WorstMinute,
}

impl ReplayTally {
    pub(super) fn new(rules: &RuleSet) -> Self {
        let tally = |(index, rule): (usize, &Rule)| RuleTally {
            name: rule.space.name().into(),
            mode: rule.mode,
            count: RequestCount::default(),
            timeline: (index < RULES_DRAWN_MAX).then(Timeline::default),
        };
        Self {
            requests: RequestCount::default(),
            exempt: 0,
            unauthorized: 0,
            rules: rules.rules().iter().enumerate().map(tally).collect(),
            first_micros: None,
            last_micros: 0,
            timeline: Timeline::default(),
            heatmap: WeeklyHeatmap::default(),
            clients: ClientTable::default(),
            minutes: WorstMinute::default(),
        }
    }

    /// Counts a decision.
    #[inline]
    pub(super) fn add_decision(
        &mut self,
        logged: &LoggedRequest<'_>,
        client: LoggedClient<'_>,
        decision: &Decision,
    ) {
        let is_allowed = decision.is_allowed();
        self.add_request(logged.at_micros, is_allowed);
        let mut client = self.clients.tally(client);
        self.minutes.add(logged, is_allowed, client.as_ref().map_or("", |client| &client.name));
        if let Some(client) = &mut client {
            client.count.add(is_allowed);
        }
        let rules = &mut self.rules;
        for_each_rule(decision, |index, is_allowed, permille| {
            let rule = &mut rules[index];
            rule.count.add(is_allowed);
            if let Some(timeline) = &mut rule.timeline {
                timeline.add(logged.at_micros, is_allowed);
            }
            if let Some(client) = &mut client {
                client.record_usage(index, permille);
            }
        });
    }

    /// Counts a request with an exempt path.
    pub(super) fn add_exempt(&mut self, logged: &LoggedRequest<'_>) {
        self.exempt += 1;
        self.add_request(logged.at_micros, true);
    }

    fn add_request(&mut self, at_micros: u64, is_allowed: bool) {
        self.requests.add(is_allowed);
        self.first_micros.get_or_insert(at_micros);
        self.last_micros = at_micros;
        self.timeline.add(at_micros, is_allowed);
        self.heatmap.add(at_micros, is_allowed);
    }
}

/// Calls `visit` for every rule of a decision with the rule's index, whether all its limits allow the request, and the usage of
/// the fullest limit in thousandths.
#[inline]
fn for_each_rule(decision: &Decision, mut visit: impl FnMut(usize, bool, u16)) {
    let mut current: Option<(usize, bool, u16)> = None;
    decision.for_each_outcome(|observed| {
        // A replay never reloads its rules, so the slot of a rule is its index in the set.
        let Some(index) = observed.slot.map(|slot| slot as usize) else { return };
        let (is_allowed, permille) = (observed.outcome == LimitOutcome::Allowed, usage(&observed));
        current = match current {
            Some((same, all, most)) if same == index => Some((index, all && is_allowed, most.max(permille))),
            other => {
                if let Some((index, is_allowed, permille)) = other {
                    visit(index, is_allowed, permille);
                }
                Some((index, is_allowed, permille))
            }
        };
    });
    if let Some((index, is_allowed, permille)) = current {
        visit(index, is_allowed, permille);
    }
}

/// The usage of a limit after a decision, in thousandths. A limit that denies is fully used.
fn usage(observed: &LimitEvent<'_>) -> u16 {
    let Some(verdict) = observed.verdict else { return 0 };
    if observed.outcome != LimitOutcome::Allowed || verdict.limit == 0 {
        return 1_000;
    }
    // With earned credits, the remaining quota can exceed the limit.
    let used = verdict.limit.saturating_sub(verdict.remaining);
    (u128::from(used) * 1_000 / u128::from(verdict.limit)) as u16
}
