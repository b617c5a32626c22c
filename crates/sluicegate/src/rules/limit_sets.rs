//! The key spaces of a rule's limit sets. The rule's own limits use [`Rule::space`]; every tier and every override has a
//! space of its own, so that requests under one set never change the state of another.
//!
//! The name of a set (the tier, or the pattern of the override) identifies it, not its numbers or its position. A
//! configuration change that keeps the name therefore keeps the usage.

use super::matching::Source;
use super::{Override, Rule};
use crate::store::{KeySpace, LimitSet};
use std::collections::HashMap;

/// The key spaces of the tiers and overrides of one rule, in the order of the rule.
#[derive(Clone, Debug, Default)]
pub(super) struct SetSpaces {
    tiers: Box<[KeySpace]>,
    overrides: Box<[KeySpace]>,
}

impl SetSpaces {
    /// The spaces of `rule`.
    pub(super) fn of(rule: &Rule) -> Self {
        let tier = |tier: &str| rule.space.with_set(LimitSet::Tier(tier.into()));
        let mut occurrences: HashMap<String, u32> = HashMap::new();
        let overridden = |each: &Override| {
            let pattern = each.identifier.text();
            let set = LimitSet::Override {
                pattern: pattern.as_str().into(),
                occurrence: occurrences.get(&pattern).copied().unwrap_or_default(),
            };
            *occurrences.entry(pattern).or_default() += 1;
            rule.space.with_set(set)
        };
        Self {
            tiers: rule.tiers.iter().map(|(name, _)| tier(name)).collect(),
            overrides: rule.overrides.iter().map(overridden).collect(),
        }
    }

    /// The key space of the limits that `source` selects.
    #[inline]
    pub(super) fn of_source<'a>(&'a self, rule: &'a Rule, source: Source) -> &'a KeySpace {
        match source {
            Source::Rule => &rule.space,
            Source::Tier(index) => &self.tiers[index],
            Source::Override(index) => &self.overrides[index],
        }
    }
}
