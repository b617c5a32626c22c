//! Lease terms of rules: which limits support them, and the smaller limits of strict terms.

use super::{Limits, Rule, RuleSet};
use crate::store::{LEASE_TTLS, Lease, LeaseMode};
use sluicegate_core::{Micros, Quota, TokenBucket};
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

/// Why lease terms do not fit a rule's limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Misfit {
    /// Whether another lifetime would fit.
    pub(crate) is_about_ttl: bool,
    /// The problem.
    pub(crate) message: String,
    /// The remedy.
    pub(crate) remedy: String,
}

impl fmt::Display for Misfit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "its lease: {}: {}", self.message, self.remedy)
    }
}

impl RuleSet {
    /// These rules for a store that supports leases: every limit of a strict rule is smaller by the refill
    /// of one lease lifetime. All servers use the smaller limits, so it does not matter which of them holds permits.
    #[must_use]
    pub fn charged_ahead(mut self) -> Self {
        if self.written.is_none() && self.rules.iter().any(Rule::is_strict) {
            self.written = Some(Arc::new(self.clone()));
            self.rules.iter_mut().for_each(Rule::charge_ahead);
        }
        self
    }

    /// These rules as configured, before [`RuleSet::charged_ahead`] made limits smaller.
    #[must_use]
    pub fn as_written(&self) -> &Self {
        self.written.as_deref().unwrap_or(self)
    }
}

/// The bounds of a lease for any one limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseBounds {
    /// The units beyond capacity and rate that may pass in any interval; see [`Lease::extra`].
    pub extra: u64,
    /// The most units that other servers hold unused when a request is denied; see [`Lease::most_stranded`].
    pub stranded: u64,
}

impl Rule {
    /// The bounds of its lease with this many instances: the maximum over all its limits, as they are charged. Zero
    /// without a lease.
    #[must_use]
    pub fn lease_bounds(&self, instances: NonZeroU32) -> Option<LeaseBounds> {
        let lease = self.lease?;
        let quotas = self.limit_lists().flat_map(Limits::quotas);
        Some(quotas.fold(LeaseBounds::default(), |most, quota| LeaseBounds {
            extra: most.extra.max(lease.extra(quota, instances)),
            stranded: most.stranded.max(Lease::most_stranded(quota, instances)),
        }))
    }

    /// The problem of the lease, if there is one.
    pub(crate) fn lease_misfit(&self) -> Option<Misfit> {
        let lease = self.lease?;
        if !LEASE_TTLS.contains(&lease.ttl) {
            let message = format!("a lifetime of {} µs is out of range", lease.ttl.as_micros());
            return Some(Misfit { is_about_ttl: true, message, remedy: "use 1 ms to 10 s".to_owned() });
        }
        self.limit_lists()
            .flat_map(|limits| limits.quotas().iter().zip(limits.labels()))
            .find_map(|(quota, label)| misfit(lease, quota, label))
    }

    fn is_strict(&self) -> bool {
        self.lease.is_some_and(|lease| lease.mode == LeaseMode::Strict)
    }

    fn charge_ahead(&mut self) {
        let Some(Lease { ttl, mode: LeaseMode::Strict }) = self.lease else { return };
        let tiers = self.tiers.iter_mut().map(|(_, limits)| limits);
        let overrides = self.overrides.iter_mut().map(|each| &mut each.limits);
        for limits in [&mut self.limits].into_iter().chain(tiers).chain(overrides) {
            let Limits::All { quotas, .. } = limits else { continue };
            for quota in quotas {
                // Every limit of a validated rule has one.
                if let Some(smaller) = quota.prepaid(ttl) {
                    *quota = smaller;
                }
            }
        }
    }
}

fn misfit(lease: Lease, quota: &Quota, label: &str) -> Option<Misfit> {
    let what = match quota {
        Quota::TokenBucket(bucket) if bucket.credits() > 0 => "has credits".to_owned(),
        Quota::TokenBucket(bucket) => return too_long(lease, bucket, label),
        other => format!("is a {}", other.algorithm()),
    };
    Some(Misfit {
        is_about_ttl: false,
        message: format!("the limit {label} {what} and cannot be charged ahead"),
        remedy: "remove the lease, or use a token_bucket without credits".to_owned(),
    })
}

/// A strict lease leaves at least half of the capacity, and two units; otherwise bursts would disappear, and a permit pool could
/// hold half of the capacity.
fn too_long(lease: Lease, bucket: &TokenBucket, label: &str) -> Option<Misfit> {
    let least = bucket.capacity().div_ceil(2).max(2);
    let back = bucket.refilled_within(lease.ttl);
    if lease.mode == LeaseMode::Bounded || bucket.capacity().saturating_sub(back) >= least {
        return None;
    }
    let capacity = bucket.capacity();
    let message = format!(
        "the limit {label} cannot be charged ahead that long: strict terms would take {back} of its {capacity} units, \
         which is more than half or leaves fewer than two"
    );
    let longest = bucket.refilling(capacity.saturating_sub(least)).min(*LEASE_TTLS.end());
    let remedy = match longest.as_micros() / 1_000 {
        0 => "use mode: bounded, or a larger capacity".to_owned(),
        millis => format!("use at most {millis}ms, or mode: bounded"),
    };
    Some(Misfit { is_about_ttl: longest >= Micros::from_millis(1), message, remedy })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::Pattern;
    use crate::rules::{Override, Unmatched};
    use sluicegate_core::{Rate, SlidingWindow};

    fn bucket(capacity: u64, per_second: u64) -> Quota {
        TokenBucket::new(capacity, Rate::new(per_second, Micros::from_secs(1)).unwrap()).unwrap().into()
    }

    fn rule(mode: LeaseMode, ttl_millis: u64, quota: Quota) -> Rule {
        let lease = Some(Lease { ttl: Micros::from_millis(ttl_millis), mode });
        Rule { lease, ..Rule::new("api", Limits::all("api", [(None, quota)])) }
    }

    fn refused(rule: Rule) -> String {
        RuleSet::new(vec![rule], Vec::new(), Unmatched::Allow).unwrap_err().to_string()
    }

    #[test]
    fn strict_terms_leave_half_of_the_capacity_and_two_units() {
        use LeaseMode::{Bounded, Strict};
        for (capacity, rate, ttl, longest) in [
            (100, 100, 500, "500ms"),
            (100, 100, 501, "500ms"),
            (99, 100, 490, "490ms"),
            (99, 100, 491, "490ms"),
            (3, 10, 101, "100ms"),
            (2, 10, 100, "larger capacity"),
            (4, 1_000_000, 1, "larger capacity"),
            (1_000_000, 1, 10_000, "10000ms"),
        ] {
            let quota = bucket(capacity, rate);
            let misfit = rule(Strict, ttl, quota.clone()).lease_misfit();
            let left = capacity.saturating_sub((rate * ttl).div_ceil(1_000));
            assert_eq!(misfit.is_none(), left >= capacity.div_ceil(2).max(2), "{capacity} {rate} {ttl}");
            if let Some(misfit) = misfit {
                assert!(misfit.remedy.contains(longest), "{misfit}");
                assert_eq!(misfit.is_about_ttl, longest.ends_with("ms"));
            }
            assert_eq!(rule(Bounded, ttl, quota).lease_misfit(), None);
        }
    }

    #[test]
    fn only_token_buckets_without_credits_can_be_charged_ahead_wherever_they_stand() {
        let log = Quota::from(SlidingWindow::new(10, Micros::from_secs(1)).unwrap());
        let good = rule(LeaseMode::Bounded, 100, bucket(10, 1));
        let lists = |quota: Quota| Limits::all("api", [(None, bucket(9, 1)), (None, quota)]);
        let identifier = Pattern::new("vip");
        let overridden = Override { identifier, limits: lists(log.clone()), until: None };
        let with = Rule { overrides: vec![overridden], ..good.clone() };
        assert_eq!(
            refused(with),
            "rule \"api\": its lease: the limit api.2 is a sliding_window and cannot be charged ahead: \
             remove the lease, or use a token_bucket without credits"
        );
        let rate = Rate::new(1, Micros::from_secs(1)).unwrap();
        let credits = TokenBucket::with_credits(10, rate, 1, Micros::from_secs(9)).unwrap();
        let with = Rule { limits: lists(credits.into()), ..good.clone() };
        assert!(refused(with).contains("the limit api.2 has credits"));
        assert!(refused(rule(LeaseMode::Bounded, 10_001, bucket(10, 1))).contains("out of range"));
        assert!(refused(rule(LeaseMode::Bounded, 0, bucket(10, 1))).contains("out of range"));
        let tier = Rule { tiers: vec![("pro".into(), lists(log))], ..good };
        assert!(RuleSet::new(vec![tier], vec!["pro".into()], Unmatched::Allow).is_err());
    }

    #[test]
    fn the_most_that_a_lease_may_cost_is_that_of_its_largest_limit() {
        let four = NonZeroU32::new(4).unwrap();
        let with = |mode| {
            let limits = Limits::all("api", [(None, bucket(8, 8)), (None, bucket(800, 1_000))]);
            let overrides = vec![Override { identifier: Pattern::new("vip"), limits, until: None }];
            Rule {
                overrides,
                tiers: vec![("free".into(), Limits::Unlimited)],
                ..rule(mode, 100, bucket(400, 2_000))
            }
        };
        let bounds = with(LeaseMode::Bounded).lease_bounds(four);
        assert_eq!(bounds, Some(LeaseBounds { extra: 200, stranded: 300 }), "from one list each");
        let bounds = with(LeaseMode::Strict).lease_bounds(four);
        assert_eq!(bounds, Some(LeaseBounds { extra: 0, stranded: 300 }));
        assert_eq!(Rule { lease: None, ..with(LeaseMode::Strict) }.lease_bounds(four), None);
    }

    #[test]
    fn all_limits_of_strict_rules_become_smaller_and_no_others() {
        let set = |mode| {
            let limits = Limits::all("api", [(None, bucket(200, 100)), (None, bucket(1_000, 1_000))]);
            let overrides =
                vec![Override { identifier: Pattern::new("vip"), limits: limits.clone(), until: None }];
            let tiers = vec![("pro".into(), limits), ("free".into(), Limits::Unlimited)];
            let rule = Rule { tiers, overrides, ..rule(mode, 100, bucket(100, 100)) };
            let tiers = vec!["pro".into(), "free".into()];
            RuleSet::new(vec![rule], tiers, Unmatched::Allow).unwrap().charged_ahead()
        };
        let capacities = |rules: &RuleSet| {
            let rule = &rules.rules()[0];
            let lists = [&rule.limits, &rule.tiers[0].1, &rule.overrides[0].limits];
            lists.map(|limits| limits.quotas().iter().map(Quota::limit).collect::<Vec<_>>())
        };
        let strict = set(LeaseMode::Strict);
        assert_eq!(capacities(&strict), [vec![90], vec![190, 900], vec![190, 900]]);
        assert_eq!(capacities(strict.as_written()), [vec![100], vec![200, 1_000], vec![200, 1_000]]);
        assert_eq!(capacities(&strict.charged_ahead()), [vec![90], vec![190, 900], vec![190, 900]], "but once");
        assert_eq!(capacities(&set(LeaseMode::Bounded)), [vec![100], vec![200, 1_000], vec![200, 1_000]]);
    }
}
