//! Explanations for descriptors: the path of their entries through the tree, or where it ends and why.

use super::tree::Node;
use super::{EnvoyRules, Found};
use crate::identity::Entry;
use std::fmt;

/// How an entry was matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// By a descriptor with the exact value.
    Value,
    /// By a descriptor with a `*` in its value.
    Pattern,
    /// By a descriptor without a value.
    Key,
}

/// The descriptor that matched an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// How it matched.
    pub how: How,
    /// Its place: `file:line:column`.
    pub place: String,
    /// The pattern, if all values that match it share one counter.
    pub shared_by: Option<String>,
}

/// The path of a descriptor through the tree.
#[derive(Clone, Debug)]
pub struct Explanation<'r> {
    /// One step for each matched entry, from the first.
    pub steps: Vec<Step>,
    /// The end of the path.
    pub end: End<'r>,
}

/// The end of a descriptor's path.
#[derive(Clone, Debug)]
pub enum End<'r> {
    /// At a limit.
    Limit(Found<'r>),
    /// The domain does not exist; these do.
    NoDomain(Vec<String>),
    /// No descriptor has the next entry's key; these keys exist.
    NoKey(Vec<String>),
    /// Descriptors with the next entry's key exist, but none with its value, a matching pattern, or without a value.
    NoValue,
    /// Entries are left, but the descriptor has no children.
    TooLong,
    /// The descriptor has no limit; it may have children.
    NoLimit {
        /// Whether it has children.
        has_more: bool,
    },
}

impl EnvoyRules {
    /// The path that [`find`](Self::find) takes for this descriptor.
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

/// The reason why there is no limit, as text; the limit if there is one.
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
