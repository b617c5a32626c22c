//! Selectors: which requests a rule applies to.

use super::{EntryPattern, RuleSet};
use crate::identity::{Entry, Request, Stage, Values};
use crate::path::PathPattern;
use crate::pattern::Pattern;
use std::collections::BTreeSet;

/// The match conditions of a rule; an absent one matches all requests.
#[derive(Clone, Debug, Default)]
pub struct Selector {
    /// The tenant.
    pub tenant: Option<Pattern>,
    /// The resource.
    pub resource: Option<Pattern>,
    /// The path of an HTTP request.
    pub path: Option<PathPattern>,
    /// The accepted methods of an HTTP request; empty means any, and `GET` includes `HEAD`.
    pub methods: Vec<Box<str>>,
    /// The host of an HTTP request, in lower case.
    pub host: Option<Pattern>,
    /// Header fields of an HTTP request, by lower-case names. All of them must be present with a matching value.
    pub headers: Vec<NamedPattern>,
    /// Claims of the verified token of an HTTP request, likewise.
    pub claims: Vec<NamedPattern>,
    /// The stage of the decision.
    pub stage: Stage,
    /// Entries of a descriptor, each of which must match one of the request's; empty matches any request.
    pub descriptor: Vec<EntryPattern>,
    /// Whether it applies only to requests that name the rule by its index, which another lookup has found.
    pub only_by_place: bool,
}

/// A pattern for the values of this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPattern {
    /// The name.
    pub name: Box<str>,
    /// The pattern.
    pub pattern: Pattern,
}

impl Selector {
    /// True if one of the methods is `method`, in any case.
    #[must_use]
    pub fn has_method(&self, method: &str) -> bool {
        // A limit on GET includes HEAD.
        let method = if method.eq_ignore_ascii_case("HEAD") { ["GET", method] } else { [method, method] };
        self.methods.iter().any(|known| method.iter().any(|method| known.eq_ignore_ascii_case(method)))
    }

    /// The resource and the path of `request` in the reading that matches, or in the one that is nearest to it. A rule with both
    /// conditions applies if both match the same reading.
    #[inline]
    pub(super) fn reading<'a>(&self, request: &Request<'a>) -> (&'a str, Option<&'a str>) {
        let Some(target) = request.target else { return (request.resource, None) };
        let first = (request.resource, Some(target.path));
        if target.separated.is_empty() {
            return first;
        }
        let others = target.separated.iter().map(|reading| (reading.resource(), Some(reading.path())));
        std::iter::once(first).chain(others).min_by_key(|reading| self.misses(*reading)).unwrap_or(first)
    }

    /// The number of conditions that a reading does not meet.
    fn misses(&self, (resource, path): (&str, Option<&str>)) -> usize {
        let of_resource = self.resource.as_ref().is_some_and(|pattern| !pattern.matches(resource));
        let of_path = self.path.as_ref().zip(path).is_some_and(|(pattern, path)| !pattern.matches(path));
        usize::from(of_resource) + usize::from(of_path)
    }

    /// The first required entry that no entry of a descriptor matches.
    #[must_use]
    pub fn missing_entry(&self, descriptor: &[Entry<'_>]) -> Option<&EntryPattern> {
        self.descriptor.iter().find(|wanted| !descriptor.iter().any(|entry| wanted.matches(entry)))
    }
}

impl NamedPattern {
    /// True if one of the values of this name matches.
    #[must_use]
    pub fn fits(&self, values: Option<&dyn Values>) -> bool {
        let mut fits = false;
        if let Some(values) = values {
            values.each(&self.name, &mut |value| fits |= self.pattern.matches(value));
        }
        fits
    }
}

impl RuleSet {
    /// The claims that rules match, each once, in order: no other claim needs to be kept.
    #[must_use]
    pub fn claim_names(&self) -> BTreeSet<&str> {
        self.rules().iter().flat_map(|rule| &rule.selector.claims).map(|claim| &*claim.name).collect()
    }
}
