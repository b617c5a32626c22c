//! The worst minute: the one in which most was denied, second by second, with who and what was denied in it.

use std::collections::HashMap;

use super::Count;
use crate::cli::simulate::batch::Logged;

const MINUTE_MICROS: u64 = 60_000_000;
/// The most names, and the most paths, that are told apart within a minute; what comes later counts in the totals only.
const NAMES_MAX: usize = 4_096;

/// The minute at hand, and the worst one.
#[derive(Debug, Default)]
pub(crate) struct Minutes {
    current: Minute,
    worst: Minute,
}

/// One minute.
#[derive(Clone, Debug, Default)]
pub(crate) struct Minute {
    /// When it began, in minutes since 1970.
    number: u64,
    pub(crate) count: Count,
    pub(crate) seconds: Vec<Count>,
    people: HashMap<Box<str>, u64>,
    paths: HashMap<Box<str>, u64>,
}

impl Minutes {
    /// Counts a request of somebody. Times never go back.
    #[inline]
    pub(crate) fn add(&mut self, logged: &Logged<'_>, is_allowed: bool, name: &str) {
        let number = logged.at_micros / MINUTE_MICROS;
        if number != self.current.number || self.current.seconds.is_empty() {
            self.turn(number);
        }
        let second = (logged.at_micros % MINUTE_MICROS / 1_000_000) as usize;
        self.current.count.add(is_allowed);
        self.current.seconds[second].add(is_allowed);
        if !is_allowed {
            note(&mut self.current.people, name);
            note(&mut self.current.paths, logged.path);
        }
    }

    fn turn(&mut self, number: u64) {
        if self.current.count.denied > self.worst.count.denied {
            std::mem::swap(&mut self.current, &mut self.worst);
        }
        let Minute { seconds, people, paths, .. } = &mut self.current;
        seconds.clear();
        seconds.resize(60, Count::default());
        people.clear();
        paths.clear();
        self.current.count = Count::default();
        self.current.number = number;
    }

    /// The minute in which most was denied, the first of several; nothing if nothing was.
    pub(crate) fn worst(&self) -> Option<&Minute> {
        let worst = if self.current.count.denied > self.worst.count.denied { &self.current } else { &self.worst };
        (worst.count.denied > 0).then_some(worst)
    }
}

impl Minute {
    /// When it began.
    pub(crate) fn start_micros(&self) -> u64 {
        self.number * MINUTE_MICROS
    }

    /// Who was denied most.
    pub(crate) fn people(&self, count: usize) -> Vec<(&str, u64)> {
        most(&self.people, count)
    }

    /// Which paths were denied most.
    pub(crate) fn paths(&self, count: usize) -> Vec<(&str, u64)> {
        most(&self.paths, count)
    }
}

fn note(counts: &mut HashMap<Box<str>, u64>, name: &str) {
    if let Some(count) = counts.get_mut(name) {
        *count += 1;
    } else if counts.len() < NAMES_MAX {
        counts.insert(name.into(), 1);
    }
}

fn most(counts: &HashMap<Box<str>, u64>, count: usize) -> Vec<(&str, u64)> {
    let mut all: Vec<(&str, u64)> = counts.iter().map(|(name, count)| (&**name, *count)).collect();
    all.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
    all.truncate(count);
    all
}
