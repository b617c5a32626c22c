//! Descriptors of Envoy's rate limit protocol: a list of entries, each with a key and a value.
//!
//! Rules without descriptor patterns match a descriptor as a resource and an identifier: its keys and its values. Clients choose
//! the values, so the values of different descriptors never give the same identifier, whatever they contain. Values that are too
//! long for an identifier are digested: states, logs and metrics hold no more of them than of any other identity.

use super::{IDENTIFIER_BYTES_MAX, InvalidText, TextProblem, valid_text};
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;

/// The most entries of one descriptor. Each of Envoy's actions creates one, and Envoy Gateway has an action for each of the 128
/// header matches of a rule.
pub const ENTRIES_MAX: usize = 136;
/// The longest key or value of an entry, in bytes: room for any header field that proxies accept, such as a token.
pub const ENTRY_BYTES_MAX: usize = 16_384;
/// The start of an identifier that is a digest. In every other identifier of a descriptor, two hexadecimal digits follow a `%`.
const DIGEST: &str = "%sha256:";

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
/// An identifier of more than [`IDENTIFIER_BYTES_MAX`] bytes becomes `%sha256:` and its SHA-256.
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
    if identifier.len() > IDENTIFIER_BYTES_MAX { digest_of(&identifier) } else { identifier }
}

/// The same on every server, because all of them count in one state.
#[cold]
fn digest_of(identifier: &str) -> String {
    let mut digest = String::from(DIGEST);
    for byte in Sha256::digest(identifier) {
        // Writing to a string cannot fail.
        let _ = write!(digest, "{byte:02x}");
    }
    digest
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
        let (long, longest) = ("x".repeat(16_385), "x".repeat(16_384));
        assert_eq!(problem(&[]), "`entries` is empty: give it at least one entry");
        assert_eq!(problem(&[Entry::new("k", "v"); 137]), "`entries` has 137 entries: use at most 136");
        assert_eq!(problem(&[Entry::new("", "v")]), "`key` is empty: give it at least one character");
        assert_eq!(problem(&[Entry::new("k", &long)]), "`value` has 16385 bytes: use at most 16384");
        assert_eq!(problem(&[Entry::new(&long, "v")]), "`key` has 16385 bytes: use at most 16384");
        assert!(validate(&[Entry::new(&longest, &longest); 136]).is_ok());
        assert!(validate(&[Entry::new("k", "")]).is_ok());
        assert!(validate(&[Entry::new("k", "a\tb\u{85}")]).is_ok());
        assert_eq!(identifier_of(&[Entry::new("k", "a\tb\u{85}")]), "a%09b%85");
    }

    #[test]
    fn an_identifier_that_is_too_long_is_a_digest() {
        let (fits, long) = ("x".repeat(1_024), "x".repeat(1_025));
        assert_eq!(identifier_of(&[Entry::new("k", &fits)]), fits);
        let digest = identifier_of(&[Entry::new("k", &long)]);
        // These bytes must never change: two versions of the server would not find each other's state.
        assert_eq!(digest, "%sha256:c6d8e9905300876046729949cc95c2385221270d389176f7234fe7ac00c4e430");
        // Where the values are divided makes a difference, and no value is mistaken for a digest.
        let (one, rest) = long.split_at(500);
        assert_ne!(identifier_of(&[Entry::new("k", one), Entry::new("k", rest)]), digest);
        assert_ne!(identifier_of(&[Entry::new("k", &digest)]), digest);
        // The bound is that of the identifier: every escaped character has three bytes in it.
        assert!(identifier_of(&[Entry::new("k", &"|".repeat(342))]).starts_with(DIGEST));
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
