//! What each descriptor of a request is decided by: every native rule that matches it, the one that a configuration of
//! Envoy's has for it, a limit that it brings along, or nothing.

use sluicegate::Request;
use sluicegate::core::{Align, FixedWindow, Micros, Quota};
use sluicegate::identity::{Entry, Identity, identifier_of};
use sluicegate::rules::envoy::{EnvoyRules, Found, Metadata, Unit};
use sluicegate::rules::{Limits, Mode, Per, Rule, RuleSet, Selector};
use sluicegate::store::KeySpace;

use super::messages::envoy::r#type::v3::RateLimitUnit;
use super::question::{Asked, Given, Hits};

/// One descriptor and what decides about it.
#[derive(Debug)]
pub(super) struct Line<'a> {
    asked: &'a Asked<'a>,
    domain: &'a str,
    /// What decides.
    pub(super) by: By<'a>,
    /// Whether it denies only together with all others that say so.
    pub(super) is_quota: bool,
}

/// What decides about a descriptor.
#[derive(Debug)]
pub(super) enum By<'a> {
    /// All rules that match it.
    Rules,
    /// The limit that a configuration of Envoy's has for it.
    Found(Found<'a>),
    /// The limit that it brings along, which counts beside this rule.
    Brought {
        /// The place of the rule, which says what happens without the store.
        rule: usize,
        /// The limit.
        given: Given,
        /// Whose state it is: all keys and values.
        identifier: String,
    },
    /// Nothing does.
    Nothing,
}

/// What decides about each of these.
pub(super) fn lines<'a>(rules: &'a RuleSet, domain: &'a str, asked: &'a [Asked<'a>]) -> Vec<Line<'a>> {
    let line = |asked: &'a Asked<'a>| {
        let by = match rules.envoy() {
            Some(envoy) => by_envoy(rules, envoy, domain, asked),
            None => by_rules(rules, domain, asked),
        };
        let decides = |place: usize| rules.rules().get(place).is_some_and(|rule| rule.mode == Mode::Enforce);
        let is_quota = matches!(&by, By::Found(found) if found.is_quota && decides(found.rule));
        Line { asked, domain, by, is_quota }
    };
    let mut lines: Vec<Line<'a>> = asked.iter().map(line).collect();
    drop_replaced(&mut lines);
    lines
}

impl<'a> Line<'a> {
    /// What is to be done with its hits.
    pub(super) fn hits(&self) -> Hits {
        self.asked.hits
    }

    /// The request that it is; nothing if it needs no decision. `place` is where its rule stands in a selection.
    pub(super) fn request(&self, place: Option<usize>) -> Option<Request<'_>> {
        let request = self.asked.request(self.domain);
        match &self.by {
            By::Rules => Some(request),
            By::Found(found) => {
                let (identity, rule) = (Identity::Named(&found.identifier), place.or(Some(found.rule)));
                found.limit.map(|_| Request { identity, rule, ..request })
            }
            By::Brought { identifier, .. } => {
                place.map(|_| Request { identity: Identity::Named(identifier), rule: place, ..request })
            }
            By::Nothing => None,
        }
    }

    /// True if it brings its limit along.
    pub(super) fn is_brought(&self) -> bool {
        matches!(self.by, By::Brought { .. })
    }

    /// True if both count in one state.
    pub(super) fn is_same_state(&self, other: &Self) -> bool {
        match (&self.by, &other.by) {
            (By::Found(one), By::Found(other)) => one.rule == other.rule && one.identifier == other.identifier,
            _ => false,
        }
    }

    /// The limit in Envoy's words, if a configuration of Envoy's has it.
    pub(super) fn shown(&self) -> Option<(u32, Unit, &str)> {
        match &self.by {
            By::Found(found) => found.limit.map(|(count, unit)| (count, unit, found.name.unwrap_or_default())),
            _ => None,
        }
    }

    /// What Envoy is told beside the decision if the request passes.
    pub(super) fn metadata(&self) -> Option<&'a Metadata> {
        match &self.by {
            By::Found(found) => found.metadata,
            _ => None,
        }
    }

    /// True if it has a limit that never ends.
    pub(super) fn is_unlimited(&self) -> bool {
        matches!(&self.by, By::Found(found) if found.limit.is_none())
    }
}

fn by_rules<'a>(rules: &RuleSet, domain: &str, asked: &Asked<'_>) -> By<'a> {
    let Some(given) = asked.limit else { return By::Rules };
    let request = asked.request(domain);
    let all = || rules.rules().iter().enumerate().filter(|(_, rule)| rule.mode != Mode::Off);
    let of_domain = |rule: &Rule| rule.selector.tenant.as_ref().is_none_or(|tenant| tenant.matches(domain));
    let beside =
        all().find(|(_, rule)| rule.matches(&request)).or_else(|| all().find(|(_, rule)| of_domain(rule)));
    brought(beside.map(|(place, _)| place), given, asked)
}

fn by_envoy<'a>(rules: &RuleSet, envoy: &'a EnvoyRules, domain: &str, asked: &Asked<'_>) -> By<'a> {
    let found = envoy.find(domain, &asked.entries);
    match asked.limit.filter(|_| envoy.has_domain(domain)) {
        Some(given) => {
            let any = || rules.rules().iter().position(|rule| rule.selector.only_by_place);
            brought(found.map(|found| found.rule).or_else(any), given, asked)
        }
        None => found.map_or(By::Nothing, By::Found),
    }
}

fn brought<'a>(beside: Option<usize>, given: Given, asked: &Asked<'_>) -> By<'a> {
    let Some(rule) = beside else { return By::Nothing };
    // Under rules, keys are told apart by what the rules match; here nothing else does.
    let all: Vec<Entry<'_>> =
        asked.entries.iter().flat_map(|entry| [Entry::new("", entry.key), Entry::new("", entry.value)]).collect();
    By::Brought { rule, given, identifier: identifier_of(&all) }
}

/// A limit does not apply beside another that replaces it by its name.
fn drop_replaced(lines: &mut [Line<'_>]) {
    let replaced: Vec<&str> = lines
        .iter()
        .filter_map(|line| if let By::Found(found) = &line.by { Some(found.replaces) } else { None })
        .flat_map(|names| names.iter().map(|name| &**name))
        .collect();
    for line in lines {
        let is_replaced = |name: &str| replaced.contains(&name);
        if matches!(&line.by, By::Found(found) if found.name.is_some_and(is_replaced)) {
            (line.by, line.is_quota) = (By::Nothing, false);
        }
    }
}

/// The rule that a limit brought along is decided by: beside `rule`, with a state of its own for each unit.
pub(super) fn rule_of(rule: &Rule, given: Given) -> Option<Rule> {
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
