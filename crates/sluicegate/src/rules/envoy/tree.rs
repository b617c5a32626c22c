//! The nodes of all domains, and the matching of entries.

use super::explain::How;
use crate::identity::Entry;
use crate::pattern::Pattern;
use crate::rules::file::Place;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry as Slot;

type Map<T> = HashMap<Box<str>, T, foldhash::fast::RandomState>;

/// A node's index in its tree.
pub(super) type NodeId = u32;

/// All nodes. Each refers to its children by index, so that reading a file can add to any of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Tree {
    nodes: Vec<Node>,
    domains: Map<NodeId>,
    files: Vec<Box<str>>,
}

/// A domain, or a descriptor within one.
#[derive(Clone, Debug)]
pub(super) struct Node {
    children: Map<Siblings>,
    /// The index of its limit among all limits.
    limit: Option<u16>,
    /// The pattern, if all values that match it share one counter.
    shared_by: Option<Box<str>>,
    origin: Origin,
}

/// The children with one key.
#[derive(Clone, Debug, Default)]
struct Siblings {
    /// By their literal values, patterns included: a request may have that very value.
    values: Map<NodeId>,
    /// Those with a `*`, in the order of the files.
    patterns: Vec<(Pattern, NodeId)>,
    /// The one without a value.
    any: Option<NodeId>,
}

/// The source of a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    /// The index of the file.
    pub(super) file: usize,
    /// The place in the file.
    pub(super) place: Place,
}

impl Tree {
    /// Registers the file that is read next.
    pub(super) fn add_file(&mut self, name: &str) -> usize {
        self.files.push(name.into());
        self.files.len() - 1
    }

    /// `file:line:column`.
    pub(super) fn shown(&self, origin: Origin) -> String {
        let file = self.files.get(origin.file).map_or("", |file| file);
        format!("{file}:{}", origin.place)
    }

    /// The domain of this name.
    pub(super) fn domain(&self, name: &str) -> Option<&Node> {
        self.node(*self.domains.get(name)?)
    }

    /// The domains in alphabetical order.
    pub(super) fn domains(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.domains.keys().map(|name| &**name).collect();
        names.sort_unstable();
        names
    }

    fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id as usize)
    }

    /// Adds a domain, or finds the existing one.
    pub(super) fn add_domain(&mut self, name: &str, origin: Origin) -> Added {
        let id = self.nodes.len() as NodeId;
        match self.domains.entry(name.into()) {
            Slot::Occupied(known) => {
                let id = *known.get();
                Added::Known(id, self.nodes[id as usize].origin)
            }
            Slot::Vacant(free) => {
                free.insert(id);
                self.nodes.push(Node::new(origin, None));
                Added::New(id)
            }
        }
    }

    /// Adds an unreachable node.
    pub(super) fn add_loose(&mut self, origin: Origin) -> NodeId {
        self.nodes.push(Node::new(origin, None));
        (self.nodes.len() - 1) as NodeId
    }

    /// Adds a descriptor under `parent`, or finds the existing one with that key and value.
    pub(super) fn add(&mut self, parent: NodeId, written: &Written, origin: Origin) -> Added {
        let id = self.nodes.len() as NodeId;
        let siblings = self.nodes[parent as usize].children.entry(written.key.clone()).or_default();
        let known = match &written.value {
            None => siblings.any.or_else(|| {
                siblings.any = Some(id);
                None
            }),
            Some(value) => match siblings.values.entry(value.clone()) {
                Slot::Occupied(known) => Some(*known.get()),
                Slot::Vacant(free) => {
                    free.insert(id);
                    if written.is_pattern() {
                        siblings.patterns.push((Pattern::new(value), id));
                    }
                    None
                }
            },
        };
        if let Some(known) = known {
            return Added::Known(known, self.nodes[known as usize].origin);
        }
        let shared_by = written.value.clone().filter(|_| written.is_shared);
        self.nodes.push(Node::new(origin, shared_by));
        Added::New(id)
    }

    /// Sets the limit of a node.
    pub(super) fn set_limit(&mut self, node: NodeId, limit: u16) {
        self.nodes[node as usize].limit = Some(limit);
    }
}

/// The result of adding a node.
#[derive(Clone, Copy, Debug)]
pub(super) enum Added {
    /// It was added.
    New(NodeId),
    /// It existed already, at this place.
    Known(NodeId, Origin),
}

/// The key and value of a descriptor.
#[derive(Clone, Debug)]
pub(super) struct Written {
    pub(super) key: Box<str>,
    pub(super) value: Option<Box<str>>,
    pub(super) is_shared: bool,
}

impl Written {
    /// True if the value has a `*`.
    pub(super) fn is_pattern(&self) -> bool {
        self.value.as_ref().is_some_and(|value| value.contains('*'))
    }
}

impl Node {
    fn new(origin: Origin, shared_by: Option<Box<str>>) -> Self {
        Self { children: Map::default(), limit: None, shared_by, origin }
    }

    /// The child that matches `entry`, and how.
    #[inline]
    pub(super) fn child<'t>(&self, entry: &Entry<'_>, tree: &'t Tree) -> Option<(&'t Node, How)> {
        let siblings = self.children.get(entry.key)?;
        let exact = siblings.values.get(entry.value).map(|id| (*id, How::Value));
        let pattern = || {
            let found = siblings.patterns.iter().find(|(pattern, _)| pattern.matches(entry.value));
            found.map(|(_, id)| (*id, How::Pattern))
        };
        let (id, how) = exact.or_else(pattern).or_else(|| Some((siblings.any?, How::Key)))?;
        Some((tree.node(id)?, how))
    }

    /// The index of its limit among all limits.
    pub(super) fn limit(&self) -> Option<usize> {
        self.limit.map(usize::from)
    }

    /// The pattern, if all values that match it share one counter.
    pub(super) fn shared_by(&self) -> Option<&str> {
        self.shared_by.as_deref()
    }

    /// Its place in the file.
    pub(super) fn origin(&self) -> Origin {
        self.origin
    }

    /// Its children with their keys and values, in the order in which they were added.
    pub(super) fn children_in_order<'t>(&'t self, tree: &'t Tree) -> Vec<((&'t str, Option<&'t str>), &'t Self)> {
        let mut found: Vec<(NodeId, (&str, Option<&str>))> = Vec::new();
        for (key, siblings) in &self.children {
            found.extend(siblings.values.iter().map(|(value, id)| (*id, (&**key, Some(&**value)))));
            found.extend(siblings.any.map(|id| (id, (&**key, None))));
        }
        found.sort_unstable_by_key(|(id, _)| *id);
        found.into_iter().filter_map(|(id, level)| Some((level, tree.node(id)?))).collect()
    }

    /// True if it has children.
    pub(super) fn has_children(&self) -> bool {
        !self.children.is_empty()
    }

    /// The keys of its children in alphabetical order.
    pub(super) fn keys(&self) -> Vec<&str> {
        let mut keys: Vec<&str> = self.children.keys().map(|key| &**key).collect();
        keys.sort_unstable();
        keys
    }

    /// True if a child has this key.
    pub(super) fn has_key(&self, key: &str) -> bool {
        self.children.contains_key(key)
    }
}
