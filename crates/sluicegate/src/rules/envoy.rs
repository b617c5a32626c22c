//! Rules from the configuration of Envoy's rate limit service: domains, each with a tree of descriptors and limits at some of
//! its nodes, in the format of `envoyproxy/ratelimit`.
//!
//! [`EnvoyConfig::read`] (files) and [`EnvoyConfig::read_trees`] (resources of a control plane) build the tree and one
//! [`Rule`] for every limit, [`RuleSet::with_envoy`] adds both to a set, and [`EnvoyRules::find`] returns the rule that limits a descriptor. From there on they are ordinary
//! rules: counted, stored, shadowed and measured alike. They differ in one point: only requests that name them
//! by their index match them.
//!
//! Entries are matched one after the other from the top, each among the children of the previous match: first
//! the child with the exact value, then those with a `*` in the order of the files, then the child without a value.
//! There is no backtracking, and only the node of the last entry can limit. Matching looks
//! up hashes and compares patterns; siblings without a `*` cost nothing, however many they are.
//!
//! | module | content |
//! |---|---|
//! | `tree` | the nodes and the matching of entries |
//! | `explain` | the matched path, or where it ended |
//! | `listing` | all limits with their paths |
//! | `read`, `limit`, `text` | the keys of a file, of its limits, and their values |
//! | `metadata` | the metadata that a limit returns to Envoy |
//! | `name` | the names of rules |

pub mod explain;
pub mod limit;
pub mod listing;
pub mod metadata;
mod name;
pub mod read;
#[cfg(test)]
mod tests;
mod text;
mod tree;

pub use explain::{Explanation, How, Step};
pub use limit::Unit;
pub use listing::ListedLimit;
pub use metadata::{Metadata, Value};
pub use read::{EnvoyConfig, EnvoyOptions, Mistakes};

use super::{Rule, RuleSet, RuleSetError};
use crate::identity::{ENTRIES_MAX, Entry, identifier_of};
use smallvec::SmallVec;
use std::sync::Arc;
use tree::Tree;

/// As many entries of a descriptor need no allocation. Nearly all have fewer.
const ENTRIES_INLINE: usize = 8;

/// Finds the rule of a descriptor in a set.
#[derive(Clone, Debug, Default)]
pub struct EnvoyRules {
    tree: Tree,
    /// The attributes of each limit beside its rule, in the order of the rules.
    limits: Vec<Limit>,
    /// The index of the first rule in the set.
    first: usize,
}

/// The attributes of a limit beside its rule.
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
    /// The index of its rule in the set.
    pub rule: usize,
    /// The identifier of its state: the values of the entries, or the pattern for entries that
    /// share a counter. Different values never give the same identifier.
    pub identifier: String,
    /// `quota_mode`: it denies only if all other such limits of the request deny, too.
    pub is_quota: bool,
    /// The names of the limits that it replaces.
    pub replaces: &'r [Box<str>],
    /// Its own name, if it has one.
    pub name: Option<&'r str>,
    /// The dynamic metadata that Envoy receives for an allowed request.
    pub metadata: Option<&'r Metadata>,
    /// Requests per unit of time; `None` if unlimited.
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
        let mut counted: SmallVec<[Entry<'_>; ENTRIES_INLINE]> = SmallVec::new();
        let mut node = self.tree.domain(domain)?;
        for entry in entries {
            let (child, _) = node.child(entry, &self.tree)?;
            counted.push(Entry::new(entry.key, child.shared_by().unwrap_or(entry.value)));
            node = child;
        }
        // A domain has no limit itself, so an empty descriptor finds none.
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

    /// True if the domain exists.
    #[must_use]
    pub fn has_domain(&self, domain: &str) -> bool {
        self.tree.domain(domain).is_some()
    }

    /// The domains in alphabetical order.
    #[must_use]
    pub fn domains(&self) -> Vec<&str> {
        self.tree.domains()
    }
}

impl RuleSet {
    /// The same set with the rules of `config` after its own.
    ///
    /// # Errors
    /// If there are too many rules, or two of one name.
    pub fn with_envoy(self, config: EnvoyConfig) -> Result<Self, RuleSetError> {
        let EnvoyConfig { tree, limits, rules: added } = config;
        let Self { mut rules, tiers, unmatched, .. } = self;
        let first = rules.len();
        rules.extend(added);
        let envoy = EnvoyRules { tree, limits, first };
        Ok(Self { envoy: Some(Arc::new(envoy)), ..Self::new(rules, tiers, unmatched)? })
    }

    /// The lookup of descriptors, if the set was built with [`Self::with_envoy`].
    #[must_use]
    pub fn envoy(&self) -> Option<&EnvoyRules> {
        self.envoy.as_deref()
    }
}

/// A rule that only descriptors find.
fn rule_by_place(name: &str, limits: super::Limits) -> Rule {
    let mut rule = Rule::new(name, limits);
    rule.selector.only_by_place = true;
    // Envoy has its own setting for failures, which applies only if it receives an error.
    rule.on_store_failure = super::OnStoreFailure::Closed;
    rule
}
