//! The metadata that a limit returns to Envoy for an allowed request: any JSON mapping.
//!
//! It takes no part in decisions, so numbers may be floats.

use super::text;
use crate::rules::file::tree::{Kind, Meaning, Scalar};
use crate::rules::file::{Pair, Reader, ValueError};

/// Keys and their values, in the order of the file.
pub type Metadata = Box<[(Box<str>, Value)]>;

/// A value of metadata.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `null`.
    Null,
    /// `true` or `false`.
    Boolean(bool),
    /// A number.
    Number(f64),
    /// A text.
    Text(Box<str>),
    /// Values in order.
    List(Box<[Value]>),
    /// Keys and their values.
    Mapping(Metadata),
}

/// Reads an arbitrary mapping.
pub(super) fn read(reader: &Reader<'_>) -> Option<Metadata> {
    // All pairs are read, so that all their errors are reported, before a missing one counts.
    let pairs: Vec<Option<_>> = reader.pairs()?.iter().map(read_pair).collect();
    pairs.into_iter().collect()
}

fn read_pair(pair: &Pair<'_>) -> Option<(Box<str>, Value)> {
    Some((pair.name.into(), read_value(&pair.value)?))
}

fn read_value(reader: &Reader<'_>) -> Option<Value> {
    match &reader.node().kind {
        Kind::Scalar(scalar) => read_scalar(reader, scalar),
        Kind::List(_) => {
            let items: Vec<Option<Value>> = reader.list("")?.iter().map(read_value).collect();
            items.into_iter().collect::<Option<_>>().map(Value::List)
        }
        Kind::Mapping(_) => read(reader).map(Value::Mapping),
        Kind::Broken => None,
    }
}

fn read_scalar(reader: &Reader<'_>, scalar: &Scalar) -> Option<Value> {
    match scalar.meaning() {
        Meaning::Null => Some(Value::Null),
        Meaning::Boolean => text::flag(reader).map(Value::Boolean),
        Meaning::Text => Some(Value::Text(scalar.text.clone())),
        Meaning::Number => match scalar.text.parse::<f64>() {
            Ok(number) if number.is_finite() => Some(Value::Number(number)),
            _ => reader.refuse(ValueError::new(
                "not a number that JSON has",
                "write it in plain digits, or put it in quotes",
            )),
        },
    }
}
