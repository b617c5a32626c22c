//! The rules in force, which can be replaced while requests are decided.
//!
//! A request is decided by one set of rules from beginning to end: that which was in force when it came. Replacing waits
//! for nobody and makes nobody wait.
//!
//! Every rule has a slot, a small number for whoever counts by rule. A rule that stays, which is one of the same name,
//! keeps its slot. That of one that goes is given to another only when no decision by it is under way any more or held by
//! anybody, so nothing is ever counted for the wrong rule.

use crate::rules::RuleSet;
use crate::sync::Mutex;
use arc_swap::ArcSwap;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};

/// The rules in force.
#[derive(Debug)]
pub(super) struct LiveRules {
    current: ArcSwap<RuleSet>,
    /// Those that were in force before and that somebody may still hold. The lock is held while rules are replaced.
    former: Mutex<Vec<Weak<RuleSet>>>,
}

impl LiveRules {
    pub(super) fn new(rules: RuleSet) -> Self {
        Self { current: ArcSwap::from_pointee(rules), former: Mutex::default() }
    }

    /// The rules in force.
    #[inline]
    pub(super) fn get(&self) -> Arc<RuleSet> {
        self.current.load_full()
    }

    /// Puts `rules` in force, and tells of them first.
    pub(super) fn replace(&self, rules: RuleSet, tell: impl FnOnce(&RuleSet)) {
        let mut former = self.former.lock();
        let current = self.get();
        former.retain(|set| set.strong_count() > 0);
        let held: Vec<Arc<RuleSet>> = former.iter().filter_map(Weak::upgrade).collect();
        let slots = slots(&rules, &current, &held);
        let rules = rules.in_slots(&slots);
        tell(&rules);
        former.push(Arc::downgrade(&current));
        self.current.store(Arc::new(rules));
    }
}

/// The slot of each rule: that of the rule of the same name if there is one now, otherwise the lowest that nobody can count
/// in any more.
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

    fn replaced(live: &LiveRules, names: &[&str]) -> Vec<u32> {
        live.replace(set(names), |_| {});
        live.get().slots().to_vec()
    }

    #[test]
    fn a_rule_that_stays_keeps_its_slot_wherever_it_stands() {
        let live = LiveRules::new(set(&["a", "b", "c"]));
        assert_eq!(live.get().slots(), [0, 1, 2]);
        assert_eq!(replaced(&live, &["c", "new", "a"]), [2, 3, 0]);
        assert_eq!(replaced(&live, &["new"]), [3]);
    }

    #[test]
    fn a_slot_is_given_away_only_when_nobody_can_count_in_it() {
        let live = LiveRules::new(set(&["a"]));
        let under_way = live.get();
        assert_eq!(replaced(&live, &["b"]), [1]);
        assert_eq!(replaced(&live, &["c"]), [2], "a decision by the first set is still under way");
        drop(under_way);
        assert_eq!(replaced(&live, &["d"]), [0]);
    }

    #[test]
    fn the_new_rules_are_told_of_before_they_are_in_force() {
        let live = LiveRules::new(set(&["a"]));
        let mut told = None;
        live.replace(set(&["b"]), |rules| {
            assert_eq!(live.get().rules()[0].space.name(), "a");
            told = Some(rules.slots().to_vec());
        });
        assert_eq!(told, Some(live.get().slots().to_vec()));
    }
}
