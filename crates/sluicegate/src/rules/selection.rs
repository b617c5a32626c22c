//! A few rules of a set, as one call needs them.

use super::index::Index;
use super::{Rule, RuleSet, RuleSetError};

impl RuleSet {
    /// A set of these rules, which are rules of this set or made from one: each is counted in the slot of that one, which
    /// stands beside it by its place. For a call that is decided by some of the rules under other terms; it must not
    /// outlive this set.
    ///
    /// Nothing is charged ahead by such a set, and one rule may stand in it twice, under different terms.
    ///
    /// # Errors
    /// If there is no rule at one of the places.
    pub fn selection(&self, rules: Vec<(usize, Rule)>) -> Result<Self, RuleSetError> {
        let slots: Option<Box<[u32]>> = rules.iter().map(|(place, _)| self.slots().get(*place).copied()).collect();
        let Some(slots) = slots else {
            return Err(RuleSetError("a rule that is not in the set: select rules by their places".to_owned()));
        };
        let rules: Vec<Rule> = rules.into_iter().map(|(_, rule)| Rule { lease: None, ..rule }).collect();
        let index = Index::new(&rules);
        let (tiers, unmatched) = (self.tiers().to_vec(), self.unmatched());
        Ok(Self { rules, tiers, unmatched, index, slots, is_charged_ahead: false, envoy: None })
    }
}

#[cfg(test)]
mod tests {
    use crate::rules::{Limits, Mode, Rule, RuleSet, Unmatched};

    #[test]
    fn selected_rules_keep_their_slots() {
        let rule = |name: &str| Rule::new(name, Limits::Unlimited);
        let set =
            RuleSet::new(vec![rule("a"), rule("b"), rule("c")], vec!["pro".into()], Unmatched::Deny).unwrap();
        let set = set.in_slots(&[7, 8, 9]);
        let changed = Rule { mode: Mode::Shadow, ..set.rules()[0].clone() };
        let selected = set.selection(vec![(2, set.rules()[2].clone()), (0, changed)]).unwrap();
        assert_eq!(selected.slots(), [9, 7]);
        assert_eq!((selected.tiers().len(), selected.unmatched()), (1, Unmatched::Deny));
        assert_eq!(selected.rules()[1].mode, Mode::Shadow);
        assert!(set.selection(vec![(3, rule("d"))]).is_err());
    }
}
