//! Windows of unequal length: days of 23 and 25 hours, months of 28 to 31 days.
//!
//! A [`Calendar`] is the list of instants at which one window ends and the next begins, its *boundaries*. It is plain
//! data. Code that knows time zones builds it once, and from then on a search finds a boundary. Neighbouring windows
//! of equal length form one [`Run`], so the days of a century and a half are a few hundred entries.
//!
//! The boundaries tile time. One window lies before the first boundary, and after the last one, windows of the last
//! run's length follow forever. This module knows no time zones and does not check that a calendar matches one.

use crate::quota::QuotaError;
use crate::time::{Micros, Timestamp};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Consecutive windows of equal length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    /// The start of the first window.
    pub start: Timestamp,
    /// The length of each window.
    pub length: Micros,
}

/// Windows of unequal length. See the [module documentation](self).
#[derive(Clone, PartialEq, Eq)]
pub struct Calendar {
    name: Box<str>,
    runs: Box<[Run]>,
    shortest: Micros,
    longest: Micros,
    /// Replaces the content when a calendar is hashed, which happens with every request.
    digest: [u64; 2],
}

/// The number of boundaries that [`Calendar::around`] returns.
pub const BOUNDARIES_AROUND: usize = 5;

impl Calendar {
    /// The shortest window. A state ahead of the clock is accepted within one window, and at least within this
    /// duration.
    pub const WINDOW_MIN: Micros = Micros::from_secs(1);

    /// A calendar called `name`, with windows that begin with these runs. Each run lasts until the next one starts,
    /// and the last one forever.
    ///
    /// # Errors
    /// If there is no run, if a run does not end where the next one starts, or if a window is not whole milliseconds
    /// from 1 s to ten years.
    pub fn new(name: impl Into<Box<str>>, runs: impl Into<Box<[Run]>>) -> Result<Self, QuotaError> {
        let (name, runs): (Box<str>, Box<[Run]>) = (name.into(), runs.into());
        for (index, run) in runs.iter().enumerate() {
            check(*run, runs.get(index + 1))?;
        }
        let lengths = || runs.iter().map(|run| run.length);
        let (Some(shortest), Some(longest)) = (lengths().min(), lengths().max()) else {
            return Err(QuotaError::new("window", 0_u64, "a calendar has at least one window"));
        };
        let digest = [0_u8, 1].map(|salt| {
            let mut hasher = DefaultHasher::new();
            (salt, &name, &runs).hash(&mut hasher);
            hasher.finish()
        });
        Ok(Self { name, runs, shortest, longest, digest })
    }

    /// The name of the calendar.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The length of its shortest window.
    #[must_use]
    pub fn shortest(&self) -> Micros {
        self.shortest
    }

    /// The length of its longest window.
    #[must_use]
    pub fn longest(&self) -> Micros {
        self.longest
    }

    /// The first boundary after `instant`: the end of its window.
    // Not inlined, like the next functions, to keep decisions by windows of one length short.
    #[must_use]
    #[inline(never)]
    pub fn after(&self, instant: Timestamp) -> Timestamp {
        match self.run_at(instant) {
            Some(run) => run.last_until(instant).plus(run.length),
            None => self.runs[0].start,
        }
    }

    /// `instant` if it is a boundary, otherwise the first boundary after it.
    #[must_use]
    #[inline(never)]
    pub fn at_or_after(&self, instant: Timestamp) -> Timestamp {
        match self.at_or_before(instant) {
            Some(boundary) if boundary == instant => boundary,
            _ => self.after(instant),
        }
    }

    /// `instant` if it is a boundary, otherwise the last boundary before it: the start of its window. `None` before
    /// the first boundary.
    #[must_use]
    pub fn at_or_before(&self, instant: Timestamp) -> Option<Timestamp> {
        self.run_at(instant).map(|run| run.last_until(instant))
    }

    /// The length of the window of `instant`. The start of the window before the first boundary is unknown, so its
    /// length is that of the first known window.
    #[must_use]
    pub fn length_at(&self, instant: Timestamp) -> Micros {
        self.run_at(instant).map_or(self.runs[0].length, |run| run.length)
    }

    /// The boundaries around `instant` in order, for a clock that differs from ours: the window of `instant`, one
    /// before it and two after it. A clock within the first three of these four windows can find the end of its
    /// window and of the next one. If `instant` is before the first boundary, the first item is the beginning of
    /// time.
    #[must_use]
    pub fn around(&self, instant: Timestamp) -> [Timestamp; BOUNDARIES_AROUND] {
        let start = self.at_or_before(instant).unwrap_or_default();
        let earlier = start.as_micros().checked_sub(1).map(Timestamp::from_micros);
        let mut boundary = earlier.and_then(|earlier| self.at_or_before(earlier)).unwrap_or_default();
        std::array::from_fn(|index| {
            if index > 0 {
                boundary = self.after(boundary);
            }
            boundary
        })
    }

    /// The last run that starts at or before `instant`.
    fn run_at(&self, instant: Timestamp) -> Option<Run> {
        let begun = self.runs.partition_point(|run| run.start <= instant);
        begun.checked_sub(1).map(|index| self.runs[index])
    }
}

impl Run {
    /// The last boundary at or before `instant`, which must not be before the first.
    fn last_until(self, instant: Timestamp) -> Timestamp {
        let elapsed = instant.since(self.start).as_micros() % self.length.as_micros();
        Timestamp::from_micros(instant.as_micros() - elapsed)
    }
}

fn check(run: Run, next: Option<&Run>) -> Result<(), QuotaError> {
    let (start, length) = (run.start.as_micros(), run.length.as_micros());
    let refused = |value, remedy: &str| Err(QuotaError::new("window", value, remedy));
    if !(Calendar::WINDOW_MIN..=Micros::PERIOD_MAX).contains(&run.length) {
        return refused(length, "a window of a calendar is at least 1 s and at most ten years long");
    }
    if !start.is_multiple_of(1_000) || !length.is_multiple_of(1_000) {
        return refused(start, "a window of a calendar is whole milliseconds");
    }
    let ends_there =
        |next: &Run| next.start > run.start && next.start.since(run.start).as_micros().is_multiple_of(length);
    if next.is_some_and(|next| !ends_there(next)) {
        return refused(start, "windows of a calendar follow each other without gap and overlap");
    }
    Ok(())
}

impl Hash for Calendar {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.digest.hash(hasher);
    }
}

/// Prints a summary, because hundreds of runs are not readable.
impl fmt::Debug for Calendar {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Calendar").field(&self.name).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_micros(seconds * SECOND)
    }

    fn run(start: u64, length: u64) -> Run {
        Run { start: at(start), length: Micros::from_secs(length) }
    }

    /// Boundaries at 10, 13, 16, 20, 25, 30 and so on.
    fn uneven() -> Calendar {
        Calendar::new("uneven", [run(10, 3), run(16, 4), run(20, 5)]).unwrap()
    }

    #[test]
    fn boundaries_are_found_at_before_and_after_every_instant() {
        let calendar = uneven();
        let boundaries = [10, 13, 16, 20, 25, 30, 35];
        for micros in (0..30 * SECOND).step_by(250_000) {
            let now = Timestamp::from_micros(micros);
            let seconds = |boundary: &&u64| **boundary * SECOND;
            let after =
                boundaries.iter().find(|boundary| seconds(boundary) > micros).map(|boundary| at(*boundary));
            assert_eq!(Some(calendar.after(now)), after, "{micros}");
            let from =
                boundaries.iter().find(|boundary| seconds(boundary) >= micros).map(|boundary| at(*boundary));
            assert_eq!(Some(calendar.at_or_after(now)), from, "{micros}");
            let until =
                boundaries.iter().rfind(|boundary| seconds(boundary) <= micros).map(|boundary| at(*boundary));
            assert_eq!(calendar.at_or_before(now), until, "{micros}");
            if let Some(until) = until {
                assert_eq!(until.plus(calendar.length_at(now)), calendar.after(now), "{micros}");
            }
        }
        assert_eq!((calendar.shortest(), calendar.longest()), (Micros::from_secs(3), Micros::from_secs(5)));
    }

    #[test]
    fn boundaries_around_an_instant_cover_one_window_before_and_two_after() {
        let around = |seconds| uneven().around(at(seconds)).map(|boundary| boundary.as_micros() / SECOND);
        assert_eq!(around(17), [13, 16, 20, 25, 30]);
        assert_eq!(around(20), [16, 20, 25, 30, 35]);
        assert_eq!(around(13), [10, 13, 16, 20, 25]);
        // One window lies before the first boundary, from the beginning of time.
        assert_eq!(around(12), [0, 10, 13, 16, 20]);
        assert_eq!(around(5), [0, 10, 13, 16, 20]);
    }

    #[test]
    fn last_run_continues_to_the_end_of_time() {
        let calendar = uneven();
        assert_eq!(calendar.after(Timestamp::NOW_MAX).as_micros() % (5 * SECOND), 0);
        assert_eq!(calendar.after(Timestamp::MAX), Timestamp::MAX);
        assert!(calendar.around(Timestamp::NOW_MAX).is_sorted_by(|one, next| one < next));
    }

    #[test]
    fn calendar_must_tile_time() {
        let uneven = Run { start: Timestamp::from_micros(1), length: Micros::from_secs(1) };
        let short = Run { start: at(0), length: Micros::from_millis(999) };
        for runs in [
            &[][..],
            &[run(10, 3), run(15, 4)],
            &[run(10, 3), run(10, 4)],
            &[run(10, 3), run(7, 3)],
            &[run(10, 0)],
            &[run(10, 400_000_000)],
            &[uneven],
            &[short],
        ] {
            let error = Calendar::new("wrong", runs).unwrap_err();
            assert_eq!(error.field(), "window", "{runs:?}: {error}");
        }
    }

    #[test]
    fn calendars_are_equal_if_name_and_windows_are_equal() {
        let of = |name: &str, runs: &[Run]| {
            let calendar = Calendar::new(name, runs).unwrap();
            assert_eq!(calendar.name(), name);
            let mut hasher = DefaultHasher::new();
            calendar.hash(&mut hasher);
            (calendar, hasher.finish())
        };
        let (one, hash) = of("a", &[run(10, 3), run(16, 4)]);
        assert_eq!((&one, hash), (&of("a", &[run(10, 3), run(16, 4)]).0, of("a", &[run(10, 3), run(16, 4)]).1));
        for (other, other_hash) in [of("b", &[run(10, 3), run(16, 4)]), of("a", &[run(10, 3), run(16, 5)])] {
            assert!(one != other && hash != other_hash, "{other:?}");
        }
        assert_eq!(format!("{one:?}"), r#"Calendar("a")"#);
    }
}
