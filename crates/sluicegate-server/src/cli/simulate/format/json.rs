//! JSON lines, one object per line, and the option `--fields` that names their members.
//!
//! The parser skips all members that no field needs. It takes numbers as text, so a time never becomes a float. For each
//! field, the first name of [`FieldMap::names`] that has a value counts. If a member occurs twice, the last one counts.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::Deserialize;
use serde::de::{Deserializer as _, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use smallvec::SmallVec;

use super::text::method_and_target;
use super::{LineError, LogLine, present, time};

/// About the number of names that a parser searches for; more are allocated.
const PLACES: usize = 32;

/// A part of a request that a line may contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogField {
    Time,
    Ip,
    Method,
    Path,
    /// A whole request line, for logs without separate fields for method and path.
    Request,
    Identity,
    Tenant,
    Tier,
}

/// All fields: the name in `--fields`, and the default member names in order of preference.
pub(crate) const FIELDS: [(&str, LogField, &[&str]); 8] = [
    (
        "time",
        LogField::Time,
        &["time", "ts", "timestamp", "@timestamp", "start_time", "time_iso8601", "time_local", "msec"],
    ),
    (
        "ip",
        LogField::Ip,
        &[
            "ip",
            "client_ip",
            "client.ip",
            "remote_addr",
            "remote_ip",
            "request.client_ip",
            "request.remote_ip",
            "x_forwarded_for",
        ],
    ),
    ("method", LogField::Method, &["method", "request_method", "request.method", "http.request.method"]),
    ("path", LogField::Path, &["path", "uri", "request_uri", "url", "request.uri", "url.original", "url.path"]),
    ("request", LogField::Request, &["request", "request_line"]),
    ("identity", LogField::Identity, &[]),
    ("tenant", LogField::Tenant, &[]),
    ("tier", LogField::Tier, &[]),
];

/// The longest name of a member, and the most parts that dots divide it into: logs nest a few levels.
const NAME_BYTES_MAX: usize = 256;
const PARTS_MAX: usize = 8;

/// Member names from `--fields`, such as `time=ts,ip=client.ip`. A dot separates the levels of nested objects, unless the
/// whole name is a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldMap {
    named: Vec<(LogField, Box<str>)>,
}

impl FieldMap {
    /// Reads `identity` from the member `name`, unless `--fields` names it already.
    pub(crate) fn with_identity(mut self, name: &str) -> Self {
        if !self.named.iter().any(|(field, _)| *field == LogField::Identity) {
            self.named.push((LogField::Identity, name.into()));
        }
        self
    }

    /// True if the map names the client's identity.
    pub(crate) fn names_identity(&self) -> bool {
        self.named.iter().any(|(field, _)| *field == LogField::Identity)
    }

    /// The member names to try for a field, in order of preference.
    pub(crate) fn names(&self, wanted: LogField) -> Vec<&str> {
        if let Some((_, name)) = self.named.iter().find(|(field, _)| *field == wanted) {
            return vec![name];
        }
        FIELDS
            .iter()
            .find(|(_, field, _)| *field == wanted)
            .map(|(_, _, names)| names.to_vec())
            .unwrap_or_default()
    }
}

impl FromStr for FieldMap {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut named: Vec<(LogField, Box<str>)> = Vec::new();
        for pair in text.split(',') {
            let (field, name) = pair.split_once('=').ok_or_else(|| remedy(pair, "has no ="))?;
            let field = FIELDS.iter().find(|(known, ..)| *known == field.trim());
            let (_, field, _) = field.ok_or_else(|| remedy(pair, "does not begin with a known field"))?;
            if named.iter().any(|(known, _)| known == field) {
                return Err(remedy(pair, "names a field a second time"));
            }
            let name = name.trim();
            if name.is_empty() || name.len() > NAME_BYTES_MAX || name.split('.').count() > PARTS_MAX {
                return Err(remedy(pair, "has a name that is empty, too long or too deep"));
            }
            named.push((*field, name.into()));
        }
        Ok(Self { named })
    }
}

fn remedy(pair: &str, problem: &str) -> String {
    let known: Vec<&str> = FIELDS.iter().map(|(name, ..)| *name).collect();
    format!("{pair:?} {problem}; write for example time=ts,ip=client.ip, of {}", known.join(", "))
}

/// A parser for JSON lines.
#[derive(Debug)]
pub(crate) struct JsonParser {
    wanted: Vec<WantedMember>,
    /// The values of the current line, in the order of `wanted`.
    values: Vec<MemberText>,
}

/// One member to search for.
#[derive(Debug)]
struct WantedMember {
    field: LogField,
    name: Box<str>,
}

/// The value of a member as text. It is kept between lines to reuse its allocation.
#[derive(Debug, Default)]
struct MemberText {
    is_there: bool,
    text: Vec<u8>,
}

impl JsonParser {
    pub(crate) fn new(fields: &FieldMap) -> Self {
        let wanted: Vec<WantedMember> = FIELDS
            .iter()
            .flat_map(|(_, field, _)| {
                fields.names(*field).into_iter().map(|name| WantedMember { field: *field, name: name.into() })
            })
            .collect();
        let values = wanted.iter().map(|_| MemberText::default()).collect();
        Self { wanted, values }
    }

    pub(crate) fn parse<'a>(&'a mut self, line: &'a [u8]) -> Result<LogLine<'a>, LineError> {
        let text = std::str::from_utf8(line).map_err(|_| LineError::NotText)?;
        for value in &mut self.values {
            value.is_there = false;
        }
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let all: SmallVec<[(usize, &str); PLACES]> =
            self.wanted.iter().enumerate().map(|(index, wanted)| (index, &*wanted.name)).collect();
        let members = WantedMembers { wanted: &all, values: &mut self.values };
        let read = deserializer.deserialize_map(members).and_then(|()| deserializer.end());
        read.map_err(|_| LineError::NotJson)?;
        let time = self.value(LogField::Time).ok_or(LineError::NoTime)?;
        let at_micros = time::any(time).ok_or(LineError::BadTime)?;
        let client = self.value(LogField::Ip).ok_or(LineError::NoAddress)?;
        let (method, target) = match (self.value(LogField::Method), self.value(LogField::Path)) {
            (Some(method), Some(target)) => (method, target),
            (method, target) => match self.value(LogField::Request) {
                Some(request) => method_and_target(request)?,
                None => (method.unwrap_or(b"GET"), target.ok_or(LineError::NoRequest)?),
            },
        };
        let optional = |field| self.value(field);
        Ok(LogLine {
            at_micros,
            client,
            method,
            target,
            identity: optional(LogField::Identity),
            tenant: optional(LogField::Tenant),
            tier: optional(LogField::Tier),
        })
    }

    fn value(&self, field: LogField) -> Option<&[u8]> {
        let of_field = self.wanted.iter().zip(&self.values).filter(|(wanted, _)| wanted.field == field);
        of_field.filter(|(_, value)| value.is_there).find_map(|(_, value)| present(&value.text))
    }
}

/// Reads one object: the members with wanted names, and the nested objects on the way to wanted names.
struct WantedMembers<'w, 'v> {
    /// The index of each value, and the rest of its name below this object.
    wanted: &'w [(usize, &'w str)],
    values: &'v mut [MemberText],
}

/// The name of a member, borrowed unless it has escapes.
#[derive(Deserialize)]
struct MemberName<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> Visitor<'de> for WantedMembers<'_, '_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { wanted, values } = self;
        while let Some(MemberName(name)) = map.next_key()? {
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

/// The rest of `path` inside the object called `name`, if the path leads there.
fn inner<'p>(path: &'p str, name: &str) -> Option<&'p str> {
    path.strip_prefix(name)?.strip_prefix('.')
}

/// Reads the object called `name`. Every level consumes a part of the path, so names bound the depth of the recursion.
fn within(
    raw: &str,
    name: &str,
    wanted: &[(usize, &str)],
    values: &mut [MemberText],
) -> Result<(), serde_json::Error> {
    let wanted: SmallVec<[(usize, &str); PLACES]> =
        wanted.iter().filter_map(|(place, path)| Some((*place, inner(path, name)?))).collect();
    serde_json::Deserializer::from_str(raw).deserialize_map(WantedMembers { wanted: &wanted, values })
}

impl MemberText {
    /// Stores the text of a value: a string without quotes and escapes, or a number as written. Arrays, booleans and
    /// `null` count as absent.
    fn set(&mut self, raw: &str) {
        self.text.clear();
        match raw.as_bytes() {
            [b'"', text @ .., b'"'] if !text.contains(&b'\\') => self.text.extend_from_slice(text),
            [b'"', ..] => match serde_json::from_str::<String>(raw) {
                Ok(text) => self.text.extend_from_slice(text.as_bytes()),
                // An unpaired surrogate is not valid text.
                Err(_) => return,
            },
            [b'0'..=b'9', ..] => self.text.extend_from_slice(raw.as_bytes()),
            _ => return,
        }
        self.is_there = true;
    }
}
