//! The rules in force. They can be replaced while requests are in flight.
//!
//! A request keeps the rule set that was in force when it started. Replacing the rules neither blocks requests nor waits for
//! them.
//!
//! Every rule has a slot, a small number that metrics use as an index. A rule keeps its slot as long as its name stays. The slot of a
//! removed rule is reused only after the last decision under it is gone, so a count never goes to the wrong rule.

use crate::rules::RuleSet;
use crate::sync::Mutex;
use arc_swap::ArcSwap;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};

/// The current rule set, and the former ones that requests or decisions may still hold.
#[derive(Debug)]
pub(super) struct CurrentRules {
    current: ArcSwap<RuleSet>,
    /// Earlier rule sets that may still have references. The lock is held while rules are replaced.
    former: Mutex<Vec<Weak<RuleSet>>>,
}

impl CurrentRules {
    pub(super) fn new(rules: RuleSet) -> Self {
        Self { current: ArcSwap::from_pointee(rules), former: Mutex::default() }
    }

    /// The current rule set.
    #[inline]
    pub(super) fn get(&self) -> Arc<RuleSet> {
        self.current.load_full()
    }

    /// Replaces the rule set. Calls `announce` with the new one before it is in force.
    pub(super) fn replace(&self, rules: RuleSet, announce: impl FnOnce(&RuleSet)) {
        let mut former = self.former.lock();
        let current = self.get();
        former.retain(|set| set.strong_count() > 0);
        let held: Vec<Arc<RuleSet>> = former.iter().filter_map(Weak::upgrade).collect();
        let slots = slots(&rules, &current, &held);
        let rules = rules.in_slots(&slots);
        announce(&rules);
        former.push(Arc::downgrade(&current));
        self.current.store(Arc::new(rules));
    }
}

/// The slot of each rule: that of the current rule of the same name, otherwise the lowest slot that neither the current rules
/// nor a rule set in `held` uses.
fn slots(rules: &RuleSet, current: &RuleSet, held: &[Arc<RuleSet>]) -> Vec<u32> {
    let names = current.rules().iter().map(|rule| rule.space.name());
    let kept: HashMap<&str, u32> = names.zip(current.slots().iter().copied()).collect();
    let held = held.iter().flat_map(|set| set.slots());
    let taken: HashSet<u32> = current.slots().iter().chain(held).copied().collect();
    let mut free = (0..).filter(|slot| !taken.contains(slot));
    let slot = |name| kept.get(name).copied().or_else(|| free.next()).unwrap_or(u32::MAX);
    rules.rules().iter().map(|rule| rule.space.name()).map(slot).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{Limits, Rule, Unmatched};

    fn set(names: &[&str]) -> RuleSet {
        let rules = names.iter().map(|name| Rule::new(name, Limits::Unlimited)).collect();
        RuleSet::new(rules, Vec::new(), Unmatched::Allow).unwrap()
    }

    fn replaced(live: &CurrentRules, names: &[&str]) -> Vec<u32> {
        live.replace(set(names), |_| {});
        live.get().slots().to_vec()
    }

    #[test]
    fn a_rule_keeps_its_slot_when_the_order_of_rules_changes() {
        let live = CurrentRules::new(set(&["a", "b", "c"]));
        assert_eq!(live.get().slots(), [0, 1, 2]);
        assert_eq!(replaced(&live, &["c", "new", "a"]), [2, 3, 0]);
        assert_eq!(replaced(&live, &["new"]), [3]);
    }

    #[test]
    fn a_slot_is_reused_only_after_the_last_reference_to_its_rule_set_is_gone() {
        let live = CurrentRules::new(set(&["a"]));
        let in_flight = live.get();
        assert_eq!(replaced(&live, &["b"]), [1]);
        assert_eq!(replaced(&live, &["c"]), [2], "a decision under the first set is still in flight");
        drop(in_flight);
        assert_eq!(replaced(&live, &["d"]), [0]);
    }

    #[test]
    fn new_rules_are_announced_before_they_are_in_force() {
        let live = CurrentRules::new(set(&["a"]));
        let mut announced = None;
        live.replace(set(&["b"]), |rules| {
            assert_eq!(live.get().rules()[0].space.name(), "a");
            announced = Some(rules.slots().to_vec());
        });
        assert_eq!(announced, Some(live.get().slots().to_vec()));
    }
}
