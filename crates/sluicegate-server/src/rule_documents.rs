//! The documents that operators change while the server runs: rules, tiers, tenants, overrides and API keys. Each is an
//! entry with a name and a JSON body in the form of the configuration file.
//!
//! A file and a database contain the same [`RuleDocuments`], and the same readers compile both, so each accepts exactly
//! the same entries. [`RuleDocuments::compile`] checks all entries together. The contents of a database are as untrusted
//! as those of a request, so they cannot use environment variables.
//!
//! This module does no I/O.

pub(crate) mod change;
pub(crate) mod compose;
pub(crate) mod json;
pub(crate) mod read;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde_json::{Value, json};
use sluicegate::identify::Principal;
use sluicegate::identify::api_key::{KEYS_MAX, KeyHash};
use sluicegate::rules::RuleSet;
use sluicegate::rules::file::field::{Absent, Described, Field, Form, Mapping};
use sluicegate::rules::file::{self, Document, Environment, Problems, Section};

use read::UniqueNames;

/// The keys of a file with rule documents, besides those of the library.
pub(crate) static CONTENT: Mapping = Mapping {
    doc: "What operators change while the server runs, besides the rules.",
    fields: &[&TENANTS, &OVERRIDES, &KEYS],
    constraints: &[],
};

/// The key `tenants`.
pub(crate) static TENANTS: Field<Described> = Field {
    key: "tenants",
    doc: "Tenants with settings of their own. Other tenants are allowed, too.",
    kind: Described(|| Form::List {
        noun: "[tenants](#tenants-overrides-keys)",
        item: Box::new(Form::Mapping(&read::TENANT_ENTRY)),
        min: 0,
        max: Some(TENANTS_MAX),
        is_unique: false,
    }),
    absent: Absent::Default("[]"),
    examples: &[],
};

/// The key `overrides`.
pub(crate) static OVERRIDES: Field<Described> = Field {
    key: "overrides",
    doc: "Overrides that are listed apart from their rules. They come after the overrides of the rule itself.",
    kind: Described(|| Form::List {
        noun: "[overrides](#tenants-overrides-keys)",
        item: Box::new(Form::Mapping(&read::OVERRIDE)),
        min: 0,
        max: Some(OVERRIDES_MAX),
        is_unique: false,
    }),
    absent: Absent::Default("[]"),
    examples: &[],
};

/// The key `keys`.
pub(crate) static KEYS: Field<Described> = Field {
    key: "keys",
    doc: "API keys, valid wherever `identity` has an `api_key`.",
    kind: Described(|| Form::List {
        noun: "[API keys](#tenants-overrides-keys)",
        item: Box::new(Form::Mapping(&read::KEY)),
        min: 0,
        max: Some(KEYS_MAX),
        is_unique: false,
    }),
    absent: Absent::Default("[]"),
    examples: &[],
};

/// The names of the entries that are single values instead of list items.
pub(crate) const SETTINGS: &[&str] = &["tiers", "unmatched"];
/// The most tenants: each disabled one becomes a rule.
pub(crate) const TENANTS_MAX: usize = 10_000;
/// The most standalone overrides: adding one scans those of its rule.
pub(crate) const OVERRIDES_MAX: usize = 10_000;

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// `tiers` or `unmatched`.
    Setting,
    /// A tenant with settings of its own.
    Tenant,
    /// A rule of the list `rules`.
    Rule,
    /// An override that is listed apart from its rule.
    Override,
    /// An API key.
    Key,
}

impl Kind {
    /// All kinds in the order of a file.
    pub(crate) const ALL: [Self; 5] = [Self::Setting, Self::Tenant, Self::Rule, Self::Override, Self::Key];

    /// The singular noun for messages and URLs.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Setting => "setting",
            Self::Tenant => "tenant",
            Self::Rule => "rule",
            Self::Override => "override",
            Self::Key => "key",
        }
    }

    /// The key of the list in a file; empty for settings.
    pub(crate) const fn list(self) -> &'static str {
        match self {
            Self::Setting => "",
            Self::Tenant => "tenants",
            Self::Rule => "rules",
            Self::Override => "overrides",
            Self::Key => "keys",
        }
    }

    /// The kind with this [`Kind::word`].
    pub(crate) fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }
}

/// A named document at one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Its kind.
    pub(crate) kind: Kind,
    /// Its name, unique within its kind.
    pub(crate) name: Box<str>,
    /// Its position among the entries of its kind; gaps are possible.
    pub(crate) position: i64,
    /// The revision of its last change.
    pub(crate) version: i64,
    /// Its body: JSON on one line.
    pub(crate) body: Arc<str>,
}

impl Entry {
    /// An entry without a version or a position yet.
    pub(crate) fn new(kind: Kind, name: &str, body: &Value) -> Self {
        Self { kind, name: name.into(), position: 0, version: 0, body: body.to_string().into() }
    }

    /// Its body as JSON.
    pub(crate) fn value(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or(Value::Null)
    }
}

/// All documents at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RuleDocuments {
    /// Increases with every change; 0 before the first.
    pub(crate) revision: i64,
    /// All entries, ordered by kind and then by position.
    pub(crate) entries: Vec<Entry>,
    /// The kinds without a list in the file. An absent list leaves a database unchanged, an empty one clears it.
    pub(crate) absent_kinds: Vec<Kind>,
}

/// Rules and API keys that are ready for use.
#[derive(Clone, Debug)]
pub(crate) struct CompiledRules {
    /// The rules, including standalone overrides and disabled tenants.
    pub(crate) rules: RuleSet,
    /// The API keys.
    pub(crate) keys: Vec<(KeyHash, Principal)>,
}

impl RuleDocuments {
    /// All entries of a kind, in their order.
    pub(crate) fn of(&self, kind: Kind) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |entry| entry.kind == kind)
    }

    /// The entry of this name.
    pub(crate) fn get(&self, kind: Kind, name: &str) -> Option<&Entry> {
        self.of(kind).find(|entry| &*entry.name == name)
    }

    /// Whether the file has a list of this kind, even an empty one.
    pub(crate) fn covers(&self, kind: Kind) -> bool {
        !self.absent_kinds.contains(&kind)
    }

    /// Rules and keys that are ready for use, or all problems.
    pub(crate) fn compile(&self) -> Result<CompiledRules, Problems> {
        let environment = Environment::new();
        let document = Document::parse(self.file(Keys::LeftOut), "content", &environment);
        let top =
            document.root().and_then(|root| root.section(&[CONTENT.keys(), file::RULES_FILE.keys()].concat()));
        let compiled = top.and_then(|top| compose::read(&top));
        let rules = document.finish(compiled)?.rules;
        Ok(CompiledRules { rules, keys: self.compile_keys(&environment)? })
    }

    /// Reads keys one by one, because there can be more of them than fit in a file.
    fn compile_keys(&self, environment: &Environment) -> Result<Vec<(KeyHash, Principal)>, Problems> {
        let mut seen = UniqueNames::default();
        self.of(Kind::Key)
            .map(|entry| {
                let document = Document::parse(&*entry.body, "key", environment);
                let key = document.root().and_then(|root| read::key_among(&root, &mut seen, KEYS_MAX));
                document.finish(key).map(|key| (key.hash, key.owner))
            })
            .collect()
    }

    /// The text of a file with all entries, one per line.
    pub(crate) fn file(&self, keys: Keys) -> String {
        let setting =
            |name| self.get(Kind::Setting, name).map_or_else(|| default_of(name), |entry| entry.body.to_string());
        let settings = SETTINGS.iter().map(|name| format!("\"{name}\": {}", setting(name)));
        let kinds = Kind::ALL.into_iter().filter(|kind| match kind {
            Kind::Setting => false,
            Kind::Key => keys == Keys::Included,
            Kind::Tenant | Kind::Rule | Kind::Override => true,
        });
        let lists = kinds.map(|kind| {
            let lines: Vec<String> = self.of(kind).map(|entry| format!("  {}", entry.body)).collect();
            match lines.as_slice() {
                [] => format!("\"{}\": []", kind.list()),
                lines => format!("\"{}\": [\n{}\n]", kind.list(), lines.join(",\n")),
            }
        });
        format!("{{\n{}\n}}\n", settings.chain(lists).collect::<Vec<_>>().join(",\n"))
    }
}

/// Whether a rendered file includes the API keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    /// With the API keys.
    Included,
    /// Without the API keys.
    LeftOut,
}

fn default_of(setting: &str) -> String {
    let default = if setting == "tiers" { json!([]) } else { json!("allow") };
    default.to_string()
}

/// The documents of a file with a valid top level. Environment variables are replaced by their values.
pub(crate) fn of_file(top: &Section<'_>) -> Option<RuleDocuments> {
    let (mut entries, mut absent_kinds) = (Vec::new(), Vec::new());
    for name in SETTINGS {
        if let Some(value) = top.get(name) {
            entries.push(Entry::new(Kind::Setting, name, &json::of(value)?));
        }
    }
    for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Setting) {
        let Some(list) = top.get(kind.list()) else {
            absent_kinds.push(kind);
            continue;
        };
        for (item, position) in list.list("")?.iter().zip(0..) {
            let body = json::of(item)?;
            entries.push(Entry { position, ..Entry::new(kind, &name_of(&body)?, &body) });
        }
    }
    Some(RuleDocuments { revision: 0, entries, absent_kinds })
}

/// The name in a body, with escapes resolved.
pub(crate) fn name_of(body: &Value) -> Option<String> {
    Some(body.get("name")?.as_str()?.replace("$${", "${"))
}

/// A name for one line of output, quoted if it has special characters.
pub(crate) fn shown(name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if name.bytes().all(is_plain) { name.to_owned() } else { format!("{name:?}") }
}
