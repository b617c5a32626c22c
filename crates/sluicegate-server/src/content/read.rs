//! Tenants, overrides that stand apart from their rules, and API keys: one of each as it stands in a file, in a database
//! or in the body of a request.

use std::collections::HashMap;

use sluicegate::identify::Principal;
use sluicegate::identify::api_key::KeyHash;
use sluicegate::identity::NAME_BYTES_MAX;
use sluicegate::rules::Override;
use sluicegate::rules::file::rule::{OVERRIDE_KEYS, read_override_apart};
use sluicegate::rules::file::{Place, Reader, Section, Wrong, value};

use crate::config::identity::{KEY_KEYS, key_of};

/// The keys of a tenant.
pub(crate) const TENANT_KEYS: &[&str] = &["name", "description", "disabled"];
/// What an override has besides when it stands apart from its rule.
pub(crate) const APART_KEYS: &[&str] = &["name", "rule"];
/// The longest description, in bytes: a line or two.
pub(crate) const DESCRIPTION_BYTES_MAX: usize = 1_024;

/// Somebody else's customers.
#[derive(Clone, Debug)]
pub(crate) struct Tenant {
    /// As requests name it.
    pub(crate) name: Box<str>,
    /// Whether all its requests are denied.
    pub(crate) is_disabled: bool,
}

/// Limits of some identifiers under a rule that stands elsewhere.
#[derive(Clone, Debug)]
pub(crate) struct Apart<'d> {
    /// Where they stand.
    pub(crate) section: Section<'d>,
    /// The rule.
    pub(crate) rule: Box<str>,
    /// Whose limits, and which.
    pub(crate) terms: Override,
}

/// An API key.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    /// Its hash.
    pub(crate) hash: KeyHash,
    /// Whose it is.
    pub(crate) owner: Principal,
}

/// What must differ within a list, with the place of each.
#[derive(Debug, Default)]
pub(crate) struct Named {
    names: HashMap<Box<str>, Place>,
    /// The hashes of keys.
    hashes: HashMap<KeyHash, Place>,
}

impl Named {
    fn read(&mut self, section: &Section<'_>, form: fn(&str) -> Result<Box<str>, Wrong>) -> Option<Box<str>> {
        let reader = section.required("name", "give it a name of its own")?;
        let name = reader.text_as(form)?;
        if let Some(place) = self.names.get(&name) {
            let message = format!("a second one of that name, first at {place}");
            return reader.refuse(Wrong::new(message, "rename or remove one of the two"));
        }
        self.names.insert(name.clone(), reader.place());
        Some(name)
    }
}

/// Reads a tenant.
pub(crate) fn tenant(reader: &Reader<'_>, seen: &mut Named) -> Option<Tenant> {
    let section = reader.section(TENANT_KEYS)?;
    let name = seen.read(&section, tenant_name);
    let description = section.optional("description", (), |text| text.text_as(description));
    let is_disabled = section.optional("disabled", false, Reader::boolean);
    description?;
    Some(Tenant { name: name?, is_disabled: is_disabled? })
}

/// Reads an override that stands apart from its rule. Only without a rule nothing comes of it: whatever else is wrong,
/// the rest is still held against its rule.
pub(crate) fn apart<'d>(reader: &Reader<'d>, seen: &mut Named) -> Option<Apart<'d>> {
    let section = reader.section(&[APART_KEYS, OVERRIDE_KEYS].concat())?;
    seen.read(&section, entry_name);
    let rule = section.required("rule", "say under which rule, for example rule: payments");
    let rule = rule.and_then(|rule| rule.text_as(value::name));
    // Limits are named after their rule; an override without one is refused anyway.
    let terms = read_override_apart(&section, rule.as_deref().unwrap_or_default());
    Some(Apart { section, rule: rule?, terms })
}

/// Reads an API key.
pub(crate) fn key(reader: &Reader<'_>, seen: &mut Named) -> Option<Key> {
    let section = reader.section(&[&["name"], KEY_KEYS].concat())?;
    let name = seen.read(&section, entry_name);
    let key = key_of(&section, &mut seen.hashes);
    name?;
    key.map(|(hash, owner)| Key { hash, owner })
}

/// Reads one of at most so many API keys.
pub(crate) fn key_among(reader: &Reader<'_>, seen: &mut Named, count_max: usize) -> Option<Key> {
    if seen.names.len() >= count_max {
        return reader.refuse(Wrong::new("one key too many", format!("use at most {count_max}")));
    }
    key(reader, seen)
}

/// The name of an override or a key: any text that one line can show.
pub(crate) fn entry_name(text: &str) -> Result<Box<str>, Wrong> {
    if (1..=NAME_BYTES_MAX).contains(&text.len()) && !text.contains(char::is_control) {
        return Ok(text.into());
    }
    Err(Wrong::new("not a name", format!("use 1 to {NAME_BYTES_MAX} bytes without control characters")))
}

/// The name of a tenant. A star would stand for others, too, where rules name it.
fn tenant_name(text: &str) -> Result<Box<str>, Wrong> {
    if text.contains('*') {
        return Err(Wrong::new("not the name of one tenant", "write it without *"));
    }
    entry_name(text)
}

fn description(text: &str) -> Result<(), Wrong> {
    if text.len() <= DESCRIPTION_BYTES_MAX && !text.contains(char::is_control) {
        return Ok(());
    }
    let remedy = format!("use at most {DESCRIPTION_BYTES_MAX} bytes without control characters");
    Err(Wrong::new("not a description", remedy))
}
