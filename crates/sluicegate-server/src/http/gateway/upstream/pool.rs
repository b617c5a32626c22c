//! A pool of idle HTTP/1.1 connections.
//!
//! The most recently used connection is reused first, so that in a quiet time the others age and close. No connection
//! is kept longer than `keep_alive`, which should be shorter than the upstream's own limit: a request sent while the
//! upstream closes is lost. At most [`IDLE_MAX`] are kept.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use super::http1::Http1;

/// The most idle connections per upstream. More are opened when needed; keeping all of them after a burst would hold
/// files and memory on both sides.
const IDLE_MAX: usize = 512;

/// Idle connections. Clones share the pool.
#[derive(Clone, Debug)]
pub(super) struct Pool(Arc<PoolState>);

#[derive(Debug)]
struct PoolState {
    keep_alive: Duration,
    idle: Mutex<Idle>,
}

#[derive(Debug, Default)]
struct Idle {
    /// In the order of their return.
    connections: Vec<(Instant, Box<Http1>)>,
    /// True while a task closes old connections.
    is_swept: bool,
}

impl Pool {
    /// Keeps connections for this long.
    pub(super) fn new(keep_alive: Duration) -> Self {
        Self(Arc::new(PoolState { keep_alive, idle: Mutex::default() }))
    }

    /// A connection that can be used at once.
    pub(super) fn take(&self) -> Option<Box<Http1>> {
        loop {
            let (since, mut http1) = self.idle(|idle| idle.connections.pop())?;
            if since.elapsed() < self.0.keep_alive && http1.is_usable() {
                return Some(http1);
            }
        }
    }

    /// Keeps a connection whose response has been read.
    pub(super) fn put(&self, http1: Box<Http1>) {
        let now = Instant::now();
        let needs_sweep = self.idle(|idle| {
            if idle.connections.len() < IDLE_MAX {
                idle.connections.push((now, http1));
            }
            !std::mem::replace(&mut idle.is_swept, true)
        });
        if needs_sweep {
            self.start_sweep();
        }
    }

    /// Closes old connections until the pool is empty.
    fn start_sweep(&self) {
        // Connections return on the runtime that drives them; without one they would not have worked.
        let Ok(runtime) = Handle::try_current() else { return };
        let pool = self.clone();
        runtime.spawn(async move {
            loop {
                sleep(pool.0.keep_alive).await;
                if pool.sweep() == SweepOutcome::All {
                    return;
                }
            }
        });
    }

    fn sweep(&self) -> SweepOutcome {
        let old: Vec<_>;
        let swept;
        {
            let mut idle = self.0.idle.lock().unwrap_or_else(PoisonError::into_inner);
            // Sorted by age, the youngest at the end.
            let young = idle.connections.partition_point(|(since, _)| since.elapsed() >= self.0.keep_alive);
            old = idle.connections.drain(..young).collect();
            idle.is_swept = !idle.connections.is_empty();
            swept = if idle.is_swept { SweepOutcome::Some } else { SweepOutcome::All };
        }
        // Closing takes system calls, which must not happen under the lock.
        drop(old);
        swept
    }

    fn idle<T>(&self, with: impl FnOnce(&mut Idle) -> T) -> T {
        // No code panics while it holds the lock, and a poisoned list would still be valid.
        with(&mut self.0.idle.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SweepOutcome {
    All,
    Some,
}
