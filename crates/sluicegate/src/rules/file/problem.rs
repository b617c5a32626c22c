//! Problems of a file: each [`Problem`] has a place, a message and a remedy. [`Problems`] is all of them as one error.
//!
//! A problem shows the value as it is in the file, escaped and truncated. It never shows the value of a variable, which
//! may be a secret.

use std::cell::{Cell, RefCell};
use std::fmt;

/// The most problems that are kept; further ones are only counted. A report of a hostile file must not become many times
/// its size.
pub const PROBLEMS_MAX: usize = 10_000;

/// The most characters of a value that are shown.
pub const VALUE_CHARS_MAX: usize = 64;

/// A place in a text; line and column count from one. A tree that comes from no text has [`Place::numbered`] places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The line.
    pub line: usize,
    /// The column, in characters.
    pub column: usize,
}

impl Place {
    /// The place of the first character.
    pub(super) const START: Self = Self { line: 1, column: 1 };

    /// The place of the item with this number in a tree that comes from no text, such as the configuration of a control
    /// plane. Items count from one; 0 is the tree as a whole.
    #[must_use]
    pub const fn numbered(number: usize) -> Self {
        Self { line: number, column: 0 }
    }

    /// True for a tree as a whole that comes from no text.
    fn is_nowhere(self) -> bool {
        self == Self::numbered(0)
    }

    /// The place right after `text`.
    pub(super) fn after(text: &str) -> Self {
        let mut place = Self::START;
        let mut characters = text.chars().peekable();
        while let Some(character) = characters.next() {
            match character {
                '\r' if characters.peek() == Some(&'\n') => {}
                '\r' | '\n' => place = Self { line: place.line + 1, column: 1 },
                _ => place.column += 1,
            }
        }
        place
    }
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.column {
            0 => write!(formatter, "#{}", self.line),
            column => write!(formatter, "{}:{column}", self.line),
        }
    }
}

/// One problem of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// The place of the key or value.
    pub place: Place,
    /// The path of the key or value, such as `rules[2].limits[0].refill`; empty for the file as a whole.
    pub path: String,
    /// The problem, without the value.
    pub message: String,
    /// The value as it is in the file, escaped and truncated, if there is one.
    pub value: Option<String>,
    /// The remedy.
    pub remedy: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.place.is_nowhere() {
            write!(formatter, "{}: ", self.place)?;
        }
        if !self.path.is_empty() {
            write!(formatter, "{}: ", self.path)?;
        }
        formatter.write_str(&self.message)?;
        if let Some(value) = &self.value {
            write!(formatter, " (value {value})")?;
        }
        write!(formatter, ": {}", self.remedy)
    }
}

/// All problems of a file, in the order of the file. `Display` writes one line per problem:
/// `file:line:column: path: message (value …): remedy`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems {
    file: String,
    list: Vec<Problem>,
    left_out: usize,
}

impl Problems {
    /// The name of the file, as the caller passed it.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The problems in the order of their places: at least one, at most [`PROBLEMS_MAX`].
    #[must_use]
    pub fn list(&self) -> &[Problem] {
        &self.list
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.list.iter().enumerate() {
            let end_of_last = if index == 0 { "" } else { "\n" };
            let gap = if problem.place.is_nowhere() { " " } else { "" };
            write!(formatter, "{end_of_last}{}:{gap}{problem}", self.file)?;
        }
        match self.left_out {
            0 => Ok(()),
            count => write!(formatter, "\n{}: {count} more problems: solve these first", self.file),
        }
    }
}

impl std::error::Error for Problems {}

/// Collects problems. All readers of a document share one, so adding needs no exclusive access.
#[derive(Debug, Default)]
pub(super) struct Report {
    list: RefCell<Vec<Problem>>,
    left_out: Cell<usize>,
}

impl Report {
    /// Adds a problem. The closure formats its text only if the report has room.
    pub(super) fn add(&self, problem: impl FnOnce() -> Problem) {
        let mut list = self.list.borrow_mut();
        if list.len() < PROBLEMS_MAX {
            list.push(problem());
        } else {
            self.left_out.set(self.left_out.get() + 1);
        }
    }

    /// Adds a problem of the text as a whole, which has no path.
    pub(super) fn add_at(&self, place: Place, wrong: ValueError, value: Option<String>) {
        let ValueError { message, remedy } = wrong;
        self.add(|| Problem { place, path: String::new(), message, value, remedy });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.borrow().is_empty()
    }

    pub(super) fn into_problems(self, file: String) -> Problems {
        let mut list = self.list.into_inner();
        list.sort_by_key(|problem| problem.place);
        Problems { file, list, left_out: self.left_out.get() }
    }
}

/// An invalid value: the problem and the remedy. The reader adds the place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueError {
    /// The problem, without the value.
    pub message: String,
    /// The remedy.
    pub remedy: String,
}

impl ValueError {
    /// An error with a message and a remedy.
    pub fn new(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { message: message.into(), remedy: remedy.into() }
    }

    /// The error for a reader that failed without a report, which is a bug.
    pub(super) fn unexplained() -> Self {
        Self::new("cannot be read", "report this as a bug, with the file")
    }
}

/// `text` on one line, truncated to [`VALUE_CHARS_MAX`] characters, in quotes and escaped if necessary.
#[must_use]
pub fn shown(text: &str, quoted: bool) -> String {
    let cut = match text.char_indices().nth(VALUE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    };
    let may_stand_bare = |character: char| match character {
        '"' | '\\' => false,
        ' ' | '…' => true,
        other => other.is_ascii_graphic(),
    };
    if quoted || cut.is_empty() || !cut.chars().all(may_stand_bare) { format!("{cut:?}") } else { cut }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_shown_in_one_short_line_without_control_characters() {
        let long = "x".repeat(65);
        let cases = [
            ("5 min", false, "5 min"),
            ("5", true, "\"5\""),
            ("", false, "\"\""),
            ("it's", false, "it's"),
            ("say \"hi\"", false, r#""say \"hi\"""#),
            ("two\nlines", true, r#""two\nlines""#),
            ("\u{1b}[31mred", false, r#""\u{1b}[31mred""#),
            ("\u{202e}txt", false, r#""\u{202e}txt""#),
            (&long[..64], false, &long[..64]),
        ];
        for (text, quoted, expected) in cases {
            assert_eq!(shown(text, quoted), expected);
        }
        assert_eq!(shown(&long, false), format!("{}…", &long[..64]));
        assert_eq!(shown(&"é".repeat(65), true), format!("\"{}…\"", "é".repeat(64)));
    }

    #[test]
    fn places_count_characters_and_all_kinds_of_line_ends() {
        let cases = [("", 1, 1), ("ab", 1, 3), ("é", 1, 2), ("a\nb", 2, 2), ("a\r\nb", 2, 2), ("a\r\rb", 3, 2)];
        for (text, line, column) in cases {
            assert_eq!(Place::after(text), Place { line, column }, "{text:?}");
        }
    }

    #[test]
    fn places_without_a_text_are_numbers() {
        let report = Report::default();
        report.add_at(Place::numbered(2), ValueError::new("bad", "mend it"), None);
        report.add_at(Place::numbered(0), ValueError::new("worse", "mend it"), None);
        assert_eq!(report.into_problems("f".to_owned()).to_string(), "f: worse: mend it\nf:#2: bad: mend it");
    }

    #[test]
    fn problems_beyond_the_bound_are_counted() {
        let report = Report::default();
        for line in 0..PROBLEMS_MAX + 2 {
            let place = Place { line: line + 1, column: 1 };
            report.add_at(place, ValueError::new("bad", "mend it"), None);
        }
        let text = report.into_problems("f".to_owned()).to_string();
        assert!(text.starts_with("f:1:1: bad: mend it\nf:2:1: bad: mend it\n"));
        assert!(text.ends_with("\nf:10000:1: bad: mend it\nf: 2 more problems: solve these first"));
    }
}
