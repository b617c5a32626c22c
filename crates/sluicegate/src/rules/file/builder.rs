//! A [`RuleSet`] under construction. A program can add rules and overrides from elsewhere in its file, and their problems
//! are reported together with those of the rules.
//!
//! The parts may have problems, which the document collects. [`RuleSetBuilder::finish`] then returns no rules.

use super::problem::ValueError;
use super::reader::Reader;
use super::section::Section;
use super::shadowed_override::EarlierOverrides;
use super::tier::Tiers;
use super::{Names, RULES, TIERS, UNMATCHED, read_list};
use crate::rules::{Override, Rule, RuleSet, Unmatched};
use std::collections::HashMap;

/// A rule set under construction.
#[derive(Debug)]
pub struct RuleSetBuilder<'d> {
    top: Reader<'d>,
    rules: Vec<Rule>,
    names: Names,
    tiers: Tiers,
    unmatched: Unmatched,
    /// The overrides of the rules that received more, by the position of the rule.
    earlier: HashMap<usize, EarlierOverrides>,
}

impl<'d> RuleSetBuilder<'d> {
    /// Reads the rules and their tiers from the top level of a document.
    #[must_use]
    pub fn read(top: &Section<'d>) -> Self {
        let unmatched = top.read(&UNMATCHED);
        let tiers = top.get(TIERS.key).map(Tiers::read).unwrap_or_default();
        let list = top.find(&RULES);
        let mut names = Names::default();
        let rules = list.and_then(|list| read_list(list, &mut names, &tiers)).unwrap_or_else(|| {
            names.miss_one();
            Vec::new()
        });
        let unmatched = unmatched.unwrap_or_default();
        Self { top: top.reader().clone(), rules, names, tiers, unmatched, earlier: HashMap::new() }
    }

    /// Adds a rule from outside the list.
    pub fn add_rule(&mut self, rule: Rule) {
        self.rules.push(rule);
    }

    /// Appends an override, which was read from `section`, to the overrides of `rule`.
    pub fn add_override(&mut self, section: &Section<'_>, rule: &str, each: Override) {
        let Some(place) = self.rules.iter().position(|known| known.space.name() == rule) else {
            if self.names.lack(rule) {
                let message = format!("no rule is called {rule}");
                section.reader().report(ValueError::new(message, "name a rule that is there"));
            }
            return;
        };
        let rule = &mut self.rules[place];
        let earlier = self.earlier.entry(place).or_insert_with(|| rule.overrides.iter().collect());
        if let Some(taken) = earlier.add(&each) {
            section.reader().report(taken.wrong("another override of the rule"));
        }
        let is_good = rule.lease_misfit().is_none();
        rule.overrides.push(each);
        if let Some(misfit) = rule.lease_misfit().filter(|_| is_good) {
            let message = format!("does not go with the lease of its rule: {}", misfit.message);
            section.get("limits").unwrap_or(section.reader()).report(ValueError::new(message, misfit.remedy));
        }
    }

    /// The rules, if the document has no problems.
    #[must_use]
    pub fn finish(self) -> Option<RuleSet> {
        if self.top.has_problems() {
            return None;
        }
        let tiers = self.tiers.list.into_iter().map(|tier| tier.name).collect();
        RuleSet::new(self.rules, tiers, self.unmatched)
            .map_or_else(|error| self.top.refuse(ValueError::new("not usable", error.to_string())), Some)
    }
}
