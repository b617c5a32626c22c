//! Windows as people read them off a calendar: the hours, days, weeks and months of a time zone.
//!
//! A window begins the first time the zone's clocks show its start, or skip it. So a day has 23 hours where clocks are
//! set forward and 25 where they are set back, a day that a zone skips has no window, and windows tile time without gap
//! and overlap. Hours are the exception that keeps an hour an hour: each begins whenever the clocks show a full hour, so
//! one that is repeated is two windows.
//!
//! The rules of time zones come with the program, not from the machine: a bare container has none, and servers that share
//! limits must agree on where a window ends. What comes of it is a [`Calendar`], plain data up to the year 2112. Whether a
//! government changes its mind before that, only a newer version of the program knows.

use jiff::tz::{TimeZone, TimeZoneDatabase};
use parking_lot::Mutex;
use sluicegate_core::calendar::Run;
use sluicegate_core::{Calendar, Micros, QuotaError, Timestamp};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

/// Seconds.
type Seconds = i64;

const HOUR: Seconds = 3_600;
const DAY: Seconds = 24 * HOUR;
const WEEK: Seconds = 7 * DAY;
/// The epoch was a Thursday.
const FIRST_MONDAY: Seconds = 4 * DAY;
/// Where the list of windows ends: after the last instant that can be now, by more than two windows.
const LAST: Seconds = (Timestamp::NOW_MAX.as_micros() / 1_000_000) as Seconds + 100 * DAY;
/// The year in which that is.
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

/// The last day on which a month may begin. Where a month is shorter, it begins on its last one.
pub const MONTH_DAY_MAX: u8 = 31;

/// A day of the week.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Weekday {
    /// With which weeks begin, unless somebody says otherwise.
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

/// How often a new window begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cycle {
    /// With every hour.
    Hour,
    /// At midnight.
    Day,
    /// At midnight before this day.
    Week(Weekday),
    /// At midnight before this day of the month, which is 1 to [`MONTH_DAY_MAX`]: a larger one counts as that. A month
    /// that has no such day begins on its last one.
    Month(u8),
}

/// A time zone of the IANA database.
///
/// ```
/// use sluicegate::calendar::{Cycle, Zone};
/// use sluicegate::core::{Micros, Timestamp};
///
/// let days = Zone::named("Europe/Berlin").unwrap().calendar(Cycle::Day)?;
/// // 2025-10-26T12:00:00Z: the day on which clocks are set back.
/// let noon = Timestamp::now(1_761_480_000_000_000);
/// assert_eq!(days.length_at(noon), Micros::from_secs(25 * 3_600));
/// # Ok::<(), sluicegate::core::QuotaError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Zone {
    name: &'static str,
}

/// What calendars are made from.
static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// The names of all zones.
static NAMES: LazyLock<Vec<String>> = LazyLock::new(|| ZONES.available().map(|name| name.to_string()).collect());

/// Calendars that were made, so that all rules, before and after a reload, share them.
static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);

/// Calendars by their zone and cycle.
#[derive(Default)]
struct Known {
    calendars: HashMap<(Zone, Cycle), Arc<Calendar>>,
    /// How many were in use when those were forgotten that nobody used.
    in_use: usize,
}

/// How many more than twice those in use are known before those are forgotten that nobody uses. One of months takes 27 KB; of
/// those in use there are never more than limits.
const UNUSED_MAX: usize = 64;

impl Known {
    /// Keeps a calendar, and returns the one that is known: somebody else may have made it meanwhile.
    fn keep(&mut self, key: (Zone, Cycle), calendar: Arc<Calendar>) -> Arc<Calendar> {
        // Twice as many are gone through only after as many came, or many limits would be read slowly.
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

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The windows of this cycle here.
    ///
    /// # Errors
    /// Never, for all that is known of time zones: it would take one with a window shorter than a second.
    pub fn calendar(&self, cycle: Cycle) -> Result<Arc<Calendar>, QuotaError> {
        let key = (self.clone(), cycle.clamped());
        if let Some(calendar) = KNOWN.lock().calendars.get(&key) {
            return Ok(Arc::clone(calendar));
        }
        let name = format!("{}, {}", key.1, self.name);
        let calendar = Arc::new(Calendar::new(name, runs(&self.stretches(), key.1))?);
        Ok(KNOWN.lock().keep(key, calendar))
    }

    /// How its clocks are set, from the epoch on.
    fn stretches(&self) -> Vec<Stretch> {
        // The name is one of the database's.
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
            // A zone may also change its name, or what it calls summer.
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

/// A time in which clocks are set the same way, up to the next one.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    /// From when on, since the epoch.
    start: Seconds,
    /// How far ahead of UTC.
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

/// What clocks show when a window begins, as if it were UTC: at `start` and every `step`.
fn every(stretches: &[Stretch], step: Seconds, start: Seconds) -> impl Iterator<Item = Seconds> {
    // At the epoch they show the first offset.
    let shown = stretches.first().map_or(0, |stretch| stretch.offset);
    let first = shown + (start - shown).rem_euclid(step);
    (first..LAST).step_by(usize::try_from(step).unwrap_or(usize::MAX))
}

/// What clocks show when a month begins, as if it were UTC.
fn months(day: u8) -> impl Iterator<Item = Seconds> {
    let of_year = |year| (1..=12).map(move |month| jiff::civil::date(year, month, 1));
    (1970..=LAST_YEAR).flat_map(of_year).map(move |first| {
        let day = i64::from(day).min(first.days_in_month().into());
        let midnight = first.to_datetime(jiff::civil::Time::midnight());
        // Years of four digits are within its range.
        let first = jiff::tz::Offset::UTC.to_timestamp(midnight).map_or(LAST, |midnight| midnight.as_second());
        first + (day - 1) * DAY
    })
}

/// Windows that begin when clocks first show these times, which ascend, or something later.
fn first_shown(stretches: &[Stretch], times: impl Iterator<Item = Seconds>, runs: &mut Runs) {
    let mut index = 0;
    for time in times {
        while let Some(next) = stretches.get(index + 1)
            && stretches[index].first_shown(time) >= next.start
        {
            index += 1;
        }
        // What clocks showed before the epoch is over.
        if index > 0 || time >= stretches[index].offset {
            runs.push(stretches[index].first_shown(time));
        }
    }
}

impl Stretch {
    /// When its clocks first show `time`, or something later.
    fn first_shown(self, time: Seconds) -> Seconds {
        self.start.max(time - self.offset)
    }
}

/// Windows that begin whenever clocks show a full hour, and when they skip one.
fn hours(stretches: &[Stretch], runs: &mut Runs) {
    for (index, stretch) in stretches.iter().enumerate() {
        let end = stretches.get(index + 1).map_or(LAST, |next| next.start);
        let shown = stretch.start + stretch.offset;
        // What they would have shown had they not been set.
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

/// Boundaries, as they become runs.
#[derive(Default)]
struct Runs {
    runs: Vec<Run>,
    last: Option<Seconds>,
}

impl Runs {
    /// One boundary more. One that does not come after all others is the same once more.
    fn push(&mut self, boundary: Seconds) {
        match self.last {
            Some(last) if boundary <= last => return,
            Some(last) => self.end(last, boundary - last),
            None => {}
        }
        self.last = Some(boundary);
    }

    /// As many more, this far apart, as lie before `end`.
    fn repeat(&mut self, step: Seconds, end: Seconds) {
        if let Some(last) = self.last
            && last + step < end
        {
            self.end(last, step);
            self.last = Some(last + (end - 1 - last) / step * step);
        }
    }

    /// The window that began at `start` is so long.
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
