//! The part of the schema about what HTTP requests are matched by besides their path and method.

use serde_json::{Value, json};
use sluicegate::rules::file::rule::VALUES_MAX;
use sluicegate::rules::file::value::{HOST_BYTES_MAX, VALUE_NAME_BYTES_MAX};

use super::{reference, text};

/// A host.
pub(super) fn host() -> Value {
    let form = json!({ "pattern": "^([A-Za-z0-9._*-]+|\\[[0-9A-Fa-f:.]+\\])$", "maxLength": HOST_BYTES_MAX });
    let mut host = text("The host of an HTTP request, without a port; * is any run of characters.", &form);
    host["examples"] = json!(["api.example.com", "*.example.com"]);
    host
}

/// Header fields.
pub(super) fn header() -> Value {
    let name = "^[A-Za-z0-9!#$%&'*+.^_`|~-]+$";
    values(
        "Header fields of an HTTP request, each with a pattern for its value.",
        name,
        &json!({ "X-Plan": "gold*" }),
    )
}

/// Claims.
pub(super) fn claim() -> Value {
    let name = "^[^\\u0000-\\u001f\\u007f-\\u009f]+$";
    values("Claims of the verified token, each with a pattern for its value.", name, &json!({ "plan": "pro" }))
}

fn values(description: &str, name: &str, example: &Value) -> Value {
    json!({
        "description": description,
        "type": "object",
        "propertyNames": { "pattern": name, "maxLength": VALUE_NAME_BYTES_MAX },
        "additionalProperties": reference("pattern"),
        "minProperties": 1,
        "maxProperties": VALUES_MAX,
        "examples": [example],
    })
}
