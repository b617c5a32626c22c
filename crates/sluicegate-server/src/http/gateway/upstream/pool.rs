//! HTTP/1.1 connections that are kept for the next request.
//!
//! The one that was used last is used first, so that in a quiet time the others grow old and go. None is kept longer
//! than `keep_alive`, which should be shorter than the time after which the upstream closes: a request that is sent while
//! the upstream closes is lost. At most [`IDLE_MAX`] are kept.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use super::http1::Http1;

/// The most connections that wait for work, for each upstream. More are opened when they are needed; keeping them all
/// would hold files and memory of both sides for a moment of much traffic long ago.
const IDLE_MAX: usize = 512;

/// Connections that are kept. Clones are the same.
#[derive(Clone, Debug)]
pub(super) struct Pool(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    keep_alive: Duration,
    idle: Mutex<Idle>,
}

#[derive(Debug, Default)]
struct Idle {
    /// The one that came last is the last.
    connections: Vec<(Instant, Box<Http1>)>,
    /// Whether somebody looks for those that are too old.
    is_swept: bool,
}

impl Pool {
    /// Keeps connections for so long.
    pub(super) fn new(keep_alive: Duration) -> Self {
        Self(Arc::new(Shared { keep_alive, idle: Mutex::default() }))
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

    /// Keeps a connection whose answer has been read.
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

    /// Lets old connections go until there are none.
    fn start_sweep(&self) {
        // Connections come back on the runtime that they live on; without one they would not have worked.
        let Ok(runtime) = Handle::try_current() else { return };
        let pool = self.clone();
        runtime.spawn(async move {
            loop {
                sleep(pool.0.keep_alive).await;
                if pool.sweep() == Swept::All {
                    return;
                }
            }
        });
    }

    fn sweep(&self) -> Swept {
        let old: Vec<_>;
        let swept;
        {
            let mut idle = self.0.idle.lock().unwrap_or_else(PoisonError::into_inner);
            // In the order of their age, so the young ones are together at the end.
            let young = idle.connections.partition_point(|(since, _)| since.elapsed() >= self.0.keep_alive);
            old = idle.connections.drain(..young).collect();
            idle.is_swept = !idle.connections.is_empty();
            swept = if idle.is_swept { Swept::Some } else { Swept::All };
        }
        // Closing takes system calls, which nobody should wait for with the lock.
        drop(old);
        swept
    }

    fn idle<T>(&self, with: impl FnOnce(&mut Idle) -> T) -> T {
        // Nothing panics while the lock is held; a poisoned list would still be a good one.
        with(&mut self.0.idle.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Swept {
    All,
    Some,
}
