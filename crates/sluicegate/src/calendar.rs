//! Calendar windows: the hours, days, weeks and months of a time zone.
//!
//! A window begins when the zone's clocks first show its start, or skip it. So a day has 23 hours where clocks are
//! set forward and 25 where they are set back, a day that a zone skips has no window, and windows tile time without
//! gap or overlap. Hours are an exception: an hour begins whenever the clocks show a full hour, so a repeated hour is
//! two windows.
//!
//! The time zone rules are compiled into the program instead of read from the machine: a bare container has none, and
//! servers that share limits must agree on the end of a window. The result is a [`Calendar`], plain data up to the
//! year 2112. If a government changes its rules before then, a newer version of the program is necessary.

use jiff::tz::{TimeZone, TimeZoneDatabase};
use parking_lot::Mutex;
use sluicegate_core::calendar::Run;
use sluicegate_core::{Calendar, Micros, QuotaError, Timestamp};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

/// Seconds since the epoch, or a duration in seconds.
type Seconds = i64;

const HOUR: Seconds = 3_600;
const DAY: Seconds = 24 * HOUR;
const WEEK: Seconds = 7 * DAY;
/// The epoch was a Thursday.
const FIRST_MONDAY: Seconds = 4 * DAY;
/// The end of the list of windows: more than two windows after the last instant that can be now.
const LAST: Seconds = (Timestamp::NOW_MAX.as_micros() / 1_000_000) as Seconds + 100 * DAY;
/// The year of that end.
const LAST_YEAR: i16 = 2113;

/// The days of the week, as configuration spells them.
pub const WEEKDAYS: &[(&str, Weekday)] = &[
    ("monday", Weekday::Monday),
    ("tuesday", Weekday::Tuesday),
    ("wednesday", Weekday::Wednesday),
    ("thursday", Weekday::Thursday),
    ("friday", Weekday::Friday),
    ("saturday", Weekday::Saturday),
    ("sunday", Weekday::Sunday),
];

/// The largest first day of a month window. In a shorter month the window begins on the last day.
pub const MONTH_DAY_MAX: u8 = 31;

/// A day of the week.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Weekday {
    /// Weeks begin on Monday by default.
    #[default]
    Monday,
    /// The day after Monday.
    Tuesday,
    /// The day after Tuesday.
    Wednesday,
    /// The day after Wednesday.
    Thursday,
    /// The day after Thursday.
    Friday,
    /// The day after Friday.
    Saturday,
    /// The day after Saturday.
    Sunday,
}

/// The length of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cycle {
    /// A window begins with every hour.
    Hour,
    /// A window begins at midnight.
    Day,
    /// A window begins at midnight before this day of the week.
    Week(Weekday),
    /// A window begins at midnight before this day of the month, which is 1 to [`MONTH_DAY_MAX`]; a larger day counts
    /// as the maximum. In a month without that day, it begins on the last day.
    Month(u8),
}

/// A time zone of the IANA database.
///
/// ```
/// use sluicegate::calendar::{Cycle, Zone};
/// use sluicegate::core::{Micros, Timestamp};
///
/// let days = Zone::named("Europe/Berlin").unwrap().calendar(Cycle::Day)?;
/// // 2025-10-26T12:00:00Z: on this day clocks are set back.
/// let noon = Timestamp::now(1_761_480_000_000_000);
/// assert_eq!(days.length_at(noon), Micros::from_secs(25 * 3_600));
/// # Ok::<(), sluicegate::core::QuotaError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Zone {
    name: &'static str,
}

/// The bundled time zone database.
static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// The names of all zones.
static NAMES: LazyLock<Vec<String>> = LazyLock::new(|| ZONES.available().map(|name| name.to_string()).collect());

/// A cache of calendars, so that all rules share them, also after a reload.
static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);

/// Calendars by their zone and cycle.
#[derive(Default)]
struct Known {
    calendars: HashMap<(Zone, Cycle), Arc<Calendar>>,
    /// The number of calendars in use at the last eviction.
    in_use: usize,
}

/// The cache evicts unused calendars when it holds this many more than twice the number in use. A calendar of months
/// takes 27 KB, and there are never more calendars in use than limits.
const UNUSED_MAX: usize = 64;

impl Known {
    /// Inserts a calendar and returns the cached one: another thread may have inserted it meanwhile.
    fn keep(&mut self, key: (Zone, Cycle), calendar: Arc<Calendar>) -> Arc<Calendar> {
        // The threshold doubles with the number in use, so that the cost of evictions is amortised over many limits.
        if self.calendars.len() >= 2 * self.in_use + UNUSED_MAX {
            self.calendars.retain(|_, calendar| Arc::strong_count(calendar) > 1);
            self.in_use = self.calendars.len();
        }
        Arc::clone(self.calendars.entry(key).or_insert(calendar))
    }
}

impl Zone {
    /// The zone of this name, such as `Europe/Berlin`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let known = Self::names().find(|known| *known == name)?;
        Some(Self { name: known })
    }

    /// The names of all zones.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMES.iter().map(String::as_str)
    }

    /// The name of the zone.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The windows of this cycle in the zone.
    ///
    /// # Errors
    /// Never for the time zones known today: the error requires a window shorter than a second.
    pub fn calendar(&self, cycle: Cycle) -> Result<Arc<Calendar>, QuotaError> {
        let key = (self.clone(), cycle.clamped());
        if let Some(calendar) = KNOWN.lock().calendars.get(&key) {
            return Ok(Arc::clone(calendar));
        }
        let name = format!("{}, {}", key.1, self.name);
        let calendar = Arc::new(Calendar::new(name, runs(&self.stretches(), key.1))?);
        Ok(KNOWN.lock().keep(key, calendar))
    }

    /// The offsets of the zone's clocks from the epoch on.
    fn stretches(&self) -> Vec<Stretch> {
        // The name comes from the database, so the zone exists.
        let zone = ZONES.get(self.name).unwrap_or(TimeZone::UTC);
        let epoch = jiff::Timestamp::UNIX_EPOCH;
        let mut stretches = vec![Stretch { start: 0, offset: zone.to_offset(epoch).seconds().into() }];
        for transition in zone.following(epoch) {
            let stretch = Stretch {
                start: transition.timestamp().as_second(),
                offset: transition.offset().seconds().into(),
            };
            if stretch.start > LAST {
                break;
            }
            // A zone may also change only its abbreviation or its daylight saving flag.
            if stretches.last().is_some_and(|last| last.offset != stretch.offset) {
                stretches.push(stretch);
            }
        }
        stretches
    }
}

impl Cycle {
    fn clamped(self) -> Self {
        match self {
            Self::Month(day) => Self::Month(day.clamp(1, MONTH_DAY_MAX)),
            other => other,
        }
    }
}

impl fmt::Display for Cycle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hour => formatter.write_str("hour"),
            Self::Day => formatter.write_str("day"),
            Self::Week(day) => {
                let (name, _) = WEEKDAYS[*day as usize];
                write!(formatter, "week from {name}")
            }
            Self::Month(day) => write!(formatter, "month from day {day}"),
        }
    }
}

/// A period with one offset, up to the next one.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    /// The start, since the epoch.
    start: Seconds,
    /// The offset from UTC.
    offset: Seconds,
}

fn runs(stretches: &[Stretch], cycle: Cycle) -> Vec<Run> {
    let mut runs = Runs::default();
    match cycle {
        Cycle::Hour => hours(stretches, &mut runs),
        Cycle::Day => first_shown(stretches, every(stretches, DAY, 0), &mut runs),
        Cycle::Week(day) => {
            let start = FIRST_MONDAY + day as Seconds * DAY;
            first_shown(stretches, every(stretches, WEEK, start), &mut runs);
        }
        Cycle::Month(day) => first_shown(stretches, months(day), &mut runs),
    }
    runs.runs
}

/// The local times at which windows begin, as if they were UTC: `start` and every `step` after it.
fn every(stretches: &[Stretch], step: Seconds, start: Seconds) -> impl Iterator<Item = Seconds> {
    // At the epoch the clocks show the first offset.
    let shown = stretches.first().map_or(0, |stretch| stretch.offset);
    let first = shown + (start - shown).rem_euclid(step);
    (first..LAST).step_by(usize::try_from(step).unwrap_or(usize::MAX))
}

/// The local times at which months begin, as if they were UTC.
fn months(day: u8) -> impl Iterator<Item = Seconds> {
    let of_year = |year| (1..=12).map(move |month| jiff::civil::date(year, month, 1));
    (1970..=LAST_YEAR).flat_map(of_year).map(move |first| {
        let day = i64::from(day).min(first.days_in_month().into());
        let midnight = first.to_datetime(jiff::civil::Time::midnight());
        // Years of four digits are within the range.
        let first = jiff::tz::Offset::UTC.to_timestamp(midnight).map_or(LAST, |midnight| midnight.as_second());
        first + (day - 1) * DAY
    })
}

/// Appends windows that begin when the clocks first show one of these ascending times, or a later one.
fn first_shown(stretches: &[Stretch], times: impl Iterator<Item = Seconds>, runs: &mut Runs) {
    let mut index = 0;
    for time in times {
        while let Some(next) = stretches.get(index + 1)
            && stretches[index].first_shown(time) >= next.start
        {
            index += 1;
        }
        // Skips local times before the epoch.
        if index > 0 || time >= stretches[index].offset {
            runs.push(stretches[index].first_shown(time));
        }
    }
}

impl Stretch {
    /// The first instant at which the clocks show `time` or a later time.
    fn first_shown(self, time: Seconds) -> Seconds {
        self.start.max(time - self.offset)
    }
}

/// Appends windows that begin whenever the clocks show or skip a full hour.
fn hours(stretches: &[Stretch], runs: &mut Runs) {
    for (index, stretch) in stretches.iter().enumerate() {
        let end = stretches.get(index + 1).map_or(LAST, |next| next.start);
        let shown = stretch.start + stretch.offset;
        // The local time without the change of the offset.
        let before = index.checked_sub(1).map_or(shown, |before| stretch.start + stretches[before].offset);
        if (before - 1).div_euclid(HOUR) < shown.div_euclid(HOUR) && before < shown {
            runs.push(stretch.start);
        }
        let first = stretch.start + (-shown).rem_euclid(HOUR);
        if first < end {
            runs.push(first);
            runs.repeat(HOUR, end);
        }
    }
}

/// Collects boundaries as runs of equal length.
#[derive(Default)]
struct Runs {
    runs: Vec<Run>,
    last: Option<Seconds>,
}

impl Runs {
    /// Adds a boundary. A boundary that is not after all others is a duplicate.
    fn push(&mut self, boundary: Seconds) {
        match self.last {
            Some(last) if boundary <= last => return,
            Some(last) => self.end(last, boundary - last),
            None => {}
        }
        self.last = Some(boundary);
    }

    /// Adds boundaries at this distance up to `end`.
    fn repeat(&mut self, step: Seconds, end: Seconds) {
        if let Some(last) = self.last
            && last + step < end
        {
            self.end(last, step);
            self.last = Some(last + (end - 1 - last) / step * step);
        }
    }

    /// Ends the window that began at `start` with this length.
    fn end(&mut self, start: Seconds, length: Seconds) {
        let micros = |seconds: Seconds| u64::try_from(seconds).unwrap_or(0).saturating_mul(1_000_000);
        let (start, length) = (Timestamp::from_micros(micros(start)), Micros::from_micros(micros(length)));
        if self.runs.last().is_none_or(|run| run.length != length) {
            self.runs.push(Run { start, length });
        }
    }
}

#[cfg(test)]
mod tests;
