//! Where state lives: a [`Key`] is a [`KeySpace`] (one rule) and a [`Subject`] (whose state it is).
//!
//! Keys are structural. Nothing is glued together from text, so no identifier, whatever it contains, can
//! reach another's state: the parts are told apart by their kind and length, not by separators.
//!
//! In this process a key is a digest, 128 bits of a hash seeded anew at every start. The chance that any two of ten million
//! meet is about 10⁻²⁵, or 10⁻¹⁸ in an embedded store of the usual 1,024 shards, which keeps 106 of the bits; nobody outside can
//! look for such a pair.

use crate::identity::{DEFAULT_TENANT, Identity};
use foldhash::SharedSeed;
use foldhash::quality::FoldHasher;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::IpAddr;
use std::sync::LazyLock;

/// The keys of one rule. Digests of its name are taken once, here.
#[derive(Clone, Debug)]
pub struct KeySpace {
    name: Box<str>,
    digest: Digest,
    seeds: &'static Seeds,
}

/// Two independent hash functions, and where the digests of names start from. It must not be zero: the hash tells
/// texts of different lengths apart by turning its start, and a turned zero is zero.
#[derive(Debug)]
struct Seeds(SharedSeed, SharedSeed, Digest);

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

/// Where a subject's header holds the length of its identifier.
const IDENTIFIER_SHIFT: u32 = 36;

/// 128 bits that stand for a key within this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Digest(pub(crate) u64, pub(crate) u64);

/// The hash functions of this process, drawn from the system's randomness once per process.
static SEEDS: LazyLock<Seeds> = LazyLock::new(|| {
    let draw = || RandomState::new().hash_one("any text: the key of this hash is what is random");
    Seeds(SharedSeed::from_u64(draw()), SharedSeed::from_u64(draw()), Digest(draw(), draw()))
});

/// The digest of what `write` writes, which must say by itself where its parts end.
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
    /// The keys of the rule called `name`.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let nowhere = Self { name: name.into(), digest: SEEDS.2, seeds: &SEEDS };
        let digest = nowhere.digest_of(name.len() as u64, |hasher| hasher.write(name.as_bytes()));
        Self { digest, ..nowhere }
    }

    /// The digest of what `write` writes, in this space and under `header`.
    #[inline]
    fn digest_of(&self, header: u64, write: impl Fn(&mut FoldHasher<'_>)) -> Digest {
        // Spaces are random, so a space and a header mixed like this meet another pair by chance only.
        const MIX: u64 = 0x9E37_79B9_7F4A_7C15;
        let mixed = header.wrapping_mul(MIX);
        let mut left = FoldHasher::with_seed(self.digest.0 ^ mixed, &self.seeds.0);
        let mut right = FoldHasher::with_seed(self.digest.1 ^ mixed, &self.seeds.1);
        write(&mut left);
        write(&mut right);
        Digest(left.finish(), right.finish())
    }

    /// The rule's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Key<'_> {
    #[inline]
    pub(crate) fn digest(&self) -> Digest {
        // What nearly every request is: one text. The header is the one that `Subject::header` finds, too.
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
                self.space.digest_of(header, |hasher| hasher.write(name.as_bytes()))
            }
            None => self.long_digest(),
        }
    }

    /// The digest of any key. It stands apart, so that the usual way stays short.
    #[inline(never)]
    fn long_digest(&self) -> Digest {
        self.space.digest_of(self.subject.header(), |hasher| self.subject.write(hasher))
    }

    /// The digest of the state that newcomers of this rule share once a store is full.
    pub(crate) fn overflow_digest(&self) -> Digest {
        self.space.digest_of(Subject::OVERFLOW, |_| {})
    }
}

impl Subject<'_> {
    /// A header that no subject has.
    const OVERFLOW: u64 = u64::MAX;

    /// Kinds and lengths of the parts. Together with the parts one after the other it says what they are, so
    /// two subjects agree in both only if they are the same.
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
            // Two bits are full: this is the first kind with a bit beyond those of the address.
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
        // Texts are bounded far below 2²⁴ bytes where they enter.
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

    /// The tenant, unless the header alone tells it: nearly every request is of the default tenant.
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
    fn no_two_names_of_rules_share_a_space() {
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
    fn no_two_identifiers_share_a_digest_however_alike_they_are() {
        let space = KeySpace::new("rule");
        let names: Vec<String> =
            ["a", "ab", "1", "\0"].iter().flat_map(|stem| (1..=40).map(|n| stem.repeat(n))).collect();
        let distinct: HashSet<&String> = names.iter().collect();
        let digest = |name: &&String| Key { space: &space, subject: named(None, name) }.digest();
        assert_eq!(distinct.iter().map(digest).collect::<HashSet<_>>().len(), distinct.len());
    }

    #[test]
    fn the_usual_way_to_a_digest_leads_to_the_same_as_the_long_one() {
        let space = KeySpace::new("rule");
        for subject in [named(None, "abc"), named(Some(DEFAULT_TENANT), "a longer name than sixteen bytes")] {
            let long = space.digest_of(subject.header(), |hasher| subject.write(hasher));
            assert_eq!(Key { space: &space, subject }.digest(), long);
        }
    }

    /// A table looks at the upper bits of either half.
    #[test]
    fn addresses_that_follow_each_other_spread_evenly_whatever_the_rule() {
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
    fn rules_never_share_state_and_the_overflow_is_nobodys_own() {
        let (one, other) = (KeySpace::new("one"), KeySpace::new("other"));
        let subject = named(None, "abc");
        let key = Key { space: &one, subject };
        assert_ne!(key.digest(), Key { space: &other, subject }.digest());
        assert_ne!(key.digest(), key.overflow_digest());
        assert_eq!(key.digest(), Key { space: &KeySpace::new("one"), subject }.digest());
    }
}
