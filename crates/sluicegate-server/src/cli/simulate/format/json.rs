//! JSON lines: one object per line, of which a few members are read and all others passed over.
//!
//! Numbers are taken as they are written, so that no time goes through a float. Of several members that could be meant,
//! the first of [`FieldMap::names`] that has a value counts; of several of one name, the last.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer as _, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use smallvec::SmallVec;

use super::fields::{FieldMap, SLOTS, Slot};
use super::request::method_and_target;
use super::{Fault, Line, present, time};

/// About as many names are looked for.
const PLACES: usize = 32;

/// A parser for JSON lines.
#[derive(Debug)]
pub(crate) struct Json {
    wanted: Vec<Wanted>,
    /// The values of the line at hand, in the order of `wanted`.
    values: Vec<Value>,
}

/// One member that may be there.
#[derive(Debug)]
struct Wanted {
    slot: Slot,
    name: Box<str>,
}

/// A value as text, kept between lines for its room.
#[derive(Debug, Default)]
struct Value {
    is_there: bool,
    text: Vec<u8>,
}

impl Json {
    pub(crate) fn new(fields: &FieldMap) -> Self {
        let wanted: Vec<Wanted> = SLOTS
            .iter()
            .flat_map(|(_, slot, _)| {
                fields.names(*slot).into_iter().map(|name| Wanted { slot: *slot, name: name.into() })
            })
            .collect();
        let values = wanted.iter().map(|_| Value::default()).collect();
        Self { wanted, values }
    }

    pub(crate) fn parse<'a>(&'a mut self, line: &'a [u8]) -> Result<Line<'a>, Fault> {
        let text = std::str::from_utf8(line).map_err(|_| Fault::NotText)?;
        for value in &mut self.values {
            value.is_there = false;
        }
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let all: SmallVec<[(usize, &str); PLACES]> =
            self.wanted.iter().enumerate().map(|(index, wanted)| (index, &*wanted.name)).collect();
        let members = Members { wanted: &all, values: &mut self.values };
        let read = deserializer.deserialize_map(members).and_then(|()| deserializer.end());
        read.map_err(|_| Fault::NotJson)?;
        let time = self.value(Slot::Time).ok_or(Fault::NoTime)?;
        let at_micros = time::any(time).ok_or(Fault::BadTime)?;
        let client = self.value(Slot::Ip).ok_or(Fault::NoAddress)?;
        let (method, target) = match (self.value(Slot::Method), self.value(Slot::Path)) {
            (Some(method), Some(target)) => (method, target),
            (method, target) => match self.value(Slot::Request) {
                Some(request) => method_and_target(request)?,
                None => (method.unwrap_or(b"GET"), target.ok_or(Fault::NoRequest)?),
            },
        };
        let optional = |slot| self.value(slot);
        Ok(Line {
            at_micros,
            client,
            method,
            target,
            identity: optional(Slot::Identity),
            tenant: optional(Slot::Tenant),
            tier: optional(Slot::Tier),
        })
    }

    fn value(&self, slot: Slot) -> Option<&[u8]> {
        let of_slot = self.wanted.iter().zip(&self.values).filter(|(wanted, _)| wanted.slot == slot);
        of_slot.filter(|(_, value)| value.is_there).find_map(|(_, value)| present(&value.text))
    }
}

/// Reads one object: members whose names are wanted, and objects that wanted names lead into.
struct Members<'w, 'v> {
    /// The places of values, and what is left of their names here.
    wanted: &'w [(usize, &'w str)],
    values: &'v mut [Value],
}

/// The name of a member, borrowed unless it is escaped.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> Visitor<'de> for Members<'_, '_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { wanted, values } = self;
        while let Some(Name(name)) = map.next_key()? {
            let is_wanted = wanted.iter().any(|(_, path)| *path == name || inner(path, &name).is_some());
            if !is_wanted {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let raw = map.next_value::<&RawValue>()?.get();
            if raw.starts_with('{') {
                within(raw, &name, wanted, values).map_err(A::Error::custom)?;
            } else {
                let places = wanted.iter().filter(|(_, path)| *path == name);
                places.for_each(|(place, _)| values[*place].set(raw));
            }
        }
        Ok(())
    }
}

/// What is left of a path inside the object called `name`, if it leads there.
fn inner<'p>(path: &'p str, name: &str) -> Option<&'p str> {
    path.strip_prefix(name)?.strip_prefix('.')
}

/// Reads the object called `name`. Every level takes a part of the name, so this goes no deeper than names do.
fn within(raw: &str, name: &str, wanted: &[(usize, &str)], values: &mut [Value]) -> Result<(), serde_json::Error> {
    let wanted: SmallVec<[(usize, &str); PLACES]> =
        wanted.iter().filter_map(|(place, path)| Some((*place, inner(path, name)?))).collect();
    serde_json::Deserializer::from_str(raw).deserialize_map(Members { wanted: &wanted, values })
}

impl Value {
    /// Takes the text of a value that is no object: a string without its quotes and escapes, a number as it is written.
    /// Lists, truths and nulls say nothing.
    fn set(&mut self, raw: &str) {
        self.text.clear();
        match raw.as_bytes() {
            [b'"', text @ .., b'"'] if !text.contains(&b'\\') => self.text.extend_from_slice(text),
            [b'"', ..] => match serde_json::from_str::<String>(raw) {
                Ok(text) => self.text.extend_from_slice(text.as_bytes()),
                // Half a surrogate is no text.
                Err(_) => return,
            },
            [b'0'..=b'9', ..] => self.text.extend_from_slice(raw.as_bytes()),
            _ => return,
        }
        self.is_there = true;
    }
}
