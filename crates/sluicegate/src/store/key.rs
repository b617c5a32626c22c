//! The location of state: a [`Key`] is a [`KeySpace`] (one limit set of one rule) and a [`Subject`] (the owner of the
//! state).
//!
//! Every limit set of a rule (its own limits, those of a tier, those of an override) has its own key space. Requests
//! under one set never read or write the state of another, whatever subject they share.
//!
//! Keys are structural, not concatenated text. The kind and length of each part separate the parts, so no identifier,
//! whatever it contains, reaches the state of another.
//!
//! In this process a key is a digest: 128 bits of a hash with a new seed at every start. The probability that any two
//! of ten million keys collide is about 10⁻²⁴, or 10⁻¹⁷ in an embedded store with the default 1,024 shards, which
//! keeps 106 of the bits. The seed is secret, so clients cannot search for collisions. Two of the bits encode the
//! kind of the key.

use crate::identity::{DEFAULT_TENANT, Identity};
use foldhash::SharedSeed;
use foldhash::quality::FoldHasher;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::IpAddr;
use std::sync::LazyLock;

/// The keys of one limit set of a rule. The digest of its name is computed once, here.
#[derive(Clone, Debug)]
pub struct KeySpace {
    name: Box<str>,
    set: LimitSet,
    digest: Digest,
    seeds: &'static Seeds,
}

/// The limit set of a rule to which a key space belongs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LimitSet {
    /// The rule's own limits.
    Rule,
    /// The limits of this tier.
    Tier(Box<str>),
    /// The limits of an override.
    Override {
        /// The pattern of identifiers, as written.
        pattern: Box<str>,
        /// The number of earlier overrides of the same rule with the same pattern.
        occurrence: u32,
    },
}

/// Two independent hash functions, and the start value for the digests of names. The start must not be zero: the hash
/// distinguishes texts of different lengths by rotating its start, and zero rotates to zero.
#[derive(Debug)]
struct Seeds(SharedSeed, SharedSeed, Digest);

/// The owner of a state: the parts by which the rule counts. If all are absent, all clients share the state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Subject<'a> {
    /// The tenant, if the rule counts by tenant.
    pub tenant: Option<&'a str>,
    /// The identity, if the rule counts by identity.
    pub identity: Option<Identity<'a>>,
    /// The address, if the rule counts by address.
    pub address: Option<IpAddr>,
}

/// The location of the state of one subject under one rule.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    /// The key space of the rule's limit set.
    pub space: &'a KeySpace,
    /// The owner of the state.
    pub subject: Subject<'a>,
}

/// The position of the identifier's length in the header of a subject.
const IDENTIFIER_SHIFT: u32 = 36;

/// 128 bits that identify a key within this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Digest(pub(crate) u64, pub(crate) u64);

/// The kinds of keys, by the part that a client can choose. A full store reserves capacity for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The key of a verified identity, a tenant, or all clients.
    Verified,
    /// A key with an address. A client with a network has many addresses.
    Address,
    /// The key of an unverified name, which clients can invent.
    Unverified,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Verified, Self::Address, Self::Unverified];

    const BITS: u64 = 0b11;
}

impl Digest {
    /// The kind of the key.
    pub(crate) fn kind(self) -> Kind {
        match self.1 & Kind::BITS {
            0 => Kind::Verified,
            1 => Kind::Address,
            _ => Kind::Unverified,
        }
    }

    #[inline]
    fn of_kind(self, kind: Kind) -> Self {
        Self(self.0, self.1 & !Kind::BITS | kind as u64)
    }
}

/// The hash functions of this process, seeded once from the randomness of the system.
static SEEDS: LazyLock<Seeds> = LazyLock::new(|| {
    let draw = || RandomState::new().hash_one("any text: the randomness is in the key of this hash");
    Seeds(SharedSeed::from_u64(draw()), SharedSeed::from_u64(draw()), Digest(draw(), draw()))
});

/// The digest of the data that `write` writes. The data must be self-delimiting.
#[cfg(feature = "redis")]
pub(crate) fn digest_of(write: impl Fn(&mut FoldHasher<'_>)) -> Digest {
    let Seeds(left, right, start) = &*SEEDS;
    let mut left = FoldHasher::with_seed(start.0, left);
    let mut right = FoldHasher::with_seed(start.1, right);
    write(&mut left);
    write(&mut right);
    Digest(left.finish(), right.finish())
}

impl KeySpace {
    /// The key space of the own limits of the rule `name`.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self::of_set(name, LimitSet::Rule)
    }

    /// The key space of this limit set of the same rule.
    #[must_use]
    pub fn with_set(&self, set: LimitSet) -> Self {
        Self::of_set(&self.name, set)
    }

    fn of_set(name: &str, set: LimitSet) -> Self {
        let root = Self { name: name.into(), set, digest: SEEDS.2, seeds: &SEEDS };
        // The header contains the length of the name, the kind of the set and the occurrence; the name and the text
        // of the set follow. So two sets have equal data only if they are the same.
        let (kind, text, occurrence) = match &root.set {
            LimitSet::Rule => (0, "", 0),
            LimitSet::Tier(tier) => (1, &**tier, 0),
            LimitSet::Override { pattern, occurrence } => (2, &**pattern, *occurrence),
        };
        let header = name.len() as u64 | kind << 24 | u64::from(occurrence) << 32;
        let digest = root.digest_of(header, |hasher| {
            hasher.write(name.as_bytes());
            if !text.is_empty() {
                hasher.write(text.as_bytes());
            }
        });
        Self { digest, ..root }
    }

    /// True if both are the same limit set of the same rule.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.digest == other.digest
    }

    /// The digest of the data that `write` writes, in this space and under `header`.
    #[inline]
    fn digest_of(&self, header: u64, write: impl Fn(&mut FoldHasher<'_>)) -> Digest {
        // Spaces are random, so two different pairs of space and header collide only by chance.
        const MIX: u64 = 0x9E37_79B9_7F4A_7C15;
        let mixed = header.wrapping_mul(MIX);
        let mut left = FoldHasher::with_seed(self.digest.0 ^ mixed, &self.seeds.0);
        let mut right = FoldHasher::with_seed(self.digest.1 ^ mixed, &self.seeds.1);
        write(&mut left);
        write(&mut right);
        Digest(left.finish(), right.finish())
    }

    /// The name of the rule.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The limit set of the rule.
    #[must_use]
    pub fn set(&self) -> &LimitSet {
        &self.set
    }
}

impl Key<'_> {
    #[inline]
    pub(crate) fn digest(&self) -> Digest {
        // The most frequent case: one text. The header equals that of `Subject::header`.
        let usual = match self.subject {
            Subject { tenant: Some(DEFAULT_TENANT), identity: Some(Identity::Named(name)), address: None } => {
                Some((name, 0b101))
            }
            Subject { tenant: None, identity: Some(Identity::Named(name)), address: None } => Some((name, 0b100)),
            _ => None,
        };
        match usual {
            Some((name, kinds)) => {
                let header = kinds | (name.len() as u64) << IDENTIFIER_SHIFT;
                self.space.digest_of(header, |hasher| hasher.write(name.as_bytes())).of_kind(Kind::Verified)
            }
            None => self.long_digest(),
        }
    }

    /// The kind of the key.
    pub(crate) fn kind(&self) -> Kind {
        self.subject.kind()
    }

    /// The digest of any key. Not inlined, to keep the frequent case short.
    #[inline(never)]
    fn long_digest(&self) -> Digest {
        let digest = self.space.digest_of(self.subject.header(), |hasher| self.subject.write(hasher));
        digest.of_kind(self.subject.kind())
    }

    /// The digest of the state that new keys of this rule and kind share in a full store.
    pub(crate) fn overflow_digest(&self) -> Digest {
        self.space.digest_of(Subject::OVERFLOW, |_| {}).of_kind(self.subject.kind())
    }
}

impl Subject<'_> {
    /// The digest of the subject in this process, independent of the rule.
    #[cfg(feature = "redis")]
    pub(crate) fn digest(&self) -> Digest {
        digest_of(|hasher| {
            hasher.write_u64(self.header());
            self.write(hasher);
        })
    }

    /// A header that no subject has.
    const OVERFLOW: u64 = u64::MAX;

    /// The kind of the part that a client can vary most freely.
    fn kind(&self) -> Kind {
        match (self.identity, self.address) {
            (Some(Identity::Claimed(_)), _) => Kind::Unverified,
            (Some(Identity::Address(_)), _) | (_, Some(_)) => Kind::Address,
            (Some(Identity::Named(_)) | None, None) => Kind::Verified,
        }
    }

    /// The kinds and lengths of the parts. With the concatenated parts it determines all of them, so two subjects
    /// agree in both only if they are the same.
    #[inline]
    fn header(&self) -> u64 {
        let tenant = match self.tenant {
            None => 0,
            Some(DEFAULT_TENANT) => 1,
            Some(_) => 2,
        };
        let (identity, identifier_bytes) = match self.identity {
            None => (0, 0),
            Some(Identity::Named(identifier)) => (1, identifier.len() as u64),
            // Both bits of the field are in use, so this kind uses the first bit beyond those of the address.
            Some(Identity::Claimed(identifier)) => (1 | 1 << 4, identifier.len() as u64),
            Some(Identity::Address(IpAddr::V4(_))) => (2, 0),
            Some(Identity::Address(IpAddr::V6(_))) => (3, 0),
        };
        let address = match self.address {
            None => 0,
            Some(IpAddr::V4(_)) => 1,
            Some(IpAddr::V6(_)) => 2,
        };
        let kinds = tenant | identity << 2 | address << 4;
        // Texts are limited to far below 2²⁴ bytes at the entry.
        kinds | (self.tenant_text().len() as u64) << 8 | identifier_bytes << IDENTIFIER_SHIFT
    }

    #[inline]
    fn write(&self, hasher: &mut FoldHasher<'_>) {
        let tenant = self.tenant_text();
        if !tenant.is_empty() {
            hasher.write(tenant.as_bytes());
        }
        match self.identity {
            Some(Identity::Named(identifier) | Identity::Claimed(identifier)) => {
                hasher.write(identifier.as_bytes())
            }
            Some(Identity::Address(address)) => write_address(hasher, address),
            None => {}
        }
        if let Some(address) = self.address {
            write_address(hasher, address);
        }
    }

    /// The tenant, unless the header alone determines it. Most requests belong to the default tenant.
    #[inline]
    fn tenant_text(&self) -> &str {
        self.tenant.filter(|tenant| *tenant != DEFAULT_TENANT).unwrap_or_default()
    }
}

fn write_address(hasher: &mut impl Hasher, address: IpAddr) {
    match address {
        IpAddr::V4(address) => hasher.write_u32(address.to_bits()),
        IpAddr::V6(address) => hasher.write_u128(address.to_bits()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn named<'a>(tenant: Option<&'a str>, identifier: &'a str) -> Subject<'a> {
        Subject { tenant, identity: Some(Identity::Named(identifier)), address: None }
    }

    #[test]
    fn subjects_with_the_same_concatenation_have_different_digests() {
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
            from(Identity::Claimed("abc")),
            from(Identity::Claimed("203.0.113.9")),
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
    fn kind_of_a_key_follows_the_part_that_a_client_can_vary() {
        let space = KeySpace::new("rule");
        let address: IpAddr = "203.0.113.9".parse().unwrap();
        let kind = |identity, address| {
            let key = Key { space: &space, subject: Subject { tenant: Some("t"), identity, address } };
            assert_eq!(key.digest().kind(), key.overflow_digest().kind());
            key.digest().kind()
        };
        assert_eq!(kind(None, None), Kind::Verified);
        assert_eq!(kind(Some(Identity::Named("a")), None), Kind::Verified);
        assert_eq!(kind(Some(Identity::Named("a")), Some(address)), Kind::Address);
        assert_eq!(kind(Some(Identity::Address(address)), None), Kind::Address);
        assert_eq!(kind(None, Some(address)), Kind::Address);
        assert_eq!(kind(Some(Identity::Claimed("a")), None), Kind::Unverified);
        assert_eq!(kind(Some(Identity::Claimed("a")), Some(address)), Kind::Unverified);
        for name in (0..100).map(|number: u32| number.to_string()) {
            assert_eq!(Key { space: &space, subject: named(None, &name) }.digest().kind(), Kind::Verified);
        }
    }

    #[test]
    fn rule_names_have_distinct_key_spaces() {
        let letters = ["a", "b", "1", "2", ".", "-"];
        let pairs = letters.iter().flat_map(|one| letters.iter().map(move |other| format!("{one}{other}")));
        let stems: Vec<String> = pairs.chain(["payments", "login", "x"].map(str::to_owned)).collect();
        let repeated = stems.iter().flat_map(|stem| (1..=20).map(move |times| stem.repeat(times)));
        let cut = repeated.flat_map(|name| (1..=name.len().min(64)).map(move |end| name[..end].to_owned()));
        let names: HashSet<String> = cut.collect();
        let digests: HashSet<Digest> = names.iter().map(|name| KeySpace::new(name).digest).collect();
        assert_eq!(digests.len(), names.len());
    }

    #[test]
    fn limit_sets_have_distinct_key_spaces() {
        let tier = |name: &str| LimitSet::Tier(name.into());
        let of = |pattern: &str, occurrence| LimitSet::Override { pattern: pattern.into(), occurrence };
        let sets = [LimitSet::Rule, tier("b"), tier("bc"), of("b", 0), of("b", 1), of("bc", 0), of("*", 0)];
        let names = ["a", "ab", "abb", "abc"];
        let spaces =
            names.iter().flat_map(|name| sets.iter().map(|set| KeySpace::new(name).with_set(set.clone())));
        let digests: HashSet<Digest> = spaces.map(|space| space.digest).collect();
        assert_eq!(digests.len(), names.len() * sets.len());
        assert!(KeySpace::new("a").with_set(tier("b")).is_same(&KeySpace::new("a").with_set(tier("b"))));
    }

    #[test]
    fn similar_identifiers_have_distinct_digests() {
        let space = KeySpace::new("rule");
        let names: Vec<String> =
            ["a", "ab", "1", "\0"].iter().flat_map(|stem| (1..=40).map(|n| stem.repeat(n))).collect();
        let distinct: HashSet<&String> = names.iter().collect();
        let digest = |name: &&String| Key { space: &space, subject: named(None, name) }.digest();
        assert_eq!(distinct.iter().map(digest).collect::<HashSet<_>>().len(), distinct.len());
    }

    #[test]
    fn fast_digest_equals_the_general_digest() {
        let space = KeySpace::new("rule");
        for subject in [named(None, "abc"), named(Some(DEFAULT_TENANT), "a longer name than sixteen bytes")] {
            let key = Key { space: &space, subject };
            assert_eq!(key.digest(), key.long_digest());
        }
    }

    /// The table uses the upper bits of both halves.
    #[test]
    fn consecutive_addresses_spread_evenly_under_any_rule() {
        const COUNT: usize = 50_000;
        const BINS: usize = 1_024;
        for rule in 0..100 {
            let space = KeySpace::new(&format!("rule-{rule}"));
            for shift in [0, 8, 64, 72, 80] {
                let (mut left, mut right) = (vec![0_usize; BINS], vec![0_usize; BINS]);
                for number in 0..COUNT as u128 {
                    let address = IpAddr::V6(((0x2001_0db8_u128 << 96) + (number << shift)).into());
                    let subject = Subject { identity: Some(Identity::Address(address)), ..Subject::default() };
                    let Digest(one, other) = Key { space: &space, subject }.digest();
                    left[(one >> 54) as usize] += 1;
                    right[(other >> 54) as usize] += 1;
                }
                // By chance alone the fullest of all these bins holds about 90.
                let most = left.iter().chain(&right).max();
                assert!(most < Some(&(COUNT / BINS * 5 / 2)), "{most:?} in one bin, rule {rule}, shift {shift}");
            }
        }
    }

    #[test]
    fn rules_never_share_state_and_no_client_owns_the_overflow() {
        let (one, other) = (KeySpace::new("one"), KeySpace::new("other"));
        let subject = named(None, "abc");
        let key = Key { space: &one, subject };
        assert_ne!(key.digest(), Key { space: &other, subject }.digest());
        assert_ne!(key.digest(), key.overflow_digest());
        let claimed = Subject { identity: Some(Identity::Claimed("abc")), ..subject };
        let claimed = Key { space: &one, subject: claimed };
        assert_ne!(claimed.overflow_digest(), key.overflow_digest());
        assert_eq!(key.digest(), Key { space: &KeySpace::new("one"), subject }.digest());
    }
}
