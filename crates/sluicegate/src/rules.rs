//! Rules: what applies to whom. A [`RuleSet`] is immutable and valid by construction.
//!
//! [`matching`] turns a request into the charges of the rules that match it, [`explain`] tells why; `file`, behind the feature of that
//! name, reads rules from text, and so does `envoy` from the configuration of Envoy's rate limit service.

mod check;
mod entry;
#[cfg(feature = "file")]
pub mod envoy;
pub mod explain;
#[cfg(feature = "file")]
pub mod file;
mod index;
mod lease;
pub mod matching;
pub mod pattern;
mod selection;
mod selector;

use crate::identity::Stage;
use crate::store::{KeySpace, Lease};
pub use check::RuleSetError;
pub use entry::EntryPattern;
use index::Index;
pub use lease::LeaseBounds;
use pattern::Pattern;
pub use selector::{NamedPattern, Selector};
use sluicegate_core::{Cost, Quota, Timestamp};
use std::ops::RangeInclusive;
use std::time::Duration;

/// The most rules one set may hold.
pub const RULES_MAX: usize = 10_000;
/// The most limits one rule may apply to one request: all of them live under one key.
pub const LIMITS_PER_RULE_MAX: usize = crate::store::LIMITS_PER_KEY_MAX;
/// The longest rule name, in bytes.
pub const RULE_NAME_BYTES_MAX: usize = 64;

/// How long a store may take to answer unless a rule says otherwise: inside Envoy's default of 20 ms.
pub const DEADLINE_DEFAULT: Duration = Duration::from_millis(15);
/// What a rule may say: less than a millisecond no store keeps, and more than ten seconds no client waits.
pub const DEADLINES: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(10);

/// All rules of a limiter.
#[derive(Clone, Debug, Default)]
pub struct RuleSet {
    rules: Vec<Rule>,
    tiers: Vec<Box<str>>,
    unmatched: Unmatched,
    index: Index,
    /// The slot of each rule.
    slots: Box<[u32]>,
    /// The rules as they were written, if strict ones have the smaller limits now that charging ahead takes.
    written: Option<std::sync::Arc<RuleSet>>,
    #[cfg(feature = "file")]
    envoy: Option<std::sync::Arc<envoy::EnvoyRules>>,
}

/// What happens to a request that no rule matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unmatched {
    /// It passes.
    #[default]
    Allow,
    /// It is denied.
    Deny,
}

/// One rule.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The rule's name and its part of every key.
    pub space: KeySpace,
    /// Which requests it applies to.
    pub selector: Selector,
    /// What it counts by.
    pub per: Per,
    /// What applies unless an override or a tier says otherwise.
    pub limits: Limits,
    /// What applies to a tier instead.
    pub tiers: Vec<(Box<str>, Limits)>,
    /// What applies to some identifiers instead; the first that matches, exact ones before patterns.
    pub overrides: Vec<Override>,
    /// Whether the rule decides.
    pub mode: Mode,
    /// What the rule says when the store does not.
    pub on_store_failure: OnStoreFailure,
    /// How long the store may take before `on_store_failure` answers; of several rules the shortest counts.
    pub deadline: Duration,
    /// What a request costs that does not say.
    pub cost: Cost,
    /// Whether a shared store may charge requests ahead, and on which terms.
    pub lease: Option<Lease>,
}

/// What a rule counts by: any of these together; none of them means everybody shares one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Per {
    /// Each tenant for itself.
    pub tenant: bool,
    /// Each identity for itself.
    pub identifier: bool,
    /// Each client address for itself.
    pub address: bool,
}

impl Per {
    /// Each identity within its tenant.
    pub const IDENTIFIER: Self = Self { tenant: true, identifier: true, address: false };
    /// Each tenant.
    pub const TENANT: Self = Self { tenant: true, identifier: false, address: false };
    /// Each client address, whatever the tenant.
    pub const ADDRESS: Self = Self { tenant: false, identifier: false, address: true };
    /// Everybody together.
    pub const GLOBAL: Self = Self { tenant: false, identifier: false, address: false };

    /// What `self` counts by and what `other` counts by, together.
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
    /// None at all.
    Unlimited,
    /// All of these must have room.
    All {
        /// The limits.
        quotas: Box<[Quota]>,
        /// The name of each in header fields.
        labels: Box<[Box<str>]>,
    },
}

impl Limits {
    /// These limits under the rule called `rule`: a limit without a name of its own is called after the
    /// rule, the second one `rule.2` and so on.
    #[must_use]
    pub fn all(rule: &str, limits: impl IntoIterator<Item = (Option<Box<str>>, Quota)>) -> Self {
        let (labels, quotas): (Vec<Box<str>>, Vec<Quota>) = limits
            .into_iter()
            .enumerate()
            .map(|(index, (name, quota))| (name.unwrap_or_else(|| Self::label(rule, index)), quota))
            .unzip();
        Self::All { quotas: quotas.into(), labels: labels.into() }
    }

    /// What the limit at `index` under the rule called `rule` is called if it has no name of its own.
    fn label(rule: &str, index: usize) -> Box<str> {
        match index {
            0 => rule.into(),
            _ => format!("{rule}.{}", index + 1).into(),
        }
    }

    /// The limits; none where nothing is limited.
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

/// Limits of their own for some identifiers.
#[derive(Clone, Debug)]
pub struct Override {
    /// Whose.
    pub identifier: Pattern,
    /// Which.
    pub limits: Limits,
    /// The first instant at which they do not apply any more; without one they apply for ever.
    pub until: Option<Timestamp>,
}

impl Override {
    /// Whether the override applies at `now`, to whoever it is for.
    #[must_use]
    pub fn is_in_force(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

/// Whether a rule decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// It decides.
    #[default]
    Enforce,
    /// It counts and reports as if it did, and never denies.
    Shadow,
    /// It does nothing.
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

/// What a rule says when the store could not decide. A rule that does not decide denies in no case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnStoreFailure {
    /// It has no objection: what passes is not bounded while the store is away.
    #[default]
    Open,
    /// It refuses: nothing passes while the store is away.
    Closed,
    /// This instance's share of the limits decides, with state of its own.
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
    /// A set of `rules` that knows `tiers`.
    ///
    /// # Errors
    /// If two rules have one name, a rule has more limits than [`LIMITS_PER_RULE_MAX`] or a deadline outside
    /// [`DEADLINES`], there are more rules than [`RULES_MAX`], a rule speaks of a tier that is not among
    /// `tiers`, or its limits cannot be charged ahead on its terms.
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
        Ok(Self { rules, tiers, unmatched, index, slots, ..Self::default() })
    }

    /// The same rules, each in the slot that stands in its place.
    pub(crate) fn in_slots(self, slots: &[u32]) -> Self {
        Self { slots: slots.into(), ..self }
    }

    /// The rules, in order.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The slot of each rule, in the order of the rules: a small number to count by. A rule keeps it when a
    /// [limiter's](crate::Limiter::replace_rules) rules are replaced and it is still among them.
    #[must_use]
    pub fn slots(&self) -> &[u32] {
        &self.slots
    }

    /// The tiers that may be named.
    #[must_use]
    pub fn tiers(&self) -> &[Box<str>] {
        &self.tiers
    }

    /// What happens to a request that no rule matches.
    #[must_use]
    pub fn unmatched(&self) -> Unmatched {
        self.unmatched
    }

    /// True if there is a rule for credentials that are about to be verified.
    #[must_use]
    pub fn guards_credentials(&self) -> bool {
        self.rules.iter().any(|rule| rule.selector.stage == Stage::Credential && rule.mode != Mode::Off)
    }

    /// True if every rule that decides is closed, and there is one: without the store nothing passes that any
    /// rule limits.
    #[must_use]
    pub fn is_closed_without_store(&self) -> bool {
        let mut deciding = self.rules.iter().filter(|rule| rule.mode == Mode::Enforce).peekable();
        deciding.peek().is_some() && deciding.all(|rule| rule.on_store_failure == OnStoreFailure::Closed)
    }
}
