//! One declaration per key of a file: a [`Field`] holds the name, the documentation, the default, examples and the
//! [`Kind`] of its value; a [`Mapping`] lists the fields of one section.
//!
//! Reading uses the declaration directly, see [`Section::read`](super::Section::read). Everything else that describes
//! the file (a JSON Schema, a reference page) is rendered from the same declaration through [`Declared`] and [`Form`].
//! A default is text in the syntax of the file and is read like any other value, so it has one home, too.
//!
//! ```
//! use sluicegate::rules::file::field::{Absent, Field, Integer, Mapping};
//! use sluicegate::rules::file::{Document, Environment};
//!
//! static PORT: Field<Integer<u16>> = Field {
//!     key: "port",
//!     doc: "The port that the server listens on.",
//!     kind: Integer { min: 1, max: 65_535, convert: |port| u16::try_from(port).ok() },
//!     absent: Absent::Default("8080"),
//!     examples: &[],
//! };
//! static SERVER: Mapping = Mapping { doc: "The server.", fields: &[&PORT], constraints: &[] };
//!
//! let environment = Environment::new();
//! let document = Document::parse("{}", "mine.yaml", &environment);
//! let port = document.root().and_then(|root| root.mapping(&SERVER)).and_then(|section| section.read(&PORT));
//! assert_eq!(document.finish(port)?, 8080);
//! # Ok::<(), sluicegate::rules::file::Problems>(())
//! ```

use std::fmt;

use sluicegate_core::Micros;

use super::expand::Environment;
use super::problem::ValueError;
use super::reader::{BOOLEANS, Document, Reader};
use super::section::Section;
use super::value;

/// The fields of one section of a file.
#[derive(Debug)]
pub struct Mapping {
    /// The purpose of the section: Markdown, one sentence.
    pub doc: &'static str,
    /// The fields, in the order in which error messages and pages list them.
    pub fields: &'static [&'static dyn Declared],
    /// How the presence of one field depends on others. The reader checks these itself, with a message of its own.
    pub constraints: &'static [Constraint],
}

impl Mapping {
    /// The names of all fields.
    #[must_use]
    pub fn keys(&self) -> Vec<&'static str> {
        self.fields.iter().map(|field| field.key()).collect()
    }
}

/// How the presence of fields depends on one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Constraint {
    /// The first field needs the second.
    Needs(&'static str, &'static str),
    /// Exactly one of these fields is present.
    OneOf(&'static [&'static str]),
    /// Exactly one field of the mapping is present.
    OneField,
    /// `align` goes with windows of a fixed length, `timezone` and `anchor` with windows of a calendar.
    CalendarWindow,
}

/// One key of a file.
#[derive(Debug)]
pub struct Field<K> {
    /// The name.
    pub key: &'static str,
    /// The documentation: Markdown, at least one sentence.
    pub doc: &'static str,
    /// Reads and describes the value.
    pub kind: K,
    /// The consequence of an absent key.
    pub absent: Absent,
    /// Values for editors to suggest, each in the syntax of the file.
    pub examples: &'static [&'static str],
}

/// The consequence of an absent key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absent {
    /// The key is required; the text is the remedy of the error message.
    Required(&'static str),
    /// This value, in the syntax of the file.
    Default(&'static str),
    /// No value; the text describes the consequence for the reference page.
    Nothing(&'static str),
}

impl<K: Kind> Field<K> {
    /// The default, read like a value of the file. `None` if there is none.
    pub fn default(&self) -> Option<K::Value> {
        let Absent::Default(text) = self.absent else { return None };
        let environment = Environment::new();
        let document = Document::of_value(text, &environment);
        let value = document.root().and_then(|reader| self.kind.read(&reader));
        document.finish(value).ok()
    }
}

/// Reads values of one kind, and describes their form.
pub trait Kind: fmt::Debug + Sync {
    /// The type of a value after reading.
    type Value;

    /// Reads a value. `None` means that the problem was reported.
    fn read(&self, reader: &Reader<'_>) -> Option<Self::Value>;

    /// The form of the value as it stands in a file.
    fn form(&self) -> Form;
}

/// A [`Field`] of any kind, as descriptions of the file need it.
pub trait Declared: fmt::Debug + Sync {
    /// The name.
    fn key(&self) -> &'static str;

    /// The documentation: Markdown, at least one sentence.
    fn doc(&self) -> &'static str;

    /// The consequence of an absent key.
    fn absent(&self) -> Absent;

    /// Example values in the syntax of the file.
    fn examples(&self) -> &'static [&'static str];

    /// The form of the value.
    fn form(&self) -> Form;

    /// Reads a value for its problems alone.
    fn check(&self, reader: &Reader<'_>);

    /// True unless there is a default that its own reader rejects, which is a bug.
    fn has_readable_default(&self) -> bool;
}

impl<K: Kind> Declared for Field<K> {
    fn key(&self) -> &'static str {
        self.key
    }

    fn doc(&self) -> &'static str {
        self.doc
    }

    fn absent(&self) -> Absent {
        self.absent
    }

    fn examples(&self) -> &'static [&'static str] {
        self.examples
    }

    fn form(&self) -> Form {
        self.kind.form()
    }

    fn check(&self, reader: &Reader<'_>) {
        drop(self.kind.read(reader));
    }

    fn has_readable_default(&self) -> bool {
        !matches!(self.absent, Absent::Default(_)) || self.default().is_some()
    }
}

/// The form of a value as it stands in a file.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Form {
    /// `true` or `false`.
    Boolean,
    /// A whole number within these bounds.
    Integer {
        /// The least.
        min: u64,
        /// The largest.
        max: u64,
    },
    /// One of these words; an environment variable may stand for it.
    Words(Vec<&'static str>),
    /// One of these words, literally.
    Literal(Vec<&'static str>),
    /// A value type that has a name, such as `duration`.
    Named(&'static str),
    /// A duration within bounds, written as in a file.
    Duration {
        /// The shortest.
        min: &'static str,
        /// The longest.
        max: &'static str,
    },
    /// A text.
    Text(Shape),
    /// A list.
    List {
        /// The items for the reference page, in the plural.
        noun: &'static str,
        /// The form of one item.
        item: Box<Self>,
        /// The least number of items.
        min: usize,
        /// The largest number of items.
        max: Option<usize>,
        /// True if no item may stand there twice.
        is_unique: bool,
    },
    /// A mapping with known keys.
    Mapping(&'static Mapping),
    /// A mapping with free keys.
    Map {
        /// The keys and values for the reference page.
        about: &'static str,
        /// The form of a key.
        name: Box<Self>,
        /// The form of a value.
        value: Box<Self>,
        /// The least number of entries.
        min: usize,
        /// The largest number of entries.
        max: Option<usize>,
    },
    /// One of several forms.
    Any(Vec<Self>),
}

/// The form of a text.
#[derive(Clone, Debug, Default)]
pub struct Shape {
    /// The form for the reference page.
    pub about: &'static str,
    /// Regular expressions (ECMA 262), of which one matches; without any, every text fits.
    pub patterns: Vec<String>,
    /// The least length in characters.
    pub min_length: Option<usize>,
    /// The largest length in characters.
    pub max_length: Option<usize>,
    /// True if an environment variable may stand for a part that the patterns would reject.
    pub has_variables: bool,
}

/// The pattern of a text without control characters.
pub const NO_CONTROL_CHARACTERS: &str = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$";

/// A pattern of paths.
#[must_use]
pub fn path_pattern() -> Form {
    Form::Text(Shape { max_length: Some(1024), ..Shape::matching("path pattern", "^/[^?\\\\]*$") })
}

impl Shape {
    /// Any text, described by `about`.
    #[must_use]
    pub fn new(about: &'static str) -> Self {
        Self { about, ..Self::default() }
    }

    /// A text that matches this pattern; a text with an environment variable may, too.
    #[must_use]
    pub fn matching(about: &'static str, pattern: impl Into<String>) -> Self {
        Self { about, patterns: vec![pattern.into()], has_variables: true, ..Self::default() }
    }

    /// The same with bounds for its length.
    #[must_use]
    pub fn bounded(self, min: usize, max: usize) -> Self {
        Self { min_length: Some(min), max_length: Some(max), ..self }
    }

    /// The same without environment variables.
    #[must_use]
    pub fn literally(self) -> Self {
        Self { has_variables: false, ..self }
    }
}

/// `true` or `false`.
#[derive(Clone, Copy, Debug)]
pub struct Boolean;

impl Kind for Boolean {
    type Value = bool;

    fn read(&self, reader: &Reader<'_>) -> Option<bool> {
        reader.choice(BOOLEANS)
    }

    fn form(&self) -> Form {
        Form::Boolean
    }
}

/// A whole number within bounds.
#[derive(Clone, Copy, Debug)]
pub struct Integer<T> {
    /// The least.
    pub min: u64,
    /// The largest.
    pub max: u64,
    /// The number as the program needs it; every number within the bounds has one.
    pub convert: fn(u64) -> Option<T>,
}

impl<T: fmt::Debug> Kind for Integer<T> {
    type Value = T;

    fn read(&self, reader: &Reader<'_>) -> Option<T> {
        (self.convert)(reader.integer(self.min..=self.max)?)
    }

    fn form(&self) -> Form {
        Form::Integer { min: self.min, max: self.max }
    }
}

/// One of several words, each with its meaning.
#[derive(Clone, Copy, Debug)]
pub struct Choice<T: 'static>(pub &'static [(&'static str, T)]);

impl<T: Copy + fmt::Debug + Sync> Kind for Choice<T> {
    type Value = T;

    fn read(&self, reader: &Reader<'_>) -> Option<T> {
        reader.choice(self.0)
    }

    fn form(&self) -> Form {
        Form::Words(words(self.0))
    }
}

/// The words of a list of choices.
#[must_use]
pub fn words<T>(choices: &[(&'static str, T)]) -> Vec<&'static str> {
    choices.iter().map(|(word, _)| *word).collect()
}

/// A duration within bounds.
#[derive(Clone, Copy, Debug)]
pub struct Duration {
    /// The shortest, written as in a file.
    pub min: &'static str,
    /// The longest, written as in a file.
    pub max: &'static str,
    /// The remedy of the error message, from the two bounds.
    pub remedy: fn(&str, &str) -> String,
}

impl Kind for Duration {
    type Value = std::time::Duration;

    fn read(&self, reader: &Reader<'_>) -> Option<std::time::Duration> {
        let length = reader.duration()?;
        let bound = |text| value::duration(text).unwrap_or(Micros::ZERO);
        if (bound(self.min)..=bound(self.max)).contains(&length) {
            return Some(std::time::Duration::from_micros(length.as_micros()));
        }
        reader.refuse(ValueError::new("out of range", (self.remedy)(self.min, self.max)))
    }

    fn form(&self) -> Form {
        Form::Duration { min: self.min, max: self.max }
    }
}

/// A text that a function turns into a value, or rejects.
#[derive(Clone, Copy, Debug)]
pub struct Text<T> {
    /// Reads the text.
    pub parse: fn(&str) -> Result<T, ValueError>,
    /// The form of the text.
    pub form: fn() -> Form,
}

impl<T: fmt::Debug> Kind for Text<T> {
    type Value = T;

    fn read(&self, reader: &Reader<'_>) -> Option<T> {
        reader.text_as(self.parse)
    }

    fn form(&self) -> Form {
        (self.form)()
    }
}

/// A value with a reader of its own.
#[derive(Clone, Copy, Debug)]
pub struct Custom<T> {
    /// Reads the value.
    pub read: fn(&Reader<'_>) -> Option<T>,
    /// The form of the value.
    pub form: fn() -> Form,
}

impl<T: fmt::Debug> Kind for Custom<T> {
    type Value = T;

    fn read(&self, reader: &Reader<'_>) -> Option<T> {
        (self.read)(reader)
    }

    fn form(&self) -> Form {
        (self.form)()
    }
}

/// A mapping with fields of its own.
#[derive(Clone, Copy, Debug)]
pub struct Nested<T> {
    /// The fields.
    pub mapping: &'static Mapping,
    /// Makes a value of the fields.
    pub read: fn(&Section<'_>) -> Option<T>,
}

impl<T: fmt::Debug> Kind for Nested<T> {
    type Value = T;

    fn read(&self, reader: &Reader<'_>) -> Option<T> {
        (self.read)(&reader.mapping(self.mapping)?)
    }

    fn form(&self) -> Form {
        Form::Mapping(self.mapping)
    }
}

/// A value that the reader of its section reads, because that needs more than the value.
#[derive(Clone, Copy, Debug)]
pub struct Described(pub fn() -> Form);

impl Kind for Described {
    type Value = ();

    fn read(&self, _: &Reader<'_>) -> Option<()> {
        Some(())
    }

    fn form(&self) -> Form {
        (self.0)()
    }
}
