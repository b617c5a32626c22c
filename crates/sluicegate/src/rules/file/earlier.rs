//! Which overrides of a rule never apply, because an earlier one takes every identifier that they are for.

use super::problem::Wrong;
use crate::rules::Override;
use crate::rules::pattern::Pattern;
use std::collections::HashMap;

/// The overrides of one rule so far, by their places among them.
#[derive(Debug, Default)]
pub(super) struct Earlier {
    count: usize,
    /// Exact ones come before patterns, wherever they stand, so nothing is in their way but their like.
    exact: HashMap<String, usize>,
    patterns: Vec<(Pattern, usize)>,
}

/// An earlier override that leaves nothing to a later one, by its place.
#[derive(Clone, Copy, Debug)]
pub(super) enum Taken {
    /// It is for the same identifier, or the same pattern.
    Same(usize),
    /// Its pattern matches all that the later one's matches.
    Every(usize),
}

impl Taken {
    /// The place of the earlier override.
    pub(super) fn by(self) -> usize {
        match self {
            Self::Same(place) | Self::Every(place) => place,
        }
    }

    /// What is wrong with the later override, if the earlier one is called `earlier`.
    pub(super) fn wrong(self, earlier: &str) -> Wrong {
        match self {
            Self::Same(_) => {
                let message = format!("never applies: {earlier} is for the same identifier");
                Wrong::new(message, "keep one of the two")
            }
            Self::Every(_) => {
                let message = format!("never applies: {earlier} takes every identifier that this one is for");
                Wrong::new(message, "move it up, or remove it: the first pattern that matches applies")
            }
        }
    }
}

impl Earlier {
    /// Adds an override, unless an earlier one leaves nothing to it.
    pub(super) fn add(&mut self, each: &Override) -> Option<Taken> {
        let pattern = &each.identifier;
        let text = pattern.hardest_text();
        let taken = match pattern.is_exact() {
            true => self.exact.get(&text).map(|place| Taken::Same(*place)),
            false => self.patterns.iter().find(|(earlier, _)| earlier.matches(&text)).map(|(earlier, place)| {
                if earlier == pattern { Taken::Same(*place) } else { Taken::Every(*place) }
            }),
        };
        let place = self.count;
        self.count += 1;
        // One that ends leaves everything to those that follow.
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

impl<'o> FromIterator<&'o Override> for Earlier {
    fn from_iter<I: IntoIterator<Item = &'o Override>>(overrides: I) -> Self {
        let mut earlier = Self::default();
        for each in overrides {
            earlier.add(each);
        }
        earlier
    }
}
