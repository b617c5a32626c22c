//! The fallback: this instance's share of the limits, with a state of its own. It decides under local rules while the store is
//! unreachable, and under all rules while the store is overloaded.
//!
//! Each of K instances enforces the rate r/K and the burst ⌈B/K⌉. Without the store all instances together admit at most
//! B + r·d + K − 1 in any interval of length d. While the store answers, the fallback charges each admission of this instance
//! under a local rule to the share as well, whether or not it fits. So if a client has just used up its limit through this
//! instance, its share is used up, too.
//!
//! The bound for one instance (K = 1) with a store that fails and recovers at any time:
//! - When the share admits a request, it has counted every earlier admission of this instance, by store or share, and has
//!   room. So an interval that ends with an admission by the share contains at most B + r·d.
//! - Any other interval has two parts. The first ends with the last admission by the share. In the second only the store
//!   admits, and the store alone stays within B + r·d. The sum is 2B + r·d: one extra B, once, however often the store
//!   returns without knowledge of the admissions in between.
//!
//! The first point requires that a share records admissions that do not fit as debt. If it dropped them, store and share
//! could each admit r for ever. By the second point the debt of a bucket never exceeds B, which is the debt that a bucket
//! accepts; see [`sluicegate_core::Algorithm::repair`].
//!
//! Times are those of this instance when the reply arrives. The store's clock may run at another rate, and the latency of its
//! replies varies. Both lengthen the store's part of an interval, by at most the deadline. A call in flight while the share
//! admits counts as admitted afterwards.
//!
//! The fallback does not charge admissions under other rules to their shares, because that would cost every request
//! something. Those rules use their shares only during an overload, and the store is charged for their admissions soon
//! after. So the excess is at most the quota of a full share until then.
//!
//! With several instances (K > 1) an instance does not know the admissions of the others, and the store may admit more
//! through one instance than its share can owe. The store stays within B + r·d, and all shares together stay within
//! B + r·d + K − 1. In every case the sum of the two is the bound.

use super::Action;
use super::failure::LocalCharges;
use crate::clock::{Clock, Correction};
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

/// The share of this instance and its state.
#[derive(Debug)]
pub(super) struct Fallback {
    options: MemoryOptions,
    instances: Instances,
    /// Created on first use: most limiters never need it.
    store: OnceLock<MemoryStore>,
    /// The shares for the rules and the number of instances of the last call.
    shares: Mutex<Option<Arc<Shares>>>,
}

/// The limits of all rules, divided by the number of instances.
#[derive(Debug)]
struct Shares {
    rules: Arc<RuleSet>,
    instances: NonZeroU32,
    /// By the index of the rule.
    by_rule: Box<[RuleShares]>,
}

/// The divided limits of one rule.
#[derive(Debug)]
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

    /// The verdicts of the shares on `local`. Charges them if all have room, unless `action` is a peek.
    pub(super) fn decide(
        &self,
        rules: &Arc<RuleSet>,
        local: &LocalCharges<'_>,
        correction: &Correction,
        now: Timestamp,
        action: Action,
    ) -> Verdicts {
        if local.charges.is_empty() {
            return Verdicts::new();
        }
        let store = self.store_since(now, correction);
        self.with_shares(rules, &local.charges, &local.applied, |charges| match action {
            Action::Charge => store.charge_now(charges, now),
            Action::Report => store.report_now(charges, now),
            Action::Peek | Action::Refund | Action::Reset => store.peek_now(charges, now),
        })
    }

    /// As [`Fallback::decide`], for limits that belong to no rule.
    pub(super) fn decide_without_rule(&self, charges: &[Charge<'_>], clock: &impl Clock) -> Verdicts {
        let now = clock.now();
        let (store, instances) = (self.store_since(now, clock.correction()), self.instances.count());
        if instances == NonZeroU32::MIN {
            return store.charge_now(charges, now);
        }
        let quotas: SmallVec<[Vec<Quota>; 1]> = charges
            .iter()
            .map(|charge| charge.quotas.iter().map(|quota| quota.share(instances)).collect())
            .collect();
        let cut: SmallVec<[Charge<'_>; 1]> =
            charges.iter().zip(&quotas).map(|(charge, quotas)| Charge { quotas, ..*charge }).collect();
        store.charge_now(&cut, now)
    }

    /// Repeats a charge, report or refund of the store on the shares of local rules. Each limit counts by itself: the store
    /// has admitted the request, whether or not the shares have room. A reset clears the shares directly.
    pub(super) fn follow(
        &self,
        rules: &Arc<RuleSet>,
        charges: &[Charge<'_>],
        decision: &Decision,
        clock: &impl Clock,
        action: Action,
    ) {
        let (is_refund, is_report) = (action == Action::Refund, action == Action::Report);
        let is_admitted = action == Action::Charge && decision.is_allowed();
        let has_usage = matches!(action, Action::Charge | Action::Report)
            && charges.iter().any(|charge| !charge.usage.is_zero());
        if !is_refund && !is_admitted && !has_usage {
            return;
        }
        let now = clock.now();
        let store = self.store_since(now, clock.correction());
        let mut outcomes = decision.limits().map(|report| report.verdict.outcome);
        for (charge, applied) in charges.iter().zip(decision.applied()) {
            // The store charged a rule in shadow mode only if all its limits had room.
            let denials =
                outcomes.by_ref().take(charge.quotas.len()).filter(|outcome| !outcome.is_allowed()).count();
            if rules.rules()[applied.rule].on_store_failure != OnStoreFailure::Local {
                continue;
            }
            self.with_shares(rules, &[*charge], &[*applied], |charges| match is_refund {
                true => drop(store.refund_now(charges, now)),
                false if is_report || is_admitted && denials == 0 => store.force_now(charges, now),
                false => {
                    store.force_now(&charges.iter().map(Charge::usage_alone).collect::<SmallVec<[_; 2]>>(), now)
                }
            });
        }
    }

    fn store_since(&self, now: Timestamp, correction: &Correction) -> &MemoryStore {
        self.store.get_or_init(|| {
            let store = MemoryStore::new(self.options, now);
            store.follow(correction);
            store
        })
    }

    /// Calls `act` with the charges under this instance's share of their limits.
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

    /// The shares for this number of instances, cached until the number or the rules change.
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
        let cut = |limits: &Limits| limits.quotas().iter().map(|quota| quota.share(instances)).collect();
        Self {
            own: cut(&rule.limits),
            tiers: rule.tiers.iter().map(|(_, limits)| cut(limits)).collect(),
            overrides: rule.overrides.iter().map(|each| cut(&each.limits)).collect(),
        }
    }
}
