//! From a request to its charges: which rules match, which of their limits apply, and which state they
//! use. Pure: no clock and no store; the time is an argument.

use super::explain::Mismatch;
use super::{DEADLINES, Limits, Mode, OnStoreFailure, Override, Per, Rule, RuleSet};
use crate::identity::{Charging, Identity, Request};
use crate::pattern::Pattern;
use crate::store::{Charge, Key, KeySpace, Subject};
use sluicegate_core::decision::ChargeMode;
use sluicegate_core::{Cost, Quota, Timestamp};
use smallvec::SmallVec;
use std::fmt;
use std::ops::ControlFlow;
use std::time::Duration;

/// The charges of a request, with their origins.
#[derive(Debug)]
pub struct Matched<'a> {
    /// One charge per matching rule with limits.
    pub charges: Charges<'a>,
    /// The origin of each charge.
    pub applied: Origins,
    /// True if any rule matched, even one without limits.
    pub any: bool,
    /// True if a rule with limits uses this instance's share while the store is down.
    pub any_local: bool,
    /// The deadline of the store: the shortest of the rules with limits.
    pub deadline: Duration,
}

/// The rule and the limit set of a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The rule's index in its set.
    pub rule: usize,
    /// The limit set.
    pub source: Source,
}

/// A limit set of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The rule's own.
    Rule,
    /// A tier's, by its index in the rule.
    Tier(usize),
    /// An override's, by its index in the rule.
    Override(usize),
}

/// An unknown tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownTier {
    /// The tier of the request.
    pub tier: String,
    /// The known tiers.
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
    /// The charges of a request that no rule matches.
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

/// The charges.
pub type Charges<'a> = SmallVec<[Charge<'a>; 2]>;
/// Their origins.
pub type Origins = SmallVec<[Applied; 2]>;

impl<'a> Matched<'a> {
    /// Both in one borrow.
    pub(crate) fn into_parts(self) -> (Charges<'a>, Origins) {
        (self.charges, self.applied)
    }

    /// Adds the charges of all matching rules to an empty value. The fast path uses this instead of [`RuleSet::matched`], because a
    /// result of this size is copied each time that it is returned.
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

    /// Adds the charge of a rule, if it matches.
    #[inline]
    fn consider(&mut self, rules: &'a RuleSet, index: usize, request: &Request<'a>, now: Timestamp) {
        let rule = &rules.rules()[index];
        if !rule.matches(request) {
            return;
        }
        self.any = true;
        let source = rule.source(request, now);
        if let Some(charge) = rules.charge_of(index, source, request) {
            self.charges.push(charge);
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
    /// If the request names an unknown tier.
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

    /// The charge for the limits that `source` selects in the rule at `index`; `None` if they are unlimited.
    #[inline]
    pub(super) fn charge_of<'a>(
        &'a self,
        index: usize,
        source: Source,
        request: &Request<'a>,
    ) -> Option<Charge<'a>> {
        let rule = &self.rules()[index];
        let Limits::All { quotas, .. } = rule.limits_of(source) else { return None };
        let space = self.set_spaces[index].of_source(rule, source);
        Some(rule.charge(request, space, quotas, index))
    }

    /// A charge for every limit set of every matching rule whose state belongs to this client alone: the states that a
    /// reset clears. A client may have used several sets, because its tier or its overrides may have changed.
    pub(crate) fn states_of_client<'a>(&'a self, request: &Request<'a>) -> Charges<'a> {
        let is_named = |index: usize| request.rule.is_none_or(|named| named == index);
        let matching = |(index, rule): &(usize, &Rule)| is_named(*index) && rule.matches(request);
        let own = self.rules().iter().enumerate().filter(matching).filter(|(_, rule)| rule.per.identifier);
        own.flat_map(|(index, rule)| {
            let tiers = (0..rule.tiers.len()).map(Source::Tier);
            let overrides = rule.overrides_for(request).map(Source::Override);
            let sources = [Source::Rule].into_iter().chain(tiers).chain(overrides);
            sources.filter_map(move |source| self.charge_of(index, source, request)).collect::<Vec<_>>()
        })
        .collect()
    }

    /// Whether the tier, if there is one, is known.
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
    /// True if the rule matches `request`.
    #[must_use]
    pub fn matches(&self, request: &Request<'_>) -> bool {
        self.mismatches(request, |_| ControlFlow::Break(())).is_continue()
    }

    /// Calls `report` with each reason why the rule does not match `request`, for as long as it returns true: a decision
    /// stops at the first reason, an explanation collects all of them.
    #[inline]
    pub(super) fn mismatches<'a>(
        &'a self,
        request: &Request<'_>,
        mut report: impl FnMut(Mismatch<'a>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if self.mode == Mode::Off {
            report(Mismatch::Off)?;
        }
        if let Some(pattern) = unfit(self.selector.tenant.as_ref(), request.tenant) {
            report(Mismatch::Tenant(pattern))?;
        }
        let (resource, path) = self.selector.reading(request);
        if let Some(pattern) = unfit(self.selector.resource.as_ref(), resource) {
            report(Mismatch::Resource(pattern))?;
        }
        if !self.selector.methods.is_empty()
            && request.target.is_none_or(|target| !self.selector.has_method(target.method))
        {
            report(Mismatch::Method(&self.selector.methods))?;
        }
        if let Some(pattern) = &self.selector.path
            && path.is_none_or(|path| !pattern.matches(path))
        {
            report(Mismatch::Path(pattern))?;
        }
        if let Some(pattern) = &self.selector.host
            && request.target.and_then(|target| target.host).is_none_or(|host| !pattern.matches(host))
        {
            report(Mismatch::Host(pattern))?;
        }
        for wanted in &self.selector.headers {
            if !wanted.fits(request.target.and_then(|target| target.headers)) {
                report(Mismatch::Header(wanted))?;
            }
        }
        for wanted in &self.selector.claims {
            if !wanted.fits(request.target.and_then(|target| target.claims)) {
                report(Mismatch::Claim(wanted))?;
            }
        }
        if self.selector.stage != request.stage {
            report(Mismatch::Stage(self.selector.stage))?;
        }
        if !self.selector.descriptor.is_empty()
            && let Some(missing) = self.selector.missing_entry(request.descriptor.unwrap_or_default())
        {
            report(Mismatch::Descriptor(missing))?;
        }
        if self.selector.only_by_place && request.rule.is_none() {
            report(Mismatch::NotNamed)?;
        }
        if self.per.address && request.address.is_none() {
            report(Mismatch::NoAddress)?;
        }
        ControlFlow::Continue(())
    }

    /// The limit set that applies at `now`: an exact override, else the first matching pattern, else the tier's, else the
    /// rule's own.
    #[must_use]
    pub fn source(&self, request: &Request<'_>, now: Timestamp) -> Source {
        if let Some(index) = self.first_override(request, |each| each.is_in_force(now)) {
            return Source::Override(index);
        }
        let tier = request.tier.and_then(|tier| self.tiers.iter().position(|(name, _)| **name == *tier));
        tier.map_or(Source::Rule, Source::Tier)
    }

    /// The override that would apply to `request` if it had not ended at `now`.
    #[must_use]
    pub fn ended_override(&self, request: &Request<'_>, now: Timestamp) -> Option<&Override> {
        let index = self.first_override(request, |_| true)?;
        self.overrides.get(index).filter(|each| !each.is_in_force(now))
    }

    /// The first override for the identity, exact ones before patterns, among those that `counts` accepts.
    fn first_override(&self, request: &Request<'_>, counts: impl Fn(&Override) -> bool) -> Option<usize> {
        let Identity::Named(identifier) = request.identity else { return None };
        let position = |exact: bool| {
            self.overrides.iter().position(|each| {
                each.identifier.is_exact() == exact && each.identifier.matches(identifier) && counts(each)
            })
        };
        if self.overrides.is_empty() { None } else { position(true).or_else(|| position(false)) }
    }

    /// The indexes of all overrides for this client, including those that have ended.
    fn overrides_for(&self, request: &Request<'_>) -> impl Iterator<Item = usize> + '_ {
        let identifier = match request.identity {
            Identity::Named(identifier) => Some(identifier.to_owned()),
            _ => None,
        };
        let is_for_client =
            move |each: &Override| identifier.as_ref().is_some_and(|name| each.identifier.matches(name));
        self.overrides.iter().enumerate().filter(move |(_, each)| is_for_client(each)).map(|(index, _)| index)
    }

    /// The limits of `source`.
    #[must_use]
    pub fn limits_of(&self, source: Source) -> &Limits {
        match source {
            Source::Rule => &self.limits,
            Source::Tier(index) => &self.tiers[index].1,
            Source::Override(index) => &self.overrides[index].limits,
        }
    }

    #[inline]
    fn charge<'a>(
        &'a self,
        request: &Request<'a>,
        space: &'a KeySpace,
        quotas: &'a [Quota],
        index: usize,
    ) -> Charge<'a> {
        let cost = request.cost.unwrap_or(self.cost);
        Charge {
            key: Key { space, subject: self.per.subject(request) },
            quotas,
            cost,
            usage: match request.charging {
                Charging::IfAllowed => Cost::ZERO,
                Charging::Always => cost,
            },
            mode: match self.mode {
                // The number of rules is far below 2¹⁶.
                Mode::Shadow => ChargeMode::Shadow(index as u16),
                Mode::Enforce | Mode::Off => ChargeMode::Enforced,
            },
            lease: self.lease,
        }
    }
}

/// The pattern, if there is one and it does not match `text`.
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
