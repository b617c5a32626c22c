//! From a request to its charges: which rules match, which of their limits apply, and whose state they
//! count. Pure: no clock, no store; the time is an argument.

use super::explain::Mismatch;
use super::pattern::Pattern;
use super::{DEADLINES, Limits, Mode, OnStoreFailure, Override, Per, Rule, RuleSet};
use crate::identity::{Identity, Request};
use crate::store::{Charge, Key, Subject};
use sluicegate_core::decision::Group;
use sluicegate_core::{Quota, Timestamp};
use smallvec::SmallVec;
use std::fmt;
use std::ops::ControlFlow;
use std::time::Duration;

/// What a request is charged, and by what.
#[derive(Debug)]
pub struct Matched<'a> {
    /// One charge per rule that matches and limits.
    pub charges: Charges<'a>,
    /// The origin of each charge.
    pub applied: Origins,
    /// True if any rule matched, even one that does not limit.
    pub any: bool,
    /// True if a rule that limits has a share of its own to go by when the store does not answer.
    pub any_local: bool,
    /// How long the store may take: the shortest deadline of the rules that limit.
    pub deadline: Duration,
}

/// Which limits of which rule apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The rule's place in its set.
    pub rule: usize,
    /// Which of its limits.
    pub source: Source,
}

/// Which of a rule's limits apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The rule's own.
    Rule,
    /// Those of a tier, by its place in the rule.
    Tier(usize),
    /// Those of an override, by its place in the rule.
    Override(usize),
}

/// A tier that nobody has heard of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownTier {
    /// The tier that was named.
    pub tier: String,
    /// The tiers there are.
    pub known: Vec<String>,
}

impl fmt::Display for UnknownTier {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tier = self.tier.escape_debug();
        match self.known.as_slice() {
            [] => write!(formatter, "`tier` is \"{tier}\": no tiers are configured, leave it out"),
            known => write!(formatter, "`tier` is \"{tier}\": use one of {}", known.join(", ")),
        }
    }
}

impl std::error::Error for UnknownTier {}

impl Matched<'_> {
    /// What a request is charged that no rule has a say in.
    #[inline]
    pub(crate) fn nothing() -> Self {
        Self {
            charges: SmallVec::new(),
            applied: SmallVec::new(),
            any: false,
            any_local: false,
            deadline: *DEADLINES.end(),
        }
    }
}

/// What a request is charged.
pub type Charges<'a> = SmallVec<[Charge<'a>; 2]>;
/// What it is charged by.
pub type Origins = SmallVec<[Applied; 2]>;

impl<'a> Matched<'a> {
    /// What it is charged, and by what.
    pub(crate) fn into_parts(self) -> (Charges<'a>, Origins) {
        (self.charges, self.applied)
    }

    /// Adds what all rules say that have a say, to nothing. Whoever is in a hurry does without [`RuleSet::matched`]: a result of
    /// this size is copied every time that it is handed on.
    pub(crate) fn consider_all(&mut self, rules: &'a RuleSet, request: &Request<'a>, now: Timestamp) {
        if let Some(place) = request.rule {
            if place < rules.rules().len() {
                self.consider(rules, place, request, now);
            }
            return;
        }
        match rules.index.candidates(request) {
            None => (0..rules.rules().len()).for_each(|place| self.consider(rules, place, request, now)),
            Some(places) => {
                places.into_iter().for_each(|place| self.consider(rules, usize::from(place), request, now));
            }
        }
    }

    /// Adds what a rule says, if it has a say.
    #[inline]
    fn consider(&mut self, rules: &'a RuleSet, index: usize, request: &Request<'a>, now: Timestamp) {
        let rule = &rules.rules()[index];
        if !rule.matches(request) {
            return;
        }
        self.any = true;
        let source = rule.source(request, now);
        if let Limits::All { quotas, .. } = rule.limits_of(source) {
            self.charges.push(rule.charge(request, quotas, index));
            self.applied.push(Applied { rule: index, source });
            self.any_local |= rule.on_store_failure == OnStoreFailure::Local;
            self.deadline = self.deadline.min(rule.deadline);
        }
    }
}

impl RuleSet {
    /// The charges of all rules that match `request` at `now`.
    ///
    /// # Errors
    /// If the request names a tier that this set does not know.
    pub fn charges<'a>(&'a self, request: &Request<'a>, now: Timestamp) -> Result<Matched<'a>, UnknownTier> {
        self.check_tier(request.tier)?;
        Ok(self.matched(request, now))
    }

    /// The charges of all rules that match `request` at `now`, if its tier is known.
    pub(crate) fn matched<'a>(&'a self, request: &Request<'a>, now: Timestamp) -> Matched<'a> {
        let mut matched = Matched::nothing();
        matched.consider_all(self, request, now);
        matched
    }

    /// Whether this set knows the tier, if there is one.
    pub(crate) fn check_tier(&self, tier: Option<&str>) -> Result<(), UnknownTier> {
        match tier {
            Some(tier) if !self.tiers().iter().any(|known| **known == *tier) => Err(UnknownTier {
                tier: tier.chars().take(64).collect(),
                known: self.tiers().iter().map(ToString::to_string).collect(),
            }),
            _ => Ok(()),
        }
    }
}

impl Rule {
    /// True if the rule has a say in `request`.
    #[must_use]
    pub fn matches(&self, request: &Request<'_>) -> bool {
        self.mismatches(request, |_| ControlFlow::Break(())).is_continue()
    }

    /// Tells why the rule has no say in `request`, reason by reason for as long as `tell` wants to know: a decision
    /// stops at the first, an explanation hears them all.
    #[inline]
    pub(super) fn mismatches<'a>(
        &'a self,
        request: &Request<'_>,
        mut tell: impl FnMut(Mismatch<'a>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if self.mode == Mode::Off {
            tell(Mismatch::Off)?;
        }
        if let Some(pattern) = unfit(self.selector.tenant.as_ref(), request.tenant) {
            tell(Mismatch::Tenant(pattern))?;
        }
        if let Some(pattern) = unfit(self.selector.resource.as_ref(), request.resource) {
            tell(Mismatch::Resource(pattern))?;
        }
        if !self.selector.methods.is_empty()
            && request.target.is_none_or(|target| !self.selector.has_method(target.method))
        {
            tell(Mismatch::Method(&self.selector.methods))?;
        }
        if let Some(pattern) = &self.selector.path
            && request.target.is_none_or(|target| !pattern.matches(target.path))
        {
            tell(Mismatch::Path(pattern))?;
        }
        if let Some(pattern) = &self.selector.host
            && request.target.and_then(|target| target.host).is_none_or(|host| !pattern.matches(host))
        {
            tell(Mismatch::Host(pattern))?;
        }
        for wanted in &self.selector.headers {
            if !wanted.fits(request.target.and_then(|target| target.headers)) {
                tell(Mismatch::Header(wanted))?;
            }
        }
        for wanted in &self.selector.claims {
            if !wanted.fits(request.target.and_then(|target| target.claims)) {
                tell(Mismatch::Claim(wanted))?;
            }
        }
        if self.selector.stage != request.stage {
            tell(Mismatch::Stage(self.selector.stage))?;
        }
        if !self.selector.descriptor.is_empty()
            && let Some(missing) = self.selector.missing_entry(request.descriptor.unwrap_or_default())
        {
            tell(Mismatch::Descriptor(missing))?;
        }
        if self.selector.only_by_place && request.rule.is_none() {
            tell(Mismatch::NotNamed)?;
        }
        if self.per.address && request.address.is_none() {
            tell(Mismatch::NoAddress)?;
        }
        ControlFlow::Continue(())
    }

    /// Whose limits apply to a request that matches, and what it is charged; nothing where nothing is limited.
    #[inline]
    pub(super) fn terms<'a>(
        &'a self,
        request: &Request<'a>,
        index: usize,
        now: Timestamp,
    ) -> (Source, Option<Charge<'a>>) {
        let source = self.source(request, now);
        let charge = match self.limits_of(source) {
            Limits::All { quotas, .. } => Some(self.charge(request, quotas, index)),
            Limits::Unlimited => None,
        };
        (source, charge)
    }

    /// Which limits apply at `now`: an exact override, else the first pattern that matches, else the tier's, else the
    /// rule's own.
    #[must_use]
    pub fn source(&self, request: &Request<'_>, now: Timestamp) -> Source {
        if let Some(index) = self.first_override(request, |each| each.is_in_force(now)) {
            return Source::Override(index);
        }
        let tier = request.tier.and_then(|tier| self.tiers.iter().position(|(name, _)| **name == *tier));
        tier.map_or(Source::Rule, Source::Tier)
    }

    /// The override that would apply to `request` if its time was not over at `now`.
    #[must_use]
    pub fn ended_override(&self, request: &Request<'_>, now: Timestamp) -> Option<&Override> {
        let index = self.first_override(request, |_| true)?;
        self.overrides.get(index).filter(|each| !each.is_in_force(now))
    }

    /// The first override that is for who asks, exact ones before patterns, among those that `counts` lets count.
    fn first_override(&self, request: &Request<'_>, counts: impl Fn(&Override) -> bool) -> Option<usize> {
        let Identity::Named(identifier) = request.identity else { return None };
        let position = |exact: bool| {
            self.overrides.iter().position(|each| {
                each.identifier.is_exact() == exact && each.identifier.matches(identifier) && counts(each)
            })
        };
        if self.overrides.is_empty() { None } else { position(true).or_else(|| position(false)) }
    }

    /// The limits that `source` stands for.
    #[must_use]
    pub fn limits_of(&self, source: Source) -> &Limits {
        match source {
            Source::Rule => &self.limits,
            Source::Tier(index) => &self.tiers[index].1,
            Source::Override(index) => &self.overrides[index].limits,
        }
    }

    fn charge<'a>(&'a self, request: &Request<'a>, quotas: &'a [Quota], index: usize) -> Charge<'a> {
        Charge {
            key: Key { space: &self.space, subject: self.per.subject(request) },
            quotas,
            cost: request.cost.unwrap_or(self.cost),
            group: match self.mode {
                // Rules are bounded far below 2¹⁶.
                Mode::Shadow => Group::Shadow(index as u16),
                Mode::Enforce | Mode::Off => Group::Enforced,
            },
            lease: self.lease,
        }
    }
}

/// The pattern, if there is one and it does not stand for `text`.
#[inline]
fn unfit<'a>(pattern: Option<&'a Pattern>, text: &str) -> Option<&'a Pattern> {
    pattern.filter(|pattern| !pattern.matches(text))
}

impl Per {
    fn subject<'a>(self, request: &Request<'a>) -> Subject<'a> {
        Subject {
            tenant: self.tenant.then_some(request.tenant),
            identity: self.identifier.then_some(request.identity),
            address: if self.address { request.address } else { None },
        }
    }
}
