//! One rule as it stands in a file.

use super::descriptor::read_descriptor;
use super::lease::{check_lease, read_lease};
use super::limit::read_limits;
use super::problem::{Place, Wrong};
use super::reader::Reader;
use super::section::Section;
use super::suggest::with_closest;
use super::{Names, all, value};
use crate::identity::Stage;
use crate::rules::pattern::Pattern;
use crate::rules::{DEADLINE_DEFAULT, Limits, Mode, NamedPattern, OnStoreFailure, Override, Per, Rule, Selector};
use crate::store::KeySpace;
use sluicegate_core::Cost;
use std::collections::HashMap;

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

/// Reads a rule. Its name must not be among `names` yet; its tiers must be among `tiers`, where those are
/// known.
pub(super) fn read_rule(reader: &Reader<'_>, names: &mut Names, tiers: Option<&[Box<str>]>) -> Option<Rule> {
    let section = reader.section(RULE_KEYS)?;
    let name = section
        .required("name", "give the rule a name of its own, for example name: payments")
        .and_then(|name| names.read(name));
    // Limits are named after their rule; one without a name is refused anyway.
    let rule = name.as_deref().unwrap_or_default();
    let remedy = "list the limits, for example [{ algorithm: token_bucket, capacity: 100, refill: 100/60s }]";
    let limits = section.required("limits", remedy).and_then(|limits| read_limits(limits, rule));
    let selector = section.optional("match", Selector::default(), read_selector);
    let per = section.optional("per", Per::IDENTIFIER, read_per);
    let tiers = section.optional("tiers", Vec::new(), |each| read_tiers(each, rule, tiers));
    let overrides = section.optional("overrides", Vec::new(), |each| read_overrides(each, rule));
    let mode = section.optional("mode", Mode::default(), |mode| mode.choice(MODES));
    let policy = section.optional("on_store_failure", OnStoreFailure::default(), |policy| policy.choice(POLICIES));
    let deadline = section.optional("deadline", DEADLINE_DEFAULT, Reader::deadline);
    let cost = section.optional("cost", Cost::ONE, read_cost);
    let lease = section.optional("lease", None, |lease| read_lease(lease).map(Some));
    let rule = Rule {
        space: KeySpace::new(name.as_deref()?),
        selector: selector?,
        per: per?,
        limits: limits?,
        tiers: tiers?,
        overrides: overrides?,
        mode: mode?,
        on_store_failure: policy?,
        deadline: deadline?,
        cost: cost?,
        lease: lease?,
    };
    check_stage(&section, &rule)?;
    check_lease(&section, &rule)?;
    Some(rule)
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
        tenant: tenant?,
        resource: resource?,
        path: path?,
        methods: methods?,
        host: host?,
        headers: headers?,
        claims: claims?,
        stage: stage?,
        descriptor: descriptor?,
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
fn check_stage(section: &Section<'_>, rule: &Rule) -> Option<()> {
    let is_known = !rule.per.identifier && !rule.per.tenant && rule.selector.tenant.is_none();
    if rule.selector.stage == Stage::Request {
        return Some(());
    }
    if !rule.selector.claims.is_empty() {
        let remedy = "remove the claims, or the credential: before it is verified a token claims nothing";
        return section.reader().refuse(Wrong::new("matches unverified credentials by claims", remedy));
    }
    if is_known {
        return Some(());
    }
    let remedy = "write per: ip or per: global, and no tenant";
    section.reader().refuse(Wrong::new("counts unverified credentials by who sends them", remedy))
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

fn read_tiers(reader: &Reader<'_>, rule: &str, known: Option<&[Box<str>]>) -> Option<Vec<(Box<str>, Limits)>> {
    all(reader.pairs()?.into_iter().map(|pair| {
        let limits = read_limits(&pair.value, rule);
        if let Some(known) = known
            && !known.iter().any(|tier| **tier == *pair.name)
        {
            pair.key.report_lazily(None, || unknown_tier(pair.name, known));
            return None;
        }
        Some((pair.name.into(), limits?))
    }))
}

fn unknown_tier(name: &str, known: &[Box<str>]) -> Wrong {
    let known: Vec<&str> = known.iter().map(|tier| &**tier).collect();
    let listed = match known.as_slice() {
        [] => "the file has no top-level `tiers` yet".to_owned(),
        known => format!("listed are: {}", known.join(", ")),
    };
    let remedy = format!("list it in the top-level `tiers`, or correct it; {listed}");
    Wrong::new("unknown tier", with_closest(name, &known, &remedy))
}

fn read_overrides(reader: &Reader<'_>, rule: &str) -> Option<Vec<Override>> {
    let items = reader.list("write a list of overrides, each with `identifier` and `limits`")?;
    let mut earlier = Earlier::default();
    all(items.iter().map(|item| read_override(item, rule, &mut earlier)))
}

fn read_override(reader: &Reader<'_>, rule: &str, earlier: &mut Earlier) -> Option<Override> {
    override_of(&reader.section(OVERRIDE_KEYS)?, rule, earlier)
}

/// Reads an override that stands apart from the rule called `rule`. Whoever opens the section names
/// [`OVERRIDE_KEYS`] and what else belongs to it.
#[must_use]
pub fn read_override_apart(section: &Section<'_>, rule: &str) -> Option<Override> {
    override_of(section, rule, &mut Earlier::default())
}

fn override_of(section: &Section<'_>, rule: &str, earlier: &mut Earlier) -> Option<Override> {
    let until = section.optional("until", None, |until| until.text_as(value::instant).map(Some));
    // Whose time is over leaves everything to those that follow.
    let is_for_ever = section.get("until").is_none();
    let identifier = section
        .required("identifier", "say whose limits these are, for example identifier: \"vip-*\"")
        .and_then(|identifier| earlier.read(identifier, is_for_ever));
    let limits = section
        .required("limits", "list the limits, or write unlimited")
        .and_then(|limits| read_limits(limits, rule));
    Some(Override { identifier: identifier?, limits: limits?, until: until? })
}

/// The overrides before this one: some of them leave nothing to those that follow.
#[derive(Default)]
struct Earlier {
    identifiers: HashMap<String, Place>,
    /// The first pattern that matches every identifier.
    catch_all: Option<Place>,
}

impl Earlier {
    /// Reads the identifier of an override that can apply, and may do so for ever.
    fn read(&mut self, reader: &Reader<'_>, is_for_ever: bool) -> Option<Pattern> {
        let pattern = reader.text_as(value::pattern)?;
        let text = pattern.text();
        if let Some(place) = self.identifiers.get(&text) {
            let message = format!("never applies: the override at {place} is for the same identifier");
            return reader.refuse(Wrong::new(message, "keep one of the two"));
        }
        // Exact identifiers come before patterns, wherever they stand.
        if let Some(place) = self.catch_all.filter(|_| !pattern.is_exact()) {
            let message = format!("never applies: the override at {place} takes every identifier");
            return reader.refuse(Wrong::new(message, "move it up: the first pattern that matches applies"));
        }
        if !is_for_ever {
            return Some(pattern);
        }
        if text.bytes().all(|byte| byte == b'*') {
            self.catch_all = Some(reader.place());
        }
        self.identifiers.insert(text, reader.place());
        Some(pattern)
    }
}
