//! Where state lives: a [`Key`] is a [`KeySpace`] (one rule) and a [`Subject`] (whose state it is).
//!
//! Keys are structural. Nothing is glued together from text, so no identifier, whatever it contains, can
//! reach another's state: the parts are told apart by their kind and length, not by separators.
//!
//! In this process a key is its [`Digest`], 128 bits of a hash seeded anew at every start. The chance that
//! any two of ten million keys meet is about 10⁻²⁵, and nobody outside can look for such a pair.

use crate::identity::{DEFAULT_TENANT, Identity};
use foldhash::quality::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::net::IpAddr;
use std::sync::LazyLock;

/// The keys of one rule. Digests of its name are taken once, here.
#[derive(Clone, Debug)]
pub struct KeySpace {
    name: Box<str>,
    digest: Digest,
}

/// Whose state it is: the parts that the rule counts by. All absent means everybody's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Subject<'a> {
    /// Within this tenant.
    pub tenant: Option<&'a str>,
    /// Of this identity.
    pub identity: Option<Identity<'a>>,
    /// From this address.
    pub address: Option<IpAddr>,
}

/// Where one rule keeps the state of one subject.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    /// The rule's keys.
    pub space: &'a KeySpace,
    /// Whose.
    pub subject: Subject<'a>,
}

/// 128 bits that stand for a key within this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Digest(pub(crate) u64, pub(crate) u64);

/// Two independent hash functions, seeded once per process.
static HASHES: LazyLock<(RandomState, RandomState)> =
    LazyLock::new(|| (RandomState::default(), RandomState::default()));

impl KeySpace {
    /// The keys of the rule called `name`.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let digest = digest(|hasher| hasher.write(name.as_bytes()));
        Self { name: name.into(), digest }
    }

    /// The rule's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Key<'_> {
    pub(crate) fn digest(&self) -> Digest {
        digest_in(self.space.digest, |hasher| self.subject.write(hasher))
    }

    /// The digest of the state that newcomers of this rule share once a store is full.
    pub(crate) fn overflow_digest(&self) -> Digest {
        digest_in(self.space.digest, |hasher| hasher.write_u64(Subject::OVERFLOW))
    }
}

impl Subject<'_> {
    /// A header that no subject writes.
    const OVERFLOW: u64 = u64::MAX;

    /// Writes the parts so that two subjects write the same only if they are the same: a header with kinds
    /// and lengths, then the texts.
    fn write(&self, hasher: &mut impl Hasher) {
        // The default tenant is the usual one: it is told by the header alone.
        let tenant = self.tenant.filter(|tenant| *tenant != DEFAULT_TENANT);
        let tenant_kind = u64::from(self.tenant.is_some()) + u64::from(tenant.is_some());
        let (identity_kind, identifier) = match self.identity {
            None => (0, ""),
            Some(Identity::Named(identifier)) => (1, identifier),
            Some(Identity::Address(IpAddr::V4(_))) => (2, ""),
            Some(Identity::Address(IpAddr::V6(_))) => (3, ""),
        };
        let address_kind = match self.address {
            None => 0,
            Some(IpAddr::V4(_)) => 1,
            Some(IpAddr::V6(_)) => 2,
        };
        let kinds = tenant_kind | identity_kind << 2 | address_kind << 4;
        let tenant_bytes = tenant.map_or(0, str::len) as u64;
        // Texts are bounded far below 2²⁴ bytes where they enter; were they not, the lengths would still be
        // told apart by the bytes that follow.
        hasher.write_u64(kinds | tenant_bytes << 8 | (identifier.len() as u64) << 36);
        if let Some(tenant) = tenant {
            hasher.write(tenant.as_bytes());
        }
        if !identifier.is_empty() {
            hasher.write(identifier.as_bytes());
        }
        if let Some(Identity::Address(address)) = self.identity {
            write_address(hasher, address);
        }
        if let Some(address) = self.address {
            write_address(hasher, address);
        }
    }
}

fn write_address(hasher: &mut impl Hasher, address: IpAddr) {
    match address {
        IpAddr::V4(address) => hasher.write_u32(address.to_bits()),
        IpAddr::V6(address) => hasher.write_u128(address.to_bits()),
    }
}

fn digest(write: impl Fn(&mut foldhash::quality::FoldHasher<'static>)) -> Digest {
    let (first, second) = &*HASHES;
    let (mut left, mut right) = (first.build_hasher(), second.build_hasher());
    write(&mut left);
    write(&mut right);
    Digest(left.finish(), right.finish())
}

/// The digest of what `write` writes, in a space of its own.
fn digest_in(space: Digest, write: impl Fn(&mut foldhash::quality::FoldHasher<'static>)) -> Digest {
    let (first, second) = &*HASHES;
    let (mut left, mut right) = (first.build_hasher(), second.build_hasher());
    left.write_u64(space.0);
    right.write_u64(space.1);
    write(&mut left);
    write(&mut right);
    Digest(left.finish(), right.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn named<'a>(tenant: Option<&'a str>, identifier: &'a str) -> Subject<'a> {
        Subject { tenant, identity: Some(Identity::Named(identifier)), address: None }
    }

    #[test]
    fn no_two_subjects_share_a_digest_however_their_text_is_cut() {
        let space = KeySpace::new("rule");
        let address: IpAddr = "203.0.113.9".parse().unwrap();
        let mapped: IpAddr = "::ffff:203.0.113.9".parse().unwrap();
        let from = |identity| Subject { identity: Some(identity), ..Subject::default() };
        let subjects = [
            Subject::default(),
            Subject { tenant: Some("a"), ..Subject::default() },
            Subject { tenant: Some(DEFAULT_TENANT), ..Subject::default() },
            named(Some("a"), "b:c"),
            named(Some("a:b"), "c"),
            named(Some("ab"), "c"),
            named(Some("a"), "bc"),
            named(None, "abc"),
            named(Some(DEFAULT_TENANT), "abc"),
            named(None, "203.0.113.9"),
            named(None, "default"),
            named(None, "}x"),
            named(None, "victim}1"),
            named(None, "a:last_refill"),
            from(Identity::Address(address)),
            from(Identity::Address(mapped)),
            Subject { address: Some(address), ..Subject::default() },
            Subject { address: Some(mapped), ..Subject::default() },
        ];
        let digests: HashSet<Digest> =
            subjects.iter().map(|subject| Key { space: &space, subject: *subject }.digest()).collect();
        assert_eq!(digests.len(), subjects.len());
    }

    #[test]
    fn rules_never_share_state_and_the_overflow_is_nobodys_own() {
        let (one, other) = (KeySpace::new("one"), KeySpace::new("other"));
        let subject = named(None, "abc");
        let key = Key { space: &one, subject };
        assert_ne!(key.digest(), Key { space: &other, subject }.digest());
        assert_ne!(key.digest(), key.overflow_digest());
        assert_eq!(key.digest(), Key { space: &KeySpace::new("one"), subject }.digest());
    }
}
