//! What a rule asks of an entry of a descriptor.

use super::pattern::Pattern;
use crate::identity::Entry;
use std::fmt;

/// An entry that a descriptor must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryPattern {
    /// The key, exactly.
    pub key: Box<str>,
    /// The value; any if absent.
    pub value: Option<Pattern>,
}

impl EntryPattern {
    /// True if it stands for `entry`.
    #[must_use]
    pub fn matches(&self, entry: &Entry<'_>) -> bool {
        *self.key == *entry.key && self.value.as_ref().is_none_or(|value| value.matches(entry.value))
    }
}

/// As it is written in a rule, in short: the key, and the pattern of its value after a `=`.
impl fmt::Display for EntryPattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.key)?;
        self.value.as_ref().map_or(Ok(()), |value| write!(formatter, "={}", value.text()))
    }
}
