//! Rules: which limits apply to which requests. A [`RuleSet`] is immutable and valid by construction.
//!
//! [`matching`] computes the charges of a request, and [`explain`] the reasons. `file`, behind the feature of the same
//! name, reads rules from text, and `envoy` from the configuration of Envoy's rate limit service.

mod descriptor_pattern;
#[cfg(feature = "file")]
pub mod envoy;
pub mod explain;
#[cfg(feature = "file")]
pub mod file;
mod index;
mod lease;
mod limit_sets;
pub mod matching;
mod selector;
mod validate;

use crate::identity::Stage;
use crate::pattern::Pattern;
use crate::store::{KeySpace, Lease};
pub use descriptor_pattern::EntryPattern;
use index::Index;
pub use lease::LeaseBounds;
use limit_sets::SetSpaces;
pub use selector::{NamedPattern, Selector};
use sluicegate_core::{Cost, Quota, Timestamp};
use std::ops::RangeInclusive;
use std::time::Duration;
pub use validate::RuleSetError;

/// The most rules in a set.
pub const RULES_MAX: usize = 10_000;
/// The most limits that one rule applies to a request: all of them are stored under one key.
pub const LIMITS_PER_RULE_MAX: usize = crate::store::LIMITS_PER_KEY_MAX;
/// The longest rule name, in bytes.
pub const RULE_NAME_BYTES_MAX: usize = 64;

/// The default deadline of the store, below Envoy's default of 20 ms.
pub const DEADLINE_DEFAULT: Duration = Duration::from_millis(15);
/// The range of deadlines: no store responds within less than a millisecond, and no client waits for more than ten seconds.
pub const DEADLINES: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(10);

/// All rules of a limiter.
#[derive(Clone, Debug, Default)]
pub struct RuleSet {
    rules: Vec<Rule>,
    tiers: Vec<Box<str>>,
    unmatched: Unmatched,
    index: Index,
    /// The key spaces of each rule's tiers and overrides.
    set_spaces: Box<[SetSpaces]>,
    /// The metric slot of each rule.
    slots: Box<[u32]>,
    /// The rules as configured, if leases made the limits of strict rules smaller.
    written: Option<std::sync::Arc<RuleSet>>,
    #[cfg(feature = "file")]
    envoy: Option<std::sync::Arc<envoy::EnvoyRules>>,
}

/// The decision for a request that no rule matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unmatched {
    /// It is allowed.
    #[default]
    Allow,
    /// It is denied.
    Deny,
}

/// One rule.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The rule's name, and the key space of its own limits.
    pub space: KeySpace,
    /// The requests that it applies to.
    pub selector: Selector,
    /// The scope of its state.
    pub per: Per,
    /// The limits unless an override or a tier has others.
    pub limits: Limits,
    /// The limits of tiers.
    pub tiers: Vec<(Box<str>, Limits)>,
    /// The limits of some identifiers; the first match applies, exact ones before patterns.
    pub overrides: Vec<Override>,
    /// Whether the rule is enforced.
    pub mode: Mode,
    /// The policy while the store is down.
    pub on_store_failure: OnStoreFailure,
    /// The deadline of the store, after which `on_store_failure` applies; the shortest of several rules counts.
    pub deadline: Duration,
    /// The cost of a request without one.
    pub cost: Cost,
    /// The lease terms, if a shared store may charge permits in advance.
    pub lease: Option<Lease>,
}

/// The scope of a rule's state: any combination of these; without any, all clients share one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Per {
    /// Separate state per tenant.
    pub tenant: bool,
    /// Separate state per identity.
    pub identifier: bool,
    /// Separate state per client address.
    pub address: bool,
}

impl Per {
    /// Per identity within its tenant.
    pub const IDENTIFIER: Self = Self { tenant: true, identifier: true, address: false };
    /// Per tenant.
    pub const TENANT: Self = Self { tenant: true, identifier: false, address: false };
    /// Per client address, across tenants.
    pub const ADDRESS: Self = Self { tenant: false, identifier: false, address: true };
    /// One state for all clients.
    pub const GLOBAL: Self = Self { tenant: false, identifier: false, address: false };

    /// The union of both scopes.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            tenant: self.tenant || other.tenant,
            identifier: self.identifier || other.identifier,
            address: self.address || other.address,
        }
    }
}

/// The limits that apply together.
#[derive(Clone, Debug)]
pub enum Limits {
    /// No limit.
    Unlimited,
    /// All of these must allow the request.
    All {
        /// The limits.
        quotas: Box<[Quota]>,
        /// The name of each in header fields.
        labels: Box<[Box<str>]>,
    },
}

impl Limits {
    /// These limits under the rule called `rule`: a limit without its own name gets the rule's
    /// name, the second one `rule.2` and so on.
    #[must_use]
    pub fn all(rule: &str, limits: impl IntoIterator<Item = (Option<Box<str>>, Quota)>) -> Self {
        let (labels, quotas): (Vec<Box<str>>, Vec<Quota>) = limits
            .into_iter()
            .enumerate()
            .map(|(index, (name, quota))| (name.unwrap_or_else(|| Self::label(rule, index)), quota))
            .unzip();
        Self::All { quotas: quotas.into(), labels: labels.into() }
    }

    /// The default name of the limit at `index` under the rule called `rule`.
    fn label(rule: &str, index: usize) -> Box<str> {
        match index {
            0 => rule.into(),
            _ => format!("{rule}.{}", index + 1).into(),
        }
    }

    /// The limits; empty if unlimited.
    #[must_use]
    pub fn quotas(&self) -> &[Quota] {
        match self {
            Self::All { quotas, .. } => quotas,
            Self::Unlimited => &[],
        }
    }

    /// The name of each limit in header fields.
    #[must_use]
    pub fn labels(&self) -> &[Box<str>] {
        match self {
            Self::All { labels, .. } => labels,
            Self::Unlimited => &[],
        }
    }
}

/// Separate limits for some identifiers.
#[derive(Clone, Debug)]
pub struct Override {
    /// The identifiers.
    pub identifier: Pattern,
    /// The limits.
    pub limits: Limits,
    /// The instant at which the override ends; without one it never ends.
    pub until: Option<Timestamp>,
}

impl Override {
    /// Whether the override is in force at `now`.
    #[must_use]
    pub fn is_in_force(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

/// Whether a rule is enforced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Enforced.
    #[default]
    Enforce,
    /// Shadow mode: the rule decides, counts and reports, but never denies.
    Shadow,
    /// The rule is disabled.
    Off,
}

impl Mode {
    /// The name in configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Shadow => "shadow",
            Self::Off => "off",
        }
    }
}

/// The policy of a rule while the store cannot decide. A rule in shadow mode never denies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnStoreFailure {
    /// Fail open: requests are unlimited while the store is down.
    #[default]
    Open,
    /// Fail closed: requests are rejected while the store is down.
    Closed,
    /// This instance's share of the limits decides, with local state.
    Local,
}

impl OnStoreFailure {
    /// The name in configuration and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Closed => "closed",
            Self::Local => "local",
        }
    }
}

impl Rule {
    /// A rule called `name` with `limits` for every identity and every request.
    ///
    /// ```
    /// use sluicegate::core::{Micros, Quota, Rate, TokenBucket};
    /// use sluicegate::rules::{Limits, Rule};
    ///
    /// let bucket = TokenBucket::new(100, Rate::new(100, Micros::from_secs(60))?)?;
    /// let rule = Rule::new("payments", Limits::all("payments", [(None, Quota::from(bucket))]));
    /// assert_eq!(rule.space.name(), "payments");
    /// # Ok::<(), sluicegate::core::QuotaError>(())
    /// ```
    #[must_use]
    pub fn new(name: &str, limits: Limits) -> Self {
        Self {
            space: KeySpace::new(name),
            selector: Selector::default(),
            per: Per::IDENTIFIER,
            limits,
            tiers: Vec::new(),
            overrides: Vec::new(),
            mode: Mode::default(),
            on_store_failure: OnStoreFailure::default(),
            deadline: DEADLINE_DEFAULT,
            cost: Cost::ONE,
            lease: None,
        }
    }
}

impl RuleSet {
    /// A set of `rules` with the known `tiers`.
    ///
    /// # Errors
    /// If two rules have one name, a rule has more limits than [`LIMITS_PER_RULE_MAX`] or a deadline outside
    /// [`DEADLINES`], there are more rules than [`RULES_MAX`], a rule names a tier that is not among
    /// `tiers`, or its lease terms do not fit its limits.
    pub fn new(rules: Vec<Rule>, tiers: Vec<Box<str>>, unmatched: Unmatched) -> Result<Self, RuleSetError> {
        if rules.len() > RULES_MAX {
            return Err(RuleSetError(format!("{} rules: use at most {RULES_MAX}", rules.len())));
        }
        let mut names = std::collections::HashSet::new();
        for rule in &rules {
            let name = rule.space.name();
            if !names.insert(name) {
                return Err(RuleSetError(format!("two rules are called {name:?}: rename one of them")));
            }
            if let Some((tier, _)) = rule.tiers.iter().find(|(tier, _)| !tiers.contains(tier)) {
                return Err(RuleSetError(format!(
                    "rule {name:?} names the tier {tier:?}: list it among the tiers"
                )));
            }
            rule.check_limit_counts()?;
            rule.check_deadline()?;
            if let Some(misfit) = rule.lease_misfit() {
                return Err(RuleSetError(format!("rule {name:?}: {misfit}")));
            }
        }
        let index = Index::new(&rules);
        // Far fewer than 2³².
        let slots = (0..rules.len() as u32).collect();
        let set_spaces = rules.iter().map(SetSpaces::of).collect();
        Ok(Self { rules, tiers, unmatched, index, set_spaces, slots, ..Self::default() })
    }

    /// The same rules, each with the given metric slot.
    pub(crate) fn in_slots(self, slots: &[u32]) -> Self {
        Self { slots: slots.into(), ..self }
    }

    /// The rules, in order.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The metric slot of each rule, in the order of the rules: a small index for counters. A rule keeps its slot when a
    /// [limiter's](crate::Limiter::replace_rules) rules are replaced and it is still among them.
    #[must_use]
    pub fn slots(&self) -> &[u32] {
        &self.slots
    }

    /// The known tiers.
    #[must_use]
    pub fn tiers(&self) -> &[Box<str>] {
        &self.tiers
    }

    /// The decision for a request that no rule matches.
    #[must_use]
    pub fn unmatched(&self) -> Unmatched {
        self.unmatched
    }

    /// True if there is a rule for unverified credentials.
    #[must_use]
    pub fn guards_credentials(&self) -> bool {
        self.rules.iter().any(|rule| rule.selector.stage == Stage::Credential && rule.mode != Mode::Off)
    }

    /// True if every enforced rule fails closed, and there is one: while the store is down, all limited requests are
    /// rejected.
    #[must_use]
    pub fn is_closed_without_store(&self) -> bool {
        let mut deciding = self.rules.iter().filter(|rule| rule.mode == Mode::Enforce).peekable();
        deciding.peek().is_some() && deciding.all(|rule| rule.on_store_failure == OnStoreFailure::Closed)
    }

    /// A set of rules that come from this set, possibly with other terms; each keeps the metric slot of the rule at the given
    /// index. It serves one call that is decided by some of the rules under other terms, and must not
    /// outlive this set.
    ///
    /// Such a set has no leases, and may contain one rule twice under different terms.
    ///
    /// # Errors
    /// If there is no rule at one of the indexes.
    pub fn selection(&self, rules: Vec<(usize, Rule)>) -> Result<Self, RuleSetError> {
        let slots: Option<Box<[u32]>> = rules.iter().map(|(place, _)| self.slots().get(*place).copied()).collect();
        let Some(slots) = slots else {
            return Err(RuleSetError("a rule that is not in the set: select rules by their places".to_owned()));
        };
        let rules: Vec<Rule> = rules.into_iter().map(|(_, rule)| Rule { lease: None, ..rule }).collect();
        let index = Index::new(&rules);
        let set_spaces = rules.iter().map(SetSpaces::of).collect();
        let (tiers, unmatched) = (self.tiers().to_vec(), self.unmatched());
        Ok(Self { rules, tiers, unmatched, index, set_spaces, slots, ..Self::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
