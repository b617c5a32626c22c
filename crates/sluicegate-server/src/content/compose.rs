//! Rules together with what stands apart from them: overrides go to the end of their rule's own, and a disabled tenant
//! becomes a rule that lets nothing of it pass.

use sluicegate::core::{Align, FixedWindow, Micros, Quota};
use sluicegate::identify::Principal;
use sluicegate::identify::api_key::{KEYS_MAX, KeyHash};
use sluicegate::rules::file::{Draft, Reader, Section, Wrong};
use sluicegate::rules::pattern::Pattern;
use sluicegate::rules::{Limits, OnStoreFailure, Per, Rule};

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
    let mut draft = Draft::read(top);
    for Apart { section, rule, terms } in overrides {
        draft.add_override(&section, &rule, terms);
    }
    tenants.iter().filter(|tenant| tenant.is_disabled).filter_map(closed_to).for_each(|rule| draft.add_rule(rule));
    let keys: Vec<(KeyHash, Principal)> = keys.into_iter().map(|key| (key.hash, key.owner)).collect();
    draft.finish().map(|rules| Compiled { rules, keys })
}

/// The items of a list that may be absent, without those that cannot be read: their problems are known.
fn list<'d, T>(
    top: &Section<'d>,
    key: &str,
    count_max: usize,
    read: fn(&Reader<'d>, &mut Named) -> Option<T>,
) -> Vec<T> {
    let Some(reader) = top.get(key) else { return Vec::new() };
    let Some(items) = reader.list("write a list, or [] for none") else { return Vec::new() };
    if items.len() > count_max {
        reader.report(Wrong::new(format!("{} {key}", items.len()), format!("use at most {count_max}")));
        return Vec::new();
    }
    let mut seen = Named::default();
    items.iter().filter_map(|item| read(item, &mut seen)).collect()
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
