//! What operators change while traffic flows: rules, tiers, tenants, overrides and API keys, as entries with a name and
//! a body of JSON, in the shapes of the configuration file.
//!
//! A file and a database hold the same [`Content`], and both are given their meaning by the same readers, so nothing can
//! be in the one that could not be in the other. [`Content::compile`] tells whether all entries together can be used;
//! what a database holds is as little trusted as what a client sends, so it sees no environment variable.
//!
//! It neither reads files nor asks databases.

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
use sluicegate::rules::file::{self, Document, Environment, Problems, Section};

use read::Named;

/// The keys of a file that hold content.
pub(crate) const KEYS: &[&str] = &["tenants", "overrides", "keys"];
/// The names of the entries that are not in a list.
pub(crate) const SETTINGS: &[&str] = &["tiers", "unmatched"];
/// The most tenants: each that is disabled is a rule.
pub(crate) const TENANTS_MAX: usize = 10_000;
/// The most overrides that stand apart from their rules: they are looked through one by one.
pub(crate) const OVERRIDES_MAX: usize = 10_000;

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// `tiers` or `unmatched`.
    Setting,
    /// A tenant.
    Tenant,
    /// A rule.
    Rule,
    /// An override that stands apart from its rule.
    Override,
    /// An API key.
    Key,
}

impl Kind {
    /// All of them, in the order of a file.
    pub(crate) const ALL: [Self; 5] = [Self::Setting, Self::Tenant, Self::Rule, Self::Override, Self::Key];

    /// The word for one of them.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Setting => "setting",
            Self::Tenant => "tenant",
            Self::Rule => "rule",
            Self::Override => "override",
            Self::Key => "key",
        }
    }

    /// The key of their list in a file; settings have none.
    pub(crate) const fn list(self) -> &'static str {
        match self {
            Self::Setting => "",
            Self::Tenant => "tenants",
            Self::Rule => "rules",
            Self::Override => "overrides",
            Self::Key => "keys",
        }
    }

    /// The kind that a word stands for.
    pub(crate) fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// What it is.
    pub(crate) kind: Kind,
    /// Its name, unique within its kind.
    pub(crate) name: Box<str>,
    /// Its place among those of its kind; there may be gaps.
    pub(crate) position: i64,
    /// The revision that it was last changed in.
    pub(crate) version: i64,
    /// Its body: JSON on one line.
    pub(crate) body: Arc<str>,
}

impl Entry {
    /// An entry that no revision has seen yet.
    pub(crate) fn new(kind: Kind, name: &str, body: &Value) -> Self {
        Self { kind, name: name.into(), position: 0, version: 0, body: body.to_string().into() }
    }

    /// Its body.
    pub(crate) fn value(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or(Value::Null)
    }
}

/// Everything, at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Content {
    /// Grows with every change; 0 where there was none yet.
    pub(crate) revision: i64,
    /// In the order of kinds, and within a kind as they came.
    pub(crate) entries: Vec<Entry>,
    /// The kinds that a file has no list of, which is not the same as an empty one.
    pub(crate) silent_on: Vec<Kind>,
}

/// What decides, made of content.
#[derive(Clone, Debug)]
pub(crate) struct Compiled {
    /// The rules, with overrides and disabled tenants in them.
    pub(crate) rules: RuleSet,
    /// The API keys.
    pub(crate) keys: Vec<(KeyHash, Principal)>,
}

impl Content {
    /// All entries of a kind, in their order.
    pub(crate) fn of(&self, kind: Kind) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |entry| entry.kind == kind)
    }

    /// The entry of this name.
    pub(crate) fn get(&self, kind: Kind, name: &str) -> Option<&Entry> {
        self.of(kind).find(|entry| &*entry.name == name)
    }

    /// Whether it says anything about a kind, be it that there are none.
    pub(crate) fn speaks_of(&self, kind: Kind) -> bool {
        !self.silent_on.contains(&kind)
    }

    /// What decides, or everything that is wrong.
    pub(crate) fn compile(&self) -> Result<Compiled, Problems> {
        let environment = Environment::new();
        let document = Document::parse(self.file(Keys::LeftOut), "content", &environment);
        let top = document.root().and_then(|root| root.section(&[KEYS, file::KEYS].concat()));
        let compiled = top.and_then(|top| compose::read(&top));
        let rules = document.finish(compiled)?.rules;
        Ok(Compiled { rules, keys: self.compile_keys(&environment)? })
    }

    /// Keys one by one, because there may be more of them than a file can hold.
    fn compile_keys(&self, environment: &Environment) -> Result<Vec<(KeyHash, Principal)>, Problems> {
        let mut seen = Named::default();
        self.of(Kind::Key)
            .map(|entry| {
                let document = Document::parse(&*entry.body, "key", environment);
                let key = document.root().and_then(|root| read::key_among(&root, &mut seen, KEYS_MAX));
                document.finish(key).map(|key| (key.hash, key.owner))
            })
            .collect()
    }

    /// The text of a file with all of this, one entry a line.
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

/// Whether a file has the API keys, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    /// It has.
    Included,
    /// It has not.
    LeftOut,
}

fn default_of(setting: &str) -> String {
    let default = if setting == "tiers" { json!([]) } else { json!("allow") };
    default.to_string()
}

/// The content of a file whose top level was read without a problem. Variables are replaced by what they stand for.
pub(crate) fn of_file(top: &Section<'_>) -> Option<Content> {
    let (mut entries, mut silent_on) = (Vec::new(), Vec::new());
    for name in SETTINGS {
        if let Some(value) = top.get(name) {
            entries.push(Entry::new(Kind::Setting, name, &json::of(value)?));
        }
    }
    for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Setting) {
        let Some(list) = top.get(kind.list()) else {
            silent_on.push(kind);
            continue;
        };
        for (item, position) in list.list("")?.iter().zip(0..) {
            let body = json::of(item)?;
            entries.push(Entry { position, ..Entry::new(kind, &name_of(&body)?, &body) });
        }
    }
    Some(Content { revision: 0, entries, silent_on })
}

/// The name in a body, as its reader reads it.
pub(crate) fn name_of(body: &Value) -> Option<String> {
    Some(body.get("name")?.as_str()?.replace("$${", "${"))
}

/// A name as one line can show it: quoted where it could be misread.
pub(crate) fn shown(name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if name.bytes().all(is_plain) { name.to_owned() } else { format!("{name:?}") }
}
