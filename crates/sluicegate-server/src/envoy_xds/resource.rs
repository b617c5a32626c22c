//! One resource: from its message to the tree that the reader of `envoyproxy/ratelimit`'s files reads.
//!
//! A message is decoded one level at a time, so that the number of descriptors and their depth are checked before they
//! take memory, and an error below the top still has a domain.

use bytes::Bytes;
use prost::Message as _;
use prost_types::value::Kind as ValueKind;
use prost_types::{Struct, Value};
use sluicegate::rules::RULES_MAX;
use sluicegate::rules::envoy::limit::REPLACES_MAX;
use sluicegate::rules::file::Place;
use sluicegate::rules::file::problem::shown;
use sluicegate::rules::file::tree::{Entry, Kind, Node, Scalar};

use super::messages::ratelimit::config::ratelimit::v3::{
    RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitUnit,
};

/// The most descriptors of a response: three levels for each of the most limits.
pub(crate) const DESCRIPTORS_MAX: usize = 3 * RULES_MAX;
/// The deepest nesting of descriptors: Envoy Gateway nests one level for each header of a rule, of which there are at most
/// 128, and a few more.
pub(crate) const NESTING_MAX: usize = 136;
/// The most values of a descriptor's metadata, lists and mappings included.
pub(crate) const METADATA_VALUES_MAX: usize = 1_000;

/// A resource.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Resource {
    /// The name that the control plane gives it.
    name: String,
    pub(super) domain: String,
    /// The domain as a file would have it.
    pub(super) tree: Node,
}

/// Why a resource cannot be read.
#[derive(Debug)]
pub(super) enum ResourceError {
    /// It exceeds a bound of the whole response.
    TooMany(String),
    /// It has an error below the top level.
    Domain { domain: String, problem: String },
    /// Its domain is unknown.
    Unreadable(String),
}

/// The number of descriptors that the response may still have.
#[derive(Debug)]
pub(super) struct Budget {
    descriptors_left: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self { descriptors_left: DESCRIPTORS_MAX }
    }
}

impl Resource {
    /// Decodes a resource.
    pub(super) fn read(message: Bytes, budget: &mut Budget) -> Result<Self, ResourceError> {
        let unreadable =
            |error| ResourceError::Unreadable(format!("a resource is not a RateLimitConfig: {error}"));
        let RateLimitConfig { name, domain, descriptors } =
            RateLimitConfig::decode(message).map_err(unreadable)?;
        let mut reading = Reading { budget, number: 0, values_left: METADATA_VALUES_MAX };
        let descriptors = reading.descriptors(descriptors, 1).map_err(|error| match error {
            Failure::TooMany(problem) => ResourceError::TooMany(problem),
            Failure::Descriptor(problem) => {
                let title = title(&domain, &name);
                ResourceError::Domain { problem: format!("{title}:{problem}"), domain: domain.clone() }
            }
        })?;
        let top = Place::numbered(0);
        let fields = vec![("domain", text(top, &domain)), ("descriptors", list(top, descriptors))];
        Ok(Self { tree: mapping(top, fields), name, domain })
    }

    /// The name of the resource in errors.
    pub(super) fn title(&self) -> String {
        title(&self.domain, &self.name)
    }
}

/// `domain edge`, with the name of the resource if that differs.
fn title(domain: &str, name: &str) -> String {
    let domain_shown = shown(domain, false);
    match name.is_empty() || name == domain {
        true => format!("domain {domain_shown}"),
        false => format!("domain {domain_shown} (resource {})", shown(name, false)),
    }
}

/// Why descriptors cannot be read.
enum Failure {
    TooMany(String),
    Descriptor(String),
}

struct Reading<'b> {
    budget: &'b mut Budget,
    /// The number of descriptors so far, which is the place of the current one.
    number: usize,
    /// The values that the metadata of the current descriptor may still have.
    values_left: usize,
}

impl Reading<'_> {
    fn descriptors(&mut self, messages: Vec<Bytes>, depth: usize) -> Result<Vec<Node>, Failure> {
        if messages.len() > self.budget.descriptors_left {
            let problem = format!("the configuration has more than {DESCRIPTORS_MAX} descriptors: send fewer");
            return Err(Failure::TooMany(problem));
        }
        self.budget.descriptors_left -= messages.len();
        messages.into_iter().map(|message| self.descriptor(message, depth)).collect()
    }

    fn descriptor(&mut self, message: Bytes, depth: usize) -> Result<Node, Failure> {
        self.number += 1;
        let place = Place::numbered(self.number);
        let failed = |problem: String| Failure::Descriptor(format!("{place}: {problem}"));
        if depth > NESTING_MAX {
            return Err(failed(format!("descriptors are nested too deeply: use at most {NESTING_MAX} levels")));
        }
        let descriptor = RateLimitDescriptor::decode(message);
        let descriptor = descriptor.map_err(|error| failed(format!("not a RateLimitDescriptor: {error}")))?;
        let RateLimitDescriptor { key, value, rate_limit, descriptors, metadata, .. } = &descriptor;
        let mut fields = vec![("key", text(place, key))];
        if !value.is_empty() {
            fields.push(("value", text(place, value)));
        }
        let flags = [
            ("shadow_mode", descriptor.shadow_mode),
            ("detailed_metric", descriptor.detailed_metric),
            ("quota_mode", descriptor.quota_mode),
        ];
        fields.extend(flags.into_iter().filter(|(_, is_on)| *is_on).map(|(key, _)| (key, plain(place, "true"))));
        if let Some(metadata) = metadata {
            self.values_left = METADATA_VALUES_MAX;
            let tree = self.structure(place, metadata);
            let too_many = || failed(format!("too much metadata: use at most {METADATA_VALUES_MAX} values"));
            fields.push(("metadata", tree.ok_or_else(too_many)?));
        }
        fields.extend(rate_limit.as_ref().map(|policy| ("rate_limit", limit(place, policy))));
        if !descriptors.is_empty() {
            let below = self.descriptors(descriptors.clone(), depth + 1)?;
            fields.push(("descriptors", list(place, below)));
        }
        Ok(mapping(place, fields))
    }

    /// `None` if there are too many values.
    fn structure(&mut self, place: Place, value: &Struct) -> Option<Node> {
        let entry = |(key, value): (&String, &Value)| {
            Some(Entry { key: text(place, key), value: self.value(place, value)? })
        };
        let entries: Option<Vec<Entry>> = value.fields.iter().map(entry).collect();
        Some(Node { place, kind: Kind::Mapping(entries?) })
    }

    fn value(&mut self, place: Place, value: &Value) -> Option<Node> {
        self.values_left = self.values_left.checked_sub(1)?;
        Some(match &value.kind {
            None | Some(ValueKind::NullValue(_)) => plain(place, "null"),
            Some(ValueKind::NumberValue(number)) => plain(place, &number_text(*number)),
            Some(ValueKind::StringValue(value)) => text(place, value),
            Some(ValueKind::BoolValue(value)) => plain(place, if *value { "true" } else { "false" }),
            Some(ValueKind::StructValue(value)) => self.structure(place, value)?,
            Some(ValueKind::ListValue(values)) => {
                let items: Option<Vec<Node>> = values.values.iter().map(|item| self.value(place, item)).collect();
                list(place, items?)
            }
        })
    }
}

/// A number of metadata as YAML writes it. JSON has no infinite numbers, so the reader rejects those.
fn number_text(number: f64) -> String {
    if number.is_nan() {
        ".nan".to_owned()
    } else if number.is_infinite() {
        ".inf".to_owned()
    } else {
        format!("{number:e}")
    }
}

fn limit(place: Place, policy: &RateLimitPolicy) -> Node {
    let RateLimitPolicy { unit, requests_per_unit, unlimited, name, replaces } = policy;
    let mut fields = Vec::new();
    if *unlimited {
        fields.push(("unlimited", plain(place, "true")));
    } else {
        fields.push(("requests_per_unit", plain(place, &requests_per_unit.to_string())));
    }
    // The reader explains which units there are, and that a limit that is unlimited has none.
    if !*unlimited || *unit != RateLimitUnit::Unknown as i32 {
        fields.push(("unit", text(place, &unit_text(*unit))));
    }
    if !name.is_empty() {
        fields.push(("name", text(place, name)));
    }
    if !replaces.is_empty() {
        let replaced = |name: &str| mapping(place, vec![("name", text(place, name))]);
        // The reader refuses one more than the maximum.
        let items = replaces.iter().take(REPLACES_MAX + 1).map(|replace| replaced(&replace.name)).collect();
        fields.push(("replaces", list(place, items)));
    }
    mapping(place, fields)
}

fn unit_text(unit: i32) -> String {
    match RateLimitUnit::try_from(unit) {
        Ok(unit) => unit.as_str_name().to_ascii_lowercase(),
        Err(_) => unit.to_string(),
    }
}

fn scalar(place: Place, value: &str, quoted: bool) -> Node {
    Node { place, kind: Kind::Scalar(Scalar { text: value.into(), quoted }) }
}

/// A text, whatever it looks like.
fn text(place: Place, value: &str) -> Node {
    scalar(place, value, true)
}

/// A number, a boolean or nothing.
fn plain(place: Place, value: &str) -> Node {
    scalar(place, value, false)
}

fn list(place: Place, items: Vec<Node>) -> Node {
    Node { place, kind: Kind::List(items) }
}

fn mapping(place: Place, fields: Vec<(&str, Node)>) -> Node {
    let entry = |(key, value): (&str, Node)| Entry { key: text(place, key), value };
    Node { place, kind: Kind::Mapping(fields.into_iter().map(entry).collect()) }
}
