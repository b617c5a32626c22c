//! How much of an identity is told, in the decision log and in spans: a hash by default, or its beginning, or all of it.
//!
//! The hash is keyed, because few identities are hard to guess: whoever has the log and not the key cannot try addresses
//! or names. Without a configured key each process makes one of its own; then the same identity has another hash after a
//! restart, and on another server. Nothing here bounds how often something is told.

use std::fmt::{self, Write as _};
use std::net::IpAddr;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use sluicegate::Identity;

use crate::config::log::{IdentityForm, LogSettings};

/// The bytes of a key that a process makes for itself: as many as the hash has.
const KEY_BYTES: usize = 32;
/// The bytes of a hash that are told: enough to tell millions apart, and little enough to read.
const HASH_BYTES: usize = 8;
/// The most characters of an identity that are told.
const WHOLE_CHARACTERS_MAX: usize = 64;
/// The most characters of a cut identity.
const CUT_CHARACTERS_MAX: usize = 4;
/// What part of an identity remains at most when it is cut: one in so many characters.
const CUT_ONE_IN: usize = 3;
/// The bits of addresses that remain when they are cut.
const CUT_BITS_V4: u32 = 24;
const CUT_BITS_V6: u32 = 48;

/// The system gave no randomness.
#[derive(Debug, thiserror::Error)]
#[error("the system has no randomness for hashes of identities; give `log.hash_secret`, or start again")]
pub(crate) struct NoRandomness;

/// Tells identities in one form.
#[derive(Clone)]
pub(crate) enum Shown {
    /// As a keyed hash.
    Hashed(Box<Hmac<Sha256>>),
    /// As their beginning.
    Cut,
    /// As they are.
    Whole,
}

impl Shown {
    /// The form that the settings ask for.
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
        // A key of any length will do, so this does not fail.
        Hmac::new_from_slice(key).map(|keyed| Self::Hashed(Box::new(keyed))).map_err(|_| NoRandomness)
    }

    /// What is told of this identity.
    pub(crate) fn of(&self, identity: Identity<'_>) -> String {
        match (self, identity) {
            (Self::Hashed(keyed), _) => hash(Hmac::clone(keyed), identity),
            (Self::Cut, Identity::Address(address)) => network(address),
            (Self::Cut, Identity::Named(name) | Identity::Claimed(name)) => {
                beginning(name, (name.chars().count() / CUT_ONE_IN).min(CUT_CHARACTERS_MAX))
            }
            (Self::Whole, Identity::Address(address)) => address.to_string(),
            (Self::Whole, Identity::Named(name) | Identity::Claimed(name)) => {
                beginning(name, WHOLE_CHARACTERS_MAX)
            }
        }
    }
}

impl fmt::Debug for Shown {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Hashed(_) => "Hashed(…)",
            Self::Cut => "Cut",
            Self::Whole => "Whole",
        })
    }
}

/// What an identity is known by.
pub(crate) const fn kind(identity: Identity<'_>) -> &'static str {
    match identity {
        Identity::Named(_) => "named",
        Identity::Claimed(_) => "claimed",
        Identity::Address(_) => "address",
    }
}

/// Identities of different kinds are different, whatever they are called.
fn hash(mut keyed: Hmac<Sha256>, identity: Identity<'_>) -> String {
    keyed.update(kind(identity).as_bytes());
    keyed.update(b":");
    match identity {
        Identity::Named(name) | Identity::Claimed(name) => keyed.update(name.as_bytes()),
        Identity::Address(address) => keyed.update(address.to_string().as_bytes()),
    }
    let hash = keyed.finalize().into_bytes();
    hash[..HASH_BYTES].iter().fold(String::with_capacity(2 * HASH_BYTES), |mut text, byte| {
        // A text takes whatever is written to it.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn beginning(name: &str, characters: usize) -> String {
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

    fn hashed(secret: Option<&str>) -> Shown {
        let hash_secret = secret.map(|secret| Secret::new(secret.to_owned()));
        Shown::new(&LogSettings { hash_secret, ..LogSettings::default() }).expect("randomness")
    }

    #[test]
    fn a_hash_tells_identities_apart_and_nothing_else() {
        let shown = hashed(Some("k"));
        let of = |identity| shown.of(identity);
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
    fn the_same_key_gives_the_same_hash_and_every_process_has_its_own() {
        let of = |secret| hashed(secret).of(Identity::Named("alice"));
        assert_eq!(of(Some("k")), of(Some("k")));
        assert_ne!(of(Some("k")), of(Some("l")));
        assert_ne!(of(None), of(None));
    }

    #[test]
    fn what_is_cut_is_never_whole() {
        let of = |identity| Shown::Cut.of(identity);
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
    fn what_is_whole_has_an_end() {
        let of = |name: &str| Shown::Whole.of(Identity::Claimed(name));
        assert_eq!(of("alice"), "alice");
        assert_eq!(of(&"x".repeat(1_024)).chars().count(), WHOLE_CHARACTERS_MAX + 1);
    }

    #[test]
    fn the_key_is_not_printed() {
        assert_eq!(format!("{:?}", hashed(Some("canary"))), "Hashed(…)");
    }
}
