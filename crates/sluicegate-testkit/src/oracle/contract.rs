//! The contract, implemented literally: check every limit, then charge all of them or none but the usage that has
//! already happened.

use super::answer::{Answer, LimitAnswer, Reply, Wait};
use super::limit::{Limit, Usage};
use super::operation::{Action, Ask};
use super::rules::{Mode, Rules, Set, Subject};
use std::collections::HashMap;

/// A store keeps usage for this long after it last mattered, so that it survives a small backward step of the clock.
const KEPT_BEYOND: u64 = 1_000_000;

/// A reference system that implements the contract.
#[derive(Clone, Debug)]
pub(super) struct Contract {
    rules: Rules,
    now: u64,
    usage: HashMap<Place, Kept>,
    /// The entries that the last operation replaced, with their previous usage.
    replaced: Vec<(Place, Option<Kept>)>,
}

/// The location of the usage of one subject under one limit. Limit sets, limits and algorithms never share usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    rule: &'static str,
    set: Set,
    subject: Subject,
    index: usize,
    algorithm: &'static str,
}

#[derive(Clone, Debug)]
struct Kept {
    usage: Usage,
    /// The last instant at which the usage matters under the parameters with which it was written.
    until: u64,
    /// The latest instant that the clock has reached since it was written.
    latest: u64,
}

impl Kept {
    fn is_forgettable(&self) -> bool {
        self.until + KEPT_BEYOND < self.latest
    }
}

/// One limit during one operation.
struct Asked {
    place: Place,
    limit: Limit,
    cost: u64,
    /// The part of the cost that is charged in any case.
    reported: u64,
    /// The rule, if it is in shadow mode.
    shadow: Option<usize>,
    usage: Option<Usage>,
    wait: Option<Wait>,
}

/// One limit set of one rule during one operation.
#[derive(Clone)]
struct Charge {
    rule: usize,
    set: Set,
    subject: Subject,
    cost: u64,
    reported: u64,
    limits: Vec<Limit>,
}

/// The facts about a check that its answer reveals. Whether a nearly exhausted limit has room depends on the exact
/// instant. A comparison that knows the instant only approximately therefore follows the system's answer.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    /// Whether the request was allowed.
    pub(super) allowed: Option<bool>,
    /// Shadow rules, with a flag for each: whether it had room.
    pub(super) shadows: Vec<(String, bool)>,
}

impl Told {
    fn of(&self, rules: &Rules, shadow: Option<usize>) -> Option<bool> {
        match shadow {
            None => self.allowed,
            Some(place) => {
                let name = rules.rules[place].name;
                self.shadows.iter().find(|(rule, _)| *rule == name).map(|(_, had_room)| *had_room)
            }
        }
    }
}

impl Charge {
    fn is_same(&self, other: &Self) -> bool {
        (self.rule, self.set, self.subject) == (other.rule, other.set, other.subject)
    }
}

impl Asked {
    fn is_of(&self, rules: &Rules, charge: &Charge) -> bool {
        let name = rules.rules[charge.rule].name;
        (self.place.rule, self.place.set, self.place.subject) == (name, charge.set, charge.subject)
    }
}

impl Contract {
    pub(super) fn new(rules: Rules, now: u64) -> Self {
        Self { rules, now, usage: HashMap::new(), replaced: Vec::new() }
    }

    pub(super) fn set_clock(&mut self, now: u64) {
        self.now = now;
        self.usage.values_mut().for_each(|kept| kept.latest = kept.latest.max(now));
    }

    /// Usage survives changed parameters, and also the removal and return of a limit set.
    pub(super) fn reload(&mut self, rules: Rules) {
        self.rules = rules;
    }

    /// Runs an operation over one or more requests with one decision.
    pub(super) fn act(&mut self, action: Action, asks: &[Ask]) -> Reply {
        self.act_as_told(action, asks, &Told::default())
    }

    /// The same, with some results of the check already known.
    pub(super) fn act_as_told(&mut self, action: Action, asks: &[Ask], told: &Told) -> Reply {
        self.replaced.clear();
        if action == Action::Reset {
            asks.iter().for_each(|ask| self.forget_client(ask));
        }
        let (charges, parts) = self.charges(asks);
        let mut asked = self.asked(&charges);
        let covered: Vec<bool> = asks.iter().map(|ask| self.is_covered(ask)).collect();
        let all_covered = covered.iter().all(|covered| *covered);
        let has_report = asked.iter().any(|each| each.reported > 0);
        if action == Action::Check && !all_covered && has_report {
            // The requests are denied already. What is left to decide are the reports.
            asked.iter_mut().for_each(|each| each.cost = each.reported);
        }
        match action {
            Action::Refund => self.refund(&mut asked),
            Action::Report => self.report(&mut asked),
            Action::Check | Action::Peek | Action::Reset => {}
        }
        self.decide(&mut asked);
        if action == Action::Check && (all_covered || has_report) {
            self.charge(&mut asked, told);
        }
        let answer = |charges: &[Charge], is_covered: bool| {
            let own =
                charges.iter().flat_map(|charge| asked.iter().filter(|each| each.is_of(&self.rules, charge)));
            answer(own.map(|each| self.answer_of(each)).collect(), is_covered)
        };
        let joint = answer(&charges, all_covered);
        if asks.len() == 1 {
            return vec![joint];
        }
        let each = parts.iter().zip(covered).map(|(part, is_covered)| answer(part, is_covered));
        [joint].into_iter().chain(each).collect()
    }

    /// Reverts the last operation.
    pub(super) fn roll_back(&mut self) {
        for (place, kept) in std::mem::take(&mut self.replaced).into_iter().rev() {
            match kept {
                Some(kept) => self.usage.insert(place, kept),
                None => self.usage.remove(&place),
            };
        }
    }

    /// The usage of these requests that a store may have forgotten: it no longer mattered under the clock and the
    /// limits of its time, although it would under the current ones. Each entry has the index of its limit in the
    /// answer.
    pub(super) fn forgettable(&self, asks: &[Ask]) -> Vec<(usize, Place)> {
        let (charges, _) = self.charges(asks);
        let places = self.asked(&charges).into_iter().map(|asked| asked.place).enumerate();
        let is_forgettable = |(_, place): &(usize, Place)| self.usage.get(place).is_some_and(Kept::is_forgettable);
        places.filter(is_forgettable).collect()
    }

    /// Drops usage that a store may have forgotten.
    pub(super) fn forget(&mut self, place: &Place) {
        self.usage.remove(place);
    }

    fn is_covered(&self, ask: &Ask) -> bool {
        !self.rules.denies_unmatched || ask.cost == Some(0) || self.rules.matching(ask).next().is_some()
    }

    /// The charges of the requests: one for each set and subject, with the sum of the costs. Also returns the charges
    /// of each request.
    fn charges(&self, asks: &[Ask]) -> (Vec<Charge>, Vec<Vec<Charge>>) {
        let mut all: Vec<Charge> = Vec::new();
        let parts: Vec<Vec<Charge>> = asks.iter().map(|ask| self.charges_of(ask)).collect();
        for charge in parts.iter().flatten() {
            match all.iter_mut().find(|before| before.is_same(charge)) {
                Some(before) => {
                    before.cost += charge.cost;
                    before.reported += charge.reported;
                }
                None => all.push(charge.clone()),
            }
        }
        (all, parts)
    }

    fn charges_of(&self, ask: &Ask) -> Vec<Charge> {
        let charge = |place: usize| {
            let rule = &self.rules.rules[place];
            let (set, limits) = rule.set_of(ask, self.now);
            let (subject, cost) = (rule.subject_of(ask), ask.cost.unwrap_or(rule.cost).into());
            let reported = if ask.is_report { cost } else { 0 };
            limits.clone().map(|limits| Charge { rule: place, set, subject, cost, reported, limits })
        };
        self.rules.matching(ask).filter_map(charge).collect()
    }

    /// All limits of the charges. Usage that lies too far ahead of the clock is pulled back into range.
    fn asked(&self, charges: &[Charge]) -> Vec<Asked> {
        let mut all = Vec::new();
        for charge in charges {
            let rule = &self.rules.rules[charge.rule];
            for (index, limit) in charge.limits.iter().enumerate() {
                let algorithm = limit.algorithm();
                let Charge { set, subject, cost, reported, .. } = *charge;
                let place = Place { rule: rule.name, set, subject, index, algorithm };
                let usage = self.usage.get(&place).map(|kept| &kept.usage);
                let repaired = usage.and_then(|usage| limit.repaired(usage, self.now));
                let usage = repaired.or_else(|| usage.cloned());
                let shadow = (rule.mode == Mode::Shadow).then_some(charge.rule);
                all.push(Asked { place, limit: limit.clone(), cost, reported, shadow, usage, wait: None });
            }
        }
        all
    }

    /// Computes the wait of each limit. The wait of a denial is the longest of all enforced limits. If a limit will
    /// have forgotten by then the state that the cost needs, its wait is `Wait::Never`.
    fn decide(&self, asked: &mut [Asked]) {
        for each in asked.iter_mut() {
            let fits_at = each.limit.fits_at(each.usage.as_ref(), each.cost, self.now);
            each.wait = match fits_at {
                Some(at) if at == self.now => None,
                Some(at) => Some(Wait::Micros(at - self.now)),
                None => Some(Wait::Never),
            };
        }
        let Some(Wait::Micros(wait)) =
            longest(asked.iter().filter(|each| each.shadow.is_none()).map(|each| each.wait))
        else {
            return;
        };
        for each in asked.iter_mut() {
            if each.limit.fits_at(each.usage.as_ref(), each.cost, self.now + wait).is_none() {
                each.wait = Some(Wait::Never);
            }
        }
    }

    /// If all enforced limits have room, charges them, and also each shadow rule with room under all of its limits. Reports
    /// are charged in any case.
    fn charge(&mut self, asked: &mut [Asked], told: &Told) {
        for each in asked.iter_mut() {
            if told.of(&self.rules, each.shadow) == Some(true) {
                each.wait = None;
            }
        }
        let has_room = |group: Option<usize>| {
            let found = asked.iter().all(|each| each.shadow != group || each.wait.is_none());
            told.of(&self.rules, group).unwrap_or(found)
        };
        let is_charged = |each: &Asked| each.cost > 0 && has_room(None) && has_room(each.shadow);
        let charged: Vec<bool> = asked.iter().map(is_charged).collect();
        for (each, charged) in asked.iter_mut().zip(charged) {
            if charged {
                each.usage = Some(each.limit.charged(each.usage.as_ref(), each.cost, self.now));
            } else {
                each.usage = each.limit.reported(each.usage.as_ref(), each.reported, self.now);
            }
        }
        self.write(asked);
    }

    fn report(&mut self, asked: &mut [Asked]) {
        for each in asked.iter_mut() {
            each.usage = each.limit.reported(each.usage.as_ref(), each.cost, self.now);
        }
        self.write(asked);
    }

    /// A refund has no effect on a limit without usage.
    fn refund(&mut self, asked: &mut [Asked]) {
        for each in asked.iter_mut() {
            each.usage = each.usage.as_ref().and_then(|usage| each.limit.refunded(usage, each.cost, self.now));
        }
        self.write(asked);
    }

    fn write(&mut self, asked: &[Asked]) {
        for each in asked {
            let before = self.usage.get(&each.place);
            if before.map(|kept| &kept.usage) == each.usage.as_ref() {
                continue;
            }
            self.replaced.push((each.place, before.cloned()));
            match &each.usage {
                Some(usage) => {
                    let until = each.limit.matters_until(usage);
                    // The usage before it, which a store may have forgotten, is a part of it.
                    let latest = before.filter(|kept| kept.is_forgettable()).map_or(self.now, |kept| kept.latest);
                    self.usage.insert(each.place, Kept { usage: usage.clone(), until, latest });
                }
                None => _ = self.usage.remove(&each.place),
            }
        }
    }

    /// Forgets the client in every set of the matching rules. Usage that the client shares with others stays.
    fn forget_client(&mut self, ask: &Ask) {
        let mut forgotten: Vec<(&'static str, Set, Subject)> = Vec::new();
        for place in self.rules.matching(ask) {
            let rule = &self.rules.rules[place];
            let sets = rule.sets_of_client(ask).filter(|(_, limits)| limits.is_some());
            if rule.per.identifier {
                forgotten.extend(sets.map(|(set, _)| (rule.name, set, rule.subject_of(ask))));
            }
        }
        let is_forgotten = |place: &Place| forgotten.contains(&(place.rule, place.set, place.subject));
        let places: Vec<Place> = self.usage.keys().filter(|place| is_forgotten(place)).copied().collect();
        for place in places {
            let kept = self.usage.remove(&place);
            self.replaced.push((place, kept));
        }
    }

    fn answer_of(&self, asked: &Asked) -> LimitAnswer {
        let usage = asked.usage.as_ref();
        LimitAnswer {
            rule: asked.place.rule.to_owned(),
            algorithm: asked.limit.algorithm(),
            shadow: asked.shadow.is_some(),
            limit: asked.limit.limit(),
            wait: asked.wait,
            remaining: asked.limit.remaining(usage, self.now),
            debt: asked.limit.debt(usage, self.now),
            restored_at: asked.limit.restored_at(usage, self.now),
        }
    }
}

/// The answer over all limits. Limits of shadow rules do not affect it.
fn answer(limits: Vec<LimitAnswer>, is_covered: bool) -> Answer {
    let deciding = || limits.iter().filter(|limit| !limit.shadow);
    let tightest = deciding().reduce(|one, other| if is_tighter(other, one) { other } else { one }).cloned();
    let allowed = is_covered && deciding().all(|limit| limit.wait.is_none());
    let wait = longest(deciding().map(|limit| limit.wait)).unwrap_or(Wait::Never);
    let remaining = deciding().map(|limit| limit.remaining).min();
    Answer { allowed, remaining, wait: (!allowed).then_some(wait), tightest, limits }
}

/// A denial is determined by the longest wait. Otherwise the smallest remaining quota determines the answer, and among
/// equal ones the later reset.
fn is_tighter(one: &LimitAnswer, other: &LimitAnswer) -> bool {
    if one.wait.is_some() || other.wait.is_some() {
        return length(one.wait) > length(other.wait);
    }
    (one.remaining, other.restored_at) < (other.remaining, one.restored_at)
}

fn longest(waits: impl Iterator<Item = Option<Wait>>) -> Option<Wait> {
    waits.max_by_key(|wait| length(*wait)).flatten()
}

fn length(wait: Option<Wait>) -> u128 {
    match wait {
        None => 0,
        Some(Wait::Micros(micros)) => u128::from(micros) + 1,
        Some(Wait::Never) => u128::MAX,
    }
}
