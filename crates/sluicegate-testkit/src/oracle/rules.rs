//! Rules as a user writes them: the requests that a rule matches, the limit set that applies, and the subject of its
//! usage.

use super::limit::Limit;
use super::operation::TestRequest;

/// All rules in force.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// The tiers that a request may name.
    pub tiers: Vec<&'static str>,
    /// Whether a request that no rule matches is denied.
    pub denies_unmatched: bool,
    /// The rules, in order.
    pub rules: Vec<Rule>,
}

/// One rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Its name.
    pub name: &'static str,
    /// The pattern of the tenants that it matches.
    pub tenant: Option<&'static str>,
    /// The pattern of the resources that it matches.
    pub resource: Option<&'static str>,
    /// The subject of the rule's limits.
    pub per: Per,
    /// Whether the rule is enforced.
    pub mode: Mode,
    /// The cost of a request without a cost of its own.
    pub cost: u32,
    /// Its own limits.
    pub limits: Limits,
    /// The limits of tiers.
    pub tiers: Vec<(&'static str, Limits)>,
    /// The limits of individual identifiers.
    pub overrides: Vec<Override>,
}

/// The parts of the subject; with none of them, all clients share one usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Per {
    /// Counts per tenant.
    pub tenant: bool,
    /// Counts per identifier within its tenant.
    pub identifier: bool,
    /// Counts per client address.
    pub address: bool,
}

/// Whether a rule is enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// `enforce`
    Enforce,
    /// `shadow`
    Shadow,
    /// `off`
    Off,
}

/// A list of limits; `None` is `unlimited`.
pub type Limits = Option<Vec<Limit>>;

/// The limits of individual identifiers.
#[derive(Clone, Debug, PartialEq)]
pub struct Override {
    /// The pattern of the identifiers.
    pub identifier: &'static str,
    /// The first instant at which the override no longer applies, in seconds since the epoch.
    pub until: Option<u64>,
    /// Its limits.
    pub limits: Limits,
}

/// The name of a limit set within its rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Set {
    Own,
    Tier(&'static str),
    /// The pattern, and the number of overrides with the same pattern before it.
    Override(&'static str, usize),
}

/// The subject that usage is counted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Subject {
    tenant: Option<&'static str>,
    identifier: Option<&'static str>,
    address: Option<u8>,
}

impl Rules {
    /// Whether an override ends between these two instants.
    #[must_use]
    pub fn end_between(&self, from: u64, to: u64) -> bool {
        let ends = self.rules.iter().flat_map(|rule| &rule.overrides).filter_map(|each| each.until);
        ends.map(|end| end * 1_000_000).any(|end| (from..=to).contains(&end))
    }

    /// The indexes of the matching rules.
    pub(super) fn matching<'r>(&'r self, request: &'r TestRequest) -> impl Iterator<Item = usize> + 'r {
        self.rules.iter().enumerate().filter(|(_, rule)| rule.matches(request)).map(|(place, _)| place)
    }
}

impl Rule {
    fn matches(&self, request: &TestRequest) -> bool {
        let fits = |pattern: Option<&str>, text: &str| pattern.is_none_or(|pattern| is_match(pattern, text));
        self.mode != Mode::Off
            && fits(self.tenant, request.tenant)
            && fits(self.resource, request.resource)
            && (!self.per.address || request.address.is_some())
    }

    /// The limit set that applies at `now`: that of the exact override, then of the first override with a matching
    /// pattern, then of the tier, then of the rule itself.
    pub(super) fn set_of<'r>(&'r self, request: &'r TestRequest, now: u64) -> (Set, &'r Limits) {
        let in_force = || {
            let is_in_force =
                move |(_, each): &(Set, &Override)| each.until.is_none_or(|end| now < end * 1_000_000);
            self.overrides_of(request).filter(is_in_force)
        };
        let exact = in_force().find(|(_, each)| !each.identifier.contains('*'));
        if let Some((set, each)) = exact.or_else(|| in_force().next()) {
            return (set, &each.limits);
        }
        let of_tier = self.tiers.iter().find(|(tier, _)| request.tier == Some(*tier));
        of_tier.map_or((Set::Own, &self.limits), |(tier, limits)| (Set::Tier(tier), limits))
    }

    /// All limit sets that the client of `request` may have used.
    pub(super) fn sets_of_client<'r>(
        &'r self,
        request: &'r TestRequest,
    ) -> impl Iterator<Item = (Set, &'r Limits)> {
        let tiers = self.tiers.iter().map(|(tier, limits)| (Set::Tier(tier), limits));
        let overrides = self.overrides_of(request).map(|(set, each)| (set, &each.limits));
        [(Set::Own, &self.limits)].into_iter().chain(tiers).chain(overrides)
    }

    /// The overrides for the identifier of `request`, including those that have ended.
    fn overrides_of<'r>(&'r self, request: &'r TestRequest) -> impl Iterator<Item = (Set, &'r Override)> {
        let named = self.overrides.iter().enumerate().map(|(place, each)| {
            let same = |before: &&Override| before.identifier == each.identifier;
            (Set::Override(each.identifier, self.overrides[..place].iter().filter(same).count()), each)
        });
        named.filter(|(_, each)| is_match(each.identifier, request.identifier))
    }

    pub(super) fn subject_of(&self, request: &TestRequest) -> Subject {
        Subject {
            tenant: (self.per.tenant || self.per.identifier).then_some(request.tenant),
            identifier: self.per.identifier.then_some(request.identifier),
            address: if self.per.address { request.address } else { None },
        }
    }
}

/// Whether `text` matches a pattern in which `*` stands for any sequence of characters.
fn is_match(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((before, after)) => text.strip_prefix(before).is_some_and(|rest| {
            rest.char_indices().map(|(at, _)| at).chain([rest.len()]).any(|at| is_match(after, &rest[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::is_match;

    #[test]
    fn a_star_stands_for_any_run_of_characters() {
        for (pattern, text, expected) in [
            ("vip-*", "vip-1", true),
            ("vip-*", "vip-", true),
            ("vip-*", "avip-1", false),
            ("*.read", "api.read", true),
            ("*.read", "api.reads", false),
            ("a*c", "abbc", true),
            ("ann", "ann", true),
            ("ann", "anna", false),
        ] {
            assert_eq!(is_match(pattern, text), expected, "{pattern} {text}");
        }
    }
}
