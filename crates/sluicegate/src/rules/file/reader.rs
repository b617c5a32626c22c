//! Typed readers over the tree of a file. A reader that rejects a value reports the problem with its place and its path
//! and returns `None`. The other readers continue, so one pass finds all problems.
//!
//! [`Document`] holds the tree and the problems, and a [`Reader`] is one value of it.

use super::expand::{Environment, expand};
use super::field::Mapping;
use super::problem::{Place, Problem, Problems, Report, ValueError, shown};
use super::section::{Pair, Section};
use super::suggest::with_closest;
use super::tree::{self, Entry, Kind, Meaning, Node, Scalar};
use super::window::{self, Window};
use super::{all, value};
use std::collections::HashMap;
use std::ops::RangeInclusive;

/// The words of a Boolean.
pub const BOOLEANS: &[(&str, bool)] = &[("true", true), ("false", false)];

/// A file that is being read.
///
/// ```
/// use sluicegate::rules::file::{Document, Environment};
///
/// let environment = Environment::new();
/// let document = Document::parse("size: 10\nsizes: 11\n", "demo.yaml", &environment);
/// let size = document
///     .root()
///     .and_then(|root| root.section(&["size"]))
///     .and_then(|section| section.required("size", "say how large").and_then(|size| size.integer(1..=9)));
/// assert_eq!(
///     document.finish(size).unwrap_err().to_string(),
///     "demo.yaml:1:7: size: out of range (value 10): use a whole number from 1 to 9\n\
///      demo.yaml:2:1: sizes: unknown key: did you mean size? the keys here are: size"
/// );
/// ```
#[derive(Debug)]
pub struct Document<'e> {
    file: String,
    environment: &'e Environment,
    root: Option<Node>,
    report: Report,
}

impl<'e> Document<'e> {
    /// Reads `text`; problems show `file` as its name, and variables come from `environment`.
    pub fn parse(text: impl AsRef<[u8]>, file: &str, environment: &'e Environment) -> Self {
        let report = Report::default();
        let root = tree::parse(text.as_ref(), &report);
        Self { file: file.to_owned(), environment, root, report }
    }

    /// A document whose tree does not come from a text. The caller has bounded its depth and size.
    pub(in crate::rules) fn of_tree(root: Node, file: &str, environment: &'e Environment) -> Self {
        Self { file: file.to_owned(), environment, root: Some(root), report: Report::default() }
    }

    /// The name of the file in problems.
    pub(in crate::rules) fn file(&self) -> &str {
        &self.file
    }

    /// A document of one value in the syntax of a file. A plain scalar skips the parser.
    pub(super) fn of_value(text: &str, environment: &'e Environment) -> Self {
        if text.starts_with(['[', '{', '"', '\'']) {
            return Self::parse(text, "", environment);
        }
        let kind = Kind::Scalar(Scalar { text: text.into(), quoted: false });
        let root = Some(Node { place: Place::START, kind });
        Self { file: String::new(), environment, root, report: Report::default() }
    }

    /// The whole document; `None` if the text is not readable YAML.
    #[must_use]
    pub fn root(&self) -> Option<Reader<'_>> {
        Some(Reader { document: self, node: self.root.as_ref()?, path: String::new() })
    }

    /// The value, if the document has no problems.
    ///
    /// # Errors
    /// All problems of the document.
    pub fn finish<T>(self, value: Option<T>) -> Result<T, Problems> {
        match value {
            Some(value) if self.report.is_empty() => Ok(value),
            _ => {
                if self.report.is_empty() {
                    self.report.add_at(Place::START, ValueError::unexplained(), None);
                }
                Err(self.report.into_problems(self.file))
            }
        }
    }
}

/// One value of a document.
#[derive(Clone, Debug)]
pub struct Reader<'d> {
    document: &'d Document<'d>,
    node: &'d Node,
    path: String,
}

impl<'d> Reader<'d> {
    /// The value as it stands in the tree.
    #[must_use]
    pub fn node(&self) -> &'d Node {
        self.node
    }

    /// The place of the value.
    #[must_use]
    pub fn place(&self) -> Place {
        self.node.place
    }

    /// This mapping with the path of its absent key `key`.
    pub(super) fn without(&self, key: &str) -> Self {
        Self { path: joined(&self.path, key), ..self.clone() }
    }

    /// True if any problem of the document was reported so far.
    pub(super) fn has_problems(&self) -> bool {
        !self.document.report.is_empty()
    }

    /// Makes sure that the document has a problem, because a stand-in replaces this value. The reader that failed has
    /// normally reported one. The document must not become valid through a stand-in.
    pub(super) fn ensure_reported(&self) {
        if !self.has_problems() {
            self.report(ValueError::unexplained());
        }
    }

    /// Reports a problem with this value.
    pub fn report(&self, wrong: ValueError) {
        let value = match &self.node.kind {
            Kind::Scalar(scalar) => Some(shown(&scalar.text, scalar.quoted)),
            Kind::List(_) | Kind::Mapping(_) | Kind::Broken => None,
        };
        self.report_as(wrong, value);
    }

    /// Reports a problem with this value, but shows `value` instead of it, or nothing.
    pub fn report_as(&self, wrong: ValueError, value: Option<String>) {
        self.report_lazily(value, || wrong);
    }

    /// Reports a problem. The closure formats its text only if the report has room.
    pub(super) fn report_lazily(&self, value: Option<String>, wrong: impl FnOnce() -> ValueError) {
        self.document.report.add(|| {
            let ValueError { message, remedy } = wrong();
            Problem { place: self.place(), path: self.path.clone(), message, value, remedy }
        });
    }

    /// Reports a problem with this value and returns `None`.
    pub fn refuse<T>(&self, wrong: ValueError) -> Option<T> {
        self.report(wrong);
        None
    }

    /// Reports that this value is not of the `wanted` type.
    fn mismatch<T>(&self, wanted: &str, remedy: &str) -> Option<T> {
        let found = match &self.node.kind {
            Kind::Broken => return None,
            Kind::List(_) => " but a list",
            Kind::Mapping(_) => " but a mapping",
            Kind::Scalar(_) => "",
        };
        if self.node.is_null() {
            self.report_as(ValueError::new("no value", remedy), None);
            return None;
        }
        self.refuse(ValueError::new(format!("not {wanted}{found}"), remedy))
    }

    fn scalar(&self) -> Option<&'d Scalar> {
        match &self.node.kind {
            Kind::Scalar(scalar) if scalar.meaning() != Meaning::Null => Some(scalar),
            _ => None,
        }
    }

    /// The text with its variables replaced.
    fn expanded(&self, scalar: &Scalar) -> Option<String> {
        match expand(&scalar.text, self.document.environment) {
            Ok(text) => Some(text.into_owned()),
            Err(wrongs) => {
                wrongs.into_iter().for_each(|wrong| self.report(wrong));
                None
            }
        }
    }

    /// A text. A number, `true` or `null` is a text only in quotes.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        match self.scalar() {
            Some(scalar) if scalar.meaning() == Meaning::Text => self.expanded(scalar),
            Some(scalar) => {
                let remedy = format!("put it in quotes: {}", shown(&scalar.text, true));
                self.mismatch("a text", &remedy)
            }
            None => self.mismatch("a text", "write a text"),
        }
    }

    /// A secret text: messages never contain it.
    #[must_use]
    pub fn secret(&self) -> Option<String> {
        let Some(scalar) = self.scalar().filter(|scalar| scalar.meaning() == Meaning::Text) else {
            self.report_as(
                ValueError::new("not a text", "write a text, in quotes if it looks like a number"),
                None,
            );
            return None;
        };
        match expand(&scalar.text, self.document.environment) {
            Ok(text) => Some(text.into_owned()),
            Err(wrongs) => {
                wrongs.into_iter().for_each(|wrong| self.report_as(wrong, None));
                None
            }
        }
    }

    /// The result of `parse` for the text.
    pub fn text_as<T>(&self, mut parse: impl FnMut(&str) -> Result<T, ValueError>) -> Option<T> {
        // Advise quotes only if the text would be valid within them.
        if let Some(scalar) = self.scalar().filter(|scalar| scalar.meaning() != Meaning::Text)
            && let Err(wrong) = parse(&scalar.text)
        {
            return self.refuse(wrong);
        }
        self.checked(parse(&self.text()?))
    }

    fn checked<T>(&self, outcome: Result<T, ValueError>) -> Option<T> {
        outcome.map_or_else(|wrong| self.refuse(wrong), Some)
    }

    /// The result of `parse` for the scalar, even if it looks like a number.
    fn scalar_as<T>(&self, wanted: &str, parse: impl FnOnce(&str) -> Result<T, ValueError>) -> Option<T> {
        match self.scalar() {
            Some(scalar) => self.checked(parse(&self.expanded(scalar)?)),
            None => {
                // The remedy for an empty text is the remedy for no value.
                let remedy = parse("").err().map_or_else(|| format!("write {wanted}"), |wrong| wrong.remedy);
                self.mismatch(wanted, &remedy)
            }
        }
    }

    /// A duration.
    #[must_use]
    pub fn duration(&self) -> Option<sluicegate_core::Micros> {
        self.scalar_as("a duration", value::duration)
    }

    /// A duration, or a window of a calendar.
    #[must_use]
    pub fn window(&self) -> Option<Window> {
        self.scalar_as("a window", window::window)
    }

    /// A deadline for store calls.
    #[must_use]
    pub fn deadline(&self) -> Option<std::time::Duration> {
        self.scalar_as("a duration", value::deadline)
    }

    /// A rate.
    #[must_use]
    pub fn rate(&self) -> Option<sluicegate_core::Rate> {
        self.scalar_as("a rate", value::rate)
    }

    /// A whole number within `range`; text is an error.
    #[must_use]
    pub fn integer(&self, range: RangeInclusive<u64>) -> Option<u64> {
        let remedy = format!("use a whole number from {} to {}", range.start(), range.end());
        match self.scalar() {
            Some(scalar) if scalar.text.contains("${") => {
                self.mismatch("a whole number", "write the number itself: variables may stand only in texts")
            }
            Some(scalar) if scalar.quoted => {
                let is_number = value::whole_number(&scalar.text, range).is_ok();
                let remedy = if is_number { "remove the quotes" } else { &remedy };
                self.mismatch("a whole number but a text", remedy)
            }
            Some(scalar) => self.checked(value::whole_number(&scalar.text, range)),
            None => self.mismatch("a whole number", &remedy),
        }
    }

    /// One of several words.
    pub fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Option<T> {
        self.scalar_as("a word", |text| {
            let chosen = choices.iter().find(|(word, _)| *word == text).map(|(_, choice)| *choice);
            chosen.ok_or_else(|| {
                let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
                ValueError::new("unknown value", with_closest(text, &words, &format!("use {}", any_of(&words))))
            })
        })
    }

    /// `true` or `false`.
    #[must_use]
    pub fn boolean(&self) -> Option<bool> {
        self.choice(BOOLEANS)
    }

    /// A list of words, each at most once; `remedy` is for a value that is no list.
    pub fn choices<T: Copy + PartialEq>(&self, choices: &[(&str, T)], remedy: &str) -> Option<Vec<T>> {
        let mut first: Vec<(T, Place)> = Vec::new();
        all(self.list(remedy)?.iter().map(|item| {
            let choice = item.choice(choices)?;
            if let Some((_, place)) = first.iter().find(|(other, _)| *other == choice) {
                return item.refuse(ValueError::new(format!("named twice, first at {place}"), "name it once"));
            }
            first.push((choice, item.place()));
            Some(choice)
        }))
    }

    /// True if this is the word `word`.
    #[must_use]
    pub fn is_word(&self, word: &str) -> bool {
        self.scalar().is_some_and(|scalar| &*scalar.text == word)
    }

    /// True if this is a list.
    #[must_use]
    pub fn is_list(&self) -> bool {
        matches!(self.node.kind, Kind::List(_))
    }

    /// True if this is a mapping.
    #[must_use]
    pub fn is_mapping(&self) -> bool {
        matches!(self.node.kind, Kind::Mapping(_))
    }

    /// The values of a list; `remedy` is for a value that is no list.
    #[must_use]
    pub fn list(&self, remedy: &str) -> Option<Vec<Self>> {
        let Kind::List(items) = &self.node.kind else { return self.mismatch("a list", remedy) };
        let item = |(index, node)| Self { node, path: format!("{}[{index}]", self.path), ..self.clone() };
        Some(items.iter().enumerate().map(item).collect())
    }

    /// The keys and values of a mapping with free keys.
    #[must_use]
    pub fn pairs(&self) -> Option<Vec<Pair<'d>>> {
        let Kind::Mapping(entries) = &self.node.kind else {
            return self.mismatch("a mapping", "write `key: value` pairs");
        };
        let mut first: HashMap<&str, Place> = HashMap::new();
        let mut pairs = Vec::new();
        for Entry { key, value } in entries {
            let Some(name) = self.name_of(key) else { continue };
            let path = joined(&self.path, name);
            let key = Self { node: key, path: path.clone(), ..self.clone() };
            match first.get(name) {
                None => {
                    first.insert(name, key.place());
                    pairs.push(Pair { name, key, value: Self { node: value, path, ..self.clone() } });
                }
                Some(place) => {
                    let message = format!("duplicate key, first at {place}");
                    key.report_as(ValueError::new(message, "keep one of the two"), None);
                }
            }
        }
        Some(pairs)
    }

    fn name_of(&self, key: &'d Node) -> Option<&'d str> {
        match &key.kind {
            Kind::Scalar(scalar) => Some(&scalar.text),
            Kind::Broken => None,
            Kind::List(_) | Kind::Mapping(_) => {
                let remedy = "write `key: value` with a plain text as key";
                Self { node: key, ..self.clone() }.mismatch("a key", remedy)
            }
        }
    }

    /// The mapping with these keys; any other key is reported.
    #[must_use]
    pub fn section(&self, known: &[&str]) -> Option<Section<'d>> {
        let section = self.open_section()?;
        section.only(known);
        Some(section)
    }

    /// The mapping with these fields; any other key is reported.
    #[must_use]
    pub fn mapping(&self, mapping: &Mapping) -> Option<Section<'d>> {
        self.section(&mapping.keys())
    }

    /// The mapping with any keys; the caller checks them with [`Section::only`].
    #[must_use]
    pub fn open_section(&self) -> Option<Section<'d>> {
        Some(Section::new(self.clone(), self.pairs()?))
    }
}

/// `path.key`, with quotes around a key that is not plain.
fn joined(path: &str, key: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    match (path, !key.is_empty() && key.len() <= 64 && key.bytes().all(is_plain)) {
        ("", true) => key.to_owned(),
        (_, true) => format!("{path}.{key}"),
        (_, false) => format!("{path}[{}]", shown(key, true)),
    }
}

/// `a, b or c`.
fn any_of(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [most @ .., last] => format!("{} or {last}", most.join(", ")),
    }
}
