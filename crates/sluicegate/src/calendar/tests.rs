//! Calendars of real zones: the days with clock changes, months of every length, and a comparison with a naive
//! minute-by-minute reading of the clocks.

use super::*;
use jiff::civil::DateTime;
use proptest::prelude::*;

fn calendar(zone: &str, cycle: Cycle) -> Arc<Calendar> {
    Zone::named(zone).unwrap_or_else(|| panic!("{zone}")).calendar(cycle).unwrap()
}

fn instant(text: &str) -> Timestamp {
    let instant: jiff::Timestamp = text.parse().unwrap();
    Timestamp::from_micros(instant.as_microsecond().try_into().unwrap())
}

fn text(instant: Timestamp) -> String {
    jiff::Timestamp::from_microsecond(instant.as_micros().try_into().unwrap()).unwrap().to_string()
}

/// The starts of windows, from the one that contains `from`.
fn starts(zone: &str, cycle: Cycle, from: &str, count: usize) -> Vec<String> {
    let calendar = calendar(zone, cycle);
    let mut start = calendar.at_or_before(instant(from)).unwrap();
    (0..count)
        .map(|_| {
            let this = start;
            start = calendar.after(this);
            text(this)
        })
        .collect()
}

fn hours_of(zone: &str, cycle: Cycle, at: &str) -> u64 {
    calendar(zone, cycle).length_at(instant(at)).as_micros() / 3_600_000_000
}

#[test]
fn days_have_23_24_and_25_hours() {
    for (at, hours) in [("2025-03-29", 24), ("2025-03-30", 23), ("2025-10-26", 25), ("2025-10-27", 24)] {
        assert_eq!(hours_of("Europe/Berlin", Cycle::Day, &format!("{at}T12:00:00Z")), hours, "{at}");
        assert_eq!(hours_of("UTC", Cycle::Day, &format!("{at}T12:00:00Z")), 24, "{at}");
    }
    let days = starts("Europe/Berlin", Cycle::Day, "2025-03-29T12:00:00Z", 3);
    assert_eq!(days, ["2025-03-28T23:00:00Z", "2025-03-29T23:00:00Z", "2025-03-30T22:00:00Z"]);
}

#[test]
fn day_with_a_skipped_midnight_begins_at_the_clock_change() {
    // 00:00 became 01:00.
    let days = starts("America/Sao_Paulo", Cycle::Day, "2018-11-03T12:00:00Z", 3);
    assert_eq!(days, ["2018-11-03T03:00:00Z", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"]);
    let days = starts("Africa/Cairo", Cycle::Day, "2024-04-25T12:00:00Z", 3);
    assert_eq!(days, ["2024-04-24T22:00:00Z", "2024-04-25T22:00:00Z", "2024-04-26T21:00:00Z"]);
    // 00:00 became 23:00 again, so midnight came an hour later.
    assert_eq!(hours_of("America/Sao_Paulo", Cycle::Day, "2018-02-17T12:00:00Z"), 25);
}

#[test]
fn repeated_midnight_begins_one_day() {
    // At one minute past midnight, clocks were set back to one minute past eleven.
    let days = starts("America/St_Johns", Cycle::Day, "2010-11-06T12:00:00Z", 3);
    assert_eq!(days, ["2010-11-06T02:30:00Z", "2010-11-07T02:30:00Z", "2010-11-08T03:30:00Z"]);
}

#[test]
fn skipped_day_has_no_window() {
    // There was no 30 December 2011 in Samoa.
    let days = starts("Pacific/Apia", Cycle::Day, "2011-12-29T12:00:00Z", 3);
    assert_eq!(days, ["2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"]);
    // A month that would have begun on that day begins on the next.
    let months = starts("Pacific/Apia", Cycle::Month(30), "2011-12-20T00:00:00Z", 3);
    assert_eq!(months, ["2011-11-30T10:00:00Z", "2011-12-30T10:00:00Z", "2012-01-29T10:00:00Z"]);
}

#[test]
fn hours_have_60_minutes_except_at_half_hour_changes() {
    for zone in ["UTC", "Europe/Berlin", "America/New_York"] {
        let hours = calendar(zone, Cycle::Hour);
        assert_eq!(
            (hours.shortest(), hours.longest()),
            (Micros::from_secs(3_600), Micros::from_secs(3_600)),
            "{zone}"
        );
    }
    assert_eq!(starts("Asia/Kolkata", Cycle::Hour, "2025-01-01T00:10:00Z", 1), ["2024-12-31T23:30:00Z"]);
    // Half an hour forward at 02:00, and half an hour back at 02:00.
    let forward = starts("Australia/Lord_Howe", Cycle::Hour, "2025-10-04T15:00:00Z", 3);
    assert_eq!(forward, ["2025-10-04T14:30:00Z", "2025-10-04T15:30:00Z", "2025-10-04T16:00:00Z"]);
    let back = starts("Australia/Lord_Howe", Cycle::Hour, "2025-04-05T14:30:00Z", 3);
    assert_eq!(back, ["2025-04-05T14:00:00Z", "2025-04-05T15:30:00Z", "2025-04-05T16:30:00Z"]);
    assert_eq!(
        calendar("Australia/Lord_Howe", Cycle::Day).length_at(instant("2025-10-04T20:00:00Z")),
        Micros::from_secs(23 * 3_600 + 1_800)
    );
}

#[test]
fn months_begin_on_their_day_or_their_last_day() {
    let starts = |day, from: &str| -> Vec<String> {
        let starts = starts("UTC", Cycle::Month(day), &format!("{from}T12:00:00Z"), 5);
        starts.into_iter().map(|start| start.strip_suffix("T00:00:00Z").unwrap().to_owned()).collect()
    };
    assert_eq!(starts(1, "2025-01-01"), ["2025-01-01", "2025-02-01", "2025-03-01", "2025-04-01", "2025-05-01"]);
    assert_eq!(starts(29, "2024-01-31"), ["2024-01-29", "2024-02-29", "2024-03-29", "2024-04-29", "2024-05-29"]);
    assert_eq!(starts(29, "2025-01-31"), ["2025-01-29", "2025-02-28", "2025-03-29", "2025-04-29", "2025-05-29"]);
    assert_eq!(starts(30, "2025-01-30"), ["2025-01-30", "2025-02-28", "2025-03-30", "2025-04-30", "2025-05-30"]);
    assert_eq!(starts(31, "2025-01-31"), ["2025-01-31", "2025-02-28", "2025-03-31", "2025-04-30", "2025-05-31"]);
    assert_eq!(starts(31, "2100-01-31"), ["2100-01-31", "2100-02-28", "2100-03-31", "2100-04-30", "2100-05-31"]);
    // A day that no month has counts as the nearest valid day.
    assert_eq!(starts(0, "2025-01-01"), starts(1, "2025-01-01"));
    assert_eq!(starts(99, "2025-01-31"), starts(31, "2025-01-31"));
    assert_eq!(hours_of("UTC", Cycle::Month(1), "2025-02-10T00:00:00Z"), 28 * 24);
    assert_eq!(hours_of("UTC", Cycle::Month(1), "2024-02-10T00:00:00Z"), 29 * 24);
    assert_eq!(hours_of("Europe/Berlin", Cycle::Month(1), "2025-03-10T00:00:00Z"), 31 * 24 - 1);
    assert_eq!(hours_of("Europe/Berlin", Cycle::Month(1), "2025-10-10T00:00:00Z"), 31 * 24 + 1);
}

#[test]
fn weeks_begin_on_the_configured_day() {
    // 17 November 2025 was a Monday.
    for (index, (name, day)) in WEEKDAYS.iter().enumerate() {
        let start = starts("UTC", Cycle::Week(*day), "2025-11-23T12:00:00Z", 1);
        assert_eq!(start, [format!("2025-11-{}T00:00:00Z", 17 + index)], "{name}");
    }
    assert_eq!(hours_of("Europe/Berlin", Cycle::Week(Weekday::Monday), "2025-03-28T00:00:00Z"), 7 * 24 - 1);
}

#[test]
fn first_and_last_instants_have_windows() {
    for zone in ["UTC", "Pacific/Kiritimati", "America/Adak", "Africa/Monrovia"] {
        for cycle in [Cycle::Hour, Cycle::Day, Cycle::Week(Weekday::Sunday), Cycle::Month(31)] {
            let calendar = calendar(zone, cycle);
            let first = calendar.after(Timestamp::default());
            assert!(first.as_micros() <= calendar.longest().as_micros(), "{zone} {cycle}: {first:?}");
            let (last, now) = (calendar.after(calendar.after(Timestamp::NOW_MAX)), Timestamp::NOW_MAX.as_micros());
            assert!(last.as_micros() <= now + 2 * calendar.longest().as_micros(), "{zone} {cycle}");
            assert!(last < Timestamp::MAX);
        }
    }
}

/// Windows of all zones tile time: [`Calendar::new`] rejects others. No window has an implausible length.
#[test]
fn every_zone_has_every_calendar() {
    assert!(Zone::names().count() > 400);
    for name in Zone::names() {
        let cases = [
            (Cycle::Hour, HOUR, HOUR),
            (Cycle::Day, DAY, DAY),
            (Cycle::Week(Weekday::Monday), WEEK, DAY),
            (Cycle::Month(31), 30 * DAY, 4 * DAY),
        ];
        for (cycle, usual, more) in cases {
            let calendar = calendar(name, cycle);
            let seconds = |length: Micros| length.as_micros() as Seconds / 1_000_000;
            let (shortest, longest) = (seconds(calendar.shortest()), seconds(calendar.longest()));
            assert!(shortest >= usual / 60 && longest <= usual + more, "{name} {cycle}: {shortest} to {longest}");
        }
    }
}

#[test]
fn calendars_are_shared_and_unused_ones_evicted() {
    let (one, other) = (calendar("Asia/Tokyo", Cycle::Month(7)), calendar("Asia/Tokyo", Cycle::Month(7)));
    assert!(Arc::ptr_eq(&one, &other));
    assert_eq!(one.name(), "month from day 7, Asia/Tokyo");
    let next = calendar("Asia/Tokyo", Cycle::Month(8));
    assert!(one != next && !Arc::ptr_eq(&one, &next));
    for name in Zone::names() {
        calendar(name, Cycle::Day);
    }
    // Other tests use some calendars at the same time.
    let known = KNOWN.lock();
    let (count, in_use) = (known.calendars.len(), known.in_use);
    assert!(in_use > 0 && count <= 2 * in_use + UNUSED_MAX, "{count} of which {in_use} were in use");
    assert!(known.calendars.values().any(|known| Arc::ptr_eq(known, &one)));
}

/// The local time as one increasing number of its day, week or month.
fn number(shown: DateTime, cycle: Cycle) -> i64 {
    let days = i64::from(jiff::civil::date(1970, 1, 1).until(shown.date()).unwrap().get_days());
    match cycle {
        Cycle::Hour => days * 24 + i64::from(shown.hour()),
        Cycle::Day => days,
        Cycle::Week(day) => (days + 3 - day as i64).div_euclid(7),
        Cycle::Month(day) => {
            let begins = i64::from(shown.date().days_in_month()).min(day.into());
            let months = i64::from(shown.year()) * 12 + i64::from(shown.month());
            if i64::from(shown.day()) < begins { months - 1 } else { months }
        }
    }
}

/// The largest number shown so far, because clocks may be set back.
fn shown_until(zone: &TimeZone, seconds: Seconds, cycle: Cycle) -> i64 {
    let shown = |seconds| zone.to_datetime(jiff::Timestamp::from_second(seconds).unwrap());
    (0..26 * 60).map(|minutes| number(shown(seconds - minutes * 60), cycle)).max().unwrap()
}

fn cycles() -> impl Strategy<Value = Cycle> {
    let week = (0..7_usize).prop_map(|day| Cycle::Week(WEEKDAYS[day].1));
    prop_oneof![3 => Just(Cycle::Day), 1 => week, 3 => (1..=31_u8).prop_map(Cycle::Month)]
}

/// Instants since 1973, when the last zone gave up offsets with seconds, most of them near a clock change.
fn instants(zone: &TimeZone) -> impl Strategy<Value = Seconds> + use<> {
    let anywhere = 94_694_400..4_400_000_000_i64;
    let zone = zone.clone();
    (anywhere, -200_000..200_000_i64, any::<bool>()).prop_map(move |(around, off, is_near)| {
        let next = zone.following(jiff::Timestamp::from_second(around).unwrap()).next();
        next.filter(|_| is_near).map_or(around, |next| next.timestamp().as_second() + off)
    })
}

const NOTABLE: &[&str] =
    &["Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia", "America/Sao_Paulo", "Africa/Cairo"];

fn cases() -> impl Strategy<Value = (&'static str, Seconds)> {
    let all: Vec<&'static str> = Zone::names().collect();
    let zone = prop_oneof![prop::sample::select(NOTABLE), prop::sample::select(all)];
    zone.prop_flat_map(|name| (Just(name), instants(&ZONES.get(name).unwrap())))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// A window is the period in which the clocks have shown no later day, week or month than at its start.
    #[test]
    fn windows_agree_with_a_reading_of_the_clocks((name, seconds) in cases(), cycle in cycles()) {
        let (calendar, zone) = (calendar(name, cycle), ZONES.get(name).unwrap());
        let at = Timestamp::from_micros(seconds as u64 * 1_000_000);
        let start = calendar.at_or_before(at).unwrap().as_micros() as Seconds / 1_000_000;
        let end = calendar.after(at).as_micros() as Seconds / 1_000_000;
        let number = |seconds| shown_until(&zone, seconds, cycle);
        let this = number(seconds);
        prop_assert!(start <= seconds && seconds < end);
        prop_assert_eq!((number(start), number(end - 1)), (this, this), "{} to {}", start, end);
        prop_assert!(number(start - 1) < this && this < number(end), "{} to {}", start, end);
        prop_assert_eq!(calendar.length_at(at), Micros::from_secs((end - start) as u64));
    }

    /// An hour begins where the clocks show a full hour, or a later one than a moment before, and nowhere else.
    #[test]
    fn hours_agree_with_a_reading_of_the_clocks((name, seconds) in cases()) {
        let (calendar, zone) = (calendar(name, Cycle::Hour), ZONES.get(name).unwrap());
        let shown = |seconds| zone.to_datetime(jiff::Timestamp::from_second(seconds).unwrap());
        let begins = |seconds| {
            let (before, shown) = (number(shown(seconds - 1), Cycle::Hour), shown(seconds));
            shown.minute() == 0 && shown.second() == 0 || number(shown, Cycle::Hour) > before
        };
        let at = Timestamp::from_micros(seconds as u64 * 1_000_000);
        let end = calendar.after(at).as_micros() as Seconds / 1_000_000;
        prop_assert!(begins(end));
        for between in seconds + 1..end {
            prop_assert!(!begins(between), "{}", between);
        }
    }
}
