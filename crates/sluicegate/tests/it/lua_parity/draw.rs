//! Random operations: limits from tiny to extreme, costs at every edge, clocks that stand, crawl and jump.

use sluicegate::core::calendar::Run;
use sluicegate::core::quota::UNITS_MAX;
use sluicegate::core::{
    Align, Calendar, Cost, FixedWindow, Micros, Outcome, Quota, Rate, SlidingCounter, SlidingWindow, Timestamp,
    TokenBucket, Verdict,
};
use sluicegate_testkit::conformance::START;
use std::num::NonZeroU32;
use std::sync::Arc;

/// A small seeded random generator, the same on every platform.
pub(crate) struct Draw(pub(crate) u64);

impl Draw {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// True once in `times`.
    pub(crate) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn of<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len() as u64) as usize]
    }

    /// Every order of magnitude is equally likely.
    fn magnitude(&mut self, max: u64) -> u64 {
        let bits = self.below(u64::from(max.ilog2()) + 1);
        (self.next() >> (63 - bits)).clamp(1, max)
    }

    fn units(&mut self, max: u64) -> u64 {
        match self.below(8) {
            0..4 => 1 + self.below(20),
            4 => 1,
            5 => max,
            6 => max - self.below(3).min(max - 1),
            _ => self.magnitude(max),
        }
        .clamp(1, max)
    }

    fn millis(&mut self) -> u64 {
        let most = Micros::PERIOD_MAX.as_micros() / 1_000;
        match self.below(6) {
            0 | 1 => 1 + self.below(5),
            2 => 1_000,
            3 => most,
            _ => self.magnitude(most),
        }
    }
}

/// The index of buckets with tokens of whole microseconds, which the fast path and the batch path decide.
pub(crate) const WHOLE: usize = 4;

/// The index of calendar windows, some of which have equal lengths.
pub(crate) const CALENDAR: usize = 5;

/// Limits of one algorithm, by its index.
pub(crate) fn limits(draw: &mut Draw, algorithm: usize, count: usize) -> Vec<Quota> {
    let mut limits = Vec::new();
    while limits.len() < count {
        limits.extend(limit(draw, algorithm));
    }
    limits
}

/// A limit, unless the random numbers are invalid.
fn limit(draw: &mut Draw, algorithm: usize) -> Option<Quota> {
    let nothing = draw.once_in(20);
    let limit = |units: u64| if nothing { 0 } else { units };
    let window = Micros::from_millis(draw.millis());
    match algorithm {
        0 => bucket(draw),
        WHOLE => {
            let rate = Rate::new(1, Micros::from_micros(draw.magnitude(10_000_000))).ok()?;
            TokenBucket::new(draw.units(1_000), rate).ok().map(Quota::from)
        }
        1 => SlidingWindow::new(limit(draw.units(10_000)), window).ok().map(Quota::from),
        2 => {
            let most = (((1 << 53) - 1) / (window.as_micros() / 1_000)).min(UNITS_MAX);
            SlidingCounter::new(limit(draw.units(most)), window).ok().map(Quota::from)
        }
        CALENDAR if !draw.once_in(4) => {
            let calendar = Arc::new(calendar(draw));
            FixedWindow::on_calendar(limit(draw.units(UNITS_MAX)), calendar).ok().map(Quota::from)
        }
        _ => {
            let align = if draw.once_in(3) { Align::Key } else { Align::Epoch };
            FixedWindow::new(limit(draw.units(UNITS_MAX)), window, align).ok().map(Quota::from)
        }
    }
}

/// A calendar with windows around the instants of most operations.
fn calendar(draw: &mut Draw) -> Calendar {
    let hours = |hours: u64| Micros::from_secs(hours * 3_600);
    let (count, is_long) = (1 + draw.below(40), draw.once_in(2));
    let before = if is_long { hours(draw.below(count * 24)) } else { Micros::from_secs(draw.below(2 * count)) };
    let start = Timestamp::from_micros(START.as_micros() / 1_000_000 * 1_000_000 - before.as_micros());
    let mut start = *draw.of(&[start, start, start, Timestamp::default(), Timestamp::from_micros(1_000_000)]);
    let mut runs = Vec::new();
    for _ in 0..count {
        let length = if is_long {
            hours(*draw.of(&[23, 24, 24, 25, 672, 744]))
        } else {
            Micros::from_millis(1_000 + draw.below(3_000))
        };
        runs.push(Run { start, length });
        start = Timestamp::from_micros(start.as_micros() + length.as_micros() * (1 + draw.below(3)));
    }
    Calendar::new("any", runs).unwrap()
}

fn bucket(draw: &mut Draw) -> Option<Quota> {
    let (amount, period) = match draw.below(4) {
        // A token lasts whole microseconds, as under most limits in practice.
        0 => (1, 1 + draw.below(5_000_000)),
        1 => (1 + draw.below(30), *draw.of(&[1, 7, 1_000, 1_000_000, 60_000_000])),
        2 => (draw.units(UNITS_MAX), draw.magnitude(Micros::PERIOD_MAX.as_micros())),
        _ => (1, draw.magnitude(Micros::PERIOD_MAX.as_micros())),
    };
    let rate = Rate::new(amount, Micros::from_micros(period)).ok()?;
    let holds = (u128::from(amount) * u128::from(Micros::PERIOD_MAX.as_micros()) / u128::from(period)) as u64;
    let capacity = draw.units(holds.clamp(1, UNITS_MAX));
    if draw.once_in(3) {
        let credits = draw.units(UNITS_MAX).min(holds.min(UNITS_MAX).checked_sub(capacity)?);
        let ttl = Micros::from_millis(draw.millis());
        return TokenBucket::with_credits(capacity, rate, credits, ttl).ok().map(Quota::from);
    }
    TokenBucket::new(capacity, rate).ok().map(Quota::from)
}

/// A cost for a limit.
pub(crate) fn cost(draw: &mut Draw, quota: &Quota) -> u32 {
    let limit = u32::try_from(quota.limit()).unwrap_or(u32::MAX - 1);
    match draw.below(12) {
        0..5 => 1,
        5 => 0,
        6 => limit,
        7 => limit + 1,
        8 => limit / 2 + 1,
        9 => draw.next() as u32,
        _ => 1 + draw.below(u64::from(limit.min(50)) + 1) as u32,
    }
}

/// The part of a cost that is charged in any case: nothing, all, or a part.
pub(crate) fn usage(draw: &mut Draw, cost: Cost) -> Cost {
    match draw.below(3) {
        0 => Cost::ZERO,
        1 => cost,
        _ => Cost::new(draw.below(cost.units() + 1) as u32),
    }
}

/// The number of repetitions: mostly one, or more than fit.
pub(crate) fn times(draw: &mut Draw) -> NonZeroU32 {
    let times = match draw.below(32) {
        0 => draw.magnitude(300),
        1..5 => 2 + draw.below(5),
        5..8 => 2,
        _ => 1,
    };
    NonZeroU32::new(times as u32).unwrap()
}

/// Commands that write a value which no script writes.
pub(crate) fn damage(draw: &mut Draw, key: &str) -> redis::Pipeline {
    let texts =
        ["", "1", "nan1", "0x101", "1e31", " 171", "1.51", "-51", "170531280012345612", "99999999999999991"];
    let texts_too = ["170531280012345600001", "a", "b01,0,1,0;", "af0;", "al01,0,0:short;", "1705312800123456"];
    let mut pipeline = redis::pipe();
    pipeline.cmd("DEL").arg(key).ignore();
    match draw.below(3) {
        0 => pipeline.cmd("RPUSH").arg(key).arg("1"),
        1 => pipeline.cmd("SET").arg(key).arg(*draw.of(&texts)),
        _ => pipeline.cmd("SET").arg(key).arg(*draw.of(&texts_too)),
    };
    pipeline
}

/// The next instant, given the last verdict of a limit.
pub(crate) fn later(draw: &mut Draw, now: Timestamp, quota: &Quota, verdict: Option<&Verdict>) -> Timestamp {
    let window = quota.window().as_micros().max(1);
    let calendar = if let Quota::FixedWindow(quota) = quota { quota.calendar() } else { None };
    let end = calendar.map(|calendar| calendar.after(now).as_micros());
    let now = now.as_micros();
    let end = end.unwrap_or((now / window + 1) * window);
    let retry = match verdict.map(|verdict| verdict.outcome) {
        Some(Outcome::Denied { retry_after }) => retry_after.as_micros(),
        _ => verdict.map_or(0, |verdict| verdict.reset_after.as_micros()),
    };
    Timestamp::now(match draw.below(40) {
        0..12 => now,
        12..18 => now + draw.below(window / 8 + 2),
        18..22 => now + draw.below(1_000),
        22..25 => now + retry,
        25..27 => now + retry.saturating_sub(1),
        27 => now + window,
        28 => now + draw.below(3 * window),
        29 => end - draw.below(2),
        30..33 => now.saturating_sub(draw.below(20_000)),
        33 => now.saturating_sub(draw.below(3 * window)),
        34 => now.saturating_sub(draw.magnitude(Micros::PERIOD_MAX.as_micros())),
        35 => now + draw.magnitude(Micros::PERIOD_MAX.as_micros()),
        36 if draw.once_in(20) => *draw.of(&[0, 1, Timestamp::NOW_MAX.as_micros(), 1_705_312_800_123_456]),
        _ => now + 1,
    })
}
