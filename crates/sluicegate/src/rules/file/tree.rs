//! YAML as a small tree of keys and values with their places.
//!
//! The input is bounded: [`BYTES_MAX`] of text, [`DEPTH_MAX`] levels and [`NODES_MAX`] nodes. Levels and nodes count after
//! alias expansion, so a short text cannot unfold into a long one. The tree does not depend on rules;
//! [`super::reader`] interprets it.
//!
//! One document per file. Tags, directives and merge keys are errors: no configuration needs them, and each can make a
//! file mean something else than it seems to.

use super::problem::{Place, Report, ValueError, shown};
use super::syntax;
use granit_parser::{Event, Parser, ScalarStyle, Span};
use std::collections::HashMap;

/// The largest file, in bytes.
pub const BYTES_MAX: usize = 1 << 20;
/// The deepest nesting of lists and mappings. Rules need seven levels; a descriptor of Envoy's configuration needs two for each
/// entry that it has at most, and a few below the last.
pub const DEPTH_MAX: usize = 280;
/// The most keys, values, lists and mappings: 25 for each of the most rules.
pub const NODES_MAX: usize = 250_000;

/// A value with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The start of the node; within an alias, its place in the anchor.
    pub place: Place,
    /// Its kind and contents.
    pub kind: Kind,
}

/// The kind and contents of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A single value.
    Scalar(Scalar),
    /// Values in order.
    List(Vec<Node>),
    /// Keys and their values in order, duplicates included.
    Mapping(Vec<Entry>),
    /// An unreadable value, which was reported.
    Broken,
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key: a scalar in valid files.
    pub key: Node,
    /// The value.
    pub value: Node,
}

/// A single value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scalar {
    /// The text without quotes and escapes.
    pub text: Box<str>,
    /// True if it is quoted or a block, and so always text.
    pub quoted: bool,
}

/// The type of a scalar by the core schema of YAML 1.2: `off`, `on`, `yes` and `no` are text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Nothing: `null`, `~`, or no value at all.
    Null,
    /// `true` or `false`.
    Boolean,
    /// A number in any notation.
    Number,
    /// Everything else.
    Text,
}

impl Scalar {
    /// The type of the scalar.
    #[must_use]
    pub fn meaning(&self) -> Meaning {
        match &*self.text {
            _ if self.quoted => Meaning::Text,
            "" | "~" | "null" | "Null" | "NULL" => Meaning::Null,
            "true" | "True" | "TRUE" | "false" | "False" | "FALSE" => Meaning::Boolean,
            text if is_number(text) => Meaning::Number,
            _ => Meaning::Text,
        }
    }
}

fn is_number(text: &str) -> bool {
    let all =
        |digits: &str, is_digit: fn(&u8) -> bool| !digits.is_empty() && digits.as_bytes().iter().all(is_digit);
    if let Some(digits) = text.strip_prefix("0x") {
        return all(digits, u8::is_ascii_hexdigit);
    }
    if let Some(digits) = text.strip_prefix("0o") {
        return all(digits, |digit| matches!(digit, b'0'..=b'7'));
    }
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    match unsigned {
        ".inf" | ".Inf" | ".INF" | ".nan" | ".NaN" | ".NAN" => true,
        // Rust reads a superset: words such as `inf` and `nan`, which start with a letter.
        _ => !unsigned.starts_with(|first: char| first.is_ascii_alphabetic()) && text.parse::<f64>().is_ok(),
    }
}

/// Parses `bytes` and reports problems of the text to `report`. `None` means that there is no tree.
pub(super) fn parse(bytes: &[u8], report: &Report) -> Option<Node> {
    if bytes.len() > BYTES_MAX {
        let message = format!("the file has {} bytes", bytes.len());
        let remedy = format!("use at most {BYTES_MAX} bytes (1 MiB)");
        report.add_at(Place::START, ValueError::new(message, remedy), None);
        return None;
    }
    let text = match str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let valid = str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default();
            report.add_at(Place::after(valid), ValueError::new("not UTF-8", "save the file as UTF-8"), None);
            return None;
        }
    };
    let mut builder = Builder::new(report);
    for next in Parser::new_from_str_with_options(text, syntax::options()) {
        match next {
            Ok((event, span)) => builder.take(event, span, text).ok()?,
            Err(error) => {
                report.add_at(place_of(error.marker()), syntax::explain(&error), None);
                return None;
            }
        }
    }
    builder.root.filter(|root| !root.is_null()).or_else(|| {
        let remedy = "write the configuration, or at least `rules: []` to limit nothing";
        report.add_at(Place::START, ValueError::new("the file is empty", remedy), None);
        None
    })
}

impl Node {
    /// True for nothing at all: `null`, `~`, or no value.
    #[must_use]
    pub fn is_null(&self) -> bool {
        matches!(&self.kind, Kind::Scalar(scalar) if scalar.meaning() == Meaning::Null)
    }
}

fn place_of(marker: &granit_parser::Marker) -> Place {
    Place { line: marker.line(), column: marker.col() + 1 }
}

/// Parsing stopped; the reason was reported.
struct Stop;

/// A node with its number of nodes and levels.
#[derive(Clone)]
struct Measured {
    node: Node,
    nodes: usize,
    levels: usize,
}

/// An open list or mapping.
struct Open {
    measured: Measured,
    /// The key that waits for its value.
    key: Option<Node>,
    /// The anchor's number, 0 for none.
    anchor: usize,
}

/// Turns parser events into a tree with an explicit stack, so no input makes it recurse.
struct Builder<'r> {
    report: &'r Report,
    open: Vec<Open>,
    /// The nodes of anchors; an anchor is absent while its own node is open.
    anchors: HashMap<usize, Measured>,
    /// Nodes in the tree and in `anchors`.
    nodes: usize,
    root: Option<Node>,
}

impl<'r> Builder<'r> {
    fn new(report: &'r Report) -> Self {
        Self { report, open: Vec::new(), anchors: HashMap::new(), nodes: 0, root: None }
    }

    fn take(&mut self, event: Event<'_>, span: Span, text: &str) -> Result<(), Stop> {
        let place = place_of(&span.start);
        if event.tag().is_some() {
            let tag = span.tag_span().unwrap_or(span);
            let value = tag.slice(text).map(|tag| shown(tag, false));
            let remedy = "remove the tag; put a value in quotes to make it text";
            self.report.add_at(place_of(&tag.start), ValueError::new("tags are not supported", remedy), value);
        }
        match event {
            Event::DocumentStart(..) if self.root.is_some() => {
                let remedy = "keep one document per file";
                self.stop(place, ValueError::new("a second document starts here", remedy))
            }
            Event::Scalar(text, style, anchor, _) => {
                // The parser reports an absent value as an empty `~`.
                let text = if span.is_empty() { "".into() } else { text };
                let scalar = Scalar { text: text.into(), quoted: style != ScalarStyle::Plain };
                self.leaf(place, Kind::Scalar(scalar), anchor)
            }
            Event::SequenceStart(_, anchor, _) => self.open(place, Kind::List(Vec::new()), anchor),
            Event::MappingStart(_, anchor, _) => self.open(place, Kind::Mapping(Vec::new()), anchor),
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(Open { measured, anchor, .. }) => self.close(measured, anchor),
                None => Ok(()),
            },
            Event::Alias(anchor) => self.alias(place, anchor),
            Event::UnresolvedAlias(name) => {
                let message = format!("no anchor &{} before this alias", shown(&name, false));
                let remedy = "put the value in quotes if it is a text, or define the anchor first";
                self.broken(place, ValueError::new(message, remedy))
            }
            _ => Ok(()),
        }
    }

    fn open(&mut self, place: Place, kind: Kind, anchor: usize) -> Result<(), Stop> {
        self.spend(place, 1)?;
        let measured = Measured { node: Node { place, kind }, nodes: 1, levels: 1 };
        self.open.push(Open { measured, key: None, anchor });
        self.check_depth(place, 0)
    }

    fn leaf(&mut self, place: Place, kind: Kind, anchor: usize) -> Result<(), Stop> {
        self.spend(place, 1)?;
        self.close(Measured { node: Node { place, kind }, nodes: 1, levels: 0 }, anchor)
    }

    fn broken(&mut self, place: Place, wrong: ValueError) -> Result<(), Stop> {
        self.report.add_at(place, wrong, None);
        self.leaf(place, Kind::Broken, 0)
    }

    fn alias(&mut self, place: Place, anchor: usize) -> Result<(), Stop> {
        let Some((nodes, levels)) = self.anchors.get(&anchor).map(|target| (target.nodes, target.levels)) else {
            return self
                .broken(place, ValueError::new("the alias stands inside its own anchor", "write the value out"));
        };
        self.check_depth(place, levels)?;
        self.spend(place, nodes)?;
        match self.anchors.get(&anchor).cloned() {
            Some(target) => self.close(target, 0),
            None => Ok(()),
        }
    }

    /// Adds a complete node, which is already counted, to its parent.
    fn close(&mut self, measured: Measured, anchor: usize) -> Result<(), Stop> {
        if anchor != 0 {
            self.spend(measured.node.place, measured.nodes)?;
            self.anchors.insert(anchor, measured.clone());
        }
        let Some(parent) = self.open.last_mut() else {
            self.root = Some(measured.node);
            return Ok(());
        };
        parent.measured.nodes += measured.nodes;
        parent.measured.levels = parent.measured.levels.max(measured.levels + 1);
        match (&mut parent.measured.node.kind, parent.key.take()) {
            (Kind::Mapping(entries), Some(key)) => entries.push(Entry { key, value: measured.node }),
            (Kind::Mapping(_), None) => parent.key = Some(measured.node),
            (Kind::List(items), _) => items.push(measured.node),
            (Kind::Scalar(_) | Kind::Broken, _) => {}
        }
        Ok(())
    }

    /// Counts nodes before allocation.
    fn spend(&mut self, place: Place, nodes: usize) -> Result<(), Stop> {
        self.nodes += nodes;
        if self.nodes <= NODES_MAX {
            return Ok(());
        }
        let message = format!("the file has more than {NODES_MAX} values, aliases written out");
        self.stop(place, ValueError::new(message, "use fewer values or fewer aliases"))
    }

    fn check_depth(&self, place: Place, levels: usize) -> Result<(), Stop> {
        if self.open.len() + levels <= DEPTH_MAX {
            return Ok(());
        }
        self.stop(place, syntax::too_deep())
    }

    fn stop(&self, place: Place, wrong: ValueError) -> Result<(), Stop> {
        self.report.add_at(place, wrong, None);
        Err(Stop)
    }
}
