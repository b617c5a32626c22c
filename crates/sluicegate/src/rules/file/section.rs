//! Mappings. The caller that opens a [`Section`] lists all of its keys, so a misspelled key is an error and never a
//! setting that is silently ignored.

use super::field::{Absent, Field, Kind};
use super::problem::ValueError;
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
            ValueError::new("unknown key", remedy)
        });
    }
}

/// A mapping with known keys.
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

    /// The value of `key`, if it is present.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Reader<'d>> {
        self.entries.iter().find(|pair| pair.name == key).map(|pair| &pair.value)
    }

    /// The value of `field`, or its default if the key is absent. `None` means that a problem was reported.
    ///
    /// A field without a default that is not required is read with [`Section::read_optional`].
    pub fn read<K: Kind>(&self, field: &Field<K>) -> Option<K::Value> {
        match field.absent {
            Absent::Required(remedy) => field.kind.read(self.required(field.key, remedy)?),
            Absent::Default(_) | Absent::Nothing(_) => match self.read_optional(field)? {
                Some(value) => Some(value),
                None => field.default().or_else(|| {
                    self.of.ensure_reported();
                    None
                }),
            },
        }
    }

    /// The reader of the value of `field`, for values that need more than their own text to be read. A required key
    /// that is absent is reported.
    #[must_use]
    pub fn find<K>(&self, field: &Field<K>) -> Option<&Reader<'d>> {
        match field.absent {
            Absent::Required(remedy) => self.required(field.key, remedy),
            Absent::Default(_) | Absent::Nothing(_) => self.get(field.key),
        }
    }

    /// The value of `field`, or nothing if the key is absent. `None` means that a problem was reported.
    pub fn read_optional<K: Kind>(&self, field: &Field<K>) -> Option<Option<K::Value>> {
        self.optional(field.key, None, |reader| field.kind.read(reader).map(Some))
    }

    /// The value of `key`. An absent key is a problem with this `remedy`.
    #[must_use]
    pub fn required(&self, key: &str, remedy: &str) -> Option<&Reader<'d>> {
        let found = self.get(key);
        if found.is_none() {
            self.of.without(key).report_as(ValueError::new("missing key", remedy), None);
        }
        found
    }

    /// The result of `read` for the value of `key`, or `default` if the key is absent.
    pub fn optional<T>(&self, key: &str, default: T, read: impl FnOnce(&Reader<'d>) -> Option<T>) -> Option<T> {
        let Some(reader) = self.get(key) else { return Some(default) };
        let value = read(reader);
        if value.is_none() {
            reader.ensure_reported();
        }
        value
    }
}
