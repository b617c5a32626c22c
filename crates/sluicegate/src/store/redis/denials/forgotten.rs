//! What must not be believed any more: when something was last given back, by slots of keys.
//!
//! Time is counted in things given back. Whoever asks a server first notes this time; what he learns is worth nothing once
//! his slot has been forgotten at a later one. So it does not matter whether an answer from before overtakes the refund
//! on the way here, or comes after it: nobody has to look for it.
//!
//! A key belongs to the slot of its subject, the same on every server. Slots share places, and subjects share slots:
//! then somebody else's refund ends a denial early, which costs one call. One place for all would let a single client
//! who refunds all the time end everybody's.

use crate::sync::{AtomicU64, Ordering};

/// How many places there are. The slots of a Cluster, which are four times as many, share them.
pub(super) const SLOTS: usize = 4096;

/// When something was last given back.
#[derive(Debug)]
pub(super) struct Forgotten {
    clock: AtomicU64,
    everything: AtomicU64,
    slots: Box<[AtomicU64]>,
}

impl Forgotten {
    /// Nothing yet.
    pub(super) fn new(slots: usize) -> Self {
        let slots = (0..slots).map(|_| AtomicU64::new(0)).collect();
        Self { clock: AtomicU64::new(0), everything: AtomicU64::new(0), slots }
    }

    /// What has been forgotten so far.
    pub(super) fn now(&self) -> u64 {
        self.clock.load(Ordering::Acquire)
    }

    /// Something was given back in this slot, and who gave it back has been answered.
    pub(super) fn forget(&self, slot: u16) {
        // Who reads the clock from here on asks a server that has it back already.
        let now = self.clock.fetch_add(1, Ordering::AcqRel) + 1;
        self.place(slot).fetch_max(now, Ordering::AcqRel);
    }

    /// Anything may have been given back anywhere.
    pub(super) fn forget_everything(&self) {
        let now = self.clock.fetch_add(1, Ordering::AcqRel) + 1;
        self.everything.fetch_max(now, Ordering::AcqRel);
    }

    /// Whether nothing of this was given back since then.
    pub(super) fn is_nothing_since(&self, since: u64, slots: impl IntoIterator<Item = u16>) -> bool {
        self.everything.load(Ordering::Acquire) <= since
            && slots.into_iter().all(|slot| self.place(slot).load(Ordering::Acquire) <= since)
    }

    fn place(&self, slot: u16) -> &AtomicU64 {
        &self.slots[usize::from(slot) % self.slots.len()]
    }
}
