//! Finds overrides of a rule that never apply, because an earlier one matches all of their identifiers.

use super::problem::ValueError;
use crate::pattern::Pattern;
use crate::rules::Override;
use std::collections::HashMap;

/// The overrides of one rule so far, by their positions.
#[derive(Debug, Default)]
pub(super) struct EarlierOverrides {
    count: usize,
    /// Exact identifiers take precedence over patterns, so only another exact one can shadow them.
    exact: HashMap<String, usize>,
    patterns: Vec<(Pattern, usize)>,
}

/// An earlier override that shadows a later one, by its position.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shadowed {
    /// It has the same identifier or the same pattern.
    Duplicate(usize),
    /// Its pattern matches everything that the later pattern matches.
    Covered(usize),
}

impl Shadowed {
    /// The position of the earlier override.
    pub(super) fn by(self) -> usize {
        match self {
            Self::Duplicate(place) | Self::Covered(place) => place,
        }
    }

    /// The error for the later override; `earlier` describes the earlier one.
    pub(super) fn wrong(self, earlier: &str) -> ValueError {
        match self {
            Self::Duplicate(_) => {
                let message = format!("never applies: {earlier} is for the same identifier");
                ValueError::new(message, "keep one of the two")
            }
            Self::Covered(_) => {
                let message = format!("never applies: {earlier} takes every identifier that this one is for");
                ValueError::new(message, "move it up, or remove it: the first pattern that matches applies")
            }
        }
    }
}

impl EarlierOverrides {
    /// Adds an override, or returns the earlier one that shadows it.
    pub(super) fn add(&mut self, each: &Override) -> Option<Shadowed> {
        let pattern = &each.identifier;
        let text = pattern.hardest_text();
        let taken = match pattern.is_exact() {
            true => self.exact.get(&text).map(|place| Shadowed::Duplicate(*place)),
            false => self.patterns.iter().find(|(earlier, _)| earlier.matches(&text)).map(|(earlier, place)| {
                if earlier == pattern { Shadowed::Duplicate(*place) } else { Shadowed::Covered(*place) }
            }),
        };
        let place = self.count;
        self.count += 1;
        // An override with an end shadows no other.
        if taken.is_some() || each.until.is_some() {
            return taken;
        }
        match pattern.is_exact() {
            true => _ = self.exact.insert(text, place),
            false => self.patterns.push((pattern.clone(), place)),
        }
        None
    }
}

impl<'o> FromIterator<&'o Override> for EarlierOverrides {
    fn from_iter<I: IntoIterator<Item = &'o Override>>(overrides: I) -> Self {
        let mut earlier = Self::default();
        for each in overrides {
            earlier.add(each);
        }
        earlier
    }
}
