//! A value of a file as JSON that stands in no need of the environment: variables are replaced by what they stand for,
//! and what looks like one afterwards is escaped.

use serde_json::Value;
use sluicegate::rules::file::Reader;
use sluicegate::rules::file::tree::{Kind, Meaning};

/// The value as JSON. `None` if it cannot be read, which was reported.
pub(crate) fn of(reader: &Reader<'_>) -> Option<Value> {
    match &reader.node().kind {
        Kind::List(_) => reader.list("")?.iter().map(of).collect(),
        Kind::Mapping(_) => {
            reader.pairs()?.iter().map(|pair| Some((pair.name.to_owned(), of(&pair.value)?))).collect()
        }
        Kind::Scalar(scalar) => match scalar.meaning() {
            Meaning::Null => Some(Value::Null),
            Meaning::Boolean => Some(Value::Bool(scalar.text.eq_ignore_ascii_case("true"))),
            // A number that JSON does not have is one that no reader takes.
            Meaning::Number => Some(scalar.text.parse().unwrap_or_else(|_| Value::from(&*scalar.text))),
            Meaning::Text => Some(Value::from(reader.text()?.replace("${", "$${"))),
        },
        Kind::Broken => None,
    }
}
