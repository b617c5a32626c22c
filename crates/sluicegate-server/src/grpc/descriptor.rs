//! The rules of each descriptor of a request: every matching native rule, the rule from Envoy's
//! configuration, a limit in the descriptor itself, or none.

use sluicegate::Request;
use sluicegate::core::{Align, FixedWindow, Micros, Quota};
use sluicegate::identity::{Entry, Identity, identifier_of};
use sluicegate::rules::envoy::{EnvoyRules, Found, Metadata, Unit};
use sluicegate::rules::{Limits, Mode, Per, Rule, RuleSet, Selector};
use sluicegate::store::KeySpace;

use super::messages::envoy::r#type::v3::RateLimitUnit;
use super::parsed_request::{Hits, InlineLimit, ParsedDescriptor};

/// A descriptor with its rules.
#[derive(Debug)]
pub(super) struct ResolvedDescriptor<'a> {
    asked: &'a ParsedDescriptor<'a>,
    domain: &'a str,
    /// Its rules.
    pub(super) by: DecidedBy<'a>,
    /// `quota_mode`: it denies only together with all others in this mode.
    pub(super) is_quota: bool,
}

/// The rules of a descriptor.
#[derive(Debug)]
pub(super) enum DecidedBy<'a> {
    /// All matching native rules.
    Rules,
    /// The limit from Envoy's configuration.
    Found(Found<'a>),
    /// The limit in the descriptor itself, which takes its other settings from this rule.
    Inline {
        /// The index of the rule, whose policy applies while the store is down.
        rule: usize,
        /// The limit.
        given: InlineLimit,
        /// The identifier of its state: all keys and values.
        identifier: String,
    },
    /// None.
    Nothing,
}

/// The rules of each of these descriptors.
pub(super) fn resolve<'a>(
    rules: &'a RuleSet,
    domain: &'a str,
    asked: &'a [ParsedDescriptor<'a>],
) -> Vec<ResolvedDescriptor<'a>> {
    let line = |asked: &'a ParsedDescriptor<'a>| {
        let by = match rules.envoy() {
            Some(envoy) => by_envoy(rules, envoy, domain, asked),
            None => by_rules(rules, domain, asked),
        };
        let decides = |place: usize| rules.rules().get(place).is_some_and(|rule| rule.mode == Mode::Enforce);
        let is_quota = matches!(&by, DecidedBy::Found(found) if found.is_quota && decides(found.rule));
        ResolvedDescriptor { asked, domain, by, is_quota }
    };
    let mut lines: Vec<ResolvedDescriptor<'a>> = asked.iter().map(line).collect();
    drop_replaced(&mut lines);
    lines
}

impl<'a> ResolvedDescriptor<'a> {
    /// The operation on its hits.
    pub(super) fn hits(&self) -> Hits {
        self.asked.hits
    }

    /// The request for a decision; `None` if it needs none. `place` is the index of its rule in a selection.
    pub(super) fn request(&self, place: Option<usize>) -> Option<Request<'_>> {
        let request = self.asked.request(self.domain);
        match &self.by {
            DecidedBy::Rules => Some(request),
            DecidedBy::Found(found) => {
                let (identity, rule) = (Identity::Named(&found.identifier), place.or(Some(found.rule)));
                found.limit.map(|_| Request { identity, rule, ..request })
            }
            DecidedBy::Inline { identifier, .. } => {
                place.map(|_| Request { identity: Identity::Named(identifier), rule: place, ..request })
            }
            DecidedBy::Nothing => None,
        }
    }

    /// True if the limit is in the descriptor itself.
    pub(super) fn is_inline(&self) -> bool {
        matches!(self.by, DecidedBy::Inline { .. })
    }

    /// True if both count in one state.
    pub(super) fn is_same_state(&self, other: &Self) -> bool {
        match (&self.by, &other.by) {
            (DecidedBy::Found(one), DecidedBy::Found(other)) => {
                one.rule == other.rule && one.identifier == other.identifier
            }
            _ => false,
        }
    }

    /// The limit as Envoy's configuration has it, if it comes from there.
    pub(super) fn shown(&self) -> Option<(u32, Unit, &str)> {
        match &self.by {
            DecidedBy::Found(found) => {
                found.limit.map(|(count, unit)| (count, unit, found.name.unwrap_or_default()))
            }
            _ => None,
        }
    }

    /// The dynamic metadata for Envoy if the request is allowed.
    pub(super) fn metadata(&self) -> Option<&'a Metadata> {
        match &self.by {
            DecidedBy::Found(found) => found.metadata,
            _ => None,
        }
    }

    /// True if its limit is unlimited.
    pub(super) fn is_unlimited(&self) -> bool {
        matches!(&self.by, DecidedBy::Found(found) if found.limit.is_none())
    }
}

fn by_rules<'a>(rules: &RuleSet, domain: &str, asked: &ParsedDescriptor<'_>) -> DecidedBy<'a> {
    let Some(given) = asked.limit else { return DecidedBy::Rules };
    let request = asked.request(domain);
    let all = || rules.rules().iter().enumerate().filter(|(_, rule)| rule.mode != Mode::Off);
    let of_domain = |rule: &Rule| rule.selector.tenant.as_ref().is_none_or(|tenant| tenant.matches(domain));
    let beside =
        all().find(|(_, rule)| rule.matches(&request)).or_else(|| all().find(|(_, rule)| of_domain(rule)));
    inline_limit(beside.map(|(place, _)| place), given, asked)
}

fn by_envoy<'a>(
    rules: &RuleSet,
    envoy: &'a EnvoyRules,
    domain: &str,
    asked: &ParsedDescriptor<'_>,
) -> DecidedBy<'a> {
    let found = envoy.find(domain, &asked.entries);
    match asked.limit.filter(|_| envoy.has_domain(domain)) {
        Some(given) => {
            let any = || rules.rules().iter().position(|rule| rule.selector.only_by_place);
            inline_limit(found.map(|found| found.rule).or_else(any), given, asked)
        }
        None => found.map_or(DecidedBy::Nothing, DecidedBy::Found),
    }
}

fn inline_limit<'a>(beside: Option<usize>, given: InlineLimit, asked: &ParsedDescriptor<'_>) -> DecidedBy<'a> {
    let Some(rule) = beside else { return DecidedBy::Nothing };
    // Under rules, the match conditions distinguish keys; here only the identifier does.
    let all: Vec<Entry<'_>> =
        asked.entries.iter().flat_map(|entry| [Entry::new("", entry.key), Entry::new("", entry.value)]).collect();
    DecidedBy::Inline { rule, given, identifier: identifier_of(&all) }
}

/// A limit does not apply beside another that replaces it by its name.
fn drop_replaced(lines: &mut [ResolvedDescriptor<'_>]) {
    let replaced: Vec<&str> = lines
        .iter()
        .filter_map(|line| if let DecidedBy::Found(found) = &line.by { Some(found.replaces) } else { None })
        .flat_map(|names| names.iter().map(|name| &**name))
        .collect();
    for line in lines {
        let is_replaced = |name: &str| replaced.contains(&name);
        if matches!(&line.by, DecidedBy::Found(found) if found.name.is_some_and(is_replaced)) {
            (line.by, line.is_quota) = (DecidedBy::Nothing, false);
        }
    }
}

/// The rule for a limit in the descriptor: next to `rule`, with separate state for each unit.
pub(super) fn rule_of(rule: &Rule, given: InlineLimit) -> Option<Rule> {
    let name = rule.space.name();
    let window = FixedWindow::new(given.requests_per_unit.into(), length(given.unit)?, Align::Epoch).ok()?;
    Some(Rule {
        // No rule of a configuration can have such a name.
        space: KeySpace::new(&format!("{name}#{}", given.unit.as_str_name().to_ascii_lowercase())),
        selector: Selector { only_by_place: true, ..Selector::default() },
        per: Per::IDENTIFIER,
        limits: Limits::all(name, [(None, Quota::from(window))]),
        tiers: Vec::new(),
        overrides: Vec::new(),
        mode: Mode::Enforce,
        ..rule.clone()
    })
}

fn length(unit: RateLimitUnit) -> Option<Micros> {
    let days = |days: u64| Some(Micros::from_secs(days * 86_400));
    match unit {
        RateLimitUnit::Unknown => None,
        RateLimitUnit::Second => Some(Micros::from_secs(1)),
        RateLimitUnit::Minute => Some(Micros::from_secs(60)),
        RateLimitUnit::Hour => Some(Micros::from_secs(3_600)),
        RateLimitUnit::Day => days(1),
        RateLimitUnit::Month => days(30),
        RateLimitUnit::Year => days(365),
    }
}
