//! The name of a subject's state in Redis: `sg:1:{<tenant>:<subject>}:<rule>`. The limits of a tier are in
//! `…:<rule>~<tier>`, those of an override in `…:<rule>!<pattern>`. The second override of the same pattern has
//! `!1!` before the pattern, and so on.
//!
//! - The first part is a configured prefix, the second the version of key and value.
//! - The hash tag in braces alone selects the Cluster slot. All rules of one subject share it. A client cannot
//!   choose it, because braces in identifiers are escaped.
//! - The encoding is injective. Text is percent-escaped, including the markers of the kinds of parts: `~` for an
//!   absent part, `#` for an address as identity, `=` before an unverified name, `!` before an address beside an
//!   identity, and `^` before a hash.
//! - A key has at most [`KEY_BYTES_MAX`] bytes. A part that is too long ends in 128 bits of its SHA-256, the same on
//!   every server.
//!
//! With hashing, the tag is only a hash, and with a secret a keyed hash. That keeps identifiers private, and
//! prevents clients from choosing identifiers that share a slot.

use crate::identity::Identity;
use crate::store::{Key, KeySpace, LimitSet, Subject};
use hmac::{Hmac, KeyInit, Mac};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sha2::{Digest, Sha256};
use std::fmt::{self, Write};
use std::net::IpAddr;

/// The longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 200;
/// The longest prefix, in bytes.
pub const PREFIX_BYTES_MAX: usize = 32;
/// The default prefix of keys.
pub const PREFIX_DEFAULT: &str = "sg";

/// The longest tag and the longest rule part. With a prefix, a version and the separators they fill a key.
const TAG_BYTES_MAX: usize = 112;
const RULE_BYTES_MAX: usize = 50;
/// A marker and 128 bits in hexadecimal.
const HASH_BYTES: usize = 33;
/// The version of keys and values. A new version starts with empty state.
const VERSION: &str = "1";

/// The characters that are escaped in text: all but letters, digits and these, which have no meaning in a key.
const ESCAPED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'@').remove(b'|').remove(b'/');

/// Encodes key names.
#[derive(Clone)]
pub struct KeyEncoder {
    prefix: Box<str>,
    tags: Tags,
}

/// The form of a subject in the hash tag.
#[derive(Clone)]
enum Tags {
    Plain,
    Hashed,
    Keyed(Box<Hmac<Sha256>>),
}

/// An invalid key prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidPrefix {
    prefix: String,
}

impl KeyEncoder {
    /// An encoder with this prefix; its tags show the subject.
    ///
    /// # Errors
    /// If the prefix is empty, longer than [`PREFIX_BYTES_MAX`], or has other characters than ASCII letters, digits,
    /// `-`, `.`, `_` and `:`.
    pub fn new(prefix: &str) -> Result<Self, InvalidPrefix> {
        let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
        if prefix.is_empty() || prefix.len() > PREFIX_BYTES_MAX || !prefix.bytes().all(is_fine) {
            return Err(InvalidPrefix { prefix: prefix.chars().take(2 * PREFIX_BYTES_MAX).collect() });
        }
        Ok(Self { prefix: prefix.into(), tags: Tags::Plain })
    }

    /// The same encoder with a hash in place of every subject. With a `secret` the hash is keyed, and all servers
    /// need the same secret.
    #[must_use]
    pub fn hashed(self, secret: Option<&[u8]>) -> Self {
        // HMAC accepts keys of any length, so there is no error. If there were one, plain hashing would replace it.
        let keyed = secret.and_then(|secret| Hmac::<Sha256>::new_from_slice(secret).ok());
        Self { tags: keyed.map_or(Tags::Hashed, |keyed| Tags::Keyed(Box::new(keyed))), ..self }
    }

    /// The name of `key` in Redis.
    #[must_use]
    pub fn name(&self, key: &Key<'_>) -> String {
        String::from_utf8_lossy(&self.encode(key)).into_owned()
    }

    /// The prefix of all keys, with the version.
    pub(crate) fn start(&self) -> String {
        format!("{}:{VERSION}:", self.prefix)
    }

    pub(crate) fn encode(&self, key: &Key<'_>) -> Vec<u8> {
        let mut text = String::with_capacity(64);
        text.push_str(&self.prefix);
        text.push(':');
        text.push_str(VERSION);
        text.push_str(":{");
        match &self.tags {
            Tags::Plain => push_bounded(&mut text, TAG_BYTES_MAX, |text| push_subject(text, &key.subject)),
            hashed => {
                let mut subject = String::new();
                push_subject(&mut subject, &key.subject);
                push_hash(&mut text, hashed.hash(subject.as_bytes()));
            }
        }
        text.push_str("}:");
        push_bounded(&mut text, RULE_BYTES_MAX, |text| push_space(text, key.space));
        text.into_bytes()
    }
}

impl Default for KeyEncoder {
    fn default() -> Self {
        Self { prefix: PREFIX_DEFAULT.into(), tags: Tags::Plain }
    }
}

impl Tags {
    fn hash(&self, text: &[u8]) -> [u8; 32] {
        match self {
            Self::Plain | Self::Hashed => Sha256::digest(text).into(),
            Self::Keyed(keyed) => {
                let mut keyed = Hmac::clone(keyed);
                keyed.update(text);
                keyed.finalize().into_bytes().into()
            }
        }
    }
}

/// The first 64 bits of the SHA-256 of an encoded key, the same on every server.
pub(crate) fn seed(encoded: &[u8]) -> u64 {
    let hash: [u8; 32] = Sha256::digest(encoded).into();
    let [a, b, c, d, e, f, g, h, ..] = hash;
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// Rule and limit set. Escaped text contains neither `~` nor `!`, so a rule's name cannot be mistaken for the limit
/// set of another rule.
fn push_space(text: &mut String, space: &KeySpace) {
    push_escaped(text, space.name());
    match space.set() {
        LimitSet::Rule => {}
        LimitSet::Tier(tier) => {
            text.push('~');
            push_escaped(text, tier);
        }
        LimitSet::Override { pattern, occurrence } => {
            text.push('!');
            if *occurrence > 0 {
                // Writing to a string cannot fail.
                let _ = write!(text, "{occurrence}!");
            }
            push_escaped(text, pattern);
        }
    }
}

/// Tenant and subject.
fn push_subject(text: &mut String, subject: &Subject<'_>) {
    match subject.tenant {
        Some(tenant) => push_escaped(text, tenant),
        None => text.push('~'),
    }
    text.push(':');
    match subject.identity {
        Some(Identity::Named(name)) => push_escaped(text, name),
        Some(Identity::Claimed(name)) => {
            text.push('=');
            push_escaped(text, name);
        }
        Some(Identity::Address(address)) => {
            text.push('#');
            push_address(text, address);
        }
        None => text.push('~'),
    }
    if let Some(address) = subject.address {
        text.push('!');
        push_address(text, address);
    }
}

fn push_escaped(text: &mut String, part: &str) {
    text.extend(utf8_percent_encode(part, ESCAPED));
}

/// IPv4 in dotted form. IPv6 as 32 hexadecimal digits, because colons separate the parts of a key.
fn push_address(text: &mut String, address: IpAddr) {
    // Writing to a string cannot fail.
    let _ = match address {
        IpAddr::V4(address) => write!(text, "{address}"),
        IpAddr::V6(address) => write!(text, "{:032x}", address.to_bits()),
    };
}

/// Appends a part, and replaces its end by a hash if it is too long. Parts are ASCII, so they can be cut anywhere.
fn push_bounded(text: &mut String, bytes_max: usize, push: impl FnOnce(&mut String)) {
    let start = text.len();
    push(text);
    if text.len() - start <= bytes_max {
        return;
    }
    let hash = Sha256::digest(&text.as_bytes()[start..]).into();
    text.truncate(start + bytes_max - HASH_BYTES);
    push_hash(text, hash);
}

fn push_hash(text: &mut String, hash: [u8; 32]) {
    text.push('^');
    for byte in &hash[..16] {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
}

/// Hides the secret.
impl fmt::Debug for KeyEncoder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tags = match self.tags {
            Tags::Plain => "plain",
            Tags::Hashed => "hashed",
            Tags::Keyed(_) => "hashed with a secret",
        };
        formatter.debug_struct("KeyEncoder").field("prefix", &self.prefix).field("tags", &tags).finish()
    }
}

impl fmt::Display for InvalidPrefix {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = self.prefix.escape_debug();
        write!(
            formatter,
            "the prefix of keys is \"{prefix}\": use 1 to {PREFIX_BYTES_MAX} ASCII letters, digits, `-`, `.`, `_` or `:`"
        )
    }
}

impl std::error::Error for InvalidPrefix {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::KeySpace;
    use proptest::prelude::*;
    use std::collections::HashMap;

    /// A verified name, an unverified name, or an address.
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    enum Who {
        Named(String),
        Claimed(String),
        Address(IpAddr),
    }

    type Parts = (Option<String>, Option<Who>, Option<IpAddr>, String);

    fn encoded(encoder: &KeyEncoder, (tenant, identity, address, rule): &Parts) -> String {
        let identity = identity.as_ref().map(|identity| match identity {
            Who::Named(name) => Identity::Named(name),
            Who::Claimed(name) => Identity::Claimed(name),
            Who::Address(address) => Identity::Address(*address),
        });
        let subject = Subject { tenant: tenant.as_deref(), identity, address: *address };
        String::from_utf8(encoder.encode(&Key { space: &KeySpace::new(rule), subject })).unwrap()
    }

    fn named(tenant: &str, name: &str, rule: &str) -> Parts {
        (Some(tenant.into()), Some(Who::Named(name.into())), None, rule.into())
    }

    fn encoders() -> [KeyEncoder; 3] {
        let plain = KeyEncoder::new("sg").unwrap();
        [plain.clone(), plain.clone().hashed(None), plain.hashed(Some(b"secret"))]
    }

    /// Texts that contain markers, short texts that collide often, and long texts.
    fn text() -> impl Strategy<Value = String> {
        prop_oneof![
            6 => "[ab:{}%~#!^*.]{0,4}",
            2 => "[a-f0-9^%]{0,3}",
            1 => prop::sample::select(vec!["default", "203.0.113.9", "00000000000000000000ffffcb007109", "%3A", "~", "é"])
                .prop_map(str::to_owned),
            1 => "(a|:|é){60,130}",
            1 => any::<String>(),
        ]
    }

    fn address() -> impl Strategy<Value = IpAddr> {
        prop::sample::select(vec!["203.0.113.9", "::ffff:203.0.113.9", "::", "2001:db8::1", "0.0.0.0"])
            .prop_map(|address| address.parse().unwrap())
    }

    fn parts() -> impl Strategy<Value = Parts> {
        let identity = prop_oneof![4 => text().prop_map(Who::Named), 1 => text().prop_map(Who::Claimed), 1 => address().prop_map(Who::Address)];
        (prop::option::of(text()), prop::option::of(identity), prop::option::weighted(0.2, address()), text())
    }

    fn is_well_formed(key: &str) -> bool {
        let is_safe = |byte: u8| byte.is_ascii_graphic() && !b"*?[]\\\"'".contains(&byte);
        let count = |wanted: char| key.chars().filter(|each| *each == wanted).count();
        // A hash may have replaced the colon within the tag.
        let colons = if key.contains('^') { 3..=4 } else { 4..=4 };
        key.len() <= KEY_BYTES_MAX
            && key.starts_with("sg:1:{")
            && key.bytes().all(is_safe)
            && (count('{'), count('}')) == (1, 1)
            && colons.contains(&count(':'))
    }

    #[test]
    fn keys_look_as_documented() {
        let encoder = KeyEncoder::default();
        assert_eq!(
            encoded(&encoder, &named("default", "user@example.com", "api")),
            "sg:1:{default:user@example.com}:api"
        );
        assert_eq!(encoded(&encoder, &named("a:b", "{x}", "r 1")), "sg:1:{a%3Ab:%7Bx%7D}:r%201");
        let everybody = (None, None, None, "all".to_owned());
        assert_eq!(encoded(&encoder, &everybody), "sg:1:{~:~}:all");
        let address = "2001:db8::1".parse().unwrap();
        let from = (None, Some(Who::Address(address)), Some("192.0.2.1".parse().unwrap()), "all".to_owned());
        assert_eq!(encoded(&encoder, &from), "sg:1:{~:#20010db8000000000000000000000001!192.0.2.1}:all");
        let prefixed = KeyEncoder::new("shop:sg").unwrap();
        assert_eq!(encoded(&prefixed, &named("default", "alice", "api")), "shop:sg:1:{default:alice}:api");
    }

    /// These bytes must never change: two versions of the server would not find each other's state.
    #[test]
    fn hashes_are_the_same_on_every_server() {
        let [plain, hashed, keyed] = encoders();
        let alice = named("default", "alice", "api");
        assert_eq!(encoded(&hashed, &alice), "sg:1:{^27a3373614065f9a04e9050c004ba1e4}:api");
        assert_eq!(encoded(&keyed, &alice), "sg:1:{^37415d35c0ca3e6a13f9605f56a2e078}:api");
        let long = encoded(&plain, &named("default", &"x".repeat(300), "api"));
        assert_eq!(long, format!("sg:1:{{default:{}^f5a58394c659fcc3ed704d6347d19c36}}:api", "x".repeat(71)));
        assert_eq!(seed(b"sg:1:{default:alice}:api"), 0x6AFF_62AE_1E2A_FBA7);
    }

    /// Row 57: with the tenant as the tag, a whole tenant is on one shard.
    #[test]
    fn all_rules_of_a_subject_share_its_tag_and_no_other_subject_does() {
        let tag = |key: &str| key[..=key.find('}').unwrap()].to_owned();
        for encoder in encoders() {
            let long = "n".repeat(1_024);
            for name in ["alice", &long] {
                let keys = [named("t", name, "one"), named("t", name, &"r".repeat(500))];
                let [one, two] = keys.map(|parts| encoded(&encoder, &parts));
                assert_ne!(one, two);
                assert_eq!(tag(&one), tag(&two));
                assert_ne!(tag(&one), tag(&encoded(&encoder, &named("t", "bob", "one"))));
            }
        }
    }

    #[test]
    fn a_prefix_cannot_contain_a_hash_tag() {
        for prefix in ["", "{a}", "a b", "ü", "a\n", &"x".repeat(33)] {
            assert!(KeyEncoder::new(prefix).is_err(), "{prefix:?}");
        }
    }

    #[test]
    fn a_secret_is_not_printed() {
        let encoder = KeyEncoder::default().hashed(Some(b"canary"));
        assert_eq!(format!("{encoder:?}"), "KeyEncoder { prefix: \"sg\", tags: \"hashed with a secret\" }");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]
        #[test]
        fn no_two_subjects_share_a_key(all in prop::collection::vec(parts(), 2..60)) {
            for encoder in encoders() {
                let mut seen: HashMap<String, &Parts> = HashMap::new();
                for parts in &all {
                    let key = encoded(&encoder, parts);
                    prop_assert!(is_well_formed(&key), "{}", key);
                    let first = *seen.entry(key).or_insert(parts);
                    prop_assert_eq!(first, parts);
                }
            }
        }
    }
}
