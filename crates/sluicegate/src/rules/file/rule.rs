//! One rule as it stands in a file.

use super::descriptor::read_descriptor;
use super::earlier::Earlier;
use super::lease::{check_lease, read_lease};
use super::limit::read_limits;
use super::problem::Wrong;
use super::reader::Reader;
use super::section::Section;
use super::tier::{Tiers, check_algorithms};
use super::{Names, all, value};
use crate::identity::Stage;
use crate::rules::pattern::Pattern;
use crate::rules::{DEADLINE_DEFAULT, Limits, Mode, NamedPattern, OnStoreFailure, Override, Per, Rule, Selector};
use crate::store::KeySpace;
use sluicegate_core::{Cost, Timestamp};

/// The keys of a rule.
pub const RULE_KEYS: &[&str] = &[
    "name",
    "match",
    "per",
    "limits",
    "tiers",
    "overrides",
    "mode",
    "on_store_failure",
    "deadline",
    "cost",
    "lease",
];
/// The keys of a rule's `match`.
pub const MATCH_KEYS: &[&str] =
    &["tenant", "resource", "path", "method", "host", "header", "claim", "credential", "descriptor"];
/// What a rule for credentials may be for.
pub const CREDENTIALS: &[(&str, Stage)] = &[("unverified", Stage::Credential)];
/// The most methods of one rule: HTTP has nine, and an extension a few.
pub const METHODS_MAX: usize = 32;
/// The most header fields, and the most claims, that one rule matches by: each is looked for in every request that may
/// match.
pub const VALUES_MAX: usize = 8;
/// The keys of an override.
pub const OVERRIDE_KEYS: &[&str] = &["identifier", "limits", "until"];
/// Whether a rule decides.
pub const MODES: &[(&str, Mode)] = &[("enforce", Mode::Enforce), ("shadow", Mode::Shadow), ("off", Mode::Off)];
/// What a rule may say when the store does not.
pub const POLICIES: &[(&str, OnStoreFailure)] = &[
    (OnStoreFailure::Open.name(), OnStoreFailure::Open),
    (OnStoreFailure::Closed.name(), OnStoreFailure::Closed),
    (OnStoreFailure::Local.name(), OnStoreFailure::Local),
];
/// What a rule may count by.
pub const PARTS: &[(&str, Per)] =
    &[("identifier", Per::IDENTIFIER), ("tenant", Per::TENANT), ("ip", Per::ADDRESS), ("global", Per::GLOBAL)];

/// Reads a rule. Its name must not be among `names` yet; its tiers must be among `known`.
///
/// What cannot be read is replaced by what goes with everything, so that the rest is held against the rest: one mistake
/// hides no other. Nothing comes of such a rule, because its document has a problem. Without a name there is no rule.
pub(super) fn read_rule(reader: &Reader<'_>, names: &mut Names, known: &Tiers) -> Option<Rule> {
    let Some(section) = reader.section(RULE_KEYS) else {
        names.miss_one();
        return None;
    };
    let remedy = "give the rule a name of its own, for example name: payments";
    let name = names.read(section.required("name", remedy));
    // Limits are named after their rule; one without a name is refused anyway.
    let rule = name.as_deref().unwrap_or_default();
    let remedy = "list the limits, for example [{ algorithm: token_bucket, capacity: 100, refill: 100/60s }]";
    let limits = section.required("limits", remedy).map(|limits| read_limits(limits, rule));
    let selector = section.optional("match", Selector::default(), read_selector);
    let per = section.optional("per", Per::IDENTIFIER, read_per);
    let tiers = section.optional("tiers", Vec::new(), |each| read_tiers(each, rule, known));
    let overrides = section.optional("overrides", Vec::new(), |each| read_overrides(each, rule));
    let mode = section.optional("mode", Mode::default(), |mode| mode.choice(MODES));
    let policy = section.optional("on_store_failure", OnStoreFailure::default(), |policy| policy.choice(POLICIES));
    let deadline = section.optional("deadline", DEADLINE_DEFAULT, Reader::deadline);
    let cost = section.optional("cost", Cost::ONE, read_cost);
    let lease = section.optional("lease", None, |lease| read_lease(lease).map(Some));
    let has_tiers = tiers.is_some();
    let rule = Rule {
        space: KeySpace::new(rule),
        selector: selector.unwrap_or_default(),
        per: per.unwrap_or(Per::GLOBAL),
        limits: limits.unwrap_or(Limits::Unlimited),
        tiers: tiers.unwrap_or_default(),
        overrides: overrides.unwrap_or_default(),
        mode: mode.unwrap_or_default(),
        on_store_failure: policy.unwrap_or_default(),
        deadline: deadline.unwrap_or(DEADLINE_DEFAULT),
        cost: cost.unwrap_or(Cost::ONE),
        lease: lease.flatten(),
    };
    check_stage(&section, &rule);
    check_lease(&section, &rule);
    if has_tiers {
        check_algorithms(&section, &rule, known);
    }
    name.map(|_| rule)
}

fn read_cost(reader: &Reader<'_>) -> Option<Cost> {
    let units = reader.integer(0..=u32::MAX.into())?;
    u32::try_from(units).ok().map(Cost::new)
}

fn read_selector(reader: &Reader<'_>) -> Option<Selector> {
    let section = reader.section(MATCH_KEYS)?;
    let tenant = optional_pattern(&section, "tenant");
    let resource = optional_pattern(&section, "resource");
    let path = section.optional("path", None, |path| path.text_as(value::path).map(Some));
    let methods = section.optional("method", Vec::new(), read_methods);
    let stage = section.optional("credential", Stage::Request, |stage| stage.choice(CREDENTIALS));
    let host = section.optional("host", None, |host| host.text_as(value::host).map(Some));
    let headers = section.optional("header", Vec::new(), |each| read_values(each, value::header_name));
    let claims = section.optional("claim", Vec::new(), |each| read_values(each, value::claim_name));
    let descriptor = section.optional("descriptor", Vec::new(), read_descriptor);
    Some(Selector {
        tenant: tenant.flatten(),
        resource: resource.flatten(),
        path: path.flatten(),
        methods: methods.unwrap_or_default(),
        host: host.flatten(),
        headers: headers.unwrap_or_default(),
        claims: claims.unwrap_or_default(),
        stage: stage.unwrap_or(Stage::Request),
        descriptor: descriptor.unwrap_or_default(),
        only_by_place: false,
    })
}

/// Names, each with the pattern of its value.
fn read_values(
    reader: &Reader<'_>,
    read_name: impl Fn(&str) -> Result<Box<str>, Wrong>,
) -> Option<Vec<NamedPattern>> {
    let pairs = reader.pairs()?;
    if !(1..=VALUES_MAX).contains(&pairs.len()) {
        let remedy = format!("name 1 to {VALUES_MAX}, each with a pattern, for example {{ name: \"*\" }}");
        return reader.refuse(Wrong::new(format!("{} names", pairs.len()), remedy));
    }
    let mut names: Vec<Box<str>> = Vec::new();
    all(pairs.iter().map(|pair| {
        let name = pair.key.text_as(&read_name);
        let pattern = pair.value.text_as(value::pattern);
        let name = name?;
        if names.contains(&name) {
            return pair.key.refuse(Wrong::new("named twice, in upper or lower case", "keep one of the two"));
        }
        names.push(name.clone());
        Some(NamedPattern { name, pattern: pattern? })
    }))
}

/// One method, or a list of them.
fn read_methods(reader: &Reader<'_>) -> Option<Vec<Box<str>>> {
    if !reader.is_list() {
        return Some(vec![reader.text_as(value::method)?]);
    }
    let items = reader.list("write a list of methods, for example [GET, POST]")?;
    if !(1..=METHODS_MAX).contains(&items.len()) {
        let remedy = format!("name 1 to {METHODS_MAX}, or leave the key out for all");
        return reader.refuse(Wrong::new(format!("{} methods", items.len()), remedy));
    }
    all(items.iter().map(|item| item.text_as(value::method)))
}

/// Who sends an unverified credential is not known, so a rule for it cannot count by that.
fn check_stage(section: &Section<'_>, rule: &Rule) {
    if rule.selector.stage == Stage::Request {
        return;
    }
    if !rule.selector.claims.is_empty() {
        let remedy = "remove the claims, or the credential: before it is verified a token claims nothing";
        section.reader().report(Wrong::new("matches unverified credentials by claims", remedy));
    }
    if rule.per.identifier || rule.per.tenant || rule.selector.tenant.is_some() {
        let remedy = "write per: ip or per: global, and no tenant";
        section.reader().report(Wrong::new("counts unverified credentials by who sends them", remedy));
    }
}

fn optional_pattern(section: &Section<'_>, key: &str) -> Option<Option<Pattern>> {
    section.optional(key, None, |pattern| pattern.text_as(value::pattern).map(Some))
}

/// One word, or a list of words that count together.
fn read_per(reader: &Reader<'_>) -> Option<Per> {
    if !reader.is_list() {
        return reader.choice(PARTS);
    }
    let together = "name what to count by, or write global to count everybody together";
    let parts = reader.choices(PARTS, together)?;
    if parts.is_empty() {
        return reader.refuse(Wrong::new("an empty list", together));
    }
    if parts.len() > 1 && parts.contains(&Per::GLOBAL) {
        return reader.refuse(Wrong::new("global among others", "let it stand alone, or remove it"));
    }
    Some(parts.into_iter().fold(Per::GLOBAL, Per::and))
}

fn read_tiers(reader: &Reader<'_>, rule: &str, known: &Tiers) -> Option<Vec<(Box<str>, Limits)>> {
    let read = reader.pairs()?.into_iter().map(|pair| {
        if known.lack(pair.name) {
            pair.key.report_lazily(None, || known.unknown(pair.name));
        }
        (pair.name.into(), read_limits(&pair.value, rule))
    });
    Some(read.collect())
}

fn read_overrides(reader: &Reader<'_>, rule: &str) -> Option<Vec<Override>> {
    let items = reader.list("write a list of overrides, each with `identifier` and `limits`")?;
    let mut earlier = Earlier::default();
    let read = items.iter().map(|item| {
        let section = item.section(OVERRIDE_KEYS);
        let each = section.as_ref().map_or_else(nobodys, |section| read_override_apart(section, rule));
        if let Some(taken) = earlier.add(&each)
            && let Some(identifier) = section.and_then(|section| section.get("identifier").cloned())
        {
            identifier.report(taken.wrong(&format!("the override at {}", items[taken.by()].place())));
        }
        each
    });
    Some(read.collect())
}

/// Reads an override that stands apart from the rule called `rule`. Whoever opens the section names
/// [`OVERRIDE_KEYS`] and what else belongs to it. One that cannot be read is nobody's.
#[must_use]
pub fn read_override_apart(section: &Section<'_>, rule: &str) -> Override {
    let until = section.optional("until", None, |until| until.text_as(value::instant).map(Some));
    let identifier = section
        .required("identifier", "say whose limits these are, for example identifier: \"vip-*\"")
        .and_then(|identifier| identifier.text_as(value::pattern));
    let limits = section.required("limits", "list the limits, or write unlimited");
    let limits = limits.map_or(Limits::Unlimited, |limits| read_limits(limits, rule));
    match identifier.zip(until) {
        Some((identifier, until)) => Override { identifier, limits, until },
        None => {
            section.reader().give_up();
            Override { limits, ..nobodys() }
        }
    }
}

/// An override that is for nobody and has ended: it takes nothing from others, nor they from it.
fn nobodys() -> Override {
    Override { identifier: Pattern::new(""), limits: Limits::Unlimited, until: Some(Timestamp::from_micros(0)) }
}
