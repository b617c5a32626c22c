//! The clocks stay close to the system clock, are steady, and follow corrections.

use super::*;
use std::sync::atomic::AtomicI64;

#[test]
#[expect(clippy::disallowed_methods, reason = "the clock is held against the system's own")]
fn clock_stays_within_a_millisecond_of_the_system_clock() {
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
fn threads_read_nearly_the_same_time() {
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
fn counts_convert_to_microseconds_at_any_counter_rate() {
    // Counters from 1 MHz to 10 GHz, and one that seems to stand still.
    for (counts, nanos) in [(1, 1_000), (1, 1), (3, 1), (24, 1_000), (33, 10), (10, 1)] {
        let pace = CounterRate::of(|sent| (u128::from(sent) * nanos / counts) as u64);
        for micros in [0, 1, 2, 499, 998] {
            let passed = micros * 1_000 * counts as u64 / nanos as u64;
            let shown = pace.micros(passed).unwrap();
            assert!((micros.saturating_sub(1)..=micros).contains(&shown), "{shown} for {micros}");
        }
        assert_eq!(pace.micros(1_001_000 * counts as u64 / nanos as u64), None);
    }
    assert_eq!(CounterRate::of(|_| 0).micros(0), None);
    assert_eq!(CounterRate::of(|_| u64::MAX).micros(0), None);
}

#[test]
fn anchor_reads_are_never_torn() {
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
fn clones_of_a_manual_clock_share_the_time() {
    let clock = ManualClock::at(Timestamp::now(5));
    let other = clock.clone();
    clock.advance(Micros::from_micros(7));
    assert_eq!(other.now(), Timestamp::now(12));
    other.set(Timestamp::now(3));
    assert_eq!(clock.now(), Timestamp::now(3));
}

/// Clocks set by hand. The steady ones count nanoseconds since the creation of the source.
#[derive(Debug, Default)]
struct Fake {
    nanos: AtomicU64,
    /// The offset of the processor's counter.
    counter_offset: AtomicI64,
    /// The offset of the time of day, in microseconds.
    date_offset: AtomicI64,
    /// The number of readings of the time of day.
    looks: AtomicU64,
}

const STARTED: u64 = 1_705_312_800_123_456;
const SECOND_NANOS: u64 = 1_000_000_000;
const TWO_HOURS: i64 = 2 * 3_600 * 1_000_000;

impl Source for Arc<Fake> {
    fn counter(&self) -> u64 {
        self.nanos.load(Ordering::SeqCst).saturating_add_signed(self.counter_offset.load(Ordering::SeqCst))
    }

    fn nanos(&self, counts: u64) -> u64 {
        counts
    }

    fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::SeqCst))
    }

    fn time_of_day_micros(&self) -> u64 {
        self.looks.fetch_add(1, Ordering::SeqCst);
        let steady = STARTED + self.nanos.load(Ordering::SeqCst) / 1_000;
        steady.saturating_add_signed(self.date_offset.load(Ordering::SeqCst))
    }
}

impl Fake {
    fn pass(&self, nanos: u64) {
        self.nanos.fetch_add(nanos, Ordering::SeqCst);
    }

    fn set_date(&self, offset: i64) {
        self.date_offset.store(offset, Ordering::SeqCst);
    }
}

fn faked() -> (Arc<Fake>, SteadyClock<Arc<Fake>>) {
    let fake = Arc::new(Fake { counter_offset: AtomicI64::new(1 << 40), ..Fake::default() });
    (Arc::clone(&fake), SteadyClock::new(fake, STARTED))
}

/// The offset of the time of day from the steady clock.
fn offset(clock: &SteadyClock<Arc<Fake>>) -> i64 {
    let now = clock.now();
    clock.follower.correction().apply(now).as_micros() as i64 - now.as_micros() as i64
}

#[test]
fn time_of_day_follows_steps_within_a_second_and_the_steady_clock_does_not() {
    let (fake, clock) = faked();
    for step in [TWO_HOURS, -TWO_HOURS, 1_500, -30_000_000, 0, i64::MAX / 2, 0, -(STARTED as i64) - 1, 0] {
        let before = clock.now().as_micros();
        fake.set_date(step);
        fake.pass(SECOND_NANOS + 1_000_000);
        // If the system clock is before the epoch or after 2112, the time of day is the end of the range.
        let bounded =
            Timestamp::now((STARTED + fake.nanos.load(Ordering::SeqCst) / 1_000).saturating_add_signed(step));
        let now = clock.now();
        assert_eq!(clock.follower.correction().apply(now), bounded, "after a step to {step}");
        assert_eq!(now.as_micros() - before, 1_001_000, "a step moved the steady clock");
    }
}

#[test]
fn slewing_and_reading_jitter_do_not_change_the_correction() {
    let (fake, clock) = faked();
    for micros in [999, -999, 0, 500] {
        fake.set_date(micros);
        fake.pass(2 * SECOND_NANOS);
        assert_eq!(offset(&clock), 0);
    }
    fake.set_date(1_001);
    fake.pass(2 * SECOND_NANOS);
    assert_eq!(offset(&clock), 1_001);
}

#[test]
fn suspension_corrects_the_time_of_day_and_leaves_rates_unchanged() {
    for counter in [-(1_i64 << 40), 0, 3_600 * SECOND_NANOS as i64] {
        let (fake, clock) = faked();
        fake.pass(5 * SECOND_NANOS);
        let before = clock.now().as_micros();
        // The time of day is an hour later. The monotonic clock stood still, and the counter was reset or continued.
        fake.set_date(3_600_000_000);
        fake.counter_offset.fetch_add(counter, Ordering::SeqCst);
        fake.pass(SECOND_NANOS);
        assert_eq!(clock.now().as_micros() - before, 1_000_000);
        assert_eq!(offset(&clock), 3_600_000_000);
        // From here on the counter is trusted again.
        fake.pass(400_500);
        assert_eq!(clock.now().as_micros() - before, 1_000_400);
    }
}

#[test]
fn counter_slightly_behind_has_not_moved_and_far_behind_is_not_trusted() {
    let pace = CounterRate::of(|counts| counts);
    assert_eq!(pace.micros_since(5_000_000, 4_999_990), Some(0));
    assert_eq!(pace.micros_since(5_000_000, 5_001_500), Some(1));
    assert_eq!(pace.micros_since(5_000_000, 2_000_000), None);
    assert_eq!(pace.micros_since(5_000_000, 0), None);
}

#[test]
fn time_of_day_is_read_once_per_second_with_any_number_of_readers() {
    const SECONDS: u64 = 50;
    let (fake, clock) = faked();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while fake.nanos.load(Ordering::SeqCst) < SECONDS * SECOND_NANOS {
                    clock.now();
                }
            });
        }
        for _ in 0..SECONDS * 1_000 {
            fake.pass(SECOND_NANOS / 1_000);
        }
    });
    let looks = fake.looks.load(Ordering::SeqCst);
    assert!(looks <= SECONDS + 1, "{looks} looks in {SECONDS} s");
}

#[test]
fn threads_see_the_time_of_day_before_or_after_a_step_but_nothing_between() {
    let (fake, clock) = faked();
    let is_over = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut last = 0;
                while is_over.load(Ordering::SeqCst) == 0 {
                    let now = clock.now();
                    assert!(now.as_micros() >= last, "the steady clock went back");
                    last = now.as_micros();
                    let shown = clock.follower.correction().apply(now).as_micros() as i64;
                    let offset = shown - now.as_micros() as i64;
                    // Time may pass between two readings, but never two hours.
                    let is_known =
                        [TWO_HOURS, 0, -TWO_HOURS].iter().any(|each| offset.abs_diff(*each) < 3_000_000);
                    assert!(is_known, "{offset} µs");
                }
            });
        }
        for round in 0..3_000_i64 {
            fake.set_date((round % 3 - 1) * TWO_HOURS);
            fake.pass(700_000_000);
            clock.now();
        }
        is_over.store(1, Ordering::SeqCst);
    });
}

#[test]
fn clones_of_a_manual_clock_share_the_time_of_day() {
    let clock = ManualClock::at(Timestamp::now(5_000));
    let other = clock.clone();
    assert_eq!(clock.time_of_day(), clock.now());
    clock.set_time_of_day(Timestamp::now(1_000));
    assert_eq!((other.now(), other.time_of_day()), (Timestamp::now(5_000), Timestamp::now(1_000)));
    other.advance(Micros::from_micros(10));
    assert_eq!((clock.now(), clock.time_of_day()), (Timestamp::now(5_010), Timestamp::now(1_010)));
    clock.set_time_of_day(Timestamp::now(90_000));
    assert_eq!(other.time_of_day(), Timestamp::now(90_000));
}
