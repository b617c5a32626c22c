//! The configuration files of `envoyproxy/ratelimit`: one domain each, with nested descriptors.
//!
//! All errors of all files are reported at once, each with its place, its value and the remedy. Unknown keys
//! are errors.

use super::limit::{self, ReadLimit};
use super::metadata::{self, Metadata};
use super::tree::{Added, NodeId, Origin, Tree, Written};
use super::{Limit, name, rule_by_place, text};
use crate::identity::{ENTRY_BYTES_MAX, NAME_BYTES_MAX};
use crate::rules::file::section::Section;
use crate::rules::file::tree::Node;
use crate::rules::file::{Document, Environment, Problems, Reader, ValueError};
use crate::rules::{Mode, RULES_MAX, Rule};
use std::fmt;

/// The top-level keys of a file.
pub const KEYS: &[&str] = &["domain", "descriptors"];
/// The keys of a descriptor.
pub const DESCRIPTOR_KEYS: &[&str] = &[
    "key",
    "value",
    "rate_limit",
    "descriptors",
    "shadow_mode",
    "quota_mode",
    "detailed_metric",
    "value_to_metric",
    "share_threshold",
    "metadata",
];

/// Options for reading files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EnvoyOptions {
    /// Whether several files may configure one domain.
    pub merge_domains: bool,
    /// Whether all limits are in shadow mode.
    pub is_shadow: bool,
    /// Whether all limits are in `quota_mode`.
    pub is_quota: bool,
}

/// Domains with their descriptors, and a rule for each of their limits.
#[derive(Clone, Debug, Default)]
pub struct EnvoyConfig {
    pub(super) tree: Tree,
    pub(super) limits: Vec<Limit>,
    pub(super) rules: Vec<Rule>,
}

/// The errors of some files; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistakes(Vec<Problems>);

impl Mistakes {
    /// The errors of each file, in the order in which the files were read.
    #[must_use]
    pub fn files(&self) -> &[Problems] {
        &self.0
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problems) in self.0.iter().enumerate() {
            let end_of_last = if index == 0 { "" } else { "\n" };
            write!(formatter, "{end_of_last}{problems}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Mistakes {}

impl EnvoyConfig {
    /// Reads files, each with a name for error messages and a text. Their order is that of patterns which
    /// different files have for one domain.
    ///
    /// # Errors
    /// If any of them is invalid; contains all errors.
    pub fn read<N: AsRef<str>, T: AsRef<[u8]>>(
        files: impl IntoIterator<Item = (N, T)>,
        options: &EnvoyOptions,
    ) -> Result<Self, Mistakes> {
        // These files have no variables.
        let environment = Environment::new();
        let parse = |(name, text): (N, T)| Document::parse(text, name.as_ref(), &environment);
        Self::read_documents(files.into_iter().map(parse), options)
    }

    /// Reads files that are trees already, such as the resources of a control plane, each with a name for error messages.
    /// The keys are those of a text. The caller bounds the depth and the size of the trees, and gives each descriptor a
    /// [`Place::numbered`](crate::rules::file::Place::numbered).
    ///
    /// # Errors
    /// If any of them is invalid; contains all errors.
    pub fn read_trees<N: AsRef<str>>(
        trees: impl IntoIterator<Item = (N, Node)>,
        options: &EnvoyOptions,
    ) -> Result<Self, Mistakes> {
        let environment = Environment::new();
        let open = |(name, root): (N, Node)| Document::of_tree(root, name.as_ref(), &environment);
        Self::read_documents(trees.into_iter().map(open), options)
    }

    fn read_documents<'e>(
        documents: impl Iterator<Item = Document<'e>>,
        options: &EnvoyOptions,
    ) -> Result<Self, Mistakes> {
        let mut reading = Reading { config: Self::default(), options: *options, file: 0, is_full: false };
        let mut mistakes = Vec::new();
        for document in documents {
            reading.file = reading.config.tree.add_file(document.file());
            let read = document.root().and_then(|root| reading.file(&root));
            mistakes.extend(document.finish(read).err());
        }
        if mistakes.is_empty() { Ok(reading.config) } else { Err(Mistakes(mistakes)) }
    }

    /// The rules, one for each limit.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The name of every rule with an opaque text of all its settings, to compare two versions of
    /// a configuration within one process.
    pub fn described(&self) -> impl Iterator<Item = (&str, String)> {
        let both = self.rules.iter().zip(&self.limits);
        both.map(|(rule, limit)| (rule.space.name(), format!("{rule:?} {limit:?}")))
    }

    /// The domains in alphabetical order.
    #[must_use]
    pub fn domains(&self) -> Vec<&str> {
        self.tree.domains()
    }
}

/// The intermediate result.
struct Reading {
    config: EnvoyConfig,
    options: EnvoyOptions,
    /// The index of the current file.
    file: usize,
    /// Whether the error for too many limits was reported.
    is_full: bool,
}

/// The path to a descriptor.
struct Way<'d> {
    domain: &'d str,
    steps: Vec<Written>,
}

impl Reading {
    fn file(&mut self, root: &Reader<'_>) -> Option<()> {
        let top = root.section(KEYS)?;
        let domain = top
            .required("domain", "name the domain that Envoy's filter asks about, for example domain: edge")
            .and_then(|domain| self.domain(domain));
        // Without a domain there is no tree to add to, but the errors of the descriptors are still reported.
        let is_known = domain.is_some();
        let (node, name) = domain.unwrap_or_else(|| (self.nowhere(root), ""));
        let mut way = Way { domain: name, steps: Vec::new() };
        let descriptors = top.optional("descriptors", (), |list| self.descriptors(list, node, &mut way));
        descriptors.filter(|()| is_known)
    }

    /// An unreachable node, for the descriptors below an error.
    fn nowhere(&mut self, root: &Reader<'_>) -> NodeId {
        self.config.tree.add_loose(self.origin(root))
    }

    fn origin(&self, reader: &Reader<'_>) -> Origin {
        Origin { file: self.file, place: reader.place() }
    }

    fn domain<'d>(&mut self, reader: &Reader<'d>) -> Option<(NodeId, &'d str)> {
        let name = text::required(reader, "name the domain that Envoy's filter asks about")?;
        let name = text::name(reader, name, NAME_BYTES_MAX)?;
        match self.config.tree.add_domain(name, self.origin(reader)) {
            Added::New(node) => Some((node, name)),
            Added::Known(node, _) if self.options.merge_domains => Some((node, name)),
            Added::Known(_, first) => {
                let message = format!("a second file for this domain, first at {}", self.config.tree.shown(first));
                let remedy = "keep one file per domain, or set MERGE_DOMAIN_CONFIG=true to take them together";
                reader.refuse(ValueError::new(message, remedy))
            }
        }
    }

    fn descriptors(&mut self, list: &Reader<'_>, parent: NodeId, way: &mut Way<'_>) -> Option<()> {
        if list.node().is_null() {
            return Some(());
        }
        let items = list.list("write a list of descriptors, each with a `key`")?;
        let mut is_good = true;
        for item in &items {
            is_good &= self.descriptor(item, parent, way).is_some();
        }
        is_good.then_some(())
    }

    fn descriptor(&mut self, reader: &Reader<'_>, parent: NodeId, way: &mut Way<'_>) -> Option<()> {
        let section = reader.section(DESCRIPTOR_KEYS)?;
        let modes = Modes::read(&section, &self.options);
        let metadata = section.optional("metadata", None, read_metadata);
        let written = read_key(&section);
        let is_known = written.is_some();
        // Errors further down are reported whatever the key is.
        way.steps.push(written.unwrap_or_else(|| Written { key: "".into(), value: None, is_shared: false }));
        let node = self.node(reader, parent, way, is_known);
        let limit = section.optional("rate_limit", None, |limit| read_limit(limit, way));
        let below = section.optional("descriptors", (), |list| {
            let node = node.unwrap_or_else(|| self.nowhere(reader));
            self.descriptors(list, node, way)
        });
        let name = name::of(way.domain, &way.steps);
        way.steps.pop();
        let (node, modes, metadata) = (node?, modes?, metadata?);
        if let Some(limit) = limit? {
            self.add_limit(reader, node, &name, limit, modes, metadata)?;
        }
        below
    }

    /// The node of the path's last step, which must be new.
    fn node(&mut self, reader: &Reader<'_>, parent: NodeId, way: &Way<'_>, is_known: bool) -> Option<NodeId> {
        let written = way.steps.last().filter(|_| is_known)?;
        match self.config.tree.add(parent, written, self.origin(reader)) {
            Added::New(node) => Some(node),
            Added::Known(_, first) => {
                let first = self.config.tree.shown(first);
                let message = format!("a second descriptor with this key and value, first at {first}");
                reader.refuse(ValueError::new(message, "keep one of the two, with all that is below both"))
            }
        }
    }

    fn add_limit(
        &mut self,
        reader: &Reader<'_>,
        node: NodeId,
        name: &str,
        limit: ReadLimit,
        modes: Modes,
        metadata: Option<Metadata>,
    ) -> Option<()> {
        let place = u16::try_from(self.config.rules.len()).ok().filter(|place| usize::from(*place) < RULES_MAX);
        let Some(place) = place else {
            if !std::mem::replace(&mut self.is_full, true) {
                reader.report(ValueError::new(
                    "one limit too many",
                    format!("use at most {RULES_MAX} in all files"),
                ));
            }
            return None;
        };
        let ReadLimit { limits, shown, name: own_name, replaces } = limit;
        let mut rule = rule_by_place(name, limits);
        rule.mode = modes.mode;
        self.config.tree.set_limit(node, place);
        self.config.rules.push(rule);
        self.config.limits.push(Limit { is_quota: modes.is_quota, name: own_name, replaces, metadata, shown });
        Some(())
    }
}

/// The modes of a descriptor's limit.
#[derive(Clone, Copy, Debug)]
struct Modes {
    mode: Mode,
    is_quota: bool,
}

impl Modes {
    fn read(section: &Section<'_>, options: &EnvoyOptions) -> Option<Self> {
        let flag = |key| section.optional(key, false, text::flag);
        let (is_shadow, is_quota) = (flag("shadow_mode"), flag("quota_mode"));
        // Metrics are per rule, and labels never hold values of requests: these keys have no effect and are only validated.
        let metrics = [flag("detailed_metric"), flag("value_to_metric")];
        metrics.into_iter().collect::<Option<Vec<bool>>>()?;
        let mode = if is_shadow? || options.is_shadow { Mode::Shadow } else { Mode::Enforce };
        Some(Self { mode, is_quota: is_quota? || options.is_quota })
    }
}

fn read_metadata(reader: &Reader<'_>) -> Option<Option<Metadata>> {
    if reader.node().is_null() {
        return Some(None);
    }
    metadata::read(reader).map(Some)
}

fn read_limit(reader: &Reader<'_>, way: &Way<'_>) -> Option<Option<ReadLimit>> {
    if reader.node().is_null() {
        return Some(None);
    }
    limit::read(reader, &name::of(way.domain, &way.steps)).map(Some)
}

fn read_key(section: &Section<'_>) -> Option<Written> {
    let remedy = "say which entries of Envoy's descriptors are meant, for example key: remote_address";
    let key = section.required("key", remedy).and_then(|key| {
        let text = text::required(key, remedy)?;
        text::name(key, text, ENTRY_BYTES_MAX)
    });
    let value = section.optional("value", None, read_value);
    let is_shared = section.optional("share_threshold", false, text::flag);
    let written = Written { key: key?.into(), value: value?, is_shared: is_shared? };
    if written.is_shared && !written.is_pattern() {
        let remedy = "put a * in `value`, so that several values match, or remove `share_threshold`";
        let wrong = ValueError::new("shares a counter among all that match a pattern, and there is none", remedy);
        return section.get("share_threshold").unwrap_or(section.reader()).refuse(wrong);
    }
    Some(written)
}

/// The value that entries must have; an empty one counts as absent.
fn read_value(reader: &Reader<'_>) -> Option<Option<Box<str>>> {
    if reader.node().is_null() {
        return Some(None);
    }
    let value = text::bounded(reader, text::written(reader)?, ENTRY_BYTES_MAX)?;
    Some(Some(value).filter(|value| !value.is_empty()).map(Into::into))
}
