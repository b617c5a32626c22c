//! This instance's share of the limits of local rules, with state of its own.
//!
//! With K instances each enforces r/K and ⌈B/K⌉, so that all together admit at most B + r·d + K − 1 in any interval of
//! length d without the store. The state does not start empty-handed: while the store answers, what this instance
//! admits under a local rule is charged to its share as well, whether or not it fits. So an identity that has just
//! used up its limit through this instance finds its share used up.
//!
//! What that bounds on one instance (K = 1) whose store comes and goes at will:
//! - The share has seen all that passed here, by either way, when it admits something, and has room for it. So an
//!   interval that ends with an admission by the share saw at most B + r·d, as if there were but the share.
//! - Any other interval is one of these, up to the last admission by the share, and the rest, in which only the store
//!   admitted, which by itself stays within B + r·d. Together that is 2B + r·d: one B, once, however often the store
//!   comes back knowing nothing of what passed meanwhile.
//!
//! The first needs what does not fit to be owed, not dropped: were the share merely emptied, store and share could each
//! admit r for ever. By the second a bucket never owes more than B, and that much is believed; see
//! [`sluicegate_core::Algorithm::repair`].
//!
//! Time is that of this instance when the answer was there. The store's clock may run differently and its answers take
//! unequally long: then the store's part of an interval of length d is that of one longer by as much, at most by the
//! deadline. What is on its way while the share admits counts as admitted after it.
//!
//! With several instances (K > 1) what others admitted is not known here, and the store may admit more through one
//! instance than its share can owe. The store stays within B + r·d and all shares within B + r·d + K − 1, so whatever
//! happens the sum of both is the most.

use super::failure::Local;
use super::{Action, is_own};
use crate::decision::Decision;
use crate::instances::Instances;
use crate::rules::matching::{Applied, Source};
use crate::rules::{Limits, OnStoreFailure, Rule, RuleSet};
use crate::store::memory::MemoryOptions;
use crate::store::{Charge, MemoryStore, Verdicts};
use crate::sync::Mutex;
use sluicegate_core::{Quota, Timestamp};
use smallvec::SmallVec;
use std::num::NonZeroU32;
use std::sync::{Arc, OnceLock};

/// The share of this instance.
#[derive(Debug)]
pub(super) struct Fallback {
    options: MemoryOptions,
    instances: Instances,
    /// Made when it is first needed: most limiters never do.
    store: OnceLock<MemoryStore>,
    /// The shares of the number of instances that was last asked for.
    shares: Mutex<Option<Arc<Shares>>>,
}

/// The limits of all local rules, cut into one share each.
#[derive(Debug)]
struct Shares {
    rules: Arc<RuleSet>,
    instances: NonZeroU32,
    /// By the place of the rule; empty for rules that are not local.
    by_rule: Box<[RuleShares]>,
}

/// One rule's limits, cut.
#[derive(Debug, Default)]
struct RuleShares {
    own: Box<[Quota]>,
    tiers: Box<[Box<[Quota]>]>,
    overrides: Box<[Box<[Quota]>]>,
}

impl Fallback {
    pub(super) fn new(options: MemoryOptions, instances: Instances) -> Self {
        Self { options, instances, store: OnceLock::new(), shares: Mutex::default() }
    }

    pub(super) fn instances(&self) -> &Instances {
        &self.instances
    }

    pub(super) fn store(&self) -> Option<&MemoryStore> {
        self.store.get()
    }

    /// What the shares say to `local`, which is charged if all have room, unless it is but a peek.
    pub(super) fn decide(
        &self,
        rules: &Arc<RuleSet>,
        local: &Local<'_>,
        now: Timestamp,
        action: Action,
    ) -> Verdicts {
        if local.charges.is_empty() {
            return Verdicts::new();
        }
        let store = self.store_since(now);
        self.with_shares(rules, &local.charges, &local.applied, |charges| match action {
            Action::Charge => store.charge_now(charges, now),
            Action::Peek | Action::Refund | Action::Reset => store.peek_now(charges, now),
        })
    }

    /// Does to the shares of local rules what the store has just done. Each limit for itself: what the store has
    /// admitted is admitted, whether or not this or another share would have had room.
    pub(super) fn follow(
        &self,
        rules: &Arc<RuleSet>,
        charges: &[Charge<'_>],
        decision: &Decision,
        now: Timestamp,
        action: Action,
    ) {
        if action == Action::Peek || (action == Action::Charge && !decision.is_allowed()) {
            return;
        }
        let store = self.store_since(now);
        let mut outcomes = decision.limits().map(|report| report.verdict.outcome);
        for (charge, applied) in charges.iter().zip(decision.applied()) {
            // A rule that only watches was charged nothing unless all its limits had room.
            let denials =
                outcomes.by_ref().take(charge.quotas.len()).filter(|outcome| !outcome.is_allowed()).count();
            if rules.rules()[applied.rule].on_store_failure != OnStoreFailure::Local {
                continue;
            }
            self.with_shares(rules, &[*charge], &[*applied], |charges| match action {
                Action::Charge if denials == 0 => store.force_now(charges, now),
                Action::Refund => drop(store.refund_now(charges, now)),
                Action::Reset if is_own(charge) => drop(store.reset_now(charges, now)),
                Action::Charge | Action::Reset | Action::Peek => {}
            });
        }
    }

    fn store_since(&self, now: Timestamp) -> &MemoryStore {
        self.store.get_or_init(|| MemoryStore::new(self.options, now))
    }

    /// Calls `act` with the charges cut down to this instance's share.
    fn with_shares<T>(
        &self,
        rules: &Arc<RuleSet>,
        charges: &[Charge<'_>],
        applied: &[Applied],
        act: impl FnOnce(&[Charge<'_>]) -> T,
    ) -> T {
        let instances = self.instances.count();
        if instances == NonZeroU32::MIN {
            return act(charges);
        }
        let shares = self.shares(rules, instances);
        let mut cut: SmallVec<[Charge<'_>; 2]> = SmallVec::new();
        for (charge, applied) in charges.iter().zip(applied) {
            cut.push(Charge { quotas: shares.quotas(*applied), ..*charge });
        }
        act(&cut)
    }

    /// The shares for this many instances: the same as last time, unless the number or the rules have changed.
    fn shares(&self, rules: &Arc<RuleSet>, instances: NonZeroU32) -> Arc<Shares> {
        let mut cached = self.shares.lock();
        match &*cached {
            Some(shares) if shares.instances == instances && Arc::ptr_eq(&shares.rules, rules) => {
                Arc::clone(shares)
            }
            _ => Arc::clone(cached.insert(Arc::new(Shares::new(rules, instances)))),
        }
    }
}

impl Shares {
    fn new(rules: &Arc<RuleSet>, instances: NonZeroU32) -> Self {
        let by_rule = rules.rules().iter().map(|rule| RuleShares::new(rule, instances)).collect();
        Self { rules: Arc::clone(rules), instances, by_rule }
    }

    fn quotas(&self, applied: Applied) -> &[Quota] {
        let shares = &self.by_rule[applied.rule];
        match applied.source {
            Source::Rule => &shares.own,
            Source::Tier(index) => &shares.tiers[index],
            Source::Override(index) => &shares.overrides[index],
        }
    }
}

impl RuleShares {
    fn new(rule: &Rule, instances: NonZeroU32) -> Self {
        if rule.on_store_failure != OnStoreFailure::Local {
            return Self::default();
        }
        let cut = |limits: &Limits| limits.quotas().iter().map(|quota| quota.share(instances)).collect();
        Self {
            own: cut(&rule.limits),
            tiers: rule.tiers.iter().map(|(_, limits)| cut(limits)).collect(),
            overrides: rule.overrides.iter().map(|each| cut(&each.limits)).collect(),
        }
    }
}
