//! Descriptors of Envoy's rate limit protocol: a list of entries, each with a key and a value.
//!
//! Rules without descriptor patterns match a descriptor as a resource and an identifier: its keys and its values. Clients choose
//! the values, so the values of different descriptors never give the same identifier, whatever they contain.

use super::{InvalidText, NAME_BYTES_MAX, TextProblem, valid_text};
use std::fmt::Write as _;

/// The most entries of one descriptor; each of Envoy's actions creates one.
pub const ENTRIES_MAX: usize = 16;
/// The longest key or value of an entry, in bytes.
pub const ENTRY_BYTES_MAX: usize = NAME_BYTES_MAX;

/// One entry of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry<'a> {
    /// The name of the value, for example `remote_address`.
    pub key: &'a str,
    /// The value, which may be empty.
    pub value: &'a str,
}

impl<'a> Entry<'a> {
    /// An entry.
    #[must_use]
    pub const fn new(key: &'a str, value: &'a str) -> Self {
        Self { key, value }
    }
}

/// The resource of a descriptor: its keys, joined by `.`.
///
/// ```
/// use sluicegate::identity::{Entry, resource_of};
///
/// let entries = [Entry::new("path", "/login"), Entry::new("remote_address", "10.0.0.1")];
/// assert_eq!(resource_of(&entries), "path.remote_address");
/// ```
#[must_use]
pub fn resource_of(entries: &[Entry<'_>]) -> String {
    let mut resource = String::with_capacity(entries.iter().map(|entry| entry.key.len() + 1).sum());
    for (place, entry) in entries.iter().enumerate() {
        if place > 0 {
            resource.push('.');
        }
        resource.push_str(entry.key);
    }
    resource
}

/// The identifier of a descriptor: its values, joined by `|`. A `|` within a value becomes
/// `%7C`, a `%` becomes `%25` and a control character likewise, so different lists of values never give the same identifier.
///
/// ```
/// use sluicegate::identity::{Entry, identifier_of};
///
/// assert_eq!(identifier_of(&[Entry::new("path", "/login"), Entry::new("user", "ann")]), "/login|ann");
/// assert_eq!(identifier_of(&[Entry::new("user", "a|b")]), "a%7Cb");
/// ```
#[must_use]
pub fn identifier_of(entries: &[Entry<'_>]) -> String {
    let mut identifier = String::with_capacity(entries.iter().map(|entry| entry.value.len() + 1).sum());
    for (place, entry) in entries.iter().enumerate() {
        if place > 0 {
            identifier.push('|');
        }
        push_escaped(&mut identifier, entry.value);
    }
    identifier
}

fn push_escaped(text: &mut String, value: &str) {
    // Most values need no escape. Beyond ASCII, only some characters with this first byte are control characters.
    let may_need_it = |byte: u8| matches!(byte, b'|' | b'%' | 0xC2) || byte.is_ascii_control();
    if !value.bytes().any(may_need_it) {
        text.push_str(value);
        return;
    }
    for character in value.chars() {
        match character {
            '|' | '%' => push_code(text, character),
            character if character.is_control() => push_code(text, character),
            character => text.push(character),
        }
    }
}

/// All of these are below U+0100, so two digits suffice.
fn push_code(text: &mut String, character: char) {
    // Writing to a string cannot fail.
    let _ = write!(text, "%{:02X}", u32::from(character));
}

/// Checks the number of entries and their text. A value may be empty and may contain control characters: it often comes
/// from a header field, and rejecting it would evade the limit where errors fail open.
pub(super) fn validate(entries: &[Entry<'_>]) -> Result<(), InvalidText> {
    let invalid = |field, problem| Err(InvalidText { field, problem });
    if entries.is_empty() {
        return invalid("entries", TextProblem::NoEntries);
    }
    if entries.len() > ENTRIES_MAX {
        return invalid("entries", TextProblem::TooMany { count: entries.len(), max: ENTRIES_MAX });
    }
    for entry in entries {
        valid_text("key", entry.key, ENTRY_BYTES_MAX)?;
        if entry.value.len() > ENTRY_BYTES_MAX {
            return invalid("value", TextProblem::TooLong { bytes: entry.value.len(), max: ENTRY_BYTES_MAX });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn problem(entries: &[Entry<'_>]) -> String {
        validate(entries).unwrap_err().to_string()
    }

    #[test]
    fn an_invalid_descriptor_is_rejected_with_a_remedy() {
        let long = "x".repeat(257);
        assert_eq!(problem(&[]), "`entries` is empty: give it at least one entry");
        assert_eq!(problem(&[Entry::new("k", "v"); 17]), "`entries` has 17 entries: use at most 16");
        assert_eq!(problem(&[Entry::new("", "v")]), "`key` is empty: give it at least one character");
        assert_eq!(problem(&[Entry::new("k", &long)]), "`value` has 257 bytes: use at most 256");
        assert_eq!(problem(&[Entry::new(&long, "v")]), "`key` has 257 bytes: use at most 256");
        assert!(validate(&[Entry::new("k", "")]).is_ok());
        assert!(validate(&[Entry::new("k", "a\tb\u{85}")]).is_ok());
        assert_eq!(identifier_of(&[Entry::new("k", "a\tb\u{85}")]), "a%09b%85");
    }

    proptest! {
        /// Different lists of values have different identifiers, whatever the values contain.
        #[test]
        fn no_two_lists_of_values_make_one_identifier(
            one in proptest::collection::vec("[a|%7C\t\u{80}]{0,3}", 1..4),
            other in proptest::collection::vec("[a|%7C\t\u{80}]{0,3}", 1..4),
        ) {
            let identifier = |values: &[String]| {
                let entries: Vec<Entry<'_>> = values.iter().map(|value| Entry::new("k", value)).collect();
                identifier_of(&entries)
            };
            prop_assert_eq!(identifier(&one) == identifier(&other), one == other);
        }
    }
}
