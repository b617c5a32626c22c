//! The only reader of the time. All other code receives an instant.
//!
//! There are two time scales. The instants of [`Clock::now`] are *steady*: they advance evenly, whatever happens to
//! the system clock, so a correction of the system clock neither grants nor takes tokens. The *time of day* is the
//! same instant plus a [`Correction`]. It follows the system clock, and people, other programs and calendars use it.

mod correction;

pub use correction::Correction;
use correction::CorrectionUpdater;
use sluicegate_core::{Micros, Timestamp};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A source of instants.
pub trait Clock: Send + Sync {
    /// The current instant on the steady scale. It never steps when the time of day is corrected, so rates and
    /// durations use it.
    fn now(&self) -> Timestamp;

    /// The correction from instants of this clock to the time of day. Zero by default.
    fn correction(&self) -> &Correction {
        &correction::NONE
    }

    /// The current time of day.
    fn time_of_day(&self) -> Timestamp {
        // The instant comes first: reading it makes the clock look for corrections.
        let now = self.now();
        self.correction().apply(now)
    }
}

/// The time for which the clock trusts the processor's counter before it sets the counter by the system clock again.
/// The counter's rate is measured once. On a busy machine the measurement was wrong by 3 %, which is 30 µs per
/// millisecond.
const TRUSTED_NANOS: u64 = 1_000_000;

/// The maximum duration of a trusted reading of the system clock.
const READING_NANOS_MAX: u64 = 5_000;

/// The number of attempts to read the time of day without an interruption.
const READINGS: usize = 16;

/// The monotonic clock of the system, offset to the time of day at its creation. If the time of day is corrected
/// later, or the machine was suspended, [`Clock::now`] continues unchanged, and [`Clock::time_of_day`] follows within
/// a second.
///
/// Between two readings of the system clock, at most 1 ms apart, the processor's counter advances the clock. Reading
/// the counter is two to three times faster. When the clock is set again it may go back by some microseconds, which
/// no decision gains by.
#[derive(Debug)]
pub struct SystemClock(SteadyClock<SystemSource>);

/// The time sources of a [`SteadyClock`].
trait Source {
    /// The value of the processor's counter.
    fn counter(&self) -> u64;

    /// The duration of this many counts in nanoseconds.
    fn nanos(&self, counts: u64) -> u64;

    /// The time since the creation of the source, by the system's monotonic clock.
    fn elapsed(&self) -> Duration;

    /// The system's time of day, in microseconds since the epoch.
    fn time_of_day_micros(&self) -> u64;
}

/// The clocks of the operating system and the processor.
#[derive(Debug)]
struct SystemSource {
    counter: quanta::Clock,
    started: Instant,
}

/// A steady clock on any source, with the correction to the time of day.
#[derive(Debug)]
struct SteadyClock<S> {
    source: S,
    pace: CounterRate,
    anchor: Anchor,
    started_micros: u64,
    follower: CorrectionUpdater,
}

/// The rate of the counter.
#[derive(Clone, Copy, Debug)]
struct CounterRate {
    /// The duration of a count, in microseconds times 2⁴⁰.
    micros_per_count: u64,
    /// The number of counts for which the counter is trusted.
    trusted: u64,
}

/// A reading of the counter and its instant, as a seqlock: one thread writes, and all threads read without waiting.
/// `version` is odd during a write.
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
        // The first use measures the counter's rate, which takes a while. That must not happen between the two
        // readings.
        let counter = quanta::Clock::new();
        let (started, started_micros) = time_of_day();
        Self(SteadyClock::new(SystemSource { counter, started }, started_micros))
    }
}

impl<S: Source> SteadyClock<S> {
    /// A clock that showed `started_micros` at the creation of its source.
    fn new(source: S, started_micros: u64) -> Self {
        let pace = CounterRate::of(|counts| source.nanos(counts));
        let clock = Self {
            source,
            pace,
            anchor: Anchor::default(),
            started_micros,
            follower: CorrectionUpdater::default(),
        };
        clock.set();
        clock
    }

    #[inline]
    fn now(&self) -> Timestamp {
        let micros = match self.anchor.read() {
            Some((count, micros)) => match self.pace.micros_since(count, self.source.counter()) {
                Some(passed) => micros + passed,
                None => self.set(),
            },
            None => self.set(),
        };
        Timestamp::now(micros)
    }

    /// Reads the system clock and sets the anchor by it.
    #[cold]
    fn set(&self) -> u64 {
        // The reading lies between two readings of the counter. If the thread was preempted meanwhile, the pair does
        // not match, and the next call sets the anchor.
        let (before, micros, count) = (self.source.counter(), self.steady_micros(), self.source.counter());
        if self.source.nanos(count.saturating_sub(before)) < READING_NANOS_MAX {
            self.anchor.write(count, micros);
        }
        self.follower.look(micros, || self.steady_micros(), || self.source.time_of_day_micros());
        micros
    }

    /// The steady instant by the system's monotonic clock alone.
    fn steady_micros(&self) -> u64 {
        let elapsed_micros = u64::try_from(self.source.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.started_micros.saturating_add(elapsed_micros)
    }
}

impl Source for SystemSource {
    #[inline]
    fn counter(&self) -> u64 {
        self.counter.raw()
    }

    fn nanos(&self, counts: u64) -> u64 {
        self.counter.delta_as_nanos(0, counts)
    }

    fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    fn time_of_day_micros(&self) -> u64 {
        micros_since_epoch()
    }
}

/// The system's time of day; the epoch if the system clock is earlier.
#[expect(clippy::disallowed_methods, reason = "this module reads the system clock for all others")]
fn micros_since_epoch() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX)
}

/// An instant and its time of day. A preemption between the two readings would make the pair permanently wrong, so
/// the closest of several pairs is used.
#[expect(clippy::disallowed_methods, reason = "this module reads the system clock for all others")]
fn time_of_day() -> (Instant, u64) {
    let pair = || {
        let (before, micros) = (Instant::now(), micros_since_epoch());
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
        self.0.now()
    }

    #[inline]
    fn correction(&self) -> &Correction {
        self.0.follower.correction()
    }
}

impl CounterRate {
    const FRACTION_BITS: u32 = 40;

    /// Measures the rate by the duration of a number of counts in nanoseconds.
    fn of(nanos: impl Fn(u64) -> u64) -> Self {
        /// Large enough for a precision of nine digits, and small enough that scaling the nanoseconds cannot
        /// overflow.
        const COUNTS: u64 = 1 << 32;
        let nanos = u128::from(nanos(COUNTS));
        let narrow = |number: u128| u64::try_from(number).unwrap_or(u64::MAX);
        let micros_per_count = narrow((nanos << Self::FRACTION_BITS) / 1_000 / u128::from(COUNTS));
        // A counter that does not advance is never trusted.
        let trusted = (u128::from(TRUSTED_NANOS) * u128::from(COUNTS)).checked_div(nanos).map_or(0, narrow);
        // A millisecond in units of 2⁻⁴⁰ microseconds has 50 bits, so trusted counts never overflow.
        Self { micros_per_count, trusted }
    }

    /// The whole microseconds between two counts; `None` if the distance is too large to be trusted. The counters of
    /// different processors differ by a few counts, so a counter that is slightly behind has not moved. A counter
    /// that is far behind was reset, for example during a suspension.
    #[inline]
    fn micros_since(self, earlier: u64, later: u64) -> Option<u64> {
        match later.checked_sub(earlier) {
            Some(counts) => self.micros(counts),
            None => self.micros(earlier - later).map(|_| 0),
        }
    }

    /// The duration of this many counts in whole microseconds; `None` if there are too many to be trusted.
    #[inline]
    fn micros(self, counts: u64) -> Option<u64> {
        (counts < self.trusted).then(|| (counts * self.micros_per_count) >> Self::FRACTION_BITS)
    }
}

impl Anchor {
    /// Both values of one write; `None` during a write.
    #[inline]
    fn read(&self) -> Option<(u64, u64)> {
        let before = self.version.load(Ordering::Acquire);
        let values = (self.count.load(Ordering::Relaxed), self.micros.load(Ordering::Relaxed));
        // Orders the reads of the values before the second read of the version.
        fence(Ordering::Acquire);
        let after = self.version.load(Ordering::Relaxed);
        (before == after && before.is_multiple_of(2)).then_some(values)
    }

    /// Writes both values, unless another thread is writing.
    fn write(&self, count: u64, micros: u64) {
        let version = self.version.load(Ordering::Relaxed);
        let writing = version.wrapping_add(1);
        let is_ours = version.is_multiple_of(2)
            && self.version.compare_exchange(version, writing, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if !is_ours {
            return;
        }
        // Orders the new version before the new values.
        fence(Ordering::Release);
        self.count.store(count, Ordering::Relaxed);
        self.micros.store(micros, Ordering::Relaxed);
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }
}

/// A clock for tests that is set by hand. All clones show the same time.
#[derive(Clone, Debug)]
pub struct ManualClock {
    micros: Arc<AtomicU64>,
    correction: Correction,
}

impl ManualClock {
    /// A clock that stands at `now`, which is also its time of day.
    #[must_use]
    pub fn at(now: Timestamp) -> Self {
        Self { micros: Arc::new(AtomicU64::new(now.as_micros())), correction: Correction::new() }
    }

    /// Advances the clock by `length`.
    pub fn advance(&self, length: Micros) {
        self.micros.fetch_add(length.as_micros(), Ordering::SeqCst);
    }

    /// Sets the clock and its time of day, also backwards.
    pub fn set(&self, now: Timestamp) {
        self.micros.store(now.as_micros(), Ordering::SeqCst);
    }

    /// Corrects the time of day, as an operator or NTP does. [`Clock::now`] does not change.
    pub fn set_time_of_day(&self, time_of_day: Timestamp) {
        self.correction.set(self.now(), time_of_day);
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::at(Timestamp::default())
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::now(self.micros.load(Ordering::SeqCst))
    }

    fn correction(&self) -> &Correction {
        &self.correction
    }
}

#[cfg(test)]
mod tests;
