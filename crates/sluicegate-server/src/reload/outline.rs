//! The outline of a configuration file, to compare two versions of it: a digest for each key, and one for
//! each rule.
//!
//! It depends on the form of a file and not on its meaning: comments, the order of keys and the notation of lists
//! make no difference, and values are compared before variables are replaced. It contains no values.

use std::collections::BTreeMap;

use serde::Serialize;
use sha2::{Digest as _, Sha256};
use sluicegate::rules::file::tree::{Entry, Kind, Node};
use sluicegate::rules::file::{Document, Environment};

/// The key whose items are compared by name.
const RULES: &str = "rules";

/// The keys whose changes take effect while the server runs. All other keys are fixed at start-up.
const LIVE: &[&str] = &[RULES, "tiers", "unmatched", "tenants", "overrides", "keys"];

type Digest = [u8; 32];

/// One version of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outline {
    /// Digests by the path of each key, such as `listen.api`.
    keys: BTreeMap<String, Digest>,
    /// Digests by the name of each rule.
    rules: BTreeMap<String, Digest>,
}

/// The differences between two versions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Changes {
    /// The changed rules.
    pub(crate) rules: RuleChanges,
    /// Other keys that took effect.
    pub(crate) keys: Vec<String>,
    /// Keys that take effect at the next start.
    pub(crate) needs_restart: Vec<String>,
}

/// The differences between the rules of two versions, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct RuleChanges {
    pub(crate) added: Vec<String>,
    pub(crate) changed: Vec<String>,
    pub(crate) removed: Vec<String>,
}

impl Outline {
    /// The outline of a valid text; of any other it is empty.
    pub(crate) fn of(text: &[u8]) -> Self {
        let environment = Environment::new();
        let document = Document::parse(text, "", &environment);
        let mut outline = Self::default();
        if let Some(root) = document.root() {
            outline.add(root.node());
        }
        outline
    }

    /// Adds rules from other sources, each with an opaque text of all its settings.
    pub(crate) fn add_rules<'r>(&mut self, rules: impl Iterator<Item = (&'r str, String)>) {
        self.rules.extend(rules.map(|(name, text)| (name.to_owned(), Sha256::digest(text).into())));
    }

    fn add(&mut self, root: &Node) {
        for Entry { key, value } in entries(root) {
            let Some(name) = text(key) else { continue };
            match &value.kind {
                Kind::List(items) if name == RULES => {
                    let named = |item| Some((text(member(item, "name")?)?.to_owned(), digest(item)));
                    self.rules.extend(items.iter().filter_map(named));
                }
                // One key of a section may need a restart where another does not, and `listen` alone is too vague.
                Kind::Mapping(members) => {
                    let path = |key| Some(format!("{name}.{}", text(key)?));
                    let paths = members.iter().filter_map(|each| Some((path(&each.key)?, digest(&each.value))));
                    self.keys.extend(paths);
                }
                _ => _ = self.keys.insert(name.to_owned(), digest(value)),
            }
        }
    }

    /// The differences from `self` to `newer`.
    pub(crate) fn changes(&self, newer: &Self) -> Changes {
        let differing = differing(&self.keys, &newer.keys);
        let is_live = |path: &String| LIVE.contains(&path.split('.').next().unwrap_or(path));
        let (keys, needs_restart) = differing.partition(is_live);
        let rules = RuleChanges {
            added: newer.rules.keys().filter(|name| !self.rules.contains_key(*name)).cloned().collect(),
            changed: differing_in_both(&self.rules, &newer.rules),
            removed: self.rules.keys().filter(|name| !newer.rules.contains_key(*name)).cloned().collect(),
        };
        Changes { rules, keys, needs_restart }
    }
}

/// The keys that only one of the two has, or that differ; in order.
fn differing(older: &BTreeMap<String, Digest>, newer: &BTreeMap<String, Digest>) -> impl Iterator<Item = String> {
    let mut all: Vec<&String> = older.keys().chain(newer.keys()).collect();
    all.sort_unstable();
    all.dedup();
    let differing: Vec<String> =
        all.into_iter().filter(|key| older.get(*key) != newer.get(*key)).cloned().collect();
    differing.into_iter()
}

fn differing_in_both(older: &BTreeMap<String, Digest>, newer: &BTreeMap<String, Digest>) -> Vec<String> {
    let is_other = |(name, digest): &(&String, &Digest)| older.get(*name).is_some_and(|before| before != *digest);
    newer.iter().filter(is_other).map(|(name, _)| name.clone()).collect()
}

fn entries(node: &Node) -> &[Entry] {
    match &node.kind {
        Kind::Mapping(entries) => entries,
        _ => &[],
    }
}

fn member<'n>(node: &'n Node, name: &str) -> Option<&'n Node> {
    entries(node).iter().find(|entry| text(&entry.key) == Some(name)).map(|entry| &entry.value)
}

fn text(node: &Node) -> Option<&str> {
    match &node.kind {
        Kind::Scalar(scalar) => Some(&scalar.text),
        _ => None,
    }
}

fn digest(node: &Node) -> Digest {
    let mut hash = Sha256::new();
    write(node, &mut hash);
    hash.finalize().into()
}

/// Writes a node injectively: different nodes give different bytes. The reader bounds the depth of the tree.
fn write(node: &Node, hash: &mut Sha256) {
    let mut begin = |kind: u8, length: usize| {
        hash.update([kind]);
        hash.update((length as u64).to_be_bytes());
    };
    match &node.kind {
        Kind::Scalar(scalar) => {
            begin(if scalar.quoted { b'q' } else { b's' }, scalar.text.len());
            hash.update(scalar.text.as_bytes());
        }
        Kind::List(items) => {
            begin(b'l', items.len());
            items.iter().for_each(|item| write(item, hash));
        }
        Kind::Mapping(entries) => {
            begin(b'm', entries.len());
            let mut sorted: Vec<&Entry> = entries.iter().collect();
            sorted.sort_by_key(|entry| text(&entry.key));
            for Entry { key, value } in sorted {
                write(key, hash);
                write(value, hash);
            }
        }
        Kind::Broken => begin(b'b', 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "
listen: { api: 127.0.0.1:1, admin: 127.0.0.1:2 }
tiers: [free]
rules:
  - { name: one, limits: [{ algorithm: fixed_window, limit: 1, window: 1h }] }
  - { name: two, limits: [{ algorithm: fixed_window, limit: 2, window: 1h }] }
";

    fn changes(newer: &str) -> Changes {
        Outline::of(FILE.as_bytes()).changes(&Outline::of(newer.as_bytes()))
    }

    #[test]
    fn equivalent_files_have_the_same_outline() {
        let other = "
# A comment, another order and another style.
rules:
  - limits:
      - { window: 1h, limit: 1, algorithm: fixed_window }
    name: one
  - { name: two, limits: [{ algorithm: fixed_window, limit: 2, window: 1h }] }
tiers:
  - free
listen: { admin: 127.0.0.1:2, api: 127.0.0.1:1 }
";
        assert!(changes(other) == Changes::default());
    }

    #[test]
    fn changed_rules_are_listed_by_name() {
        let rules = changes(&FILE.replace("name: one", "name: uno").replace("limit: 2", "limit: 3")).rules;
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let expected = RuleChanges { added: names(&["uno"]), changed: names(&["two"]), removed: names(&["one"]) };
        assert_eq!(rules, expected);
    }

    #[test]
    fn live_keys_are_separated_from_keys_that_need_a_restart() {
        let newer = FILE.replace("[free]", "[free, pro]").replace("127.0.0.1:1", "127.0.0.1:9");
        let told = changes(&format!("{newer}\nunmatched: deny\nstore: memory\n"));
        assert_eq!(told.keys, ["tiers", "unmatched"]);
        assert_eq!(told.needs_restart, ["listen.api", "store"]);
        assert_eq!(told.rules, RuleChanges::default());
    }

    #[test]
    fn a_quoted_number_is_another_value() {
        assert_eq!(changes(&FILE.replace("limit: 1", "limit: '1'")).rules.changed, ["one"]);
    }
}
