//! The capacity of the embedded store: how many keys each kind of identity uses, and its bound.
//!
//! Clients can invent unverified names and, with IPv6, use any number of addresses. Their keys may fill only a part
//! of the store, so an unverified name or an address never displaces a verified identity. Marks (see
//! [`overflow`](super::overflow)) are bounded in the same proportion.
//!
//! The bounds are exact: a key is counted only after its capacity is reserved. The exceptions are the overflow
//! states, of which there are at most a few per limit.

use crate::store::key::Kind;
use crate::sync::{AtomicUsize, Ordering};

/// Numbers of keys and log entries, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Amounts([usize; Kind::ALL.len()]);

/// A set of kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Kinds(u8);

/// The usage and its bound.
#[derive(Debug)]
pub(super) struct Capacity {
    max_keys: usize,
    used: AtomicUsize,
    /// The usage of each kind that has a bound of its own. Verified identities have none, so theirs is not counted.
    used_by: [AtomicUsize; Kind::ALL.len()],
}

impl Amounts {
    pub(super) fn of(kind: Kind, amount: usize) -> Self {
        let mut amounts = Self::default();
        amounts.add(kind, amount);
        amounts
    }

    pub(super) fn add(&mut self, kind: Kind, amount: usize) {
        self.0[kind as usize] += amount;
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self(std::array::from_fn(|kind| self.0[kind] + other.0[kind]))
    }

    pub(super) fn total(self) -> usize {
        self.0.iter().sum()
    }

    /// The non-zero amounts of kinds that have a bound of their own.
    fn bounded(self) -> impl Iterator<Item = (Kind, usize)> {
        let bounded = Kind::ALL.into_iter().filter(|kind| *kind != Kind::Verified);
        bounded.map(move |kind| (kind, self.0[kind as usize])).filter(|(_, amount)| *amount > 0)
    }
}

impl Kinds {
    pub(super) const ALL: Self = Self((1 << Kind::ALL.len()) - 1);

    pub(super) fn has(self, kind: Kind) -> bool {
        self.0 & 1 << kind as u8 != 0
    }

    pub(super) fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn with(self, kind: Kind) -> Self {
        Self(self.0 | 1 << kind as u8)
    }
}

impl Capacity {
    pub(super) fn new(max_keys: usize) -> Self {
        Self { max_keys, used: AtomicUsize::new(0), used_by: Default::default() }
    }

    /// The number of keys and log entries in use.
    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// The maximum usage of keys of this kind.
    pub(super) fn max(&self, kind: Kind) -> usize {
        match kind {
            Kind::Verified => self.max_keys,
            Kind::Address => self.max_keys / 2,
            Kind::Unverified => self.max_keys / 4,
        }
    }

    /// The kinds without capacity for the wanted amounts: those that have reached their own bound or, if the whole
    /// store is full, all wanted kinds.
    pub(super) fn lacking(&self, wanted: Amounts) -> Kinds {
        let fits = |used: &AtomicUsize, amount: usize, max: usize| {
            used.load(Ordering::Relaxed).checked_add(amount).is_some_and(|total| total <= max)
        };
        if wanted.total() == 0 {
            return Kinds::default();
        }
        let is_lacking = |(kind, amount): &(Kind, usize)| !fits(self.of(*kind), *amount, self.max(*kind));
        let lacking =
            wanted.bounded().filter(is_lacking).fold(Kinds::default(), |kinds, (kind, _)| kinds.with(kind));
        if !lacking.is_empty() || fits(&self.used, wanted.total(), self.max_keys) {
            return lacking;
        }
        let wants = |kind: &Kind| wanted.0[*kind as usize] > 0;
        Kind::ALL.into_iter().filter(wants).fold(Kinds::default(), Kinds::with)
    }

    /// True if there is capacity for the wanted amounts.
    pub(super) fn has(&self, wanted: Amounts) -> bool {
        self.lacking(wanted).is_empty()
    }

    /// Reserves the wanted amounts, all or nothing.
    pub(super) fn reserve(&self, wanted: Amounts) -> bool {
        let mut reserved = Amounts::default();
        // The total comes last. A reservation of one kind that is rolled back never blocked another kind.
        for (kind, amount) in wanted.bounded() {
            if !reserve(self.of(kind), amount, self.max(kind)) {
                self.release_bounded(reserved);
                return false;
            }
            reserved.add(kind, amount);
        }
        let is_reserved = reserve(&self.used, wanted.total(), self.max_keys);
        if !is_reserved {
            self.release_bounded(reserved);
        }
        is_reserved
    }

    /// Adds to the usage, even beyond the bounds.
    pub(super) fn add(&self, added: Amounts) {
        for (kind, amount) in added.bounded() {
            self.of(kind).fetch_add(amount, Ordering::Relaxed);
        }
        if added.total() > 0 {
            self.used.fetch_add(added.total(), Ordering::Relaxed);
        }
    }

    /// Subtracts from the usage.
    pub(super) fn release(&self, freed: Amounts) {
        self.release_bounded(freed);
        if freed.total() > 0 {
            self.used.fetch_sub(freed.total(), Ordering::Relaxed);
        }
    }

    fn release_bounded(&self, freed: Amounts) {
        for (kind, amount) in freed.bounded() {
            self.of(kind).fetch_sub(amount, Ordering::Relaxed);
        }
    }

    fn of(&self, kind: Kind) -> &AtomicUsize {
        &self.used_by[kind as usize]
    }
}

fn reserve(used: &AtomicUsize, wanted: usize, max: usize) -> bool {
    let within = |used: usize| used.checked_add(wanted).filter(|total| *total <= max);
    wanted == 0 || used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).is_ok()
}

#[cfg(all(test, not(sluicegate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_a_bound_and_the_total_has_one() {
        let capacity = Capacity::new(100);
        assert!(!capacity.reserve(Amounts::of(Kind::Unverified, 26)));
        assert!(capacity.reserve(Amounts::of(Kind::Unverified, 25)));
        assert!(
            !capacity.has(Amounts::of(Kind::Unverified, 1)) && !capacity.reserve(Amounts::of(Kind::Unverified, 1))
        );
        assert!(capacity.reserve(Amounts::of(Kind::Address, 50)));
        assert!(!capacity.reserve(Amounts::of(Kind::Address, 1)));
        assert!(capacity.reserve(Amounts::of(Kind::Verified, 25)));
        assert!(
            !capacity.has(Amounts::of(Kind::Verified, 1)) && !capacity.reserve(Amounts::of(Kind::Verified, 1))
        );
        capacity.release(Amounts::of(Kind::Address, 1));
        assert!(capacity.reserve(Amounts::of(Kind::Verified, 1)));
        assert_eq!(capacity.used(), 100);
        capacity.release(Amounts::of(Kind::Unverified, 25));
        assert!(capacity.reserve(Amounts::of(Kind::Verified, 25)));
        assert!(!capacity.reserve(Amounts::of(Kind::Unverified, 1)), "verified identities may use all of it");
    }

    #[test]
    fn full_kind_does_not_block_other_kinds() {
        let capacity = Capacity::new(100);
        assert!(capacity.reserve(Amounts::of(Kind::Address, 50)));
        let all = Kind::ALL.into_iter().fold(Amounts::default(), |sum, kind| sum.plus(Amounts::of(kind, 1)));
        let lacking = capacity.lacking(all);
        assert_eq!(Kind::ALL.map(|kind| lacking.has(kind)), [false, true, false]);
        assert!(capacity.reserve(Amounts::of(Kind::Verified, 49)));
        let rest = Amounts::of(Kind::Verified, 1).plus(Amounts::of(Kind::Unverified, 1));
        assert_eq!(Kind::ALL.map(|kind| capacity.lacking(rest).has(kind)), [true, false, true]);
        assert!(capacity.lacking(Amounts::of(Kind::Verified, 1)).is_empty());
        assert_eq!(Kinds::default().and(capacity.lacking(all)).and(capacity.lacking(rest)), Kinds::ALL);
    }

    #[test]
    fn failed_reservation_counts_nothing() {
        let capacity = Capacity::new(100);
        let mixed = Amounts::of(Kind::Address, 20).plus(Amounts::of(Kind::Unverified, 26));
        assert!(!capacity.has(mixed) && !capacity.reserve(mixed));
        assert!(capacity.reserve(Amounts::of(Kind::Verified, 70)));
        assert!(!capacity.reserve(Amounts::of(Kind::Address, 31)));
        assert!(capacity.reserve(Amounts::of(Kind::Address, 30)));
        assert_eq!(capacity.used(), 100);
    }
}
