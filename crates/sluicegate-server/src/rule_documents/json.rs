//! A value of a file as JSON that is independent of the environment: variables are replaced by their values, and text
//! that then looks like a variable is escaped.

use serde_json::Value;
use sluicegate::rules::file::Reader;
use sluicegate::rules::file::tree::{Kind, Meaning};

/// The value as JSON. `None` means that a problem was reported.
pub(crate) fn of(reader: &Reader<'_>) -> Option<Value> {
    match &reader.node().kind {
        Kind::List(_) => reader.list("")?.iter().map(of).collect(),
        Kind::Mapping(_) => {
            reader.pairs()?.iter().map(|pair| Some((pair.name.to_owned(), of(&pair.value)?))).collect()
        }
        Kind::Scalar(scalar) => match scalar.meaning() {
            Meaning::Null => Some(Value::Null),
            Meaning::Boolean => Some(Value::Bool(scalar.text.eq_ignore_ascii_case("true"))),
            // A number that JSON lacks becomes text, which every reader of numbers rejects.
            Meaning::Number => Some(scalar.text.parse().unwrap_or_else(|_| Value::from(&*scalar.text))),
            Meaning::Text => Some(Value::from(reader.text()?.replace("${", "$${"))),
        },
        Kind::Broken => None,
    }
}
