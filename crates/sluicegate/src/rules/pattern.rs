//! Patterns for names: text in which `*` stands for any run of characters, an empty one included.
//!
//! Matching takes time proportional to the text: every fixed part between two stars is sought once, the
//! leftmost place is always good enough, so no input makes it go back.

/// A pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// The fixed parts between the stars: one part means no star at all.
    parts: Box<[Box<str>]>,
}

impl Pattern {
    /// Reads a pattern.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self { parts: text.split('*').map(Box::from).collect() }
    }

    /// True if the pattern has no star and so names one text only.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.parts.len() == 1
    }

    /// What every text begins with that the pattern stands for: all up to the first star.
    pub(crate) fn start(&self) -> &str {
        self.parts.first().map_or("", |first| first)
    }

    /// The pattern as it was written.
    #[must_use]
    pub fn text(&self) -> String {
        self.parts.join("*")
    }

    /// A text that another pattern matches if, and only if, it matches all that this one matches.
    ///
    /// In the place of each star it has a character that no pattern is written with, so only a star can match it. That star
    /// would match any other run of characters there as well.
    #[cfg(feature = "file")]
    pub(crate) fn hardest_text(&self) -> String {
        self.parts.join("\0")
    }

    /// True if the pattern stands for all of `text`.
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
    fn stars_stand_for_any_run_and_everything_else_for_itself() {
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
    fn a_pattern_that_matches_the_hardest_text_of_another_matches_all_of_them() {
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
    fn a_hostile_text_costs_no_more_than_its_length() {
        let pattern = Pattern::new("*a*a*a*a*a*a*a*a*b");
        assert!(!pattern.matches(&"a".repeat(100_000)));
    }
}
