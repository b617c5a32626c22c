//! The part of a decision that a front door shows, and whether the contract allows it.
//!
//! Front doors show different parts, in different units, and always round times up. A decision between two instants has
//! several possible answers, one for each possible order of events. Every number shown must lie between the smallest
//! and the largest of them.

use super::answer::{Answer, LimitAnswer, Wait};
use std::fmt::Debug;

/// The part of an answer to one request that a front door shows.
#[derive(Clone, Debug)]
pub struct Shown {
    /// Whether it is allowed.
    pub allowed: bool,
    /// The unit of all times, in microseconds.
    pub unit: u64,
    /// The limit that determines the decision, if the front door shows more than the outcome. The inner `None` means
    /// that no limit applies.
    pub speaks: Option<Option<ShownLimit>>,
    /// Whether `remaining` of the determining limit is the cost that would pass under all limits, or the remaining
    /// quota of that limit.
    pub remaining_of_all: bool,
    /// All limits, if the front door shows them.
    pub limits: Option<Vec<ShownLimit>>,
    /// Whether the limits of shadow rules are included.
    pub with_shadow: bool,
    /// Whether the front door shows the operation as allowed in any case, so no limit has a wait. A refund cannot be
    /// denied.
    pub is_granted: bool,
}

impl Shown {
    /// Only the outcome.
    #[must_use]
    pub const fn only(allowed: bool) -> Self {
        Self {
            allowed,
            unit: 1,
            speaks: None,
            remaining_of_all: false,
            limits: None,
            with_shadow: true,
            is_granted: false,
        }
    }

    /// The complete answer of the library.
    #[must_use]
    pub(super) fn of(answer: &Answer) -> Self {
        let limits = answer.limits.iter().map(|limit| ShownLimit {
            rule: Some(limit.rule.clone()),
            shadow: limit.shadow,
            limit: limit.limit,
            remaining: limit.remaining,
            debt: Some(limit.debt),
            wait: Some(match limit.wait {
                None => ShownWait::None,
                Some(Wait::Micros(micros)) => ShownWait::Units(micros),
                Some(Wait::Never) => ShownWait::Never,
            }),
            restored: Some(ShownTime::At(limit.restored_at)),
            ..ShownLimit::default()
        });
        Self { limits: Some(limits.collect()), ..Self::only(answer.allowed) }
    }
}

/// The part of a limit that a front door shows; `None` for omitted fields.
#[derive(Clone, Debug, Default)]
pub struct ShownLimit {
    /// Its rule.
    pub rule: Option<String>,
    /// The label of the limit: the name of its rule, with its number if it is not the first.
    pub label: Option<String>,
    /// Whether its rule is in shadow mode.
    pub shadow: bool,
    /// The maximum number of units that pass at once.
    pub limit: u64,
    /// Remaining units.
    pub remaining: u64,
    /// Units charged beyond the limit.
    pub debt: Option<u64>,
    /// Whether the limit has room, and otherwise for how long it has none.
    pub wait: Option<ShownWait>,
    /// When it is fully restored.
    pub restored: Option<ShownTime>,
    /// The time from the decision: the wait if a wait helps, otherwise the time until the limit is fully restored.
    pub wait_or_restored: Option<u64>,
}

/// A wait in the unit of the front door, rounded up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShownWait {
    /// No wait is needed.
    None,
    /// A wait of this many units.
    Units(u64),
    /// No wait helps.
    Never,
}

/// An instant in the unit of the front door, rounded up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShownTime {
    /// Since the epoch.
    At(u64),
    /// From the decision.
    After(u64),
}

/// A possible answer, and the instant at which it would have been given.
pub(super) type Possible<'a> = (u64, &'a Answer);

/// The range of one number over all possible answers.
#[derive(Clone, Copy, Debug)]
struct Range {
    least: u64,
    most: u64,
}

impl Range {
    fn of(numbers: impl IntoIterator<Item = u64>) -> Self {
        let empty = Self { least: u64::MAX, most: 0 };
        numbers
            .into_iter()
            .fold(empty, |range, number| Self { least: range.least.min(number), most: range.most.max(number) })
    }

    fn wider(self, by: u64) -> Self {
        Self { least: self.least.saturating_sub(by), most: self.most.saturating_add(by) }
    }

    fn in_units(self, unit: u64) -> Self {
        Self { least: self.least.div_ceil(unit), most: self.most.div_ceil(unit) }
    }

    fn has(self, number: u64) -> bool {
        (self.least..=self.most).contains(&number)
    }
}

/// A comparison of a shown answer with all possible answers.
pub(super) struct Comparison<'a> {
    pub(super) shown: &'a Shown,
    /// At least one answer, all over the same limits.
    pub(super) possible: Vec<Possible<'a>>,
    /// The time between the earliest and the latest instant of the decision.
    pub(super) width: u64,
}

impl Comparison<'_> {
    /// Whether an allowed outcome is possible, and whether a denied one is.
    pub(super) fn outcomes(&self) -> [bool; 2] {
        [true, false].map(|outcome| self.possible.iter().any(|(_, answer)| answer.allowed == outcome))
    }

    /// The differences that no possible answer explains, one per line.
    pub(super) fn differences(&self) -> Vec<String> {
        let mut found = Vec::new();
        let count = self.possible[0].1.limits.len();
        if let Some(limits) = &self.shown.limits {
            let places: Vec<usize> = (0..count).filter(|place| self.is_listed(*place)).collect();
            if limits.len() != places.len() {
                found.push(format!("{} limits are shown, and there are {}", limits.len(), places.len()));
                return found;
            }
            for (limit, place) in limits.iter().zip(&places) {
                found.extend(
                    self.limit_differences(limit, *place).into_iter().map(|what| format!("limit {place}: {what}")),
                );
            }
        }
        if let Some(speaks) = &self.shown.speaks {
            self.compare_speaker(speaks.as_ref(), &mut found);
        }
        found
    }

    fn is_listed(&self, place: usize) -> bool {
        self.shown.with_shadow || !self.possible[0].1.limits[place].shadow
    }

    fn each(&self, place: usize) -> impl Iterator<Item = (u64, &LimitAnswer)> {
        self.possible.iter().map(move |(now, answer)| (*now, &answer.limits[place]))
    }

    /// The indexes of the enforced limits.
    fn deciding(&self) -> Vec<usize> {
        let limits = &self.possible[0].1.limits;
        (0..limits.len()).filter(|place| !limits[*place].shadow).collect()
    }

    fn compare_speaker(&self, speaks: Option<&ShownLimit>, found: &mut Vec<String>) {
        let deciding = self.deciding();
        let Some(speaks) = speaks else {
            if !deciding.is_empty() {
                found.push(format!("no limit speaks, and there are {}", deciding.len()));
            }
            return;
        };
        if deciding.is_empty() {
            found.push(format!("{speaks:?} speaks, and nothing limits"));
            return;
        }
        if self.shown.remaining_of_all {
            let remaining = Range::of(self.possible.iter().filter_map(|(_, answer)| answer.remaining));
            push(found, "remaining", remaining.has(speaks.remaining), &remaining, &speaks.remaining);
        }
        let candidates: Vec<Vec<String>> = deciding
            .iter()
            .filter(|place| self.may_speak(**place, &deciding))
            .map(|place| self.limit_differences_but(speaks, *place, self.shown.remaining_of_all))
            .collect();
        if !candidates.iter().any(Vec::is_empty) {
            found.push(format!("no limit that may speak is {speaks:?}: {candidates:?}"));
        }
    }

    /// Whether this limit may determine the decision, that is, no other limit is tighter in all possible answers. The
    /// longest wait decides, otherwise the smallest remaining quota, and among equal ones the later reset.
    fn may_speak(&self, place: usize, deciding: &[usize]) -> bool {
        let waits = |place: usize| Range::of(self.each(place).map(|(_, limit)| length(limit.wait)));
        let remaining = |place: usize| Range::of(self.each(place).map(|(_, limit)| limit.remaining));
        let restored =
            |place: usize| Range::of(self.each(place).map(|(_, limit)| limit.restored_at)).wider(self.width);
        let others = || deciding.iter().copied().filter(|other| *other != place);
        if !self.shown.allowed {
            return others().all(|other| waits(place).wider(self.width).most >= waits(other).least);
        }
        others().all(|other| {
            let (own, its) = (remaining(place), remaining(other));
            let is_later = restored(place).most >= restored(other).least;
            own.least < its.most || own.least == its.most && (is_later || own.most > its.least)
        })
    }

    fn limit_differences(&self, shown: &ShownLimit, place: usize) -> Vec<String> {
        self.limit_differences_but(shown, place, false)
    }

    fn limit_differences_but(&self, shown: &ShownLimit, place: usize, without_remaining: bool) -> Vec<String> {
        let mut found = Vec::new();
        let limit = &self.possible[0].1.limits[place];
        if let Some(rule) = &shown.rule {
            push(&mut found, "rule", *rule == limit.rule, &limit.rule, rule);
        }
        if let Some(label) = &shown.label {
            let expected = self.label(place);
            push(&mut found, "name", *label == expected, &expected, label);
        }
        push(&mut found, "shadow", shown.shadow == limit.shadow, &limit.shadow, &shown.shadow);
        push(&mut found, "limit", shown.limit == limit.limit, &limit.limit, &shown.limit);
        if !without_remaining {
            let remaining = Range::of(self.each(place).map(|(_, limit)| limit.remaining));
            push(&mut found, "remaining", remaining.has(shown.remaining), &remaining, &shown.remaining);
        }
        if let Some(debt) = shown.debt {
            let possible = Range::of(self.each(place).map(|(_, limit)| limit.debt));
            push(&mut found, "debt", possible.has(debt), &possible, &debt);
        }
        if let Some(wait) = shown.wait {
            self.compare_wait(wait, place, &mut found);
        }
        if let Some(restored) = shown.restored {
            let (number, range) = match restored {
                ShownTime::At(number) => (number, Range::of(self.each(place).map(|(_, limit)| limit.restored_at))),
                ShownTime::After(number) => {
                    (number, Range::of(self.each(place).map(|(now, limit)| limit.restored_at - now)))
                }
            };
            let range = range.wider(self.width).in_units(self.shown.unit);
            push(&mut found, "restored", range.has(number), &range, &restored);
        }
        if let Some(number) = shown.wait_or_restored {
            self.compare_wait_or_restored(number, place, &mut found);
        }
        found
    }

    /// Nothing is compared if both kinds of time are possible.
    fn compare_wait_or_restored(&self, shown: u64, place: usize, found: &mut Vec<String>) {
        let waits = self.each(place).filter_map(|(_, limit)| match limit.wait {
            Some(Wait::Micros(micros)) => Some(micros),
            None | Some(Wait::Never) => None,
        });
        let waits: Vec<u64> = waits.collect();
        let range = match waits.len() {
            0 => Range::of(self.each(place).map(|(now, limit)| limit.restored_at - now)),
            all if all == self.possible.len() => Range::of(waits),
            _ => return,
        };
        let range = range.wider(self.width).in_units(self.shown.unit);
        push(found, "wait or restored", range.has(shown), &range, &shown);
    }

    fn compare_wait(&self, shown: ShownWait, place: usize, found: &mut Vec<String>) {
        let waits = || self.each(place).map(|(_, limit)| limit.wait);
        let is_possible = match shown {
            ShownWait::None => waits().any(|wait| wait.is_none()),
            ShownWait::Never => waits().any(|wait| wait == Some(Wait::Never)),
            ShownWait::Units(units) => {
                let micros = waits().filter_map(|wait| match wait {
                    None => Some(1),
                    Some(Wait::Micros(micros)) => Some(micros),
                    Some(Wait::Never) => None,
                });
                // It is the same limit under the same rules, so a wait either helps in all possible answers or in none.
                waits().any(|wait| matches!(wait, Some(Wait::Micros(_))))
                    && Range::of(micros).wider(self.width).in_units(self.shown.unit).has(units)
            }
        };
        push(found, "wait", is_possible, &waits().collect::<Vec<_>>(), &shown);
    }

    fn label(&self, place: usize) -> String {
        let limits = &self.possible[0].1.limits;
        let rule = &limits[place].rule;
        match limits[..place].iter().filter(|before| before.rule == *rule).count() {
            0 => rule.clone(),
            before => format!("{rule}.{}", before + 1),
        }
    }
}

fn length(wait: Option<Wait>) -> u64 {
    match wait {
        None => 0,
        Some(Wait::Micros(micros)) => micros,
        Some(Wait::Never) => u64::MAX,
    }
}

fn push(found: &mut Vec<String>, field: &str, is_possible: bool, expected: &dyn Debug, shown: &dyn Debug) {
    if !is_possible {
        found.push(format!("{field}: possible {expected:?}, shown {shown:?}"));
    }
}
