//! The form of identities in the decision log and in spans: a hash by default, or a prefix, or the whole identity.
//!
//! The hash is keyed, because most identities are easy to guess: without the key, a reader of the log cannot test addresses or
//! names. Without a configured key, each process generates one. The hash of an identity then changes with a restart and differs
//! between servers. This module does not bound how often identities appear.

use std::fmt::{self, Write as _};
use std::net::IpAddr;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use sluicegate::Identity;

use crate::config::log::{IdentityForm, LogSettings};

/// The length of a generated key, in bytes: the length of the hash.
const KEY_BYTES: usize = 32;
/// The bytes of a hash in the output: enough to distinguish millions of identities, and short enough to read.
const HASH_BYTES: usize = 8;
/// The most characters of an identity in whole form.
const WHOLE_CHARACTERS_MAX: usize = 64;
/// The most characters of an identity in cut form.
const CUT_CHARACTERS_MAX: usize = 4;
/// The cut form has at most one of this many characters of the identity.
const CUT_ONE_IN: usize = 3;
/// The prefix lengths of addresses in cut form.
const CUT_BITS_V4: u32 = 24;
const CUT_BITS_V6: u32 = 48;

/// The system has no randomness for a key.
#[derive(Debug, thiserror::Error)]
#[error("the system has no randomness for hashes of identities; set `log.hash_secret`, or restart")]
pub(crate) struct NoRandomness;

/// Formats identities in the configured form.
#[derive(Clone)]
pub(crate) enum IdentityDisplay {
    /// A keyed hash.
    Hashed(Box<Hmac<Sha256>>),
    /// A prefix of a name, or the network of an address.
    Cut,
    /// The identity itself, up to 64 characters.
    Whole,
}

impl IdentityDisplay {
    /// The form in the settings.
    pub(crate) fn new(settings: &LogSettings) -> Result<Self, NoRandomness> {
        Ok(match (settings.identities, &settings.hash_secret) {
            (IdentityForm::Cut, _) => Self::Cut,
            (IdentityForm::Whole, _) => Self::Whole,
            (IdentityForm::Hashed, Some(secret)) => Self::hashed(secret.reveal().as_bytes())?,
            (IdentityForm::Hashed, None) => {
                let mut key = [0; KEY_BYTES];
                let random = rustls::crypto::aws_lc_rs::default_provider().secure_random;
                random.fill(&mut key).map_err(|_| NoRandomness)?;
                Self::hashed(&key)?
            }
        })
    }

    fn hashed(key: &[u8]) -> Result<Self, NoRandomness> {
        // HMAC accepts keys of any length, so this does not fail.
        Hmac::new_from_slice(key).map(|keyed| Self::Hashed(Box::new(keyed))).map_err(|_| NoRandomness)
    }

    /// The text for an identity.
    pub(crate) fn text(&self, identity: Identity<'_>) -> String {
        match (self, identity) {
            (Self::Hashed(keyed), _) => hash(Hmac::clone(keyed), identity),
            (Self::Cut, Identity::Address(address)) => network(address),
            (Self::Cut, Identity::Named(name) | Identity::Claimed(name)) => {
                prefix(name, (name.chars().count() / CUT_ONE_IN).min(CUT_CHARACTERS_MAX))
            }
            (Self::Whole, Identity::Address(address)) => address.to_string(),
            (Self::Whole, Identity::Named(name) | Identity::Claimed(name)) => prefix(name, WHOLE_CHARACTERS_MAX),
        }
    }
}

impl fmt::Debug for IdentityDisplay {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Hashed(_) => "Hashed(…)",
            Self::Cut => "Cut",
            Self::Whole => "Whole",
        })
    }
}

/// The kind of an identity, as in the log and in the admin API.
pub(crate) const fn kind(identity: Identity<'_>) -> &'static str {
    match identity {
        Identity::Named(_) => "named",
        Identity::Claimed(_) => "claimed",
        Identity::Address(_) => "address",
    }
}

/// The hash of an identity. It includes the kind, so equal names of different kinds have different hashes.
fn hash(mut keyed: Hmac<Sha256>, identity: Identity<'_>) -> String {
    keyed.update(kind(identity).as_bytes());
    keyed.update(b":");
    match identity {
        Identity::Named(name) | Identity::Claimed(name) => keyed.update(name.as_bytes()),
        Identity::Address(address) => keyed.update(address.to_string().as_bytes()),
    }
    let hash = keyed.finalize().into_bytes();
    hash[..HASH_BYTES].iter().fold(String::with_capacity(2 * HASH_BYTES), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn prefix(name: &str, characters: usize) -> String {
    match name.char_indices().nth(characters) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

fn network(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => {
            let network = address.to_bits() & u32::MAX << (u32::BITS - CUT_BITS_V4);
            format!("{}/{CUT_BITS_V4}", std::net::Ipv4Addr::from_bits(network))
        }
        IpAddr::V6(address) => {
            let network = address.to_bits() & u128::MAX << (u128::BITS - CUT_BITS_V6);
            format!("{}/{CUT_BITS_V6}", std::net::Ipv6Addr::from_bits(network))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;

    fn hashed(secret: Option<&str>) -> IdentityDisplay {
        let hash_secret = secret.map(|secret| Secret::new(secret.to_owned()));
        IdentityDisplay::new(&LogSettings { hash_secret, ..LogSettings::default() }).expect("randomness")
    }

    #[test]
    fn equal_identities_have_equal_hashes_and_kinds_differ() {
        let display = hashed(Some("k"));
        let of = |identity| display.text(identity);
        let alice = of(Identity::Named("alice"));
        assert_eq!((alice.len(), alice.bytes().all(|byte| byte.is_ascii_hexdigit())), (16, true), "{alice}");
        assert_eq!(alice, of(Identity::Named("alice")));
        for other in [Identity::Named("bob"), Identity::Claimed("alice"), Identity::Address([10, 0, 0, 1].into())]
        {
            assert_ne!(alice, of(other), "{other:?}");
        }
        assert_ne!(of(Identity::Address([10, 0, 0, 1].into())), of(Identity::Named("10.0.0.1")));
    }

    #[test]
    fn hashes_depend_on_the_key_and_generated_keys_differ() {
        let of = |secret| hashed(secret).text(Identity::Named("alice"));
        assert_eq!(of(Some("k")), of(Some("k")));
        assert_ne!(of(Some("k")), of(Some("l")));
        assert_ne!(of(None), of(None));
    }

    #[test]
    fn the_cut_form_never_contains_the_whole_identity() {
        let of = |identity| IdentityDisplay::Cut.text(identity);
        for (name, expected) in
            [("alice@example.com", "alic…"), ("alice", "a…"), ("bob", "b…"), ("al", "…"), ("ünïcödé 名前", "ünï…")]
        {
            assert_eq!(of(Identity::Named(name)), expected);
        }
        assert_eq!(of(Identity::Address([203, 0, 113, 77].into())), "203.0.113.0/24");
        let address: IpAddr = "2001:db8:1:2::3".parse().expect("an address");
        assert_eq!(of(Identity::Address(address)), "2001:db8:1::/48");
    }

    #[test]
    fn the_whole_form_is_bounded() {
        let of = |name: &str| IdentityDisplay::Whole.text(Identity::Claimed(name));
        assert_eq!(of("alice"), "alice");
        assert_eq!(of(&"x".repeat(1_024)).chars().count(), WHOLE_CHARACTERS_MAX + 1);
    }

    #[test]
    fn debug_output_hides_the_key() {
        assert_eq!(format!("{:?}", hashed(Some("canary"))), "Hashed(…)");
    }
}
