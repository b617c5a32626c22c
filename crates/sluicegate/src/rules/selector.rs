//! Which requests a rule applies to.

use super::pattern::Pattern;
use super::{EntryPattern, RuleSet};
use crate::identity::{Entry, Stage, Values};
use crate::path::PathPattern;
use std::collections::BTreeSet;

/// Which requests a rule applies to; an absent part matches all.
#[derive(Clone, Debug, Default)]
pub struct Selector {
    /// The tenant.
    pub tenant: Option<Pattern>,
    /// The resource.
    pub resource: Option<Pattern>,
    /// The path of an HTTP request.
    pub path: Option<PathPattern>,
    /// The methods of an HTTP request, of which one must be its; empty means any, and `GET` means `HEAD`, too.
    pub methods: Vec<Box<str>>,
    /// The host of an HTTP request, in lower case.
    pub host: Option<Pattern>,
    /// Header fields of an HTTP request, by names in lower case. All of them must be there, with a value that fits.
    pub headers: Vec<NamedPattern>,
    /// Claims of the verified token of an HTTP request, likewise.
    pub claims: Vec<NamedPattern>,
    /// What is about to happen.
    pub stage: Stage,
    /// Entries of a descriptor, each of which one of the request's must match; empty means any request.
    pub descriptor: Vec<EntryPattern>,
    /// Whether it applies only to requests that name it by its place: what finds those rules is elsewhere.
    pub only_by_place: bool,
}

/// What a value of this name must be like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPattern {
    /// The name.
    pub name: Box<str>,
    /// The pattern.
    pub pattern: Pattern,
}

impl Selector {
    /// True if one of the methods is `method`, in whatever case.
    #[must_use]
    pub fn has_method(&self, method: &str) -> bool {
        // Whoever limits reading limits looking at the head of it.
        let method = if method.eq_ignore_ascii_case("HEAD") { ["GET", method] } else { [method, method] };
        self.methods.iter().any(|known| method.iter().any(|method| known.eq_ignore_ascii_case(method)))
    }

    /// The first entry that none of a descriptor's stands for.
    #[must_use]
    pub fn missing_entry(&self, descriptor: &[Entry<'_>]) -> Option<&EntryPattern> {
        self.descriptor.iter().find(|wanted| !descriptor.iter().any(|entry| wanted.matches(entry)))
    }
}

impl NamedPattern {
    /// True if one of the values of this name fits.
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
    /// The claims that rules ask for, each once, in order: nobody needs to keep others.
    #[must_use]
    pub fn claim_names(&self) -> BTreeSet<&str> {
        self.rules().iter().flat_map(|rule| &rule.selector.claims).map(|claim| &*claim.name).collect()
    }
}
