//! A slot index for every thread.
//!
//! Only one thread writes to the counters of a slot, so an addition is a load and a store. A thread takes a free slot when it
//! first counts, and releases it when it ends. The next owner continues with the counts in the slot. If no slot is free, threads
//! share an extra slot, where additions are atomic.

use std::sync::atomic::{AtomicU64, Ordering};

/// The number of slots: one for each bit of [`TAKEN`], and the shared one.
pub(super) const SLOTS: usize = u64::BITS as usize + 1;

const SHARED: usize = SLOTS - 1;

/// A bit for each slot that a thread owns.
static TAKEN: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static SLOT: ThreadSlot = ThreadSlot::take(&TAKEN);
}

/// The slot of this thread.
#[inline]
pub(super) fn current() -> usize {
    // A thread that is ending has released its slot.
    SLOT.try_with(|slot| slot.index).unwrap_or(SHARED)
}

/// Whether several threads may use a slot at the same time.
pub(super) fn is_shared(slot: usize) -> bool {
    slot == SHARED
}

#[derive(Debug)]
struct ThreadSlot {
    index: usize,
    taken: &'static AtomicU64,
}

impl ThreadSlot {
    fn take(taken: &'static AtomicU64) -> Self {
        let first_free = |bits: u64| bits.trailing_ones() as usize;
        let take = |bits| (first_free(bits) < SHARED).then(|| bits | 1 << first_free(bits));
        // `Acquire` pairs with the `Release` of `drop`: the new owner sees all writes of the former one.
        let before = taken.fetch_update(Ordering::Acquire, Ordering::Relaxed, take);
        Self { index: before.map_or(SHARED, first_free), taken }
    }
}

impl Drop for ThreadSlot {
    fn drop(&mut self) {
        if !is_shared(self.index) {
            self.taken.fetch_and(!(1 << self.index), Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_exclusive_and_reused_after_release() {
        static TAKEN: AtomicU64 = AtomicU64::new(0);
        let mut slots: Vec<ThreadSlot> = (0..64).map(|_| ThreadSlot::take(&TAKEN)).collect();
        assert!(slots.iter().enumerate().all(|(index, slot)| slot.index == index && !is_shared(index)));
        let (one, other) = (ThreadSlot::take(&TAKEN), ThreadSlot::take(&TAKEN));
        assert!(is_shared(one.index) && is_shared(other.index));
        drop(slots.remove(17));
        drop(one);
        assert_eq!(ThreadSlot::take(&TAKEN).index, 17);
        drop(slots);
        drop(other);
        assert_eq!(TAKEN.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_thread_keeps_its_slot() {
        let (own, other) = (current(), std::thread::spawn(current).join().expect("no panic"));
        assert_eq!(own, current());
        assert!(own != other || is_shared(own));
    }
}
