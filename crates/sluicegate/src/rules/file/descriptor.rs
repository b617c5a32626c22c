//! The entries of a descriptor that a rule asks for.

use super::problem::Wrong;
use super::reader::Reader;
use super::{all, value};
use crate::identity::{ENTRIES_MAX, ENTRY_BYTES_MAX};
use crate::rules::EntryPattern;

/// The keys of an entry.
pub const ENTRY_KEYS: &[&str] = &["key", "value"];

pub(super) fn read_descriptor(reader: &Reader<'_>) -> Option<Vec<EntryPattern>> {
    let items = reader.list("write a list of entries, for example [{ key: remote_address }]")?;
    if !(1..=ENTRIES_MAX).contains(&items.len()) {
        let remedy = format!("name 1 to {ENTRIES_MAX}, or leave the key out for all requests");
        return reader.refuse(Wrong::new(format!("{} entries", items.len()), remedy));
    }
    all(items.iter().map(read_entry))
}

fn read_entry(reader: &Reader<'_>) -> Option<EntryPattern> {
    let section = reader.section(ENTRY_KEYS)?;
    let key = section
        .required("key", "say which entry, for example key: remote_address")
        .and_then(|key| key.text_as(entry_key));
    let value = section.optional("value", None, |value| value.text_as(value::pattern).map(Some));
    Some(EntryPattern { key: key?, value: value? })
}

fn entry_key(text: &str) -> Result<Box<str>, Wrong> {
    if text.is_empty() {
        return Err(Wrong::new("matches nothing", "write the key of an entry, for example remote_address"));
    }
    if text.len() > ENTRY_BYTES_MAX {
        let message = format!("a key of {} bytes", text.len());
        return Err(Wrong::new(message, format!("use at most {ENTRY_BYTES_MAX} bytes")));
    }
    if text.contains(char::is_control) {
        return Err(Wrong::new("matches nothing", "leave out control characters: no key holds them"));
    }
    Ok(text.into())
}
