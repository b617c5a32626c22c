//! A cap on things that exist at the same time: so many in total, and so many per key.
//!
//! The map holds one entry per key in use, so the total cap bounds it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

/// The cap that rejects one more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CapReached {
    /// The total cap.
    Total,
    /// The cap of the key.
    Key,
}

/// The current counts, in total and by key.
#[derive(Debug)]
pub(crate) struct KeyedCap<K> {
    max: u32,
    max_per_key: u32,
    in_use: Mutex<InUse<K>>,
}

#[derive(Debug)]
struct InUse<K> {
    total: u32,
    by_key: HashMap<K, u32>,
}

impl<K: Copy + Eq + Hash> KeyedCap<K> {
    /// Allows at most `max` in total, and at most `max_per_key` for one key.
    pub(crate) fn new(max: u32, max_per_key: u32) -> Arc<Self> {
        let in_use = Mutex::new(InUse { total: 0, by_key: HashMap::new() });
        Arc::new(Self { max, max_per_key, in_use })
    }

    /// Counts one more for this key until the guard is dropped.
    pub(crate) fn acquire(self: &Arc<Self>, key: K) -> Result<CapGuard<K>, CapReached> {
        let mut in_use = self.in_use.lock().unwrap_or_else(PoisonError::into_inner);
        if in_use.by_key.get(&key).copied().unwrap_or_default() >= self.max_per_key {
            return Err(CapReached::Key);
        }
        if in_use.total >= self.max {
            return Err(CapReached::Total);
        }
        in_use.total += 1;
        *in_use.by_key.entry(key).or_insert(0) += 1;
        Ok(CapGuard { cap: Arc::clone(self), key })
    }

    fn release(&self, key: K) {
        let mut in_use = self.in_use.lock().unwrap_or_else(PoisonError::into_inner);
        in_use.total = in_use.total.saturating_sub(1);
        if let Entry::Occupied(mut count) = in_use.by_key.entry(key) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

/// One counted thing. Dropping the guard releases it.
#[derive(Debug)]
pub(crate) struct CapGuard<K: Copy + Eq + Hash> {
    cap: Arc<KeyedCap<K>>,
    key: K,
}

impl<K: Copy + Eq + Hash> Drop for CapGuard<K> {
    fn drop(&mut self) {
        self.cap.release(self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caps_hold_per_key_and_in_total_and_dropped_guards_release() {
        let cap = KeyedCap::new(5, 2);
        let mut guards: Vec<_> = [1, 1, 2, 2, 3].map(|key| cap.acquire(key).expect("below the cap")).into();
        assert_eq!(cap.acquire(1).expect_err("two of this key"), CapReached::Key);
        assert_eq!(cap.acquire(3).expect_err("five in total"), CapReached::Total);
        guards.remove(0);
        drop(cap.acquire(1).expect("one was released"));
        drop(cap.acquire(4).expect("any key may use it"));
        drop(guards);
        let in_use = cap.in_use.lock().expect("not poisoned");
        assert!(in_use.total == 0 && in_use.by_key.is_empty(), "no entry remains: {in_use:?}");
    }
}
