//! Rules from YAML or JSON: a valid [`RuleSet`], or all [`Problems`] at once, each with its place, its path, the value
//! and the remedy.
//!
//! | module | contents |
//! |---|---|
//! | [`tree`] | the text as a bounded tree of keys and values with their places |
//! | [`reader`], [`section`] | typed readers over the tree, which report a problem and continue |
//! | [`field`] | one declaration per key: name, documentation, kind, default |
//! | [`problem`] | problems and their text |
//! | [`value`] | durations, rates, names, patterns: from text to types |
//! | [`window`] | windows: lengths of time, and those of a calendar |
//! | [`builder`] | a rule set under construction, for programs that add rules from elsewhere |
//! | [`rule`], [`descriptor`], [`limit`], [`lease`] | the keys of a rule, of its descriptor's entries, of a limit and of a lease |
//!
//! A program with further keys in its file opens the [`Document`] itself, lists its own keys together with those of
//! [`RULES_FILE`], and passes the section to [`read_rules`]:
//!
//! ```
//! use sluicegate::rules::file::{self, Document, Environment};
//!
//! let environment = Environment::new();
//! let document = Document::parse("{ port: 80, rules: [] }", "mine.json", &environment);
//! let read = document.root().and_then(|root| root.section(&[vec!["port"], file::RULES_FILE.keys()].concat())).and_then(|top| {
//!     let port = top.optional("port", 8080, |port| port.integer(1..=65_535));
//!     let rules = file::read_rules(&top);
//!     port.zip(rules)
//! });
//! let (port, rules) = document.finish(read)?;
//! assert_eq!((port, rules.rules().len()), (80, 0));
//! # Ok::<(), file::Problems>(())
//! ```

pub mod builder;
pub mod descriptor;
mod expand;
pub mod field;
pub mod lease;
pub mod limit;
pub mod problem;
pub mod reader;
pub mod rule;
pub mod section;
mod shadowed_override;
mod suggest;
mod syntax;
#[cfg(test)]
mod tests;
pub mod tier;
pub mod tree;
pub mod value;
pub mod window;

pub use builder::RuleSetBuilder;
pub use expand::Environment;
pub use problem::{Place, Problem, Problems, ValueError};
pub use reader::{Document, Reader};
pub use section::{Pair, Section};

use super::{RULES_MAX, Rule, RuleSet, Unmatched};
use crate::pattern::Pattern;
use field::{Absent, Choice, Described, Field, Form, Mapping, Text};
use std::collections::HashMap;
use tier::Tiers;

/// The top-level keys that [`read_rules`] reads.
pub static RULES_FILE: Mapping =
    Mapping { doc: "A file with rules.", fields: &[&TIERS, &UNMATCHED, &RULES], constraints: &[] };

/// The tiers.
pub static TIERS: Field<Described> = Field {
    key: "tiers",
    doc: "The tiers that rules and requests may name, each with the algorithms that its limits may use, if not all.",
    kind: Described(|| Form::List {
        noun: "names, or mappings of `name` and `algorithms`",
        item: Box::new(Form::Any(vec![Form::Named("name"), Form::Mapping(&tier::TIER)])),
        min: 0,
        max: Some(TIERS_MAX),
        is_unique: true,
    }),
    absent: Absent::Default("[]"),
    examples: &["[free, pro]"],
};

/// The decision about requests without a rule.
pub static UNMATCHED: Field<Choice<Unmatched>> = Field {
    key: "unmatched",
    doc: "The decision about a request that no rule matches.",
    kind: Choice(&[("allow", Unmatched::Allow), ("deny", Unmatched::Deny)]),
    absent: Absent::Default("allow"),
    examples: &[],
};

/// The rules.
pub static RULES: Field<Described> = Field {
    key: "rules",
    doc: "The rules. All rules that match a request apply together; `[]` limits nothing.",
    kind: Described(|| {
        let item = Box::new(Form::Named("rule"));
        Form::List { noun: "[rules](#rules)", item, min: 0, max: Some(RULES_MAX), is_unique: false }
    }),
    absent: Absent::Required("list the rules, or write `rules: []` to limit nothing"),
    examples: &[],
};

/// A pattern of names.
const PATTERN: Text<Pattern> = Text { parse: value::pattern, form: || Form::Named("pattern") };

/// The most tiers. There are few kinds of customers, and error messages list them all.
pub const TIERS_MAX: usize = 256;

impl RuleSet {
    /// Reads a document with `tiers`, `unmatched` and `rules`. `file` is its name in problems; `${NAME}` in a text is
    /// replaced from `environment`.
    ///
    /// ```
    /// use sluicegate::rules::RuleSet;
    /// use sluicegate::rules::file::Environment;
    ///
    /// let text = "
    /// tiers: [pro]
    /// rules:
    ///   - name: payments
    ///     match: { resource: api.payment.* }
    ///     limits: [{ algorithm: token_bucket, capacity: 100, refill: 100/60s }]
    ///     tiers: { pro: unlimited }
    /// ";
    /// let rules = RuleSet::from_yaml(text, "rules.yaml", &Environment::new())?;
    /// assert_eq!(rules.rules()[0].space.name(), "payments");
    ///
    /// let text = text.replace("100/60s", "100/60");
    /// assert_eq!(
    ///     RuleSet::from_yaml(text, "rules.yaml", &Environment::new()).unwrap_err().to_string(),
    ///     "rules.yaml:6:64: rules[0].limits[0].refill: the period after / is not a duration \
    ///      (value 100/60): add a unit, for example 60s",
    /// );
    /// # Ok::<(), sluicegate::rules::file::Problems>(())
    /// ```
    ///
    /// # Errors
    /// All problems of the document, if there are any.
    pub fn from_yaml(text: impl AsRef<[u8]>, file: &str, environment: &Environment) -> Result<Self, Problems> {
        let document = Document::parse(text, file, environment);
        let rules = document.root().and_then(|root| root.mapping(&RULES_FILE)).and_then(|top| read_rules(&top));
        document.finish(rules)
    }
}

/// Reads the rules and their tiers from the top level of a document. `None` means that problems were reported to the
/// document.
#[must_use]
pub fn read_rules(top: &Section<'_>) -> Option<RuleSet> {
    RuleSetBuilder::read(top).finish()
}

/// Reads the rules; those without a valid name are left out.
fn read_list(list: &Reader<'_>, names: &mut Names, tiers: &Tiers) -> Option<Vec<Rule>> {
    let items = list.list("write a list of rules, or [] to limit nothing")?;
    if items.len() > RULES_MAX {
        return list.refuse(ValueError::new(format!("{} rules", items.len()), format!("use at most {RULES_MAX}")));
    }
    Some(items.iter().filter_map(|item| rule::read_rule(item, names, tiers)).collect())
}

/// All items, or `None` if one failed. Every item is read first, so that all problems are reported.
fn all<T>(items: impl Iterator<Item = Option<T>>) -> Option<Vec<T>> {
    let items: Vec<Option<T>> = items.collect();
    items.into_iter().collect()
}

/// Names that must be unique, each with its place.
#[derive(Debug, Default)]
struct Names {
    places: HashMap<Box<str>, Place>,
    /// Whether there are unreadable names, so that the list is incomplete.
    are_some_missing: bool,
}

impl Names {
    /// Reads a name and reports a duplicate.
    fn read(&mut self, reader: Option<&Reader<'_>>) -> Option<Box<str>> {
        let mut refused: Option<Box<str>> = None;
        let name = reader.and_then(|reader| {
            reader.text_as(|text| value::name(text).inspect_err(|_| refused = Some(text.into())))
        });
        let Some((reader, name)) = reader.zip(name) else {
            match reader.zip(refused) {
                Some((reader, text)) => _ = self.places.entry(text).or_insert_with(|| reader.place()),
                None => self.miss_one(),
            }
            return None;
        };
        if let Some(place) = self.places.get(&name) {
            let message = format!("a second one of that name, first at {place}");
            return reader.refuse(ValueError::new(message, "rename or remove one of the two"));
        }
        self.places.insert(name.clone(), reader.place());
        Some(name)
    }

    /// Records an unreadable name.
    fn miss_one(&mut self) {
        self.are_some_missing = true;
    }

    /// True if this is certainly not among the names: none is unreadable.
    fn lack(&self, name: &str) -> bool {
        !self.are_some_missing && !self.places.contains_key(name)
    }
}
