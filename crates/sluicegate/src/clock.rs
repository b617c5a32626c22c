//! The one place that reads the time. Everything else is given an instant.

use sluicegate_core::{Micros, Timestamp};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Somebody who knows what time it is.
pub trait Clock: Send + Sync {
    /// The current instant.
    fn now(&self) -> Timestamp;
}

/// How long the processor's counter is trusted before it is set again by the system's clock. Its rate is measured once;
/// on a busy machine that was seen to be wrong by three in a hundred, which makes thirty microseconds of a millisecond.
const TRUSTED_NANOS: u64 = 1_000_000;

/// How long a look at the system's clock may take for its result to be trusted.
const READING_NANOS_MAX: u64 = 5_000;

/// How often the time of day is read to find a reading that nothing came in between of.
const READINGS: usize = 16;

/// The system's monotonic clock, set to the time of day once, when it is made: a time of day that is
/// corrected later changes no decision.
///
/// Between two looks at the system's clock, at most 1 ms apart, it counts on with the processor's counter,
/// which is two to three times quicker to read. When it is set it may go back by some microseconds; no
/// decision gains by that.
#[derive(Debug)]
pub struct SystemClock {
    counter: quanta::Clock,
    pace: Pace,
    anchor: Anchor,
    started: Instant,
    started_micros: u64,
}

/// How fast the counter counts.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// A count is this many microseconds, in parts of 2⁻⁴⁰.
    micros_per_count: u64,
    /// How many counts it is trusted for.
    trusted: u64,
}

/// A reading of the counter and the time it stands for. Written by one, read by all without waiting: `version`
/// is odd while it is being written.
#[derive(Debug, Default)]
struct Anchor {
    version: AtomicU64,
    count: AtomicU64,
    micros: AtomicU64,
}

impl SystemClock {
    /// A clock that starts at the current time of day.
    #[must_use]
    pub fn new() -> Self {
        // Its first use measures the counter's rate, which takes a while: that must not come between the two readings.
        let (counter, anchor) = (quanta::Clock::new(), Anchor::default());
        let pace = Pace::of(|counts| counter.delta_as_nanos(0, counts));
        let (started, started_micros) = time_of_day();
        let clock = Self { counter, pace, anchor, started, started_micros };
        clock.set();
        clock
    }

    /// Reads the system's clock and sets the anchor by it.
    #[cold]
    fn set(&self) -> u64 {
        // Between two readings of the counter: if this thread was put aside meanwhile, the pair would not belong
        // together, and the anchor is left to the next one.
        let (before, elapsed, count) = (self.counter.raw(), self.started.elapsed(), self.counter.raw());
        let elapsed_micros = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        let micros = self.started_micros.saturating_add(elapsed_micros);
        if self.counter.delta_as_nanos(before, count) < READING_NANOS_MAX {
            self.anchor.write(count, micros);
        }
        micros
    }
}

/// An instant and the time of day that it is. A thread that is put aside between two readings would be wrong about it
/// from then on, so of several pairs the closest one counts.
#[expect(clippy::disallowed_methods, reason = "this is the home of the clock")]
fn time_of_day() -> (Instant, u64) {
    let pair = || {
        let (before, since_epoch) = (Instant::now(), SystemTime::now().duration_since(UNIX_EPOCH));
        let micros = u64::try_from(since_epoch.unwrap_or_default().as_micros()).unwrap_or(u64::MAX);
        (before.elapsed(), before, micros)
    };
    let first = pair();
    let (_, instant, micros) =
        (1..READINGS).map(|_| pair()).fold(first, |best, next| if next.0 < best.0 { next } else { best });
    (instant, micros)
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[inline]
    fn now(&self) -> Timestamp {
        let micros = match self.anchor.read() {
            Some((count, micros)) => match self.pace.micros(self.counter.raw().saturating_sub(count)) {
                Some(passed) => micros + passed,
                None => self.set(),
            },
            None => self.set(),
        };
        Timestamp::now(micros)
    }
}

impl Pace {
    const FRACTION_BITS: u32 = 40;

    /// By what so many counts are in nanoseconds.
    fn of(nanos: impl Fn(u64) -> u64) -> Self {
        /// Enough to tell the pace to the ninth digit, few enough for the nanoseconds to be scaled.
        const COUNTS: u64 = 1 << 32;
        let nanos = u128::from(nanos(COUNTS));
        let narrow = |number: u128| u64::try_from(number).unwrap_or(u64::MAX);
        let micros_per_count = narrow((nanos << Self::FRACTION_BITS) / 1_000 / u128::from(COUNTS));
        // A counter that seems to stand still is never trusted.
        let trusted = (u128::from(TRUSTED_NANOS) * u128::from(COUNTS)).checked_div(nanos).map_or(0, narrow);
        // A millisecond in parts of a microsecond has 50 bits: what is trusted never overflows.
        Self { micros_per_count, trusted }
    }

    /// So many counts in whole microseconds, unless they are too many to be trusted.
    #[inline]
    fn micros(self, counts: u64) -> Option<u64> {
        (counts < self.trusted).then(|| (counts * self.micros_per_count) >> Self::FRACTION_BITS)
    }
}

impl Anchor {
    /// Both values of one writing, or nothing while they change.
    #[inline]
    fn read(&self) -> Option<(u64, u64)> {
        let before = self.version.load(Ordering::Acquire);
        let values = (self.count.load(Ordering::Relaxed), self.micros.load(Ordering::Relaxed));
        // The values are read before the version is read again.
        fence(Ordering::Acquire);
        let after = self.version.load(Ordering::Relaxed);
        (before == after && before.is_multiple_of(2)).then_some(values)
    }

    /// Writes both values, unless somebody else is doing so.
    fn write(&self, count: u64, micros: u64) {
        let version = self.version.load(Ordering::Relaxed);
        let writing = version.wrapping_add(1);
        let is_ours = version.is_multiple_of(2)
            && self.version.compare_exchange(version, writing, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if !is_ours {
            return;
        }
        // Nobody sees a new value under the old version.
        fence(Ordering::Release);
        self.count.store(count, Ordering::Relaxed);
        self.micros.store(micros, Ordering::Relaxed);
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }
}

/// A clock for tests, set by hand. All clones show the same time.
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// A clock that stands at `now`.
    #[must_use]
    pub fn at(now: Timestamp) -> Self {
        Self(Arc::new(AtomicU64::new(now.as_micros())))
    }

    /// Lets `length` pass.
    pub fn advance(&self, length: Micros) {
        self.0.fetch_add(length.as_micros(), Ordering::SeqCst);
    }

    /// Sets the clock, backwards too.
    pub fn set(&self, now: Timestamp) {
        self.0.store(now.as_micros(), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::now(self.0.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the clock is held against the system's own")]
    fn the_clock_keeps_to_the_time_of_day() {
        let clock = SystemClock::new();
        let mut worst = 0;
        for _ in 0..200_000 {
            let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros();
            let shown = u128::from(clock.now().as_micros());
            let after = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros();
            worst = worst.max(before.saturating_sub(shown)).max(shown.saturating_sub(after));
        }
        assert!(worst < 1_000, "off by {worst} µs");
    }

    #[test]
    fn the_clock_shows_every_thread_about_the_same_and_hardly_goes_back() {
        let clock = SystemClock::new();
        let steps_back = |mut last: u64| {
            let mut worst = 0;
            for _ in 0..500_000 {
                let now = clock.now().as_micros();
                worst = worst.max(last.saturating_sub(now));
                last = now;
            }
            worst
        };
        let worst = std::thread::scope(|scope| {
            let threads = [scope.spawn(|| steps_back(0)), scope.spawn(|| steps_back(0))];
            threads.map(|thread| thread.join().unwrap()).into_iter().max()
        });
        assert!(worst < Some(100), "back by {worst:?} µs");
    }

    #[test]
    fn counts_become_microseconds_whatever_the_pace_of_the_counter() {
        // From a counter of 1 MHz to one of 10 GHz; also one that stands still for all that can be told.
        for (counts, nanos) in [(1, 1_000), (1, 1), (3, 1), (24, 1_000), (33, 10), (10, 1)] {
            let pace = Pace::of(|asked| (u128::from(asked) * nanos / counts) as u64);
            for micros in [0, 1, 2, 499, 998] {
                let passed = micros * 1_000 * counts as u64 / nanos as u64;
                let shown = pace.micros(passed).unwrap();
                assert!((micros.saturating_sub(1)..=micros).contains(&shown), "{shown} for {micros}");
            }
            assert_eq!(pace.micros(1_001_000 * counts as u64 / nanos as u64), None);
        }
        assert_eq!(Pace::of(|_| 0).micros(0), None);
        assert_eq!(Pace::of(|_| u64::MAX).micros(0), None);
    }

    #[test]
    fn an_anchor_is_never_read_half_written() {
        let anchor = Anchor::default();
        std::thread::scope(|scope| {
            scope.spawn(|| (1..=200_000).for_each(|value| anchor.write(value, value * 3)));
            for _ in 0..200_000 {
                if let Some((count, micros)) = anchor.read() {
                    assert_eq!(micros, count * 3);
                }
            }
        });
    }

    #[test]
    fn a_manual_clock_is_shared_by_its_clones() {
        let clock = ManualClock::at(Timestamp::now(5));
        let other = clock.clone();
        clock.advance(Micros::from_micros(7));
        assert_eq!(other.now(), Timestamp::now(12));
        other.set(Timestamp::now(3));
        assert_eq!(clock.now(), Timestamp::now(3));
    }
}
