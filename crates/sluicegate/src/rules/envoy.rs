//! Rules in the words of Envoy's rate limit service: domains, and under each a tree of descriptors with limits at some of
//! its nodes, as the configuration files of `envoyproxy/ratelimit` have them.
//!
//! [`EnvoyConfig::read`] makes of such files a tree and one [`Rule`] for every limit in it, [`RuleSet::with_envoy`] takes
//! both, and [`EnvoyRules::find`] says which of the rules a descriptor is limited by. From there on they are rules like any
//! other: they are counted, kept, shadowed and measured alike. Only one thing is special: no request meets them that does not
//! name them by their place.
//!
//! Entries are matched one after the other from the top, each among the children of what the one before it matched: first
//! the child with its very value, then those with a `*` in theirs in the order of the files, then the one without a value.
//! What was matched is never given up again for another, and only the node of the last entry has a say. Matching looks
//! entries up and compares patterns; siblings without a `*` cost nothing, however many they are.
//!
//! | module | what it holds |
//! |---|---|
//! | `tree` | the nodes, and how an entry finds its way |
//! | `explain` | which way it was, or where it ended |
//! | `read`, `limit`, `text` | the keys of a file, of its limits, and their values |
//! | `metadata` | what a limit hands to Envoy |
//! | `name` | what rules are called |

pub mod explain;
pub mod limit;
pub mod metadata;
mod name;
pub mod read;
#[cfg(test)]
mod tests;
mod text;
mod tree;

pub use explain::{Explanation, How, Step};
pub use limit::Unit;
pub use metadata::{Metadata, Value};
pub use read::{EnvoyConfig, EnvoyOptions, Mistakes};

use super::{Rule, RuleSet, RuleSetError};
use crate::identity::{ENTRIES_MAX, Entry, identifier_of};
use smallvec::SmallVec;
use std::sync::Arc;
use tree::Tree;

/// Which descriptors are limited by which rules of a set.
#[derive(Clone, Debug, Default)]
pub struct EnvoyRules {
    tree: Tree,
    /// What is known of each limit besides its rule, in the order of the rules.
    limits: Vec<Limit>,
    /// Where the rules begin in their set.
    first: usize,
}

/// What a limit has that a rule has not.
#[derive(Clone, Debug)]
pub(crate) struct Limit {
    is_quota: bool,
    name: Option<Box<str>>,
    replaces: Box<[Box<str>]>,
    metadata: Option<Metadata>,
    shown: Option<(u32, Unit)>,
}

/// The limit that applies to a descriptor.
#[derive(Clone, Debug)]
pub struct Found<'r> {
    /// The place of its rule in the set.
    pub rule: usize,
    /// Whose state it is, among all that the rule applies to: the values of the entries, and in the stead of those that
    /// share a counter the pattern that they share it by. Different values never make one identifier.
    pub identifier: String,
    /// Whether it denies only together with all others of the request that say the same.
    pub is_quota: bool,
    /// The names of the limits that do not apply beside this one.
    pub replaces: &'r [Box<str>],
    /// Its own name, if it has one.
    pub name: Option<&'r str>,
    /// What Envoy is told if the request passes.
    pub metadata: Option<&'r Metadata>,
    /// So many in such a unit of time; nothing if it is unlimited.
    pub limit: Option<(u32, Unit)>,
}

impl EnvoyRules {
    /// The limit of a descriptor with these entries; `None` if it has none.
    ///
    /// ```
    /// use sluicegate::identity::Entry;
    /// use sluicegate::rules::RuleSet;
    /// use sluicegate::rules::envoy::{EnvoyConfig, EnvoyOptions, Unit};
    ///
    /// let text = "
    /// domain: edge
    /// descriptors:
    ///   - key: path
    ///     value: /login
    ///     descriptors:
    ///       - key: remote_address
    ///         rate_limit: { unit: minute, requests_per_unit: 5 }
    /// ";
    /// let config = EnvoyConfig::read([("edge.yaml", text)], &EnvoyOptions::default())?;
    /// let rules = RuleSet::default().with_envoy(config)?;
    /// let envoy = rules.envoy().expect("just given");
    ///
    /// let entries = [Entry::new("path", "/login"), Entry::new("remote_address", "192.0.2.7")];
    /// let found = envoy.find("edge", &entries).expect("a limit");
    /// assert_eq!((found.identifier.as_str(), found.limit), ("/login|192.0.2.7", Some((5, Unit::Minute))));
    /// assert!(envoy.find("edge", &entries[..1]).is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn find(&self, domain: &str, entries: &[Entry<'_>]) -> Option<Found<'_>> {
        if entries.len() > ENTRIES_MAX {
            return None;
        }
        let mut counted: SmallVec<[Entry<'_>; ENTRIES_MAX]> = SmallVec::new();
        let mut node = self.tree.domain(domain)?;
        for entry in entries {
            let (child, _) = node.child(entry, &self.tree)?;
            counted.push(Entry::new(entry.key, child.shared_by().unwrap_or(entry.value)));
            node = child;
        }
        // A domain as such has no limit, so an empty descriptor finds none.
        let place = node.limit()?;
        Some(self.found(place, identifier_of(&counted)))
    }

    fn found(&self, place: usize, identifier: String) -> Found<'_> {
        let Limit { is_quota, name, replaces, metadata, shown } = &self.limits[place];
        Found {
            rule: self.first + place,
            identifier,
            is_quota: *is_quota,
            replaces,
            name: name.as_deref(),
            metadata: metadata.as_ref(),
            limit: *shown,
        }
    }

    /// True if there is such a domain.
    #[must_use]
    pub fn has_domain(&self, domain: &str) -> bool {
        self.tree.domain(domain).is_some()
    }

    /// The domains, in the order of the alphabet.
    #[must_use]
    pub fn domains(&self) -> Vec<&str> {
        self.tree.domains()
    }
}

impl RuleSet {
    /// The same set with the rules of `config` after its own.
    ///
    /// # Errors
    /// If the two do not go together: there are too many rules, or two of one name.
    pub fn with_envoy(self, config: EnvoyConfig) -> Result<Self, RuleSetError> {
        let EnvoyConfig { tree, limits, rules: added } = config;
        let Self { mut rules, tiers, unmatched, .. } = self;
        let first = rules.len();
        rules.extend(added);
        let envoy = EnvoyRules { tree, limits, first };
        Ok(Self { envoy: Some(Arc::new(envoy)), ..Self::new(rules, tiers, unmatched)? })
    }

    /// Which descriptors are limited by which rules, if the set was made from such a configuration.
    #[must_use]
    pub fn envoy(&self) -> Option<&EnvoyRules> {
        self.envoy.as_deref()
    }
}

/// A rule that only descriptors find.
fn rule_by_place(name: &str, limits: super::Limits) -> Rule {
    let mut rule = Rule::new(name, limits);
    rule.selector.only_by_place = true;
    // Envoy has a setting for what happens when nobody decides, and it has a say only if it is told so.
    rule.on_store_failure = super::OnStoreFailure::Closed;
    rule
}
