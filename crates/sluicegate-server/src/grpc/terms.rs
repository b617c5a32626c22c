//! The rules of one call: those in force, or a selection of them where descriptors bring limits along, or where quotas
//! only watch.

use std::sync::Arc;

use sluicegate::rules::{Mode, Rule, RuleSet};

use super::lines::{By, Line, rule_of};

/// The rules of a call, and where the rule of each descriptor stands in them.
#[derive(Debug)]
pub(super) struct Terms {
    pub(super) rules: Arc<RuleSet>,
    /// For each descriptor; nothing where the rules in force say it, as for those beyond its end.
    places: Vec<Option<usize>>,
}

impl Terms {
    /// Where the rule of the descriptor at this place stands.
    pub(super) fn place_of(&self, place: usize) -> Option<usize> {
        self.places.get(place).copied().flatten()
    }

    /// The terms of `lines`, of which some only watch.
    pub(super) fn new(rules: &Arc<RuleSet>, lines: &[Line<'_>], watching: &[bool]) -> Self {
        let in_force = || Self { rules: Arc::clone(rules), places: Vec::new() };
        if !lines.iter().any(Line::is_brought) && !watching.contains(&true) {
            return in_force();
        }
        let mut selected = Selected::default();
        let watching = watching.iter().copied().chain(std::iter::repeat(false));
        let places =
            lines.iter().zip(watching).map(|(line, watches)| selected.add(rules, line, watches)).collect();
        // All places are those of rules in force.
        rules.selection(selected.0).map_or_else(|_| in_force(), |rules| Self { rules: Arc::new(rules), places })
    }
}

/// Rules, with the place of the rule in force that each was made from.
#[derive(Default)]
struct Selected(Vec<(usize, Rule)>);

impl Selected {
    fn add(&mut self, rules: &RuleSet, line: &Line<'_>, watches: bool) -> Option<usize> {
        match &line.by {
            By::Rules => {
                let request = line.request(None)?;
                let matching = rules.rules().iter().enumerate().filter(|(_, rule)| rule.matches(&request));
                for (place, rule) in matching {
                    self.add_rule(place, rule.clone());
                }
                None
            }
            By::Found(found) => {
                let rule = rules.rules().get(found.rule)?.clone();
                let mode = if watches { Mode::Shadow } else { rule.mode };
                Some(self.add_rule(found.rule, Rule { mode, ..rule }))
            }
            By::Brought { rule: place, given, .. } => {
                self.0.push((*place, rule_of(rules.rules().get(*place)?, *given)?));
                Some(self.0.len() - 1)
            }
            By::Nothing => None,
        }
    }

    /// Where the rule stands: one that is there already under the same terms is there once.
    fn add_rule(&mut self, place: usize, rule: Rule) -> usize {
        let is_it = |(before, known): &(usize, Rule)| {
            *before == place && known.mode == rule.mode && known.space.name() == rule.space.name()
        };
        self.0.iter().position(is_it).unwrap_or_else(|| {
            self.0.push((place, rule));
            self.0.len() - 1
        })
    }
}
