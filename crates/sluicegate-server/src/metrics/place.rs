//! A place of its own for every thread.
//!
//! Whoever has a place is the only one who writes there, so adding is a load and a store. A thread takes a free place
//! when it first counts and gives it back when it ends; the next one goes on from what it finds. Threads that find no
//! free place share one more, where adding is atomic.

use std::sync::atomic::{AtomicU64, Ordering};

/// How many places there are: one for each bit of [`TAKEN`], and the one that is shared.
pub(super) const PLACES: usize = u64::BITS as usize + 1;

const SHARED: usize = PLACES - 1;

/// A bit for each place that a thread has.
static TAKEN: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static PLACE: Place = Place::take(&TAKEN);
}

/// This thread's place.
#[inline]
pub(super) fn current() -> usize {
    // A thread that is ending has given its place back.
    PLACE.try_with(|place| place.index).unwrap_or(SHARED)
}

/// Whether several threads may be at a place at once.
pub(super) fn is_shared(place: usize) -> bool {
    place == SHARED
}

#[derive(Debug)]
struct Place {
    index: usize,
    taken: &'static AtomicU64,
}

impl Place {
    fn take(taken: &'static AtomicU64) -> Self {
        let first_free = |bits: u64| bits.trailing_ones() as usize;
        let take = |bits| (first_free(bits) < SHARED).then(|| bits | 1 << first_free(bits));
        // Whoever takes a place sees all that was written there before it was given back.
        let before = taken.fetch_update(Ordering::Acquire, Ordering::Relaxed, take);
        Self { index: before.map_or(SHARED, first_free), taken }
    }
}

impl Drop for Place {
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
    fn no_two_have_one_place_and_a_place_that_is_given_back_is_taken_again() {
        static TAKEN: AtomicU64 = AtomicU64::new(0);
        let mut places: Vec<Place> = (0..64).map(|_| Place::take(&TAKEN)).collect();
        assert!(places.iter().enumerate().all(|(index, place)| place.index == index && !is_shared(index)));
        let (one, other) = (Place::take(&TAKEN), Place::take(&TAKEN));
        assert!(is_shared(one.index) && is_shared(other.index));
        drop(places.remove(17));
        drop(one);
        assert_eq!(Place::take(&TAKEN).index, 17);
        drop(places);
        drop(other);
        assert_eq!(TAKEN.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_thread_keeps_its_place() {
        let (own, other) = (current(), std::thread::spawn(current).join().expect("no panic"));
        assert_eq!(own, current());
        assert!(own != other || is_shared(own));
    }
}
