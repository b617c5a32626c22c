//! Rules from text: YAML, and so JSON, into a [`RuleSet`] that cannot be wrong, or into [`Problems`]: all of
//! them at once, each with its place, its path, the value and the remedy.
//!
//! | module | what it holds |
//! |---|---|
//! | [`tree`] | the text as a tree in which every key and value knows its place, and its bounds |
//! | [`reader`], [`section`] | typed readers over the tree, which report and go on |
//! | [`problem`] | what is wrong, and how it is shown |
//! | [`value`] | durations, rates, names, patterns: from text to types |
//! | [`window`] | windows: lengths of time, and those of a calendar |
//! | [`draft`] | rules that more may be added to before they are used |
//! | [`rule`], [`descriptor`], [`limit`], [`lease`] | the keys of a rule, of its descriptor's entries, of a limit and of a lease |
//!
//! A program that keeps more than rules in its file opens the [`Document`] itself, names its own keys
//! together with [`KEYS`], and leaves those to [`read_rules`]:
//!
//! ```
//! use sluicegate::rules::file::{self, Document, Environment};
//!
//! let environment = Environment::new();
//! let document = Document::parse("{ port: 80, rules: [] }", "mine.json", &environment);
//! let read = document.root().and_then(|root| root.section(&[&["port"], file::KEYS].concat())).and_then(|top| {
//!     let port = top.optional("port", 8080, |port| port.integer(1..=65_535));
//!     let rules = file::read_rules(&top);
//!     port.zip(rules)
//! });
//! let (port, rules) = document.finish(read)?;
//! assert_eq!((port, rules.rules().len()), (80, 0));
//! # Ok::<(), file::Problems>(())
//! ```

pub mod descriptor;
pub mod draft;
mod earlier;
mod expand;
pub mod lease;
pub mod limit;
pub mod problem;
pub mod reader;
pub mod rule;
pub mod section;
mod suggest;
mod syntax;
#[cfg(test)]
mod tests;
pub mod tier;
pub mod tree;
pub mod value;
pub mod window;

pub use draft::Draft;
pub use expand::Environment;
pub use problem::{Place, Problem, Problems, Wrong};
pub use reader::{Document, Reader};
pub use section::{Pair, Section};

use super::{RULES_MAX, Rule, RuleSet, Unmatched};
use std::collections::HashMap;
use tier::Tiers;

/// The top-level keys that [`read_rules`] reads.
pub const KEYS: &[&str] = &["tiers", "unmatched", "rules"];
/// What may happen to a request that no rule matches.
pub const UNMATCHED: &[(&str, Unmatched)] = &[("allow", Unmatched::Allow), ("deny", Unmatched::Deny)];
/// The most tiers. A tier is a kind of customer, of which there are few; each is a word in error messages.
pub const TIERS_MAX: usize = 256;

impl RuleSet {
    /// Reads a document with `tiers`, `unmatched` and `rules`. `file` is what problems call it; `${NAME}` in
    /// a text is replaced from `environment`.
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
    /// If anything is wrong; says everything that is.
    pub fn from_yaml(text: impl AsRef<[u8]>, file: &str, environment: &Environment) -> Result<Self, Problems> {
        let document = Document::parse(text, file, environment);
        let rules = document.root().and_then(|root| root.section(KEYS)).and_then(|top| read_rules(&top));
        document.finish(rules)
    }
}

/// Reads the rules and what belongs to them from the top level of a document. `None` means that problems
/// were reported; the document knows them.
#[must_use]
pub fn read_rules(top: &Section<'_>) -> Option<RuleSet> {
    Draft::read(top).finish()
}

/// Reads the rules that have a name.
fn read_list(list: &Reader<'_>, names: &mut Names, tiers: &Tiers) -> Option<Vec<Rule>> {
    let items = list.list("write a list of rules, or [] to limit nothing")?;
    if items.len() > RULES_MAX {
        return list.refuse(Wrong::new(format!("{} rules", items.len()), format!("use at most {RULES_MAX}")));
    }
    Some(items.iter().filter_map(|item| rule::read_rule(item, names, tiers)).collect())
}

/// All items, if all are there. Every one is read, with all its problems, before the first absent one counts.
fn all<T>(items: impl Iterator<Item = Option<T>>) -> Option<Vec<T>> {
    let items: Vec<Option<T>> = items.collect();
    items.into_iter().collect()
}

/// Names that must differ, with the place of each.
#[derive(Debug, Default)]
struct Names {
    places: HashMap<Box<str>, Place>,
    /// Whether there are some that cannot be read.
    are_some_missing: bool,
}

impl Names {
    /// Reads a name, if there is one, that was not there before.
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
            return reader.refuse(Wrong::new(message, "rename or remove one of the two"));
        }
        self.places.insert(name.clone(), reader.place());
        Some(name)
    }

    /// There is a name that cannot be read.
    fn miss_one(&mut self) {
        self.are_some_missing = true;
    }

    /// True if this is none of the names, not even of those that cannot be read.
    fn lack(&self, name: &str) -> bool {
        !self.are_some_missing && !self.places.contains_key(name)
    }
}
