//! Reads one tenant, standalone override or API key, from a file, a database or the body of a request.

use std::collections::HashMap;

use sluicegate::identify::Principal;
use sluicegate::identify::api_key::KeyHash;
use sluicegate::identity::{IDENTIFIER_BYTES_MAX, NAME_BYTES_MAX};
use sluicegate::rules::Override;
use sluicegate::rules::file::field::{
    Absent, Boolean, Described, Field, Form, Mapping, NO_CONTROL_CHARACTERS, Shape, Text,
};
use sluicegate::rules::file::rule::{OVERRIDE_IDENTIFIER, OVERRIDE_LIMITS, OVERRIDE_UNTIL, read_override};
use sluicegate::rules::file::{Place, Reader, Section, ValueError, value};

/// One API key without a name, as `identity` lists it.
pub(crate) static API_KEY_ENTRY: Mapping = Mapping {
    doc: "An API key and its owner.",
    fields: &[&SHA256, &IDENTIFIER, &TIER, &TENANT],
    constraints: &[],
};

/// One of `keys`.
pub(crate) static KEY: Mapping = Mapping {
    doc: "An API key and its owner.",
    fields: &[&ENTRY_NAME, &SHA256, &IDENTIFIER, &TIER, &TENANT],
    constraints: &[],
};

static SHA256: Field<Described> = Field {
    key: "sha256",
    doc: "The SHA-256 of the key in hexadecimal, from `printf %s KEY | sha256sum`.",
    kind: Described(|| Form::Text(Shape::matching("64 hexadecimal digits", SHA256_PATTERN))),
    absent: Absent::Required(SHA256_REMEDY),
    examples: &[],
};

static IDENTIFIER: Field<Text<Box<str>>> = Field {
    key: "identifier",
    doc: "The identifier of its owner.",
    kind: Text {
        parse: |text| name(text, IDENTIFIER_BYTES_MAX),
        form: || {
            let shape = Shape::matching("text", NO_CONTROL_CHARACTERS);
            Form::Text(shape.literally().bounded(1, IDENTIFIER_BYTES_MAX))
        },
    },
    absent: Absent::Required("name its owner, for example identifier: demo"),
    examples: &[],
};

static TIER: Field<Text<Box<str>>> = Field {
    key: "tier",
    doc: "The tier of its owner.",
    kind: Text {
        parse: |text| name(text, NAME_BYTES_MAX),
        form: || {
            let shape = Shape::matching("text", NO_CONTROL_CHARACTERS);
            Form::Text(shape.literally().bounded(1, NAME_BYTES_MAX))
        },
    },
    absent: Absent::Nothing("none"),
    examples: &[],
};

static TENANT: Field<Text<Box<str>>> = Field {
    key: "tenant",
    doc: "The tenant of its owner.",
    kind: Text {
        parse: |text| name(text, NAME_BYTES_MAX),
        form: || {
            let shape = Shape::matching("text", NO_CONTROL_CHARACTERS);
            Form::Text(shape.literally().bounded(1, NAME_BYTES_MAX))
        },
    },
    absent: Absent::Nothing("`default`"),
    examples: &[],
};

/// One of `tenants`.
pub(crate) static TENANT_ENTRY: Mapping =
    Mapping { doc: "A tenant.", fields: &[&TENANT_NAME, &DESCRIPTION, &DISABLED], constraints: &[] };

static TENANT_NAME: Field<Described> = Field {
    key: "name",
    doc: "The name of the tenant, as in requests.",
    kind: Described(|| {
        let shape =
            Shape::matching("text without `*`, at most 256 bytes", "^[^*\\u0000-\\u001f\\u007f-\\u009f]*$");
        Form::Text(shape.bounded(1, NAME_BYTES_MAX))
    }),
    absent: Absent::Required(NAME_REMEDY),
    examples: &[],
};

static DESCRIPTION: Field<Text<()>> = Field {
    key: "description",
    doc: "A remark for operators.",
    kind: Text {
        parse: description,
        form: || {
            let shape = Shape::matching("text, at most 1024 bytes", NO_CONTROL_CHARACTERS).literally();
            Form::Text(Shape { max_length: Some(DESCRIPTION_BYTES_MAX), ..shape })
        },
    },
    absent: Absent::Nothing("none"),
    examples: &[],
};

static DISABLED: Field<Boolean> = Field {
    key: "disabled",
    doc: "Whether every request of the tenant is denied, by a rule called `tenant:NAME`.",
    kind: Boolean,
    absent: Absent::Default("false"),
    examples: &[],
};

/// One of `overrides`.
pub(crate) static OVERRIDE: Mapping = Mapping {
    doc: "An override that is listed apart from its rule.",
    fields: &[&ENTRY_NAME, &OVERRIDE_RULE, &OVERRIDE_IDENTIFIER, &OVERRIDE_LIMITS, &OVERRIDE_UNTIL],
    constraints: &[],
};

static OVERRIDE_RULE: Field<Text<Box<str>>> = Field {
    key: "rule",
    doc: "The rule with the limits that it replaces.",
    kind: Text { parse: value::name, form: || Form::Named("name") },
    absent: Absent::Required("say under which rule, for example rule: payments"),
    examples: &["payments"],
};

static ENTRY_NAME: Field<Described> = Field {
    key: "name",
    doc: "The name by which operators manage it.",
    kind: Described(|| {
        let shape = Shape::matching("text, at most 256 bytes", NO_CONTROL_CHARACTERS);
        Form::Text(shape.bounded(1, NAME_BYTES_MAX))
    }),
    absent: Absent::Required(NAME_REMEDY),
    examples: &[],
};

/// The remedy for a missing name.
const NAME_REMEDY: &str = "give it a name of its own";
/// The remedy for the hash of a key.
const SHA256_REMEDY: &str = "give the SHA-256 of the key, for example from `printf %s KEY | sha256sum`";
/// The pattern of a SHA-256 in hexadecimal.
pub(crate) const SHA256_PATTERN: &str = "^[0-9A-Fa-f]{64}$";
/// The longest description, in bytes.
const DESCRIPTION_BYTES_MAX: usize = 1_024;

/// A tenant with settings of its own.
#[derive(Clone, Debug)]
pub(crate) struct Tenant {
    /// The name, as in requests.
    pub(crate) name: Box<str>,
    /// Whether all its requests are denied.
    pub(crate) is_disabled: bool,
}

/// An override that is listed apart from its rule.
#[derive(Clone, Debug)]
pub(crate) struct StandaloneOverride<'d> {
    /// The section of the file.
    pub(crate) section: Section<'d>,
    /// The name of the rule.
    pub(crate) rule: Box<str>,
    /// The identifiers and their limits.
    pub(crate) terms: Override,
}

/// An API key.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    /// The SHA-256 of the key.
    pub(crate) hash: KeyHash,
    /// The identity of its owner.
    pub(crate) owner: Principal,
}

/// The names and hashes of one list, each with its place, to report duplicates.
#[derive(Debug, Default)]
pub(crate) struct UniqueNames {
    names: HashMap<Box<str>, Place>,
    /// The hashes of keys.
    hashes: HashMap<KeyHash, Place>,
}

impl UniqueNames {
    fn read(&mut self, section: &Section<'_>, form: fn(&str) -> Result<Box<str>, ValueError>) -> Option<Box<str>> {
        let reader = section.find(&ENTRY_NAME)?;
        let name = reader.text_as(form)?;
        if let Some(place) = self.names.get(&name) {
            let message = format!("a second one of that name, first at {place}");
            return reader.refuse(ValueError::new(message, "rename or remove one of the two"));
        }
        self.names.insert(name.clone(), reader.place());
        Some(name)
    }
}

/// Reads a tenant.
pub(crate) fn tenant(reader: &Reader<'_>, seen: &mut UniqueNames) -> Option<Tenant> {
    let section = reader.mapping(&TENANT_ENTRY)?;
    let name = seen.read(&section, tenant_name);
    let description = section.read_optional(&DESCRIPTION);
    let is_disabled = section.read(&DISABLED);
    description?;
    Some(Tenant { name: name?, is_disabled: is_disabled? })
}

/// Reads a standalone override. `None` only without a valid rule name; with other problems, the valid parts are still
/// checked against the rule.
pub(crate) fn standalone_override<'d>(
    reader: &Reader<'d>,
    seen: &mut UniqueNames,
) -> Option<StandaloneOverride<'d>> {
    let section = reader.mapping(&OVERRIDE)?;
    seen.read(&section, entry_name);
    let rule = section.read(&OVERRIDE_RULE);
    // Limits are named after their rule; an override without a rule is invalid anyway.
    let terms = read_override(&section, rule.as_deref().unwrap_or_default());
    Some(StandaloneOverride { section, rule: rule?, terms })
}

/// Reads an API key.
pub(crate) fn key(reader: &Reader<'_>, seen: &mut UniqueNames) -> Option<Key> {
    let section = reader.mapping(&KEY)?;
    let name = seen.read(&section, entry_name);
    let key = key_of(&section, &mut seen.hashes);
    name?;
    key.map(|(hash, owner)| Key { hash, owner })
}

/// Reads the fields of [`API_KEY_ENTRY`] from a section that may have more.
pub(crate) fn key_of(section: &Section<'_>, hashes: &mut HashMap<KeyHash, Place>) -> Option<(KeyHash, Principal)> {
    let hash = section.find(&SHA256).and_then(|reader| {
        // A key written here by mistake must not appear in a log.
        let Some(hash) = KeyHash::from_hex(&reader.secret()?) else {
            reader.report_as(ValueError::new("not 64 hexadecimal digits", SHA256_REMEDY), None);
            return None;
        };
        if let Some(place) = hashes.insert(hash, reader.place()) {
            reader.report_as(
                ValueError::new(format!("a second one of that key, first at {place}"), "keep one"),
                None,
            );
            return None;
        }
        Some(hash)
    });
    let identifier = section.read(&IDENTIFIER);
    let (tier, tenant) = (section.read_optional(&TIER), section.read_optional(&TENANT));
    Some((hash?, Principal { identifier: identifier?, tier: tier?, tenant: tenant? }))
}

fn name(text: &str, bytes_max: usize) -> Result<Box<str>, ValueError> {
    if (1..=bytes_max).contains(&text.len()) && !text.contains(char::is_control) {
        return Ok(text.into());
    }
    Err(ValueError::new("not a name", format!("use 1 to {bytes_max} bytes without control characters")))
}

/// Reads one of at most `count_max` API keys.
pub(crate) fn key_among(reader: &Reader<'_>, seen: &mut UniqueNames, count_max: usize) -> Option<Key> {
    if seen.names.len() >= count_max {
        return reader.refuse(ValueError::new("one key too many", format!("use at most {count_max}")));
    }
    key(reader, seen)
}

/// Reads the name of an override or a key: text without control characters.
pub(crate) fn entry_name(text: &str) -> Result<Box<str>, ValueError> {
    if (1..=NAME_BYTES_MAX).contains(&text.len()) && !text.contains(char::is_control) {
        return Ok(text.into());
    }
    Err(ValueError::new("not a name", format!("use 1 to {NAME_BYTES_MAX} bytes without control characters")))
}

/// Reads the name of a tenant. A star is invalid because it is a wildcard in rules.
fn tenant_name(text: &str) -> Result<Box<str>, ValueError> {
    if text.contains('*') {
        return Err(ValueError::new("not the name of one tenant", "write it without *"));
    }
    entry_name(text)
}

fn description(text: &str) -> Result<(), ValueError> {
    if text.len() <= DESCRIPTION_BYTES_MAX && !text.contains(char::is_control) {
        return Ok(());
    }
    let remedy = format!("use at most {DESCRIPTION_BYTES_MAX} bytes without control characters");
    Err(ValueError::new("not a description", remedy))
}
