//! The rules of one call: those in force, or a selection of them if descriptors contain limits or if some descriptors in
//! `quota_mode` run in shadow mode.

use std::sync::Arc;

use sluicegate::rules::{Mode, Rule, RuleSet};

use super::descriptor::{DecidedBy, ResolvedDescriptor, rule_of};

/// The rules of a call, and the index of each descriptor's rule in them.
#[derive(Debug)]
pub(super) struct CallRules {
    pub(super) rules: Arc<RuleSet>,
    /// For each descriptor; `None`, or beyond its end, for the rules in force.
    places: Vec<Option<usize>>,
}

impl CallRules {
    /// The index of the descriptor's rule.
    pub(super) fn place_of(&self, place: usize) -> Option<usize> {
        self.places.get(place).copied().flatten()
    }

    /// The rules for `lines`, some of which are in shadow mode.
    pub(super) fn new(rules: &Arc<RuleSet>, lines: &[ResolvedDescriptor<'_>], in_shadow_mode: &[bool]) -> Self {
        let in_force = || Self { rules: Arc::clone(rules), places: Vec::new() };
        if !lines.iter().any(ResolvedDescriptor::is_inline) && !in_shadow_mode.contains(&true) {
            return in_force();
        }
        let mut selected = Selected::default();
        let in_shadow_mode = in_shadow_mode.iter().copied().chain(std::iter::repeat(false));
        let places =
            lines.iter().zip(in_shadow_mode).map(|(line, watches)| selected.add(rules, line, watches)).collect();
        // All indexes are those of rules in force.
        rules.selection(selected.0).map_or_else(|_| in_force(), |rules| Self { rules: Arc::new(rules), places })
    }
}

/// Rules, each with the index of the rule in force that it comes from.
#[derive(Default)]
struct Selected(Vec<(usize, Rule)>);

impl Selected {
    fn add(&mut self, rules: &RuleSet, line: &ResolvedDescriptor<'_>, watches: bool) -> Option<usize> {
        match &line.by {
            DecidedBy::Rules => {
                let request = line.request(None)?;
                let matching = rules.rules().iter().enumerate().filter(|(_, rule)| rule.matches(&request));
                for (place, rule) in matching {
                    self.add_rule(place, rule.clone());
                }
                None
            }
            DecidedBy::Found(found) => {
                let rule = rules.rules().get(found.rule)?.clone();
                let mode = if watches { Mode::Shadow } else { rule.mode };
                Some(self.add_rule(found.rule, Rule { mode, ..rule }))
            }
            DecidedBy::Inline { rule: place, given, space, .. } => {
                self.0.push((*place, rule_of(rules.rules().get(*place)?, *given, space)?));
                Some(self.0.len() - 1)
            }
            DecidedBy::Nothing => None,
        }
    }

    /// The index of the rule; a rule with the same terms is added only once. A limit in a descriptor may count in the state of a
    /// rule with other limits.
    fn add_rule(&mut self, place: usize, rule: Rule) -> usize {
        let is_it = |(before, known): &(usize, Rule)| {
            let is_same_state = *before == place && known.space.name() == rule.space.name();
            is_same_state && known.mode == rule.mode && known.limits.quotas() == rule.limits.quotas()
        };
        self.0.iter().position(is_it).unwrap_or_else(|| {
            self.0.push((place, rule));
            self.0.len() - 1
        })
    }
}
