//! Frees the memory of expired states, a slice at a time.
//!
//! Every [`TICK`] the sweeper visits a slice of the table, sized so that a round over the whole table takes about [`ROUND`].
//! It has its own thread: a slice of a full table takes around a millisecond, which is too long for a worker that serves
//! requests. The table's locks are held for one small step each.
//!
//! No decision depends on the sweeper.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use sluicegate::MemoryStore;
use sluicegate::clock::Clock as _;
use sluicegate::core::Timestamp;

use crate::limiter::ServerLimiter;

/// The interval between two slices.
const TICK: Duration = Duration::from_millis(100);

/// The duration of a round. The memory of an expired state is kept at most this much longer than needed.
const ROUND: Duration = Duration::from_secs(30);

/// The sweeper's thread; dropping this ends it.
#[derive(Debug)]
pub(crate) struct Sweeper {
    /// Nothing is sent; the thread stops when this sender is dropped.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Sweeper {
    /// Starts to sweep the limiter's embedded store and its local fallback store.
    pub(crate) fn start(limiter: Arc<ServerLimiter>) -> std::io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let thread = Builder::new().name("sweeper".to_owned()).spawn(move || {
            let (mut slices, mut local_slices) = (Slices::default(), Slices::default());
            while stopped.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                let now = limiter.clock().now();
                if let Some(store) = limiter.store().memory() {
                    slices.sweep_next(store, now);
                }
                if let Some(local) = limiter.local_store() {
                    local_slices.sweep_next(local, now);
                }
            }
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The panic hook has logged a panic of the thread.
            let _ = thread.join();
        }
    }
}

/// A round in slices. If the table grows meanwhile, the next round has larger slices.
#[derive(Debug, Default)]
struct Slices {
    steps_per_slice: usize,
    slices_left: usize,
}

impl Slices {
    const PER_ROUND: usize = (ROUND.as_millis() / TICK.as_millis()) as usize;

    fn sweep_next(&mut self, store: &MemoryStore, now: Timestamp) {
        if self.slices_left == 0 {
            // This call takes every lock once, so it is made once per round.
            self.steps_per_slice = store.steps_per_round().div_ceil(Self::PER_ROUND);
            self.slices_left = Self::PER_ROUND;
        }
        self.slices_left -= 1;
        let swept = store.sweep(now, self.steps_per_slice);
        if swept.freed > 0 {
            tracing::trace!(freed = swept.freed, "swept");
        }
    }
}

#[cfg(test)]
mod tests {
    use sluicegate::core::{Micros, Quota, Rate, TokenBucket};
    use sluicegate::rules::{Limits, Rule, RuleSet, Unmatched};
    use sluicegate::{Request, Retry};

    use super::*;
    use crate::engine::{Engine, EngineOptions};
    use crate::testing::embedded;

    const KEYS: usize = 20_000;

    /// An engine whose store holds the states of many identities, none of which is full before an hour has passed.
    async fn used_engine() -> Engine {
        let bucket = TokenBucket::new(1, Rate::new(1, Micros::from_secs(3_600)).expect("valid")).expect("valid");
        let rule = Rule::new("hourly", Limits::all("hourly", [(None, Quota::from(bucket))]));
        let rules = RuleSet::new(vec![rule], Vec::new(), Unmatched::Allow).expect("valid");
        let engine = embedded(EngineOptions { rules, ..EngineOptions::default() });
        for key in 0..KEYS {
            let identifier = format!("user-{key}");
            assert!(engine.limiter().check(&Request::new("r", &identifier)).await.expect("valid").is_allowed());
        }
        assert_eq!(store_of(&engine).used(), KEYS);
        engine
    }

    fn store_of(engine: &Engine) -> &MemoryStore {
        engine.limiter().store().memory().expect("the store is in this process")
    }

    #[tokio::test]
    async fn one_round_frees_exactly_the_expired_states() {
        let engine = used_engine().await;
        let (store, now) = (store_of(&engine), engine.limiter().clock().now());
        let mut slices = Slices::default();
        for _ in 0..Slices::PER_ROUND {
            slices.sweep_next(store, now);
        }
        assert_eq!(store.used(), KEYS);

        let later = now.plus(Micros::from_secs(3_601));
        for _ in 0..Slices::PER_ROUND {
            slices.sweep_next(store, later);
        }
        assert_eq!(store.used(), 0);
    }

    #[tokio::test]
    async fn the_sweeper_changes_no_decision_and_ends_on_drop() {
        let engine = used_engine().await;
        let holders = Arc::strong_count(engine.limiter());
        let sweeper = Sweeper::start(Arc::clone(engine.limiter())).expect("a thread");
        let denied = engine.limiter().check(&Request::new("r", "user-7")).await.expect("valid");
        assert!(matches!(denied.retry(), Some(Retry::After(_))));
        // The thread holds the limiter until it ends.
        drop(sweeper);
        assert_eq!(Arc::strong_count(engine.limiter()), holders);
    }
}
