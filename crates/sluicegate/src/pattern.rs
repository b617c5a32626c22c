//! Glob patterns for names: `*` matches any run of characters, also an empty one.
//!
//! Matching takes time linear in the text. Each fixed part between two stars is searched once, and its leftmost
//! occurrence is always sufficient, so there is no backtracking.

/// A glob pattern.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pattern {
    /// The fixed parts between the stars; a pattern with one part has no star.
    parts: Box<[Box<str>]>,
}

impl Pattern {
    /// Parses a pattern. Every text is a valid one.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self { parts: text.split('*').map(Box::from).collect() }
    }

    /// True if the pattern has no star and so matches one text only.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.parts.len() == 1
    }

    /// The common prefix of all matching texts: everything before the first star.
    pub(crate) fn start(&self) -> &str {
        self.parts.first().map_or("", |first| first)
    }

    /// The pattern as written.
    #[must_use]
    pub fn text(&self) -> String {
        self.parts.join("*")
    }

    /// A text that another pattern matches if, and only if, that pattern matches every text that this one matches.
    ///
    /// Each star is replaced by a character that no pattern contains, so only a star can match it. That star would
    /// match any other run of characters there as well.
    #[cfg(feature = "file")]
    pub(crate) fn hardest_text(&self) -> String {
        self.parts.join("\0")
    }

    /// True if the pattern matches the whole of `text`.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        let [first, middle @ .., last] = &*self.parts else {
            return self.parts.first().is_some_and(|only| **only == *text);
        };
        let Some(mut rest) = text.strip_prefix(&**first) else { return false };
        for part in middle {
            let Some(at) = rest.find(&**part) else { return false };
            rest = &rest[at + part.len()..];
        }
        rest.ends_with(&**last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_match_any_run_of_characters() {
        let cases = [
            ("*", "", true),
            ("*", "anything", true),
            ("api.payment.*", "api.payment.create", true),
            ("api.payment.*", "api.payment.", true),
            ("api.payment.*", "api.payment", false),
            ("api.payment.*", "xapi.payment.create", false),
            ("vip-*", "vip-", true),
            ("a*b*c", "abc", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "acb", false),
            ("ab*bc", "abc", false),
            ("*.read", "x.read", true),
            ("**", "x", true),
            ("exact", "exact", true),
            ("exact", "exactly", false),
            ("a.c", "abc", false),
            ("", "", true),
            ("", "x", false),
            ("é*", "éa", true),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(Pattern::new(pattern).matches(text), expected, "{pattern} on {text}");
        }
    }

    #[cfg(feature = "file")]
    #[test]
    fn hardest_text_decides_whether_one_pattern_covers_another() {
        let cases = [
            ("*", "a*b", true),
            ("**", "*", true),
            ("vip-*", "vip-*", true),
            ("vip-*", "vip-7*", true),
            ("vip-*", "vip-*-eu", true),
            ("vip-*", "vip-7", true),
            ("vip-*", "vip*", false),
            ("vip-*", "*vip-*", false),
            ("*a*", "b*a", true),
            ("*a*b*", "*ab*", true),
            ("a*a", "a*", false),
            ("a*a", "a", false),
            ("*ab*", "*a*b*", false),
            ("a*b", "a*b*", false),
            ("a", "a*", false),
        ];
        for (pattern, other, expected) in cases {
            let text = Pattern::new(other).hardest_text();
            assert_eq!(Pattern::new(pattern).matches(&text), expected, "{pattern} and {other}");
        }
    }

    #[test]
    fn matching_time_is_linear_in_the_text() {
        let pattern = Pattern::new("*a*a*a*a*a*a*a*a*b");
        assert!(!pattern.matches(&"a".repeat(100_000)));
    }
}
