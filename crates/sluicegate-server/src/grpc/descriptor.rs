//! The rules of each descriptor of a request: every matching native rule, the rule from Envoy's
//! configuration, a limit in the descriptor itself, or none.

use sluicegate::core::{Align, Cost, FixedWindow, Micros, Quota, Verdict};
use sluicegate::identity::{Entry, Identity, identifier_of};
use sluicegate::rules::envoy::{EnvoyRules, Found, Metadata, Unit};
use sluicegate::rules::{Limits, Mode, Per, Rule, RuleSet, Selector};
use sluicegate::store::KeySpace;
use sluicegate::{Decision, Request};

use super::messages::envoy::r#type::v3::RateLimitUnit;
use super::parsed_request::{Hits, InlineLimit, ParsedDescriptor};

/// The rules, and the bytes of text, per unit of the runtime's cooperative budget. A task yields after 128 units, so other
/// requests on its thread wait for a few milliseconds of matching at most.
const RULES_PER_UNIT: usize = 64;
const BYTES_PER_UNIT: usize = 1_024;

/// A descriptor with its rules.
#[derive(Debug)]
pub(super) struct ResolvedDescriptor<'a> {
    asked: &'a ParsedDescriptor<'a>,
    domain: &'a str,
    /// Whether a configuration of Envoy decides.
    is_configured: bool,
    /// Its rules.
    pub(super) by: DecidedBy<'a>,
    /// `quota_mode`: it denies only together with all others in this mode.
    pub(super) is_quota: bool,
    /// `shadow_mode`: its limit never denies.
    pub(super) is_shadow: bool,
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
        /// The space and the identifier of its state.
        space: KeySpace,
        identifier: String,
    },
    /// None.
    Nothing,
}

/// The rules of each of these descriptors.
pub(super) async fn resolve<'a>(
    rules: &'a RuleSet,
    domain: &'a str,
    asked: &'a [ParsedDescriptor<'a>],
) -> Vec<ResolvedDescriptor<'a>> {
    let line = |asked: &'a ParsedDescriptor<'a>| {
        let by = match rules.envoy() {
            Some(envoy) => by_envoy(rules, envoy, domain, asked),
            None => by_rules(rules, domain, asked),
        };
        let (is_quota, is_shadow) = match &by {
            DecidedBy::Found(found) => {
                let is_shadow = rules.rules().get(found.rule).is_some_and(|rule| rule.mode == Mode::Shadow);
                (found.is_quota && !is_shadow, is_shadow)
            }
            _ => (false, false),
        };
        ResolvedDescriptor { asked, domain, is_configured: rules.envoy().is_some(), by, is_quota, is_shadow }
    };
    let mut lines = Vec::with_capacity(asked.len());
    for asked in asked {
        take_turn(rules, asked).await;
        lines.push(line(asked));
    }
    drop_replaced(&mut lines);
    lines
}

/// Consumes the budget for matching a descriptor once, and yields if the budget is used up.
async fn take_turn(rules: &RuleSet, asked: &ParsedDescriptor<'_>) {
    for _ in 0..=(rules.rules().len() / RULES_PER_UNIT + asked.bytes() / BYTES_PER_UNIT) {
        tokio::task::coop::consume_budget().await;
    }
}

impl<'a> ResolvedDescriptor<'a> {
    /// See [`take_turn`].
    pub(super) async fn take_turn(&self, rules: &RuleSet) {
        take_turn(rules, self.asked).await;
    }

    /// The operation on its hits.
    pub(super) fn hits(&self) -> Hits {
        self.asked.hits
    }

    /// The number of its hits, under a configuration of Envoy.
    pub(super) fn cost(&self) -> u64 {
        self.asked.request(self.domain).cost.unwrap_or(Cost::ONE).units()
    }

    /// The identifier of its state, under a configuration of Envoy.
    pub(super) fn identifier(&self) -> Option<&str> {
        match &self.by {
            DecidedBy::Found(Found { identifier, .. }) | DecidedBy::Inline { identifier, .. } => Some(identifier),
            DecidedBy::Rules | DecidedBy::Nothing => None,
        }
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

    /// True if a configuration of Envoy decides, and not native rules.
    pub(super) fn is_configured(&self) -> bool {
        self.is_configured
    }

    /// True if the decision says that its hits are within its limits. A decision about 0 hits is a peek for one.
    pub(super) fn has_room(&self, decision: &Decision) -> bool {
        if !self.is_configured {
            return decision.is_allowed();
        }
        decision.limits().all(|report| report.mode != Mode::Enforce || !self.is_over(&report.verdict))
    }

    /// True if its hits exceed a limit with this verdict, for a limit of Envoy's configuration.
    pub(super) fn is_over(&self, verdict: &Verdict) -> bool {
        match self.hits() {
            // Nothing is charged, so an exhausted limit is not exceeded.
            Hits::Check => verdict.debt > 0,
            Hits::Charge(_) | Hits::Report(_) => !verdict.outcome.is_allowed(),
            Hits::Refund(_) => false,
        }
    }

    /// The limit as Envoy's configuration or its descriptor has it, if a configuration decides. Only a configured limit has a
    /// name.
    pub(super) fn shown(&self) -> Option<(u32, Unit, &str)> {
        match &self.by {
            DecidedBy::Found(found) => {
                found.limit.map(|(count, unit)| (count, unit, found.name.unwrap_or_default()))
            }
            DecidedBy::Inline { given, .. } if self.is_configured => {
                Some((given.requests_per_unit, configured_unit(given.unit), ""))
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
    let Some((rule, beside)) = beside else { return DecidedBy::Nothing };
    inline_limit(rule, beside.space.name(), given, asked)
}

fn by_envoy<'a>(
    rules: &RuleSet,
    envoy: &'a EnvoyRules,
    domain: &str,
    asked: &ParsedDescriptor<'_>,
) -> DecidedBy<'a> {
    let found = envoy.find(domain, &asked.entries);
    let Some(given) = asked.limit.filter(|_| envoy.has_domain(domain)) else {
        return found.map_or(DecidedBy::Nothing, DecidedBy::Found);
    };
    match found {
        Some(found) if is_same_state(rules, &found, given, asked) => {
            let space = rules.rules()[found.rule].space.clone();
            DecidedBy::Inline { rule: found.rule, given, space, identifier: found.identifier }
        }
        found => {
            let any = || rules.rules().iter().position(|rule| rule.selector.only_by_place);
            let Some(rule) = found.map(|found| found.rule).or_else(any) else { return DecidedBy::Nothing };
            inline_limit(rule, domain, given, asked)
        }
    }
}

/// True if the limit in a descriptor counts in the state of the configured one, as in `envoyproxy/ratelimit`: Envoy may send the
/// limit with some requests of a client and not with others.
fn is_same_state(rules: &RuleSet, found: &Found<'_>, given: InlineLimit, asked: &ParsedDescriptor<'_>) -> bool {
    let quotas = rules.rules()[found.rule].limits.quotas();
    let has_window =
        |quota: &Quota| matches!(quota, Quota::FixedWindow(_)) && Some(quota.window()) == length(given.unit);
    // Values that share a counter share it only under the configured limit.
    quotas.first().is_some_and(has_window) && found.identifier == asked.identifier()
}

/// A limit in a descriptor with a state of its own, named after `beside` and the unit.
fn inline_limit<'a>(rule: usize, beside: &str, given: InlineLimit, asked: &ParsedDescriptor<'_>) -> DecidedBy<'a> {
    // Under rules, the match conditions distinguish keys; here only the identifier does.
    let all: Vec<Entry<'_>> =
        asked.entries.iter().flat_map(|entry| [Entry::new("", entry.key), Entry::new("", entry.value)]).collect();
    // No rule of a configuration can have such a name.
    let space = KeySpace::new(&format!("{beside}#{}", given.unit.as_str_name().to_ascii_lowercase()));
    DecidedBy::Inline { rule, given, space, identifier: identifier_of(&all) }
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

/// The rule for a limit in the descriptor, next to `rule`, with its state in `space`.
pub(super) fn rule_of(rule: &Rule, given: InlineLimit, space: &KeySpace) -> Option<Rule> {
    let name = rule.space.name();
    let window = FixedWindow::new(given.requests_per_unit.into(), length(given.unit)?, Align::Epoch).ok()?;
    Some(Rule {
        space: space.clone(),
        selector: Selector { only_by_place: true, ..Selector::default() },
        per: Per::IDENTIFIER,
        limits: Limits::all(name, [(None, Quota::from(window))]),
        tiers: Vec::new(),
        overrides: Vec::new(),
        mode: Mode::Enforce,
        ..rule.clone()
    })
}

/// The unit of the configuration with the same length.
const fn configured_unit(unit: RateLimitUnit) -> Unit {
    match unit {
        RateLimitUnit::Unknown => Unit::Other,
        RateLimitUnit::Second => Unit::Second,
        RateLimitUnit::Minute => Unit::Minute,
        RateLimitUnit::Hour => Unit::Hour,
        RateLimitUnit::Day => Unit::Day,
        RateLimitUnit::Month => Unit::Month,
        RateLimitUnit::Year => Unit::Year,
    }
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
