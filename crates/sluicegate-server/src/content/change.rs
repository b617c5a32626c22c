//! Changes of content: what somebody wants, and what it comes to. A change is refused as a whole or made as a whole.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;
use sluicegate::rules::file::Problems;

use super::{Content, Entry, Kind};

/// What became of one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Changed {
    /// What it is.
    pub(crate) kind: Kind,
    /// Its name.
    pub(crate) name: Box<str>,
    /// What it was, if it was there.
    pub(crate) before: Option<Arc<str>>,
    /// What it is, if it is there.
    pub(crate) after: Option<Arc<str>>,
}

impl Changed {
    /// In a word.
    pub(crate) const fn action(&self) -> &'static str {
        match (&self.before, &self.after) {
            (None, _) => "create",
            (Some(_), Some(_)) => "update",
            (Some(_), None) => "delete",
        }
    }
}

/// Why a change is not made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// There is one of that name.
    #[error("a {} called {name} is there already; change it with PUT, or use another name", kind.word())]
    Exists {
        /// What.
        kind: Kind,
        /// Its name.
        name: String,
    },
    /// There is none of that name.
    #[error("no {} is called {name}", kind.word())]
    Absent {
        /// What.
        kind: Kind,
        /// Its name.
        name: String,
    },
    /// Somebody else was faster.
    #[error("the {} {name} was changed since; read it again, and repeat the change on that", kind.word())]
    Stale {
        /// What.
        kind: Kind,
        /// Its name.
        name: String,
    },
    /// The whole would not be usable.
    #[error("{0}")]
    Invalid(Problems),
    /// The database is in use already.
    #[error("the database is not empty")]
    NotEmpty,
}

impl Content {
    /// Gives an entry a body, or takes it away. `None` if that changes nothing.
    pub(crate) fn set(&mut self, kind: Kind, name: &str, body: Option<&Value>) -> Option<Changed> {
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
        Some(Changed { kind, name: name.into(), before, after })
    }

    /// Makes this content the same as `wanted` in all kinds that it speaks of, order included.
    pub(crate) fn take_over(&mut self, wanted: &Self, speaks_of: impl Fn(Kind) -> bool) -> Vec<Changed> {
        let kinds: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| speaks_of(*kind)).collect();
        kinds.into_iter().flat_map(|kind| self.take_over_kind(kind, wanted)).collect()
    }

    fn take_over_kind(&mut self, kind: Kind, wanted: &Self) -> Vec<Changed> {
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
                    changed.push(Changed { kind, name: new.name.clone(), before, after });
                }
            }
        }
        let gone =
            |(name, entry): (Box<str>, Entry)| Changed { kind, name, before: Some(entry.body), after: None };
        changed.extend(old.into_iter().map(gone));
        self.entries.sort_by_key(|entry| (entry.kind, entry.position));
        changed
    }
}
