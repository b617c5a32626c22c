//! The text of rules with other limits. Candidates and suggestions go through the parser of configuration files, so every key
//! that the parser knows keeps its meaning.

use std::fmt::Write as _;

use sluicegate::rules::RuleSet;
use sluicegate::rules::file::tree::{Kind, Meaning, Node, Scalar};
use sluicegate::rules::file::{Document, Environment, value};

/// The rules of a file, and the tiers that they may refer to.
#[derive(Clone, Debug, Default)]
pub(in crate::cli::simulate) struct RuleTexts {
    rules: Vec<Node>,
    tiers: Option<Node>,
}

/// A document without a list of rules. Every valid configuration has one.
#[derive(Debug, thiserror::Error)]
#[error("the rules of {0} cannot be read a second time: this is a defect")]
pub(in crate::cli::simulate) struct UnreadableRules(pub(crate) String);

/// The numbers of a limit that candidates vary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LimitValues {
    /// `limit`.
    Window { limit: u64 },
    /// `capacity`, and `refill` as a number of tokens per number of microseconds.
    Bucket { capacity: u64, tokens: u64, micros: u64 },
}

impl RuleTexts {
    /// Reads the rules of a configuration. `name` is its name in messages.
    pub(in crate::cli::simulate) fn read(text: &[u8], name: &str) -> Result<Self, UnreadableRules> {
        let environment = Environment::new();
        let document = Document::parse(text, name, &environment);
        let unreadable = || UnreadableRules(name.to_owned());
        let root = document.root().ok_or_else(unreadable)?;
        let rules = member(root.node(), "rules").ok_or_else(unreadable)?;
        let Kind::List(rules) = &rules.kind else { return Err(unreadable()) };
        Ok(Self { rules: rules.clone(), tiers: member(root.node(), "tiers").cloned() })
    }

    /// The name of a rule.
    pub(super) fn name(&self, rule: usize) -> String {
        let name = self.rules.get(rule).and_then(|rule| scalar(member(rule, "name")?));
        name.map_or_else(String::new, |name| name.text.to_string())
    }

    /// The numbers of one limit; `None` if they are not plain numbers in the file.
    pub(super) fn limit_values(&self, rule: usize, limit: usize) -> Option<LimitValues> {
        let limit = limit_of(self.rules.get(rule)?, limit)?;
        let number = |key| scalar(member(limit, key)?)?.text.parse::<u64>().ok();
        if let Some(limit) = number("limit") {
            return Some(LimitValues::Window { limit });
        }
        let rate = value::rate(&scalar(member(limit, "refill")?)?.text).ok()?;
        let (tokens, micros) = (rate.amount(), rate.period().as_micros());
        Some(LimitValues::Bucket { capacity: number("capacity")?, tokens, micros })
    }

    /// A rule as an item of a YAML list, with some values of one limit replaced.
    pub(super) fn with_limit(&self, rule: usize, limit: usize, values: &[(&str, String)]) -> Option<String> {
        let Kind::Mapping(entries) = &self.rules.get(rule)?.kind else { return None };
        let mut text = String::new();
        for (place, entry) in entries.iter().enumerate() {
            let key = &scalar(&entry.key)?.text;
            text.push_str(if place == 0 { "  - " } else { "    " });
            // Writing to a string cannot fail, here and below.
            let _ = write!(text, "{key}:");
            match (&**key, &entry.value.kind) {
                ("limits", Kind::List(limits)) => {
                    for (place, node) in limits.iter().enumerate() {
                        text.push_str("\n      - ");
                        write_with(&mut text, node, if place == limit { values } else { &[] })?;
                    }
                }
                _ => {
                    text.push(' ');
                    write_node(&mut text, &entry.value)?;
                }
            }
            text.push('\n');
        }
        Some(text)
    }

    /// Parses the text of one rule as a rule set.
    pub(super) fn parsed(&self, rule: &str, environment: &Environment) -> Option<RuleSet> {
        let mut text = String::new();
        if let Some(tiers) = &self.tiers {
            text.push_str("tiers: ");
            write_node(&mut text, tiers)?;
            text.push('\n');
        }
        RuleSet::from_yaml(format!("{text}rules:\n{rule}"), "a suggestion", environment).ok()
    }
}

fn limit_of(rule: &Node, limit: usize) -> Option<&Node> {
    match &member(rule, "limits")?.kind {
        Kind::List(limits) => limits.get(limit),
        _ => None,
    }
}

fn member<'n>(node: &'n Node, key: &str) -> Option<&'n Node> {
    let Kind::Mapping(entries) = &node.kind else { return None };
    let entry = entries.iter().find(|entry| scalar(&entry.key).is_some_and(|name| &*name.text == key))?;
    Some(&entry.value)
}

fn scalar(node: &Node) -> Option<&Scalar> {
    match &node.kind {
        Kind::Scalar(scalar) => Some(scalar),
        _ => None,
    }
}

fn write_with(text: &mut String, node: &Node, values: &[(&str, String)]) -> Option<()> {
    let Kind::Mapping(entries) = &node.kind else { return None };
    text.push_str("{ ");
    for (place, entry) in entries.iter().enumerate() {
        let key = &*scalar(&entry.key)?.text;
        text.push_str(if place == 0 { "" } else { ", " });
        let _ = write!(text, "{key}: ");
        match values.iter().find(|(name, _)| *name == key) {
            Some((_, value)) => text.push_str(value),
            None => write_node(text, &entry.value)?,
        }
    }
    text.push_str(" }");
    Some(())
}

fn write_node(text: &mut String, node: &Node) -> Option<()> {
    match &node.kind {
        Kind::Scalar(scalar) => write_scalar(text, scalar),
        Kind::Mapping(_) => write_with(text, node, &[])?,
        Kind::List(items) => {
            text.push_str("[ ");
            for (place, item) in items.iter().enumerate() {
                text.push_str(if place == 0 { "" } else { ", " });
                write_node(text, item)?;
            }
            text.push_str(" ]");
        }
        Kind::Broken => return None,
    }
    Some(())
}

/// Writes a value in the plainest form with the same meaning.
fn write_scalar(text: &mut String, scalar: &Scalar) {
    let is_word = |text: &str| {
        !text.is_empty()
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'/'))
            && text.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric() || first == b'/')
    };
    let is_plain_text = Scalar { quoted: false, ..scalar.clone() }.meaning() == Meaning::Text;
    if (scalar.meaning() != Meaning::Text || is_plain_text) && is_word(&scalar.text) {
        text.push_str(&scalar.text);
    } else {
        // A JSON string is a valid YAML string.
        text.push_str(&serde_json::Value::from(&*scalar.text).to_string());
    }
}
