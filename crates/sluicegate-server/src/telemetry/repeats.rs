//! Limits the log lines per call site.
//!
//! Clients can cause some lines, for example by a wrong password or a broken connection. A hostile client could fill the disk
//! and hide other lines. Each call site therefore writes at most [`LINES_PER_SECOND_MAX`] lines per second. Suppressed lines are
//! counted and reported. The decision log has a limit of its own. The levels `debug` and `trace` are unlimited, because they are
//! enabled only for short times.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tracing::callsite::Identifier;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use super::decision_log;

/// The most lines of one call site within a second.
const LINES_PER_SECOND_MAX: u32 = 20;

/// The process has one log, so this is global.
static CALL_SITES: LazyLock<CallSites> = LazyLock::new(CallSites::default);

/// A layer that suppresses events of call sites above the limit.
pub(super) struct RepeatLimit;

impl<S: Subscriber> Layer<S> for RepeatLimit {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        let is_bound = *metadata.level() <= Level::INFO && metadata.target() != decision_log::TARGET;
        !is_bound || CALL_SITES.has_room(metadata, Instant::now())
    }
}

/// Logs the numbers of suppressed lines since the last call.
pub(super) fn log_suppressed() {
    for (metadata, left_out) in CALL_SITES.take_suppressed() {
        let (place, line) = (metadata.target(), metadata.line());
        tracing::warn!(
            place,
            line,
            left_out,
            "log lines were suppressed, because there were too many of the same kind"
        );
    }
}

/// The lines of each call site. The number of call sites in the code bounds the map.
#[derive(Debug, Default)]
struct CallSites(Mutex<HashMap<Identifier, CallSite>>);

#[derive(Debug)]
struct CallSite {
    metadata: &'static Metadata<'static>,
    second_began: Instant,
    lines: u32,
    suppressed: u64,
}

impl CallSites {
    /// Whether the limit allows one more line in the current second; counts the line.
    fn has_room(&self, metadata: &'static Metadata<'static>, now: Instant) -> bool {
        let mut sites = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let site = sites.entry(metadata.callsite()).or_insert(CallSite {
            metadata,
            second_began: now,
            lines: 0,
            suppressed: 0,
        });
        if now.duration_since(site.second_began) >= Duration::from_secs(1) {
            (site.second_began, site.lines) = (now, 0);
        }
        let has_room = site.lines < LINES_PER_SECOND_MAX;
        if has_room {
            site.lines += 1;
        } else {
            site.suppressed += 1;
        }
        has_room
    }

    fn take_suppressed(&self) -> Vec<(&'static Metadata<'static>, u64)> {
        let mut sites = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = sites.values_mut().map(|site| (site.metadata, std::mem::take(&mut site.suppressed)));
        taken.filter(|(_, suppressed)| *suppressed > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    /// Counts the events that pass.
    struct PassedEvents(Arc<AtomicU32>);

    impl<S: Subscriber> Layer<S> for PassedEvents {
        fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn one_call_site_is_limited_and_others_are_not_affected() {
        let count = Arc::new(AtomicU32::new(0));
        let subscriber = tracing_subscriber::registry().with(RepeatLimit).with(PassedEvents(Arc::clone(&count)));
        let passed = |lines: &dyn Fn()| {
            count.store(0, Ordering::Relaxed);
            lines();
            count.load(Ordering::Relaxed)
        };
        tracing::subscriber::with_default(subscriber, || {
            let same = |times: u32| (0..times).for_each(|_| tracing::warn!("the same"));
            assert_eq!(passed(&|| same(15)), 15);
            assert!(passed(&|| same(1_000)) <= LINES_PER_SECOND_MAX, "even if a second ends in between");
            assert_eq!(passed(&|| tracing::warn!("another")), 1);
            let debug = || (0..100).for_each(|_| tracing::debug!("asked for"));
            assert_eq!(passed(&debug), 100);
            let decisions = || (0..100).for_each(|_| tracing::info!(target: decision_log::TARGET, "decision"));
            assert_eq!(passed(&decisions), 100);
        });
    }

    #[test]
    fn suppressed_lines_are_reported_once_and_a_new_second_admits_lines_again() {
        let metadata = {
            let found = Arc::new(Mutex::new(None));
            struct Find(Arc<Mutex<Option<&'static Metadata<'static>>>>);
            impl<S: Subscriber> Layer<S> for Find {
                fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
                    *self.0.lock().expect("not poisoned") = Some(event.metadata());
                }
            }
            let subscriber = tracing_subscriber::registry().with(Find(Arc::clone(&found)));
            tracing::subscriber::with_default(subscriber, || tracing::warn!("a place"));
            let metadata = found.lock().expect("not poisoned").take();
            metadata.expect("an event")
        };
        let (sites, start) = (CallSites::default(), Instant::now());
        let admitted = |now| (0..50).filter(|_| sites.has_room(metadata, now)).count();
        assert_eq!(admitted(start), 20);
        assert_eq!(admitted(start + Duration::from_millis(999)), 0);
        assert_eq!(admitted(start + Duration::from_secs(1)), 20);
        let suppressed: Vec<u64> = sites.take_suppressed().into_iter().map(|(_, suppressed)| suppressed).collect();
        assert_eq!(suppressed, [30 + 50 + 30]);
        assert!(sites.take_suppressed().is_empty());
    }
}
