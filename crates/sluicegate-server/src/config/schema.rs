//! The JSON Schema of the configuration file, for editors and for programs that write files.
//!
//! It is rendered from the declarations of the keys ([`field`](sluicegate::rules::file::field)), so it knows the same
//! keys, words and bounds as the reader. A schema checks one value at a time. It accepts files that
//! only a comparison of several values can reject, such as duplicate names, unlisted tiers and numbers that contradict each other.

use crate::settings::declared::without_links;
use serde_json::{Map, Value, json};
use sluicegate::calendar::{MONTH_DAY_MAX, WEEKDAYS};
use sluicegate::rules::RULE_NAME_BYTES_MAX;
use sluicegate::rules::file::field::{Absent, Constraint, Declared, Form, Mapping, Shape, words};
use sluicegate::rules::file::limit::{self, LIMIT, UNLIMITED};
use sluicegate::rules::file::rule::{OVERRIDE, RULE};
use sluicegate::rules::file::tree::{Kind, Meaning, Node};
use sluicegate::rules::file::value::{PATTERN_BYTES_MAX, UNITS};
use sluicegate::rules::file::window::CALENDAR_WINDOWS;
use sluicegate::rules::file::{Document, Environment};

use super::TOP;
use super::listeners::LISTENER;

/// A rule as an example.
const RULE_EXAMPLE: &str = "{ rules: [{ name: payments, match: { resource: \"api.payment.*\" }, \
                            limits: [{ algorithm: token_bucket, capacity: 100, refill: 100/60s }] }] }";

/// The schema, draft 2020-12.
pub(crate) fn json_schema() -> Value {
    let mut schema = mapping(&TOP);
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("Sluicegate configuration");
    schema["$defs"] = definitions();
    schema["examples"] = json!([literal(RULE_EXAMPLE)]);
    schema
}

/// The forms that have a name.
fn definitions() -> Value {
    let units: Vec<&str> = words(UNITS);
    let (all, single) = (units.join("|"), units[1..].join("|"));
    let named = |about, pattern: String| form(&Form::Text(Shape::matching(about, pattern)));
    // The algorithm from a variable decides which of the other keys are required.
    let mut any_limit = mapping(&LIMIT);
    any_limit["required"] = json!(["algorithm"]);
    let limits = limit::forms_by_algorithm().map(mapping).chain([any_limit]);
    let mut definitions = json!({
        "rule": mapping(&RULE),
        "limits": form(&limit::limits()),
        "listener": mapping(&LISTENER),
        "limit": { "oneOf": limits.collect::<Vec<_>>() },
        "override": mapping(&OVERRIDE),
        "name": named("name", format!("^[A-Za-z0-9._-]{{1,{RULE_NAME_BYTES_MAX}}}$")),
        "pattern": {
            "type": "string",
            "minLength": 1,
            "maxLength": PATTERN_BYTES_MAX,
            "pattern": "^[^\\u0000-\\u001f\\u007f-\\u009f]*$",
        },
        "secret": { "type": "string" },
        "duration": named("duration", format!("^[1-9][0-9]*({all})$")),
        "rate": named("rate", format!("^[1-9][0-9]*/([1-9][0-9]*({all})|{single})$")),
        "address": named(
            "address",
            "^(off|[A-Za-z0-9._-]+:[0-9]{1,5}|\\[[0-9A-Fa-f:.%]+\\]:[0-9]{1,5})$".to_owned(),
        ),
        "variable": { "type": "string", "pattern": "\\$\\{" },
    });
    let limits = "All of these limits must have room, and a request is charged under all of them or under none; \
                  or `unlimited`.";
    for (name, description) in [
        ("limits", limits),
        ("name", "A name."),
        ("pattern", "A text in which * stands for any run of characters."),
        ("secret", "A text that no message shows."),
        ("duration", "A length of time: 250ms, 30s, 5min, 1h, 1d."),
        ("rate", "N/DURATION, or N/s, N/min, N/h, N/d."),
        ("address", "HOST:PORT, or off."),
        ("variable", "A text with an environment variable: ${NAME}. Write $${ for a literal ${."),
    ] {
        definitions[name]["description"] = json!(description);
    }
    let limit = "[{ algorithm: token_bucket, capacity: 100, refill: 100/60s }]";
    definitions["limits"]["examples"] = json!([literal(limit), UNLIMITED]);
    definitions
}

/// An object that has the fields of a mapping and no other.
fn mapping(mapping: &Mapping) -> Value {
    let properties: Map<String, Value> =
        mapping.fields.iter().map(|each| (each.key().to_owned(), property(*each))).collect();
    let is_required = |each: &&&dyn Declared| matches!(each.absent(), Absent::Required(_));
    let required: Vec<&str> = mapping.fields.iter().filter(is_required).map(|each| each.key()).collect();
    let mut schema = json!({
        "description": without_links(mapping.doc),
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    });
    for constraint in mapping.constraints {
        match constraint {
            Constraint::Needs(one, other) => schema["dependentRequired"][*one] = json!([other]),
            Constraint::OneOf(keys) => {
                schema["oneOf"] = keys.iter().map(|key| json!({ "required": [key] })).collect();
            }
            Constraint::OneField => {
                schema["minProperties"] = json!(1);
                schema["maxProperties"] = json!(1);
            }
            Constraint::CalendarWindow => schema["allOf"] = calendar_window(),
            other => debug_assert!(false, "{other:?} has no schema"),
        }
    }
    schema
}

fn property(field: &dyn Declared) -> Value {
    let mut schema = form(&field.form());
    schema["description"] = json!(without_links(field.doc()));
    if let Absent::Default(text) = field.absent() {
        schema["default"] = literal(text);
    }
    if !field.examples().is_empty() {
        schema["examples"] = field.examples().iter().map(|text| literal(text)).collect();
    }
    schema
}

/// The schema of a form, without a description.
fn form(form: &Form) -> Value {
    match form {
        Form::Boolean => json!({ "anyOf": [{ "enum": [true, false, "true", "false"] }, reference("variable")] }),
        Form::Integer { min, max } => json!({ "type": "integer", "minimum": min, "maximum": max }),
        Form::Words(words) => json!({ "anyOf": [{ "enum": words }, reference("variable")] }),
        Form::Literal(words) => match words.as_slice() {
            [word] => json!({ "const": word }),
            words => json!({ "enum": words }),
        },
        Form::Named(name) => reference(name),
        Form::Duration { .. } => reference("duration"),
        Form::Text(shape) => text(shape),
        Form::List { item, min, max, is_unique, .. } => {
            let mut schema = json!({ "type": "array", "items": self::form(item) });
            bound(&mut schema, "minItems", *min, "maxItems", *max);
            if *is_unique {
                schema["uniqueItems"] = json!(true);
            }
            schema
        }
        Form::Mapping(fields) => mapping(fields),
        Form::Map { name, value, min, max, .. } => {
            let (name, value) = (self::form(name), self::form(value));
            let mut schema = json!({ "type": "object", "propertyNames": name, "additionalProperties": value });
            bound(&mut schema, "minProperties", *min, "maxProperties", *max);
            schema
        }
        Form::Any(forms) => json!({ "anyOf": forms.iter().map(self::form).collect::<Vec<_>>() }),
        other => {
            debug_assert!(false, "{other:?} has no schema");
            json!(true)
        }
    }
}

fn bound(schema: &mut Value, least: &str, min: usize, most: &str, max: Option<usize>) {
    if min > 0 {
        schema[least] = json!(min);
    }
    if let Some(max) = max {
        schema[most] = json!(max);
    }
}

fn text(shape: &Shape) -> Value {
    let lengths = [("minLength", shape.min_length), ("maxLength", shape.max_length)];
    let bounded = |mut schema: Map<String, Value>| {
        schema.extend(lengths.iter().filter_map(|(key, length)| Some(((*key).to_owned(), json!((*length)?)))));
        Value::Object(schema)
    };
    let pattern = |pattern: &String| bounded(Map::from_iter([("pattern".to_owned(), json!(pattern))]));
    let mut schema = match shape.patterns.as_slice() {
        [] => bounded(Map::new()),
        [only] if !shape.has_variables => pattern(only),
        several => {
            let variable = shape.has_variables.then(|| reference("variable"));
            json!({ "anyOf": several.iter().map(pattern).chain(variable).collect::<Vec<_>>() })
        }
    };
    schema["type"] = json!("string");
    schema
}

fn reference(definition: &str) -> Value {
    json!({ "$ref": format!("#/$defs/{definition}") })
}

/// Which keys of a fixed window go together.
fn calendar_window() -> Value {
    let window_is = |window: Value| json!({ "properties": { "window": window }, "required": ["window"] });
    let month_day = json!({ "type": "integer", "minimum": 1, "maximum": MONTH_DAY_MAX });
    let week_day = form(&Form::Words(words(WEEKDAYS)));
    let calendar = json!({ "enum": words(CALENDAR_WINDOWS) });
    json!([
        {
            "if": window_is(json!({ "type": "string", "pattern": "^[0-9]" })),
            "then": { "properties": { "timezone": false, "anchor": false } },
        },
        { "if": window_is(calendar), "then": { "properties": { "align": false } } },
        { "if": window_is(json!({ "const": "month" })), "then": { "properties": { "anchor": month_day } } },
        { "if": window_is(json!({ "const": "week" })), "then": { "properties": { "anchor": week_day } } },
        {
            "if": window_is(json!({ "enum": ["day", "hour"] })),
            "then": { "properties": { "anchor": false } },
        },
    ])
}

/// Text in the syntax of the file as JSON. Environment variables stay as they are written.
fn literal(text: &str) -> Value {
    let environment = Environment::new();
    let document = Document::parse(text, "", &environment);
    document.root().map_or(Value::Null, |root| json_of(root.node()))
}

/// A value of a file as JSON. Environment variables stay as they are written.
pub(super) fn json_of(node: &Node) -> Value {
    match &node.kind {
        Kind::List(items) => items.iter().map(json_of).collect(),
        Kind::Mapping(entries) => {
            let member = |key: &Node| json_of(key).as_str().map(str::to_owned).unwrap_or_default();
            entries.iter().map(|entry| (member(&entry.key), json_of(&entry.value))).collect()
        }
        Kind::Scalar(scalar) => match scalar.meaning() {
            Meaning::Null => Value::Null,
            Meaning::Boolean | Meaning::Number => scalar.text.parse().unwrap_or_default(),
            Meaning::Text => Value::from(&*scalar.text),
        },
        Kind::Broken => Value::Null,
    }
}
