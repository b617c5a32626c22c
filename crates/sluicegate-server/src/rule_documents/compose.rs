//! Combines rules with the documents beside them. A standalone override follows the overrides of its rule, and a disabled
//! tenant becomes a rule that denies all of its requests.

use sluicegate::core::{Align, FixedWindow, Micros, Quota};
use sluicegate::identify::Principal;
use sluicegate::identify::api_key::{KEYS_MAX, KeyHash};
use sluicegate::pattern::Pattern;
use sluicegate::rules::file::{Reader, RuleSetBuilder, Section, ValueError};
use sluicegate::rules::{Limits, OnStoreFailure, Per, Rule};

use super::read::{self, StandaloneOverride, Tenant, UniqueNames};
use super::{CompiledRules, OVERRIDES_MAX, TENANTS_MAX};

/// The name of the limit that denies the requests of a disabled tenant.
const DISABLED: &str = "tenant-disabled";

/// Reads rules, tiers, `tenants`, `overrides` and `keys` from the top level of a document. `None` means that problems
/// were reported.
pub(crate) fn read(top: &Section<'_>) -> Option<CompiledRules> {
    let tenants = list(top, "tenants", TENANTS_MAX, read::tenant);
    let overrides = list(top, "overrides", OVERRIDES_MAX, read::standalone_override);
    let keys = list(top, "keys", KEYS_MAX, read::key);
    let mut builder = RuleSetBuilder::read(top);
    for StandaloneOverride { section, rule, terms } in overrides {
        builder.add_override(&section, &rule, terms);
    }
    tenants
        .iter()
        .filter(|tenant| tenant.is_disabled)
        .filter_map(closed_to)
        .for_each(|rule| builder.add_rule(rule));
    let keys: Vec<(KeyHash, Principal)> = keys.into_iter().map(|key| (key.hash, key.owner)).collect();
    builder.finish().map(|rules| CompiledRules { rules, keys })
}

/// The valid items of an optional list; the problems of the others are reported.
fn list<'d, T>(
    top: &Section<'d>,
    key: &str,
    count_max: usize,
    read: fn(&Reader<'d>, &mut UniqueNames) -> Option<T>,
) -> Vec<T> {
    let Some(reader) = top.get(key) else { return Vec::new() };
    let Some(items) = reader.list("write a list, or [] for none") else { return Vec::new() };
    if items.len() > count_max {
        reader.report(ValueError::new(format!("{} {key}", items.len()), format!("use at most {count_max}")));
        return Vec::new();
    }
    let mut seen = UniqueNames::default();
    items.iter().filter_map(|item| read(item, &mut seen)).collect()
}

/// A rule that denies every request of the tenant. Rule names in files cannot contain `:`, so it shares no state.
fn closed_to(tenant: &Tenant) -> Option<Rule> {
    let nothing = FixedWindow::new(0, Micros::from_secs(1), Align::Epoch).ok()?;
    let name = format!("tenant:{}", tenant.name);
    let mut rule = Rule::new(&name, Limits::all(DISABLED, [(None, Quota::from(nothing))]));
    rule.selector.tenant = Some(Pattern::new(&tenant.name));
    rule.per = Per::TENANT;
    rule.on_store_failure = OnStoreFailure::Closed;
    Some(rule)
}
