//! The descriptor entries that a rule requires.

use super::field::{Absent, Field, Form, Mapping, NO_CONTROL_CHARACTERS, Shape, Text};
use super::problem::ValueError;
use super::reader::Reader;
use super::{PATTERN, all};
use crate::identity::{ENTRIES_MAX, ENTRY_BYTES_MAX};
use crate::pattern::Pattern;
use crate::rules::EntryPattern;

/// The keys of an entry.
pub static ENTRY: Mapping =
    Mapping { doc: "An entry of a descriptor.", fields: &[&KEY, &VALUE], constraints: &[] };

static KEY: Field<Text<Box<str>>> = Field {
    key: "key",
    doc: "The key of the entry, exactly.",
    kind: Text {
        parse: entry_key,
        form: || {
            let shape = Shape::matching("1 to 256 bytes without control characters", NO_CONTROL_CHARACTERS);
            Form::Text(shape.literally().bounded(1, ENTRY_BYTES_MAX))
        },
    },
    absent: Absent::Required("say which entry, for example key: remote_address"),
    examples: &["remote_address"],
};

static VALUE: Field<Text<Pattern>> = Field {
    key: "value",
    doc: "The value of the entry.",
    kind: PATTERN,
    absent: Absent::Nothing("any"),
    examples: &["\"10.*\""],
};

pub(super) fn read_descriptor(reader: &Reader<'_>) -> Option<Vec<EntryPattern>> {
    let items = reader.list("write a list of entries, for example [{ key: remote_address }]")?;
    if !(1..=ENTRIES_MAX).contains(&items.len()) {
        let remedy = format!("name 1 to {ENTRIES_MAX}, or leave the key out for all requests");
        return reader.refuse(ValueError::new(format!("{} entries", items.len()), remedy));
    }
    all(items.iter().map(read_entry))
}

fn read_entry(reader: &Reader<'_>) -> Option<EntryPattern> {
    let section = reader.mapping(&ENTRY)?;
    let (key, value) = (section.read(&KEY), section.read_optional(&VALUE));
    Some(EntryPattern { key: key?, value: value? })
}

fn entry_key(text: &str) -> Result<Box<str>, ValueError> {
    if text.is_empty() {
        return Err(ValueError::new("matches nothing", "write the key of an entry, for example remote_address"));
    }
    if text.len() > ENTRY_BYTES_MAX {
        let message = format!("a key of {} bytes", text.len());
        return Err(ValueError::new(message, format!("use at most {ENTRY_BYTES_MAX} bytes")));
    }
    if text.contains(char::is_control) {
        return Err(ValueError::new("matches nothing", "leave out control characters: no key holds them"));
    }
    Ok(text.into())
}
