//! What is kept of the decisions about a log: totals, and for the report who, when and how close. All of it is bounded,
//! whatever the log holds.

pub(super) mod heat;
pub(super) mod minute;
pub(super) mod people;
pub(super) mod timeline;

use sluicegate::decision::Decision;
use sluicegate::observe::{LimitOutcome, Observed};
use sluicegate::rules::{Mode, Rule, RuleSet};

use super::batch::Logged;
use super::judge::Who;
use heat::Heat;
use minute::Minutes;
use people::People;
use timeline::Timeline;

/// The most rules whose course over time is kept and drawn; all are counted.
pub(super) const RULES_DRAWN_MAX: usize = 32;

/// How many requests passed and how many did not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) allowed: u64,
    pub(super) denied: u64,
}

impl Count {
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

/// What one rule said. A rule that only watches denies nobody; what it would have denied is counted all the same.
#[derive(Clone, Debug)]
pub(super) struct RuleTally {
    pub(super) name: Box<str>,
    pub(super) mode: Mode,
    pub(super) said: Count,
    pub(super) timeline: Option<Timeline>,
}

/// Everything that is kept.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) requests: Count,
    /// Those that passed because their path is exempt; they are among the allowed.
    pub(super) exempt: u64,
    pub(super) unauthorized: u64,
    pub(super) rules: Vec<RuleTally>,
    pub(super) first_micros: Option<u64>,
    pub(super) last_micros: u64,
    pub(super) timeline: Timeline,
    pub(super) heat: Heat,
    pub(super) people: People,
    pub(super) minutes: Minutes,
}

impl Tally {
    pub(super) fn new(rules: &RuleSet) -> Self {
        let tally = |(place, rule): (usize, &Rule)| RuleTally {
            name: rule.space.name().into(),
            mode: rule.mode,
            said: Count::default(),
            timeline: (place < RULES_DRAWN_MAX).then(Timeline::default),
        };
        Self {
            requests: Count::default(),
            exempt: 0,
            unauthorized: 0,
            rules: rules.rules().iter().enumerate().map(tally).collect(),
            first_micros: None,
            last_micros: 0,
            timeline: Timeline::default(),
            heat: Heat::default(),
            people: People::default(),
            minutes: Minutes::default(),
        }
    }

    /// Takes in a decision.
    #[inline]
    pub(super) fn decided(&mut self, logged: &Logged<'_>, who: Who<'_>, decision: &Decision) {
        let is_allowed = decision.is_allowed();
        self.passed(logged.at_micros, is_allowed);
        let person = self.people.of(who);
        if let Some(person) = person.as_deref() {
            self.minutes.add(logged, is_allowed, &person.name);
        } else {
            self.minutes.add(logged, is_allowed, "");
        }
        let mut person = person;
        if let Some(person) = &mut person {
            person.count.add(is_allowed);
        }
        let rules = &mut self.rules;
        each_rule(decision, |place, has_room, permille| {
            let rule = &mut rules[place];
            rule.said.add(has_room);
            if let Some(timeline) = &mut rule.timeline {
                timeline.add(logged.at_micros, has_room);
            }
            if let Some(person) = &mut person {
                person.peak(place, permille);
            }
        });
    }

    /// Takes in a request that is exempt.
    pub(super) fn exempt(&mut self, logged: &Logged<'_>) {
        self.exempt += 1;
        self.passed(logged.at_micros, true);
    }

    fn passed(&mut self, at_micros: u64, is_allowed: bool) {
        self.requests.add(is_allowed);
        self.first_micros.get_or_insert(at_micros);
        self.last_micros = at_micros;
        self.timeline.add(at_micros, is_allowed);
        self.heat.add(at_micros, is_allowed);
    }
}

/// Tells of every rule that had a say whether all its limits had room, and how much of the fullest was used, in
/// thousandths.
#[inline]
fn each_rule(decision: &Decision, mut tell: impl FnMut(usize, bool, u16)) {
    let mut current: Option<(usize, bool, u16)> = None;
    decision.for_each_outcome(|observed| {
        // Rules that never change have their place in the set as their slot.
        let Some(place) = observed.slot.map(|slot| slot as usize) else { return };
        let (has_room, permille) = (observed.outcome == LimitOutcome::Allowed, used(&observed));
        current = match current {
            Some((same, room, most)) if same == place => Some((place, room && has_room, most.max(permille))),
            other => {
                if let Some((place, has_room, permille)) = other {
                    tell(place, has_room, permille);
                }
                Some((place, has_room, permille))
            }
        };
    });
    if let Some((place, has_room, permille)) = current {
        tell(place, has_room, permille);
    }
}

/// How much of a limit is used after a decision, in thousandths; all of it where it denies.
fn used(observed: &Observed<'_>) -> u16 {
    let Some(verdict) = observed.verdict else { return 0 };
    if observed.outcome != LimitOutcome::Allowed || verdict.limit == 0 {
        return 1_000;
    }
    // Earned credits can make more remain than the limit is.
    let used = verdict.limit.saturating_sub(verdict.remaining);
    (u128::from(used) * 1_000 / u128::from(verdict.limit)) as u16
}
