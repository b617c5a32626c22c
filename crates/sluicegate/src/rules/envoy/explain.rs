//! Why a descriptor is limited as it is: which way its entries took through the tree, or where that ended and why.

use super::tree::Node;
use super::{EnvoyRules, Found};
use crate::identity::Entry;
use std::fmt;

/// What an entry was matched by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// A descriptor with its very value.
    Value,
    /// A descriptor with a `*` in its value.
    Pattern,
    /// A descriptor without a value.
    Key,
}

/// The descriptor that an entry was matched by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// By what.
    pub how: How,
    /// Where it is written: `file:line:column`.
    pub place: String,
    /// The pattern by which all that match it share one counter.
    pub shared_by: Option<String>,
}

/// The way that a descriptor took.
#[derive(Clone, Debug)]
pub struct Explanation<'r> {
    /// One step for each entry that was matched, from the first.
    pub steps: Vec<Step>,
    /// Where it led.
    pub end: End<'r>,
}

/// Where a descriptor's way ended.
#[derive(Clone, Debug)]
pub enum End<'r> {
    /// At a limit.
    Limit(Found<'r>),
    /// There is no such domain, but these.
    NoDomain(Vec<String>),
    /// The next entry has a key that no descriptor there has; these there are.
    NoKey(Vec<String>),
    /// There are descriptors with the next entry's key, but none with its value, a pattern for it, or without a value.
    NoValue,
    /// At a descriptor that has nothing below it, with entries left.
    TooLong,
    /// At a descriptor without a limit; maybe there are descriptors below it.
    NoLimit {
        /// Whether there are.
        has_more: bool,
    },
}

impl EnvoyRules {
    /// Which way [`find`](Self::find) takes for this descriptor.
    #[must_use]
    pub fn explain(&self, domain: &str, entries: &[Entry<'_>]) -> Explanation<'_> {
        let mut steps = Vec::new();
        let Some(mut node) = self.tree.domain(domain) else {
            let known = self.domains().into_iter().map(str::to_owned).collect();
            return Explanation { steps, end: End::NoDomain(known) };
        };
        for entry in entries {
            let Some((child, how)) = node.child(entry, &self.tree) else {
                return Explanation { end: ended(node, entry, !steps.is_empty()), steps };
            };
            let shared_by = child.shared_by().map(str::to_owned);
            steps.push(Step { how, place: self.tree.shown(child.origin()), shared_by });
            node = child;
        }
        let end = match self.find(domain, entries) {
            Some(found) => End::Limit(found),
            None => End::NoLimit { has_more: node.has_children() },
        };
        Explanation { steps, end }
    }
}

fn ended<'r>(node: &Node, entry: &Entry<'_>, is_below: bool) -> End<'r> {
    if node.has_key(entry.key) {
        return End::NoValue;
    }
    if is_below && !node.has_children() {
        return End::TooLong;
    }
    End::NoKey(node.keys().into_iter().map(str::to_owned).collect())
}

/// Why there is no limit, in words; the limit if there is one.
impl fmt::Display for End<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let listed = |names: &[String]| match names {
            [] => "none".to_owned(),
            names => names.join(", "),
        };
        match self {
            Self::Limit(found) => write!(formatter, "limited, counted for {}", found.identifier),
            Self::NoDomain(known) => write!(formatter, "no such domain: there are {}", listed(known)),
            Self::NoKey(known) => write!(formatter, "no descriptor with that key: there are {}", listed(known)),
            Self::NoValue => formatter.write_str(
                "descriptors with that key, but none with that value, a pattern for it, or without a value",
            ),
            Self::TooLong => formatter.write_str("no descriptors below, and entries are left"),
            Self::NoLimit { has_more: true } => {
                formatter.write_str("no limit here, only further down: the descriptor needs more entries")
            }
            Self::NoLimit { has_more: false } => {
                formatter.write_str("no limit here: the descriptor has no rate_limit")
            }
        }
    }
}
