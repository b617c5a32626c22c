//! Windows as they stand in a file: a length of time, or a word for the windows of a calendar with its time zone and
//! where it begins.

use super::problem::Wrong;
use super::reader::Reader;
use super::section::Section;
use super::suggest::with_closest;
use super::value;
use crate::calendar::{Cycle, MONTH_DAY_MAX, WEEKDAYS, Weekday, Zone};
use sluicegate_core::{Calendar, Micros, QuotaError};
use std::sync::Arc;

/// The words for windows of a calendar.
pub const CALENDAR_WINDOWS: &[(&str, CalendarWindow)] = &[
    ("month", CalendarWindow::Month),
    ("week", CalendarWindow::Week),
    ("day", CalendarWindow::Day),
    ("hour", CalendarWindow::Hour),
];
/// The time zone of a calendar, unless somebody says otherwise.
pub const TIMEZONE_DEFAULT: &str = "UTC";
/// The keys of a limit that only a calendar has.
const CALENDAR_KEYS: [&str; 2] = ["timezone", "anchor"];

/// Which windows of a calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CalendarWindow {
    /// Its months.
    Month,
    /// Its weeks.
    Week,
    /// Its days.
    Day,
    /// Its hours.
    Hour,
}

/// A window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// Always as long.
    Length(Micros),
    /// As long as the calendar says.
    Calendar(CalendarWindow),
}

/// Reads a length of time, or a word for windows of a calendar.
///
/// # Errors
/// If the text is neither.
pub fn window(text: &str) -> Result<Window, Wrong> {
    if let Some((_, calendar)) = CALENDAR_WINDOWS.iter().find(|(word, _)| *word == text) {
        return Ok(Window::Calendar(*calendar));
    }
    let length = value::duration(text).map(Window::Length);
    if text.starts_with(|first: char| first.is_ascii_digit()) {
        return length;
    }
    let words = CALENDAR_WINDOWS.iter().map(|(word, _)| *word).collect::<Vec<_>>();
    length.map_err(|wrong| {
        let remedy = format!("{}; or one of {}", wrong.remedy, words.join(", "));
        Wrong::new(wrong.message, with_closest(text, &words, &remedy))
    })
}

/// The length of the window of a limit that knows no calendar.
pub(super) fn length(reader: &Reader<'_>) -> Option<Micros> {
    if CALENDAR_WINDOWS.iter().any(|(word, _)| reader.is_word(word)) {
        let remedy = "use algorithm: fixed_window, or a length of time such as 30d";
        return reader.refuse(Wrong::new("only a fixed_window has windows of a calendar", remedy));
    }
    reader.duration()
}

/// Reports the keys of a calendar, where there is none.
pub(super) fn refuse_calendar(section: &Section<'_>) {
    for (key, reader) in CALENDAR_KEYS.iter().filter_map(|key| Some((key, section.get(key)?))) {
        let remedy = format!("write window: month, week, day or hour, or leave {key} out");
        reader.report(Wrong::new("only for windows of a calendar", remedy));
    }
}

/// The calendar that `window` is of.
pub(super) fn calendar(
    section: &Section<'_>,
    window: CalendarWindow,
) -> Option<Result<Arc<Calendar>, QuotaError>> {
    let align = section.optional("align", (), |align| {
        align.refuse(Wrong::new("a calendar says where its windows start", "leave align out"))
    });
    let default = Zone::named(TIMEZONE_DEFAULT)?;
    let zone = section.optional("timezone", default, |zone| zone.text_as(timezone));
    let cycle = cycle(section, window);
    align?;
    Some(zone?.calendar(cycle?))
}

fn cycle(section: &Section<'_>, window: CalendarWindow) -> Option<Cycle> {
    let other = |cycle| {
        section.optional("anchor", cycle, |anchor| {
            let remedy = "write window: month or window: week, or leave anchor out";
            anchor.refuse(Wrong::new("only months and weeks have one", remedy))
        })
    };
    match window {
        CalendarWindow::Month => {
            let day = section.optional("anchor", 1, |anchor| anchor.integer(1..=MONTH_DAY_MAX.into()))?;
            Some(Cycle::Month(u8::try_from(day).ok()?))
        }
        CalendarWindow::Week => {
            let day = section.optional("anchor", Weekday::default(), |anchor| anchor.choice(WEEKDAYS))?;
            Some(Cycle::Week(day))
        }
        CalendarWindow::Day => other(Cycle::Day),
        CalendarWindow::Hour => other(Cycle::Hour),
    }
}

/// Reads the name of a time zone.
///
/// # Errors
/// If there is none of this name.
pub fn timezone(text: &str) -> Result<Zone, Wrong> {
    Zone::named(text).ok_or_else(|| {
        let names: Vec<&str> = Zone::names().collect();
        let remedy = "write a name of the IANA time zone database, for example Europe/Berlin or UTC";
        // Who names a city means its zone.
        let is_city = |name: &&&str| name.rsplit('/').next().is_some_and(|city| city.eq_ignore_ascii_case(text));
        let remedy = match names.iter().find(is_city) {
            Some(name) => format!("did you mean {name}? {remedy}"),
            None => with_closest(text, &names, remedy),
        };
        Wrong::new("unknown time zone", remedy)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_a_length_or_a_word() {
        assert_eq!(window("1h"), Ok(Window::Length(Micros::from_secs(3_600))));
        for (word, calendar) in CALENDAR_WINDOWS {
            assert_eq!(window(word), Ok(Window::Calendar(*calendar)));
        }
        let remedy = |text| window(text).unwrap_err().remedy;
        assert!(remedy("months").starts_with("did you mean month? "), "{}", remedy("months"));
        assert!(remedy("Day").starts_with("did you mean day? "));
        assert!(remedy("fortnight").ends_with("; or one of month, week, day, hour"));
        assert_eq!(window("1 h"), value::duration("1 h").map(Window::Length));
    }

    #[test]
    fn a_zone_that_is_unknown_comes_with_the_one_that_was_probably_meant() {
        assert_eq!(timezone("Europe/Berlin").unwrap().name(), "Europe/Berlin");
        let meant = |text| timezone(text).unwrap_err().remedy;
        for text in ["Europe/Berln", "europe/berlin", "Berlin", "Europa/Berlin"] {
            assert!(meant(text).starts_with("did you mean Europe/Berlin? "), "{text}: {}", meant(text));
        }
        for text in ["", "Mars/Olympus_Mons", "Etc/Unknown", "+02:00", "CEST-ish", &"x".repeat(100_000)] {
            assert!(meant(text).starts_with("write a name of the IANA"), "{}", meant(text));
        }
    }
}
