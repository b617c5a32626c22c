//! Parses JSON into checks: strictly, in one pass, without building a tree.
//!
//! A check is an object of at most five fields. Values are first kept as raw JSON text, so an error can show the value, and
//! numbers never become floats. An unknown, repeated or missing field, a value of the wrong type, and bytes after the
//! object invalidate the whole body.
//!
//! The library validates names (not empty, not too long, no control characters), for all front doors alike.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;
use serde_json::value::RawValue;
use sluicegate::Request;
use sluicegate::core::Cost;
use sluicegate::identity::DEFAULT_TENANT;

/// The most checks of one batch, fixed by the API contract. They are a fraction of a millisecond of work.
pub(crate) const BATCH_CHECKS_MAX: usize = 1_000;

/// Characters of a client's text that an error repeats.
const SHOWN_CHARS_MAX: usize = 64;

/// The fields of a check, in the order of [`RawFields`].
const FIELDS: [&str; 5] = ["tenant", "resource", "identifier", "cost", "tier"];

/// An example body of a single check, for errors.
const CHECK_EXAMPLE: &str = r#"{"resource":"demo","identifier":"alice"}"#;

/// An example body of a batch, for errors.
const BATCH_EXAMPLE: &str = r#"{"checks":[{"resource":"demo","identifier":"alice"}]}"#;

/// One parsed check. Text without escapes is borrowed from the body.
#[derive(Debug, PartialEq)]
pub(crate) struct Check<'b> {
    tenant: Option<Cow<'b, str>>,
    resource: Cow<'b, str>,
    identifier: Cow<'b, str>,
    cost: Option<Cost>,
    tier: Option<Cow<'b, str>>,
}

impl Check<'_> {
    /// The request to the limiter.
    pub(crate) fn request(&self) -> Request<'_> {
        let request = Request::new(&self.resource, &self.identifier);
        Request {
            tenant: self.tenant.as_deref().unwrap_or(DEFAULT_TENANT),
            tier: self.tier.as_deref(),
            cost: self.cost,
            ..request
        }
    }
}

/// An invalid body: the error and the path of the field, such as `checks[3].cost`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub(crate) struct InvalidBody {
    /// The invalid field, if the error concerns one field.
    pub(crate) field: Option<String>,
    /// The error, the value and the remedy.
    pub(crate) detail: String,
}

/// Parses the body of a single check.
pub(crate) fn check(body: &[u8]) -> Result<Check<'_>, InvalidBody> {
    read(body, CHECK_EXAMPLE, |deserializer, trace| CheckReader(trace).deserialize(deserializer))
}

/// Parses the body of a batch, `{"checks":[…]}`.
pub(crate) fn batch(body: &[u8]) -> Result<Vec<Check<'_>>, InvalidBody> {
    read(body, BATCH_EXAMPLE, |deserializer, trace| BatchReader(trace).deserialize(deserializer))
}

type BodyReader<'b> = serde_json::Deserializer<serde_json::de::SliceRead<'b>>;

fn read<'b, T>(
    body: &'b [u8],
    example: &str,
    read: impl FnOnce(&mut BodyReader<'b>, &mut Trace) -> serde_json::Result<T>,
) -> Result<T, InvalidBody> {
    let mut trace = Trace::default();
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let value = read(&mut deserializer, &mut trace);
    let whole = value.and_then(|value| deserializer.end().map(|()| value));
    whole.map_err(|error| trace.explain(&error, body, example))
}

/// The parser's position in the body, and its error. serde's errors cannot carry either.
#[derive(Debug, Default)]
struct Trace {
    /// The index of the check in the batch.
    item: Option<usize>,
    /// The current field.
    field: Option<&'static str>,
    refused: Option<InvalidBody>,
}

impl Trace {
    /// The path of `field` at the current position.
    fn path(&self, field: &str) -> String {
        match self.item {
            Some(index) => format!("checks[{index}].{field}"),
            None => field.to_owned(),
        }
    }

    /// The path of the current field; `None` for the body itself.
    fn place(&self) -> Option<String> {
        match (self.item, self.field) {
            (_, Some(field)) => Some(self.path(field)),
            (Some(index), None) => Some(format!("checks[{index}]")),
            (None, None) => None,
        }
    }

    /// Records the error of `field`, and returns a serde error that stops the parser.
    fn refuse<E: Error>(&mut self, field: &str, problem: &str) -> E {
        let path = self.path(field);
        let detail = format!("`{path}` {problem}");
        self.refused = Some(InvalidBody { field: Some(path), detail });
        E::custom("refused")
    }

    /// The error for the client after the parser stopped with `error`. `example` is a valid body.
    fn explain(self, error: &serde_json::Error, body: &[u8], example: &str) -> InvalidBody {
        let place = self.place();
        if let Some(refused) = self.refused {
            return refused;
        }
        let remedy = format!("send for example {example}");
        let detail = match (&place, error.classify()) {
            // serde's own message would repeat the whole value.
            (Some(place), Category::Data) if place == "checks" => {
                format!("`checks` is not an array: send {{\"checks\":[…]}} with at most {BATCH_CHECKS_MAX} checks")
            }
            (Some(place), Category::Data) => format!("`{place}` is not an object: {remedy}"),
            (None, Category::Data) => format!("the body is not a JSON object: {remedy}"),
            (Some(place), _) => format!("`{place}` is not JSON ({error}): {remedy}"),
            (None, _) if body.is_empty() => format!("the body is empty: {remedy}"),
            (None, _) if body.starts_with(b"\xEF\xBB\xBF") => {
                "the body starts with a byte order mark: send UTF-8 without one".to_owned()
            }
            (None, _) => format!("the body is not JSON ({error}): {remedy}"),
        };
        InvalidBody { field: place, detail }
    }
}

/// The start of a client's text, with control characters escaped.
fn shown(text: &str) -> String {
    let mut shown = String::new();
    for character in text.chars().take(SHOWN_CHARS_MAX) {
        match character {
            '"' | '\'' | '\\' => shown.push(character),
            _ => shown.extend(character.escape_debug()),
        }
    }
    if text.chars().nth(SHOWN_CHARS_MAX).is_some() {
        shown.push('…');
    }
    shown
}

/// Parses one check.
struct CheckReader<'t>(&'t mut Trace);

impl<'de> DeserializeSeed<'de> for CheckReader<'_> {
    type Value = Check<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Check<'de>, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for CheckReader<'_> {
    type Value = Check<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Check<'de>, A::Error> {
        let trace = self.0;
        let mut raw: RawFields<'de> = [None; FIELDS.len()];
        while let Some(key) = map.next_key_seed(KeyReader(&FIELDS))? {
            let index = known(key, &FIELDS, trace)?;
            if raw[index].is_some() {
                return Err(trace.refuse(FIELDS[index], "is given twice: give it once"));
            }
            trace.field = Some(FIELDS[index]);
            raw[index] = Some(map.next_value()?);
            trace.field = None;
        }
        typed(raw, trace)
    }
}

/// The raw values of a check.
type RawFields<'b> = [Option<&'b RawValue>; FIELDS.len()];

fn typed<'b, E: Error>(raw: RawFields<'b>, trace: &mut Trace) -> Result<Check<'b>, E> {
    let [tenant, resource, identifier, cost, tier] = raw;
    // Clients in typed languages send null for unset fields; only the optional fields allow null.
    let set = |raw: Option<&'b RawValue>| raw.filter(|raw| raw.get() != "null");
    Ok(Check {
        tenant: set(tenant).map(|raw| text("tenant", raw, trace)).transpose()?,
        resource: text("resource", required("resource", resource, trace)?, trace)?,
        identifier: text("identifier", required("identifier", identifier, trace)?, trace)?,
        cost: cost.map(|raw| units(raw, trace)).transpose()?,
        tier: set(tier).map(|raw| text("tier", raw, trace)).transpose()?,
    })
}

fn required<'b, E: Error>(
    field: &'static str,
    raw: Option<&'b RawValue>,
    trace: &mut Trace,
) -> Result<&'b RawValue, E> {
    raw.ok_or_else(|| trace.refuse(field, "is missing: add it, as a string"))
}

fn text<'b, E: Error>(field: &'static str, raw: &'b RawValue, trace: &mut Trace) -> Result<Cow<'b, str>, E> {
    let json = raw.get();
    let quoted = json.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    match quoted {
        Some(plain) if !plain.contains('\\') => Ok(Cow::Borrowed(plain)),
        // An escape may be no character, such as half of a surrogate pair.
        Some(_) => serde_json::from_str(json).map(Cow::Owned).map_err(|_| {
            let problem = format!("is {}: its escapes stand for no text, use valid Unicode", shown(json));
            trace.refuse(field, &problem)
        }),
        None => Err(trace.refuse(field, &format!("is {}: use a string", shown(json)))),
    }
}

fn units<E: Error>(raw: &RawValue, trace: &mut Trace) -> Result<Cost, E> {
    let json = raw.get();
    let digits = json.bytes().all(|byte| byte.is_ascii_digit());
    match json.parse() {
        Ok(units) if digits => Ok(Cost::new(units)),
        _ => {
            let remedy = "use a whole number from 0 to 4294967295, without quotes, sign, fraction or exponent";
            Err(trace.refuse("cost", &format!("is {}: {remedy}", shown(json))))
        }
    }
}

/// Parses a batch.
struct BatchReader<'t>(&'t mut Trace);

impl<'de> DeserializeSeed<'de> for BatchReader<'_> {
    type Value = Vec<Check<'de>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for BatchReader<'_> {
    type Value = Vec<Check<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        const FIELDS: [&str; 1] = ["checks"];
        let trace = self.0;
        let mut checks = None;
        while let Some(key) = map.next_key_seed(KeyReader(&FIELDS))? {
            known(key, &FIELDS, trace)?;
            if checks.is_some() {
                return Err(trace.refuse("checks", "is given twice: give it once"));
            }
            trace.field = Some("checks");
            checks = Some(map.next_value_seed(ChecksReader(trace))?);
        }
        checks.ok_or_else(|| trace.refuse("checks", "is missing: add it, as an array of checks"))
    }
}

/// Parses the list of a batch.
struct ChecksReader<'t>(&'t mut Trace);

impl<'de> DeserializeSeed<'de> for ChecksReader<'_> {
    type Value = Vec<Check<'de>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for ChecksReader<'_> {
    type Value = Vec<Check<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let trace = self.0;
        trace.field = None;
        let mut checks = Vec::new();
        while checks.len() < BATCH_CHECKS_MAX {
            trace.item = Some(checks.len());
            match list.next_element_seed(CheckReader(trace))? {
                Some(check) => checks.push(check),
                None => {
                    trace.item = None;
                    return Ok(checks);
                }
            }
        }
        trace.item = None;
        trace.field = Some("checks");
        if list.next_element::<IgnoredAny>()?.is_some() {
            let problem = format!("has more than {BATCH_CHECKS_MAX} checks: send several batches");
            return Err(trace.refuse("checks", &problem));
        }
        trace.field = None;
        Ok(checks)
    }
}

/// A field name: its index among the known fields, or the start of the unknown name.
enum Key {
    Known(usize),
    Unknown(String),
}

/// The index of `key` among `fields`, or an error that names both.
fn known<E: Error>(key: Key, fields: &[&str], trace: &mut Trace) -> Result<usize, E> {
    match key {
        Key::Known(index) => Ok(index),
        Key::Unknown(name) => {
            let problem = format!("is not a field of this body: use only {}", fields.join(", "));
            Err(trace.refuse(&name, &problem))
        }
    }
}

/// Parses a field name without keeping it.
struct KeyReader(&'static [&'static str]);

impl<'de> DeserializeSeed<'de> for KeyReader {
    type Value = Key;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Key, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KeyReader {
    type Value = Key;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Key, E> {
        let position = self.0.iter().position(|field| *field == name);
        Ok(position.map_or_else(|| Key::Unknown(shown(name)), Key::Known))
    }
}

#[cfg(test)]
mod tests;
