//! The request of a decision: identity, resource, tenant and cost, as plain values that a front door hands to the limiter.
//!
//! An [`Identity`] is typed, so a name that looks like an address never equals the address. [`Request::validate`] checks text
//! from clients once, before anything is looked up with it.

mod descriptor;

pub use descriptor::{ENTRIES_MAX, ENTRY_BYTES_MAX, Entry, identifier_of, resource_of};

use crate::path::{PATH_BYTES_MAX, Path, Reading};
use sluicegate_core::Cost;
use std::fmt;
use std::net::IpAddr;

/// The tenant of a request without one.
pub const DEFAULT_TENANT: &str = "default";

/// The longest tenant and resource names, in bytes.
pub const NAME_BYTES_MAX: usize = 256;
/// The longest identifier, in bytes: room for a subject with its issuer.
pub const IDENTIFIER_BYTES_MAX: usize = 1_024;

/// The identity of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Identity<'a> {
    /// A name: the owner of a key, the subject of a token, or the identifier in an API request.
    Named(&'a str),
    /// An unverified name. It shares no state with the verified identity of the same name.
    Claimed(&'a str),
    /// The client's address, if nothing else is known.
    Address(IpAddr),
}

/// The HTTP request of a decision.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The method, as the client sent it.
    pub method: &'a str,
    /// The path in the form that rules match: [`Path::matched`].
    pub path: &'a str,
    /// The other readings of the path: [`Path::separated`]. A rule that matches any reading applies, once.
    pub separated: &'a [Reading],
    /// The host in the form that rules match: lower case, without a port; `None` if there is none.
    pub host: Option<&'a str>,
    /// The header fields, by lower-case names.
    pub headers: Option<&'a dyn Values>,
    /// The claims of the request's token, if the token is verified.
    pub claims: Option<&'a dyn Values>,
}

impl<'a> Target<'a> {
    /// A request with this method and path, one reading, and no other attributes.
    #[must_use]
    pub const fn new(method: &'a str, path: &'a str) -> Self {
        Self { method, path, separated: &[], host: None, headers: None, claims: None }
    }

    /// A request with this method and path, all its readings, and no other attributes.
    #[must_use]
    pub fn of(method: &'a str, path: &'a Path<'_>) -> Self {
        Self { separated: path.separated(), ..Self::new(method, path.matched()) }
    }
}

/// Named values, such as header fields; several may have the same name.
pub trait Values: fmt::Debug + Sync {
    /// Calls the closure with every value of this name.
    fn each(&self, name: &str, visit: &mut dyn FnMut(&str));
}

impl<N, V> Values for Vec<(N, V)>
where
    N: AsRef<str> + fmt::Debug + Sync,
    V: AsRef<str> + fmt::Debug + Sync,
{
    fn each(&self, name: &str, visit: &mut dyn FnMut(&str)) {
        self.iter().filter(|(known, _)| known.as_ref() == name).for_each(|(_, value)| visit(value.as_ref()));
    }
}

#[cfg(feature = "http")]
impl Values for http::HeaderMap {
    fn each(&self, name: &str, visit: &mut dyn FnMut(&str)) {
        // A value that is not text still counts, so that it does not evade a rule for any value.
        self.get_all(name).iter().for_each(|value| visit(&String::from_utf8_lossy(value.as_bytes())));
    }
}

/// The stage at which a decision is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Before the request is served.
    #[default]
    Request,
    /// Before an unverified credential is verified. The identity is not known yet.
    Credential,
}

/// When the cost of a request is charged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Charging {
    /// Only if the request is allowed.
    #[default]
    IfAllowed,
    /// In full, whether or not it fits, because the usage has already happened. The limit may be in debt afterwards.
    Always,
}

/// One request for a decision.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The tenant; default [`DEFAULT_TENANT`].
    pub tenant: &'a str,
    /// The requested resource.
    pub resource: &'a str,
    /// The client's identity.
    pub identity: Identity<'a>,
    /// The client's address, if it is known; rules per address apply only then.
    pub address: Option<IpAddr>,
    /// The tier of the identity, if it has one.
    pub tier: Option<&'a str>,
    /// The cost; each rule's own cost if absent.
    pub cost: Option<Cost>,
    /// When the cost is charged.
    pub charging: Charging,
    /// The HTTP request, if there is one; rules for paths and methods apply only then.
    pub target: Option<Target<'a>>,
    /// The stage of this decision; each rule is for one stage.
    pub stage: Stage,
    /// The descriptor, if there is one; rules for descriptors apply only then. Resource and
    /// identity should be the results of [`resource_of`] and [`identifier_of`].
    pub descriptor: Option<&'a [Entry<'a>]>,
    /// The only rule to evaluate, by its index in its set; all rules if absent.
    pub rule: Option<usize>,
}

impl<'a> Request<'a> {
    /// A request of `identifier` for `resource` in the default tenant.
    #[must_use]
    pub const fn new(resource: &'a str, identifier: &'a str) -> Self {
        Self {
            tenant: DEFAULT_TENANT,
            resource,
            identity: Identity::Named(identifier),
            address: None,
            tier: None,
            cost: None,
            charging: Charging::IfAllowed,
            target: None,
            stage: Stage::Request,
            descriptor: None,
            rule: None,
        }
    }

    /// The same request in another tenant.
    #[must_use]
    pub const fn tenant(self, tenant: &'a str) -> Self {
        Self { tenant, ..self }
    }

    /// The same request with another tier.
    #[must_use]
    pub const fn tier(self, tier: &'a str) -> Self {
        Self { tier: Some(tier), ..self }
    }

    /// The same request with another cost.
    #[must_use]
    pub const fn cost(self, cost: Cost) -> Self {
        Self { cost: Some(cost), ..self }
    }

    /// The same request as a report of usage that has already happened.
    #[must_use]
    pub const fn charged_always(self) -> Self {
        Self { charging: Charging::Always, ..self }
    }

    /// Checks all text that comes from clients.
    ///
    /// # Errors
    /// If a name is empty, too long or contains control characters.
    #[inline]
    pub fn validate(&self) -> Result<(), InvalidText> {
        if self.is_plain() { Ok(()) } else { self.look_closely() }
    }

    /// True for the common case: short names of visible characters.
    #[inline]
    fn is_plain(&self) -> bool {
        let is_plain = |text: &str, max: usize| !text.is_empty() && text.len() <= max && is_visible_ascii(text);
        let identity = match self.identity {
            Identity::Named(identifier) | Identity::Claimed(identifier) => {
                is_plain(identifier, IDENTIFIER_BYTES_MAX)
            }
            Identity::Address(_) => true,
        };
        identity
            && self.descriptor.is_none()
            && is_plain(self.tenant, NAME_BYTES_MAX)
            && is_plain(self.resource, NAME_BYTES_MAX)
    }

    /// Out of line, so that the common path stays short.
    #[inline(never)]
    fn look_closely(&self) -> Result<(), InvalidText> {
        valid_text("tenant", self.tenant, NAME_BYTES_MAX)?;
        // Resource and identity are derived from its entries.
        if let Some(entries) = self.descriptor {
            return descriptor::validate(entries);
        }
        // A path has bounds of its own and is never part of a key.
        let resource_bytes_max = self.target.map_or(NAME_BYTES_MAX, |_| PATH_BYTES_MAX);
        valid_text("resource", self.resource, resource_bytes_max)?;
        match self.identity {
            Identity::Named(identifier) | Identity::Claimed(identifier) => {
                valid_text("identifier", identifier, IDENTIFIER_BYTES_MAX)
            }
            Identity::Address(_) => Ok(()),
        }
    }
}

/// An invalid name: the field and the problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidText {
    /// The field.
    pub field: &'static str,
    /// The problem.
    pub problem: TextProblem,
}

/// The problems of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TextProblem {
    /// It has no characters.
    Empty,
    /// It has no entries.
    NoEntries,
    /// It has more than `max` entries.
    TooMany {
        /// The actual number.
        count: usize,
        /// The bound.
        max: usize,
    },
    /// It has more than `max` bytes.
    TooLong {
        /// The actual number.
        bytes: usize,
        /// The bound.
        max: usize,
    },
    /// It contains a control character.
    ControlCharacter {
        /// The character.
        character: char,
        /// Its offset in bytes.
        at: usize,
    },
}

impl fmt::Display for InvalidText {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = self.field;
        match self.problem {
            TextProblem::Empty => write!(formatter, "`{field}` is empty: give it at least one character"),
            TextProblem::NoEntries => write!(formatter, "`{field}` is empty: give it at least one entry"),
            TextProblem::TooMany { count, max } => {
                write!(formatter, "`{field}` has {count} entries: use at most {max}")
            }
            TextProblem::TooLong { bytes, max } => {
                write!(formatter, "`{field}` has {bytes} bytes: use at most {max}")
            }
            TextProblem::ControlCharacter { character, at } => {
                let code = u32::from(character);
                write!(formatter, "`{field}` has the control character U+{code:04X} at byte {at}: leave it out")
            }
        }
    }
}

impl std::error::Error for InvalidText {}

fn valid_text(field: &'static str, text: &str, max: usize) -> Result<(), InvalidText> {
    let invalid = |problem| Err(InvalidText { field, problem });
    if text.is_empty() {
        return invalid(TextProblem::Empty);
    }
    if text.len() > max {
        return invalid(TextProblem::TooLong { bytes: text.len(), max });
    }
    if is_visible_ascii(text) {
        return Ok(());
    }
    match text.char_indices().find(|(_, character)| character.is_control()) {
        Some((at, character)) => invalid(TextProblem::ControlCharacter { character, at }),
        None => Ok(()),
    }
}

/// Nearly all texts pass, so this checks eight bytes at a time and does not stop at the first bad one.
#[inline]
fn is_visible_ascii(text: &str) -> bool {
    let bytes = text.as_bytes();
    // The last word may overlap with the one before.
    if let Some(last) = bytes.last_chunk() {
        return bytes.as_chunks().0.iter().fold(are_visible(*last), |all, each| all & are_visible(*each));
    }
    if let (Some([a, b, c, d]), Some([e, f, g, h])) = (bytes.first_chunk(), bytes.last_chunk()) {
        return are_visible([*a, *b, *c, *d, *e, *f, *g, *h]);
    }
    bytes.iter().fold(true, |all, byte| all & (b' '..=b'~').contains(byte))
}

/// Checks eight bytes in one word by their highest bits. Subtracting a space sets the bit for lower bytes, and adding one sets it
/// for the byte after the last visible one; bytes beyond ASCII have it anyway. A borrow from or carry to a neighbour happens only
/// if the byte has set its own bit.
#[inline]
fn are_visible(bytes: [u8; 8]) -> bool {
    const SPACES: u64 = u64::from_ne_bytes([b' '; 8]);
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGHEST: u64 = u64::from_ne_bytes([0x80; 8]);
    let word = u64::from_ne_bytes(bytes);
    (word.wrapping_sub(SPACES) | word.wrapping_add(ONES) | word) & HIGHEST == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(request: Request<'_>) -> String {
        request.validate().unwrap_err().to_string()
    }

    #[test]
    fn text_from_outside_is_refused_with_field_and_remedy() {
        assert_eq!(problem(Request::new("", "a")), "`resource` is empty: give it at least one character");
        assert_eq!(
            problem(Request::new("r", &"x".repeat(10_240))),
            "`identifier` has 10240 bytes: use at most 1024"
        );
        let escape = problem(Request::new("r", "a\u{1b}[31m"));
        assert_eq!(escape, "`identifier` has the control character U+001B at byte 1: leave it out");
        assert!(Request::new("r", "user@example.com").validate().is_ok());
        assert!(Request::new("r", "ünïcödé 名前").validate().is_ok());
    }

    #[test]
    fn one_byte_that_is_not_visible_is_seen_wherever_it_stands() {
        for length in 1..=25 {
            for place in 0..length {
                for byte in 0..=127_u8 {
                    let mut text = vec![b'~'; length];
                    text[place] = byte;
                    let text = String::from_utf8(text).unwrap();
                    assert_eq!(
                        is_visible_ascii(&text),
                        (b' '..=b'~').contains(&byte),
                        "{byte} at {place} of {length}"
                    );
                }
                let (before, after) = ("~".repeat(place), " ".repeat(length - place));
                assert!(!is_visible_ascii(&format!("{before}é{after}")));
                assert!(!is_visible_ascii(&format!("{before}\u{10ffff}{after}")));
            }
        }
    }
}
