//! Windows in a file: a duration, or a word for windows of a calendar, with a time zone and an anchor.

use super::field::{Absent, Described, Field, Form, Shape, Text, words};
use super::problem::ValueError;
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
pub(super) static TIMEZONE: Field<Text<Zone>> = Field {
    key: "timezone",
    doc: "The time zone that determines the start of the windows.",
    kind: Text {
        parse: timezone,
        form: || {
            let shape = Shape::matching("name of the IANA time zone database", "^[A-Za-z0-9_+/-]{1,64}$");
            Form::Text(shape)
        },
    },
    absent: Absent::Default("UTC"),
    examples: &["Europe/Berlin"],
};

pub(super) static ANCHOR: Field<Described> = Field {
    key: "anchor",
    doc: "The day on which a window begins. A month without that day begins on its last one.",
    kind: Described(|| {
        let day = Form::Integer { min: 1, max: MONTH_DAY_MAX.into() };
        Form::Any(vec![day, Form::Words(words(WEEKDAYS))])
    }),
    absent: Absent::Nothing("`1` of a month, `monday` of a week"),
    examples: &["15", "sunday"],
};

/// The keys of a limit that only a calendar has.
const CALENDAR_KEYS: [&str; 2] = [TIMEZONE.key, ANCHOR.key];

/// A kind of calendar window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CalendarWindow {
    /// Months.
    Month,
    /// Weeks.
    Week,
    /// Days.
    Day,
    /// Hours.
    Hour,
}

/// A window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// A fixed duration.
    Length(Micros),
    /// A window of a calendar.
    Calendar(CalendarWindow),
}

/// Reads a duration, or a word for windows of a calendar.
///
/// # Errors
/// If the text is neither.
pub fn window(text: &str) -> Result<Window, ValueError> {
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
        ValueError::new(wrong.message, with_closest(text, &words, &remedy))
    })
}

/// Reads the window of an algorithm without calendar windows.
pub(super) fn length(reader: &Reader<'_>) -> Option<Micros> {
    if CALENDAR_WINDOWS.iter().any(|(word, _)| reader.is_word(word)) {
        let remedy = "use algorithm: fixed_window, or a length of time such as 30d";
        return reader.refuse(ValueError::new("only a fixed_window has windows of a calendar", remedy));
    }
    reader.duration()
}

/// Reports calendar keys beside a window of fixed length.
pub(super) fn refuse_calendar(section: &Section<'_>) {
    for (key, reader) in CALENDAR_KEYS.iter().filter_map(|key| Some((key, section.get(key)?))) {
        let remedy = format!("write window: month, week, day or hour, or leave {key} out");
        reader.report(ValueError::new("only for windows of a calendar", remedy));
    }
}

/// Reads the calendar of `window`.
pub(super) fn calendar(
    section: &Section<'_>,
    window: CalendarWindow,
) -> Option<Result<Arc<Calendar>, QuotaError>> {
    let align = section.optional("align", (), |align| {
        align.refuse(ValueError::new("the calendar determines where its windows start", "leave align out"))
    });
    let zone = section.read(&TIMEZONE);
    let cycle = cycle(section, window);
    align?;
    Some(zone?.calendar(cycle?))
}

fn cycle(section: &Section<'_>, window: CalendarWindow) -> Option<Cycle> {
    let other = |cycle| {
        section.optional("anchor", cycle, |anchor| {
            let remedy = "write window: month or window: week, or leave anchor out";
            anchor.refuse(ValueError::new("only months and weeks have one", remedy))
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
/// If no time zone has this name.
pub fn timezone(text: &str) -> Result<Zone, ValueError> {
    Zone::named(text).ok_or_else(|| {
        let names: Vec<&str> = Zone::names().collect();
        let remedy = "write a name of the IANA time zone database, for example Europe/Berlin or UTC";
        // A city stands for its zone.
        let is_city = |name: &&&str| name.rsplit('/').next().is_some_and(|city| city.eq_ignore_ascii_case(text));
        let remedy = match names.iter().find(is_city) {
            Some(name) => format!("did you mean {name}? {remedy}"),
            None => with_closest(text, &names, remedy),
        };
        ValueError::new("unknown time zone", remedy)
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
    fn an_unknown_time_zone_comes_with_a_suggestion() {
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
