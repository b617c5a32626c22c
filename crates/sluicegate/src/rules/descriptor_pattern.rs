//! Patterns for the entries of a descriptor.

use crate::identity::Entry;
use crate::pattern::Pattern;
use std::fmt;

/// A required entry of a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryPattern {
    /// The key, exactly.
    pub key: Box<str>,
    /// The value; any if absent.
    pub value: Option<Pattern>,
}

impl EntryPattern {
    /// True if it matches `entry`.
    #[must_use]
    pub fn matches(&self, entry: &Entry<'_>) -> bool {
        *self.key == *entry.key && self.value.as_ref().is_none_or(|value| value.matches(entry.value))
    }
}

/// The short form in messages: the key, and after a `=` the pattern of the value.
impl fmt::Display for EntryPattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.key)?;
        self.value.as_ref().map_or(Ok(()), |value| write!(formatter, "={}", value.text()))
    }
}
