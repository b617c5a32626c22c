//! Rules that were read and are not a [`RuleSet`] yet, so that a program may add what it keeps elsewhere in its file, and
//! what is wrong with that is told together with what is wrong with the rules.
//!
//! A draft may have mistakes, which its document knows. Only [`Draft::finish`] makes rules of it, and not of such a one.

use super::earlier::Earlier;
use super::problem::Wrong;
use super::reader::Reader;
use super::section::Section;
use super::tier::Tiers;
use super::{Names, UNMATCHED, read_list};
use crate::rules::{Override, Rule, RuleSet, Unmatched};
use std::collections::HashMap;

/// Rules that more may be added to.
#[derive(Debug)]
pub struct Draft<'d> {
    top: Reader<'d>,
    rules: Vec<Rule>,
    names: Names,
    tiers: Tiers,
    unmatched: Unmatched,
    /// The overrides of the rules that were given more, by the places of these rules.
    earlier: HashMap<usize, Earlier>,
}

impl<'d> Draft<'d> {
    /// Reads the rules and what belongs to them from the top level of a document.
    #[must_use]
    pub fn read(top: &Section<'d>) -> Self {
        let unmatched = top.optional("unmatched", Unmatched::default(), |each| each.choice(UNMATCHED));
        let tiers = top.get("tiers").map(Tiers::read).unwrap_or_default();
        let list = top.required("rules", "list the rules, or write `rules: []` to limit nothing");
        let mut names = Names::default();
        let rules = list.and_then(|list| read_list(list, &mut names, &tiers)).unwrap_or_else(|| {
            names.miss_one();
            Vec::new()
        });
        let unmatched = unmatched.unwrap_or_default();
        Self { top: top.reader().clone(), rules, names, tiers, unmatched, earlier: HashMap::new() }
    }

    /// Adds a rule that stands in no list.
    pub fn add_rule(&mut self, rule: Rule) {
        self.rules.push(rule);
    }

    /// Adds an override, which `section` was read from, to the rule called `rule`, after all that it has.
    pub fn add_override(&mut self, section: &Section<'_>, rule: &str, each: Override) {
        let Some(place) = self.rules.iter().position(|known| known.space.name() == rule) else {
            if self.names.lack(rule) {
                let message = format!("no rule is called {rule}");
                section.reader().report(Wrong::new(message, "name a rule that is there"));
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
            section.get("limits").unwrap_or(section.reader()).report(Wrong::new(message, misfit.remedy));
        }
    }

    /// The rules, if nothing is wrong with the document.
    #[must_use]
    pub fn finish(self) -> Option<RuleSet> {
        if self.top.has_problems() {
            return None;
        }
        let tiers = self.tiers.list.into_iter().map(|tier| tier.name).collect();
        RuleSet::new(self.rules, tiers, self.unmatched)
            .map_or_else(|error| self.top.refuse(Wrong::new("not usable", error.to_string())), Some)
    }
}
