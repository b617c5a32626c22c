//! Who is asking, and for what: the plain values a front door hands to the limiter.
//!
//! An [`Identity`] is typed, so a name that looks like an address never meets the address. Text that comes
//! from outside is checked once, by [`Request::validate`], before anything is looked up with it.

mod descriptor;

pub use descriptor::{ENTRIES_MAX, ENTRY_BYTES_MAX, Entry, identifier_of, resource_of};

use crate::path::PATH_BYTES_MAX;
use sluicegate_core::Cost;
use std::fmt;
use std::net::IpAddr;

/// The tenant of a request that names none.
pub const DEFAULT_TENANT: &str = "default";

/// The longest tenant and resource names, in bytes: names that people choose, not data.
pub const NAME_BYTES_MAX: usize = 256;
/// The longest identifier, in bytes: room for a subject with its issuer, and not for a document.
pub const IDENTIFIER_BYTES_MAX: usize = 1_024;

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Identity<'a> {
    /// Known by a name: the owner of a key, a user, whatever the caller of the API says.
    Named(&'a str),
    /// Says a name that nobody verified. It shares nothing with those who are known by that name.
    Claimed(&'a str),
    /// Known only by the address it comes from.
    Address(IpAddr),
}

/// The HTTP request that a decision is about.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The method, as it was sent.
    pub method: &'a str,
    /// The path as rules see it: what [`Path::matched`](crate::path::Path::matched) says.
    pub path: &'a str,
    /// The host as rules see it: in lower case and without a port; `None` if it names none.
    pub host: Option<&'a str>,
    /// The header fields, by names in lower case.
    pub headers: Option<&'a dyn Values>,
    /// The claims of the token that came with it, if that is verified.
    pub claims: Option<&'a dyn Values>,
}

impl<'a> Target<'a> {
    /// A request with this method for this path, of which nothing else is known.
    #[must_use]
    pub const fn new(method: &'a str, path: &'a str) -> Self {
        Self { method, path, host: None, headers: None, claims: None }
    }
}

/// Values that have names, such as header fields; several may have the same name.
pub trait Values: fmt::Debug + Sync {
    /// Tells every value of this name.
    fn each(&self, name: &str, tell: &mut dyn FnMut(&str));
}

impl<N, V> Values for Vec<(N, V)>
where
    N: AsRef<str> + fmt::Debug + Sync,
    V: AsRef<str> + fmt::Debug + Sync,
{
    fn each(&self, name: &str, tell: &mut dyn FnMut(&str)) {
        self.iter().filter(|(known, _)| known.as_ref() == name).for_each(|(_, value)| tell(value.as_ref()));
    }
}

#[cfg(feature = "http")]
impl Values for http::HeaderMap {
    fn each(&self, name: &str, tell: &mut dyn FnMut(&str)) {
        // A value that is no text is a value all the same: whoever sends one does not get past a rule for any.
        self.get_all(name).iter().for_each(|value| tell(&String::from_utf8_lossy(value.as_bytes())));
    }
}

/// What is about to happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Stage {
    /// The request would be served.
    #[default]
    Request,
    /// A credential would be verified that is not known to be good. Who asks is not known yet.
    Credential,
}

/// One request for a decision.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The tenant; [`DEFAULT_TENANT`] if there is only one.
    pub tenant: &'a str,
    /// What is asked for.
    pub resource: &'a str,
    /// Who asks.
    pub identity: Identity<'a>,
    /// The address of the client, where it is known; rules per address apply only then.
    pub address: Option<IpAddr>,
    /// The tier of the identity, if it has one.
    pub tier: Option<&'a str>,
    /// How much is asked for; each rule's own cost if absent.
    pub cost: Option<Cost>,
    /// The HTTP request, where there is one; rules for paths and methods apply only then.
    pub target: Option<Target<'a>>,
    /// What is about to happen; each rule is for one stage.
    pub stage: Stage,
    /// The descriptor that is asked about, where there is one; rules for descriptors apply only then. Resource and
    /// identity should be what [`resource_of`] and [`identifier_of`] make of it.
    pub descriptor: Option<&'a [Entry<'a>]>,
    /// The only rule that is asked, by its place in its set; all of them if absent.
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

    /// The same request of another tier.
    #[must_use]
    pub const fn tier(self, tier: &'a str) -> Self {
        Self { tier: Some(tier), ..self }
    }

    /// The same request for another cost.
    #[must_use]
    pub const fn cost(self, cost: Cost) -> Self {
        Self { cost: Some(cost), ..self }
    }

    /// Checks all text that came from outside.
    ///
    /// # Errors
    /// If a name is empty, too long or holds control characters.
    #[inline]
    pub fn validate(&self) -> Result<(), InvalidText> {
        if self.is_plain() { Ok(()) } else { self.look_closely() }
    }

    /// True if it is one of those that nearly all requests are: short names of visible characters.
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

    /// Out of line, so that the usual way stays short.
    #[inline(never)]
    fn look_closely(&self) -> Result<(), InvalidText> {
        valid_text("tenant", self.tenant, NAME_BYTES_MAX)?;
        // Its resource and identity are made of its entries.
        if let Some(entries) = self.descriptor {
            return descriptor::validate(entries);
        }
        // A path has bounds of its own, and no key is made of it.
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

/// Text that cannot name anything: which field, and what is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidText {
    /// The field.
    pub field: &'static str,
    /// What is wrong.
    pub problem: TextProblem,
}

/// What can be wrong with a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TextProblem {
    /// It has no characters.
    Empty,
    /// It has no entries.
    NoEntries,
    /// It has more than `max` entries.
    TooMany {
        /// How many it has.
        count: usize,
        /// How many it may have.
        max: usize,
    },
    /// It has more than `max` bytes.
    TooLong {
        /// How many it has.
        bytes: usize,
        /// How many it may have.
        max: usize,
    },
    /// It holds a control character.
    ControlCharacter {
        /// The character.
        character: char,
        /// Where, in bytes from the start.
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

/// Nearly every text is, and this looks at eight bytes at a time: it does not stop at the first that is not.
#[inline]
fn is_visible_ascii(text: &str) -> bool {
    let bytes = text.as_bytes();
    // The last may overlap with those before them.
    if let Some(last) = bytes.last_chunk() {
        return bytes.as_chunks().0.iter().fold(are_visible(*last), |all, each| all & are_visible(*each));
    }
    if let (Some([a, b, c, d]), Some([e, f, g, h])) = (bytes.first_chunk(), bytes.last_chunk()) {
        return are_visible([*a, *b, *c, *d, *e, *f, *g, *h]);
    }
    bytes.iter().fold(true, |all, byte| all & (b' '..=b'~').contains(byte))
}

/// The same for eight bytes in one word. Of each the highest bit is looked at: taking a space from one below it sets the bit,
/// and so does adding one to the byte after the last visible one; a byte beyond ASCII has it anyway. What a byte borrows from
/// its neighbour or carries over to it is of one that has set its own bit already.
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
