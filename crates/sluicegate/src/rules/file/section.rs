//! Mappings. Whoever opens a [`Section`] names all keys it may have, so that a slip of the finger is an error
//! and never a setting that is silently not there.

use super::problem::Wrong;
use super::reader::Reader;
use super::suggest::with_closest;

/// A key and its value.
#[derive(Clone, Debug)]
pub struct Pair<'d> {
    /// The key's text.
    pub name: &'d str,
    /// The key.
    pub key: Reader<'d>,
    /// The value.
    pub value: Reader<'d>,
}

impl Pair<'_> {
    fn report_unknown(&self, known: &[&str]) {
        self.key.report_lazily(None, || {
            let keys = format!("the keys here are: {}", known.join(", "));
            let remedy = match self.name {
                "<<" => format!("write the keys out, merge keys are not supported; {keys}"),
                name => with_closest(name, known, &keys),
            };
            Wrong::new("unknown key", remedy)
        });
    }
}

/// A mapping whose keys are known.
#[derive(Clone, Debug)]
pub struct Section<'d> {
    of: Reader<'d>,
    entries: Vec<Pair<'d>>,
}

impl<'d> Section<'d> {
    pub(super) fn new(of: Reader<'d>, entries: Vec<Pair<'d>>) -> Self {
        Self { of, entries }
    }

    /// The mapping itself.
    #[must_use]
    pub fn reader(&self) -> &Reader<'d> {
        &self.of
    }

    /// Reports the keys that are not among `known`.
    pub fn only(&self, known: &[&str]) {
        let unknown = self.entries.iter().filter(|pair| !known.contains(&pair.name));
        unknown.for_each(|pair| pair.report_unknown(known));
    }

    /// The value of `key`, if it is there.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Reader<'d>> {
        self.entries.iter().find(|pair| pair.name == key).map(|pair| &pair.value)
    }

    /// The value of `key`; if it is not there, that is a problem with this `remedy`.
    #[must_use]
    pub fn required(&self, key: &str, remedy: &str) -> Option<&Reader<'d>> {
        let found = self.get(key);
        if found.is_none() {
            self.of.without(key).report_as(Wrong::new("missing key", remedy), None);
        }
        found
    }

    /// What `read` makes of the value of `key`, or `default` if it is not there.
    pub fn optional<T>(&self, key: &str, default: T, read: impl FnOnce(&Reader<'d>) -> Option<T>) -> Option<T> {
        let Some(reader) = self.get(key) else { return Some(default) };
        let value = read(reader);
        if value.is_none() {
            reader.give_up();
        }
        value
    }
}
