//! Atomic changes of rule documents: each applies as a whole or fails as a whole.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;
use sluicegate::rules::file::Problems;

use super::{Entry, Kind, RuleDocuments};

/// The change of one entry, for the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AppliedChange {
    /// Its kind.
    pub(crate) kind: Kind,
    /// Its name.
    pub(crate) name: Box<str>,
    /// The previous body; `None` if the entry is new.
    pub(crate) before: Option<Arc<str>>,
    /// The new body; `None` if the entry was deleted.
    pub(crate) after: Option<Arc<str>>,
}

impl AppliedChange {
    /// The action: create, update or delete.
    pub(crate) const fn action(&self) -> &'static str {
        match (&self.before, &self.after) {
            (None, _) => "create",
            (Some(_), Some(_)) => "update",
            (Some(_), None) => "delete",
        }
    }
}

/// The reason that a change fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChangeError {
    /// An entry of that name exists.
    #[error("a {} called {name} is there already; change it with PUT, or use another name", kind.word())]
    Exists {
        /// Its kind.
        kind: Kind,
        /// Its name.
        name: String,
    },
    /// No entry has that name.
    #[error("no {} is called {name}", kind.word())]
    Absent {
        /// Its kind.
        kind: Kind,
        /// Its name.
        name: String,
    },
    /// Another change came first: the precondition (`If-Match`) no longer holds.
    #[error("the {} {name} was changed since; read it again, and repeat the change on that", kind.word())]
    Stale {
        /// Its kind.
        kind: Kind,
        /// Its name.
        name: String,
    },
    /// An override refers to the entry.
    #[error("the override {by} is for the {} {name}; delete that first", kind.word())]
    InUse {
        /// Its kind.
        kind: Kind,
        /// Its name.
        name: String,
        /// The name of the override.
        by: String,
    },
    /// The documents would be invalid after the change.
    #[error("{0}")]
    Invalid(Problems),
    /// An import needs an empty database.
    #[error("the database is not empty")]
    NotEmpty,
}

impl RuleDocuments {
    /// Sets the body of an entry, or deletes it. `None` if that changes nothing.
    pub(crate) fn set(&mut self, kind: Kind, name: &str, body: Option<&Value>) -> Option<AppliedChange> {
        let place = self.entries.iter().position(|entry| entry.kind == kind && &*entry.name == name);
        let before = place.map(|place| Arc::clone(&self.entries[place].body));
        let is_same = place.is_some_and(|place| body == Some(&self.entries[place].value()));
        if is_same || (place.is_none() && body.is_none()) {
            return None;
        }
        let version = self.revision + 1;
        let entry = body.map(|body| Entry { version, ..Entry::new(kind, name, body) });
        let after = entry.as_ref().map(|entry| Arc::clone(&entry.body));
        match (place, entry) {
            (Some(place), Some(entry)) => {
                let position = self.entries[place].position;
                self.entries[place] = Entry { position, ..entry };
            }
            (Some(place), None) => drop(self.entries.remove(place)),
            (None, Some(entry)) => {
                let position = self.of(kind).last().map_or(0, |last| last.position + 1);
                let place = self.entries.partition_point(|other| other.kind <= kind);
                self.entries.insert(place, Entry { position, ..entry });
            }
            (None, None) => {}
        }
        Some(AppliedChange { kind, name: name.into(), before, after })
    }

    /// Replaces the entries of every kind for which `covers` is true by those of `wanted`, order included.
    pub(crate) fn take_over(&mut self, wanted: &Self, covers: impl Fn(Kind) -> bool) -> Vec<AppliedChange> {
        let kinds: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| covers(*kind)).collect();
        kinds.into_iter().flat_map(|kind| self.take_over_kind(kind, wanted)).collect()
    }

    fn take_over_kind(&mut self, kind: Kind, wanted: &Self) -> Vec<AppliedChange> {
        let version = self.revision + 1;
        let (old, others): (Vec<Entry>, Vec<Entry>) =
            std::mem::take(&mut self.entries).into_iter().partition(|entry| entry.kind == kind);
        let mut old: HashMap<Box<str>, Entry> = old.into_iter().map(|entry| (entry.name.clone(), entry)).collect();
        self.entries = others;
        let mut changed = Vec::new();
        for (new, position) in wanted.of(kind).zip(0..) {
            let before = old.remove(&new.name);
            let is_same = before.as_ref().is_some_and(|before| before.value() == new.value());
            match before {
                Some(before) if is_same => self.entries.push(Entry { position, ..before }),
                before => {
                    self.entries.push(Entry { position, version, ..new.clone() });
                    let (before, after) = (before.map(|before| before.body), Some(Arc::clone(&new.body)));
                    changed.push(AppliedChange { kind, name: new.name.clone(), before, after });
                }
            }
        }
        let gone =
            |(name, entry): (Box<str>, Entry)| AppliedChange { kind, name, before: Some(entry.body), after: None };
        changed.extend(old.into_iter().map(gone));
        self.entries.sort_by_key(|entry| (entry.kind, entry.position));
        changed
    }
}
