//! Converts configuration values to protobuf's `Struct`, and back to JSON.

use std::collections::BTreeMap;

use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value as Wrapped};
use serde_json::{Value, json};
use sluicegate::rules::envoy::{Metadata, Value as Configured};

/// All of these merged, later ones win, and `own` wherever they have no member of its name; `None` if there are none.
pub(super) fn merged<'m>(all: impl Iterator<Item = &'m Metadata>, own: (&str, Option<Wrapped>)) -> Option<Struct> {
    let own = own.1.map(|value| (own.0.to_owned(), value));
    let configured = all.flat_map(|each| each.iter().map(|(name, value)| (String::from(&**name), wrapped(value))));
    let fields: BTreeMap<String, Wrapped> = own.into_iter().chain(configured).collect();
    (!fields.is_empty()).then_some(Struct { fields })
}

fn wrapped(value: &Configured) -> Wrapped {
    let kind = match value {
        Configured::Null => Kind::NullValue(0),
        Configured::Boolean(value) => Kind::BoolValue(*value),
        Configured::Number(number) => Kind::NumberValue(*number),
        Configured::Text(text) => Kind::StringValue(String::from(&**text)),
        Configured::List(items) => Kind::ListValue(ListValue { values: items.iter().map(wrapped).collect() }),
        Configured::Mapping(members) => {
            let fields = members.iter().map(|(name, value)| (String::from(&**name), wrapped(value))).collect();
            Kind::StructValue(Struct { fields })
        }
    };
    Wrapped { kind: Some(kind) }
}

/// The same as JSON.
pub(super) fn written(fields: &Struct) -> Value {
    Value::Object(fields.fields.iter().map(|(name, value)| (name.clone(), unwrapped(value))).collect())
}

fn unwrapped(value: &Wrapped) -> Value {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::BoolValue(value)) => json!(value),
        Some(Kind::NumberValue(number)) => json!(number),
        Some(Kind::StringValue(text)) => json!(text),
        Some(Kind::ListValue(list)) => list.values.iter().map(unwrapped).collect(),
        Some(Kind::StructValue(fields)) => written(fields),
    }
}
