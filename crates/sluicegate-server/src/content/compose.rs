//! Rules together with what stands apart from them: overrides go to the end of their rule's own, and a disabled tenant
//! becomes a rule that lets nothing of it pass.

use sluicegate::core::{Align, FixedWindow, Micros, Quota};
use sluicegate::identify::Principal;
use sluicegate::identify::api_key::{KEYS_MAX, KeyHash};
use sluicegate::rules::file::{self, Reader, Section, Wrong};
use sluicegate::rules::pattern::Pattern;
use sluicegate::rules::{Limits, OnStoreFailure, Per, Rule, RuleSet};

use super::read::{self, Apart, Named, Tenant};
use super::{Compiled, OVERRIDES_MAX, TENANTS_MAX};

/// The name of the limit that a disabled tenant meets.
const DISABLED: &str = "tenant-disabled";

/// Reads `rules` and what belongs to them, `tenants`, `overrides` and `keys` from the top level of a document. `None`
/// means that problems were reported.
pub(crate) fn read(top: &Section<'_>) -> Option<Compiled> {
    let tenants = list(top, "tenants", TENANTS_MAX, read::tenant);
    let overrides = list(top, "overrides", OVERRIDES_MAX, read::apart);
    let keys = list(top, "keys", KEYS_MAX, read::key);
    let rules = file::read_rules(top)?;
    let (tenants, overrides) = (tenants?, overrides?);
    let keys: Vec<(KeyHash, Principal)> = keys?.into_iter().map(|(_, key)| (key.hash, key.owner)).collect();
    if overrides.is_empty() && tenants.iter().all(|(_, tenant)| !tenant.is_disabled) {
        return Some(Compiled { rules, keys });
    }
    let mut all = rules.rules().to_vec();
    let added: Vec<Option<()>> =
        overrides.into_iter().map(|(reader, apart)| add(&mut all, &reader, apart)).collect();
    added.into_iter().collect::<Option<Vec<()>>>()?;
    let disabled = tenants.iter().filter(|(_, tenant)| tenant.is_disabled);
    all.extend(disabled.filter_map(|(_, tenant)| closed_to(tenant)));
    RuleSet::new(all, rules.tiers().to_vec(), rules.unmatched())
        .map_or_else(|error| top.reader().refuse(Wrong::new("not usable", error.to_string())), Some)
        .map(|rules| Compiled { rules, keys })
}

/// The items of a list that may be absent, each with its place.
fn list<'d, T>(
    top: &Section<'d>,
    key: &str,
    count_max: usize,
    read: fn(&Reader<'_>, &mut Named) -> Option<T>,
) -> Option<Vec<(Reader<'d>, T)>> {
    let Some(reader) = top.get(key) else { return Some(Vec::new()) };
    let items = reader.list("write a list, or [] for none")?;
    if items.len() > count_max {
        return reader.refuse(Wrong::new(format!("{} {key}", items.len()), format!("use at most {count_max}")));
    }
    let mut seen = Named::default();
    let read: Vec<Option<(Reader<'d>, T)>> =
        items.into_iter().map(|item| read(&item, &mut seen).map(|value| (item, value))).collect();
    read.into_iter().collect()
}

/// Gives a rule one more override.
fn add(rules: &mut [Rule], reader: &Reader<'_>, Apart { rule, terms }: Apart) -> Option<()> {
    let Some(rule) = rules.iter_mut().find(|each| each.space.name() == &*rule) else {
        return reader.refuse(Wrong::new(format!("no rule is called {rule}"), "name a rule that is there"));
    };
    let identifier = terms.identifier.text();
    if rule.overrides.iter().any(|other| other.identifier.text() == identifier) {
        let message = "never applies: another override of the rule is for the same identifier";
        return reader.refuse(Wrong::new(message, "keep one of the two"));
    }
    rule.overrides.push(terms);
    Some(())
}

/// A rule that denies everything of this tenant. No rule of a file can have its name, so it is nobody else's state.
fn closed_to(tenant: &Tenant) -> Option<Rule> {
    let nothing = FixedWindow::new(0, Micros::from_secs(1), Align::Epoch).ok()?;
    let name = format!("tenant:{}", tenant.name);
    let mut rule = Rule::new(&name, Limits::all(DISABLED, [(None, Quota::from(nothing))]));
    rule.selector.tenant = Some(Pattern::new(&tenant.name));
    rule.per = Per::TENANT;
    rule.on_store_failure = OnStoreFailure::Closed;
    Some(rule)
}
