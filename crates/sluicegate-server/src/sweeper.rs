//! Gives back the memory of states that matter no longer, a little at a time.
//!
//! Every [`TICK`] a slice of the table is looked at, so large that a round over the whole table takes about
//! [`ROUND`]. It has a thread of its own: a slice of a full table takes around a millisecond, which is nothing
//! for the table, whose locks are held for one small step each, and much for a worker that serves requests.
//!
//! No decision depends on it.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use sluicegate::MemoryStore;
use sluicegate::clock::Clock as _;
use sluicegate::core::Timestamp;

use crate::app::ServerLimiter;

/// How often a slice is swept.
const TICK: Duration = Duration::from_millis(100);

/// How long a round takes: the memory of an idle identity is kept that much longer than needed.
const ROUND: Duration = Duration::from_secs(30);

/// The thread that sweeps; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Sweeper {
    /// Nothing is ever sent: the thread stops when this end is gone.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Sweeper {
    /// Starts to sweep the limiter's store, and what it keeps for the time without one.
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
            // A sweeper that panicked has been logged, and nobody depends on it.
            let _ = thread.join();
        }
    }
}

/// A round cut into slices. The table may grow meanwhile; then the next round has larger slices.
#[derive(Debug, Default)]
struct Slices {
    steps_per_slice: usize,
    slices_left: usize,
}

impl Slices {
    const PER_ROUND: usize = (ROUND.as_millis() / TICK.as_millis()) as usize;

    fn sweep_next(&mut self, store: &MemoryStore, now: Timestamp) {
        if self.slices_left == 0 {
            // Asking takes every lock once, so it is asked once a round.
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
    use crate::app::{App, AppOptions};
    use crate::testing::embedded;

    const KEYS: usize = 20_000;

    /// An app whose store holds a state for each of many identities, none whole before an hour has passed.
    async fn used_app() -> App {
        let bucket = TokenBucket::new(1, Rate::new(1, Micros::from_secs(3_600)).expect("valid")).expect("valid");
        let rule = Rule::new("hourly", Limits::all("hourly", [(None, Quota::from(bucket))]));
        let rules = RuleSet::new(vec![rule], Vec::new(), Unmatched::Allow).expect("valid");
        let app = embedded(AppOptions { rules, ..AppOptions::default() });
        for key in 0..KEYS {
            let identifier = format!("user-{key}");
            assert!(app.limiter().check(&Request::new("r", &identifier)).await.expect("valid").is_allowed());
        }
        assert_eq!(store_of(&app).used(), KEYS);
        app
    }

    fn store_of(app: &App) -> &MemoryStore {
        app.limiter().store().memory().expect("the store is in this process")
    }

    #[tokio::test]
    async fn one_round_frees_all_that_matters_no_longer_and_nothing_else() {
        let app = used_app().await;
        let (store, now) = (store_of(&app), app.limiter().clock().now());
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
    async fn decisions_are_the_same_while_it_runs_and_dropping_it_ends_it() {
        let app = used_app().await;
        let sweeper = Sweeper::start(Arc::clone(app.limiter())).expect("a thread");
        let denied = app.limiter().check(&Request::new("r", "user-7")).await.expect("valid");
        assert!(matches!(denied.retry(), Some(Retry::After(_))));
        // The thread holds the limiter; when it has ended, only the app does.
        drop(sweeper);
        assert_eq!(Arc::strong_count(app.limiter()), 1);
    }
}
