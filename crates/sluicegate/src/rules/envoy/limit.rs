//! The key `rate_limit` of a file: requests per unit of time, or no limit. Extensions: other
//! algorithms than the fixed window, a burst, and a window of any length.

use super::text;
use crate::rules::Limits;
use crate::rules::file::section::Section;
use crate::rules::file::{Reader, ValueError, value};
use sluicegate_core::algorithm::Algorithm as _;
use sluicegate_core::{
    Align, FixedWindow, Micros, Quota, QuotaError, Rate, SlidingCounter, SlidingWindow, TokenBucket,
};

/// The keys of a limit; the last three are extensions.
pub const LIMIT_KEYS: &[&str] =
    &["requests_per_unit", "unit", "unlimited", "name", "replaces", "algorithm", "burst", "window"];
/// The keys of an element of `replaces`.
pub const REPLACES_KEYS: &[&str] = &["name"];
/// The most limits that one limit may replace. A request has no more limits than descriptors.
pub const REPLACES_MAX: usize = 100;
/// The longest name of a limit, in bytes.
pub const NAME_BYTES_MAX: usize = 256;

/// A unit of time, with the numbers of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unit {
    /// None of the others: the limit has a window of another length.
    Other = 0,
    /// A second.
    Second = 1,
    /// A minute.
    Minute = 2,
    /// An hour.
    Hour = 3,
    /// A day.
    Day = 4,
    /// Thirty days.
    Month = 5,
    /// 365 days.
    Year = 6,
    /// Seven days.
    Week = 7,
}

/// The units by name, with their lengths in seconds.
const UNITS: &[(&str, Unit, u64)] = &[
    ("second", Unit::Second, 1),
    ("minute", Unit::Minute, 60),
    ("hour", Unit::Hour, 3_600),
    ("day", Unit::Day, 86_400),
    ("week", Unit::Week, 7 * 86_400),
    ("month", Unit::Month, 30 * 86_400),
    ("year", Unit::Year, 365 * 86_400),
];

impl Unit {
    /// Its length; `None` for a window of another length.
    #[must_use]
    pub fn length(self) -> Option<Micros> {
        UNITS.iter().find(|(_, unit, _)| *unit == self).map(|(_, _, seconds)| Micros::from_secs(*seconds))
    }

    /// Its number in the protocol.
    #[must_use]
    pub const fn number(self) -> i32 {
        self as i32
    }

    /// The unit of this length.
    fn of_length(length: Micros) -> Self {
        let found = UNITS.iter().find(|(_, _, seconds)| Micros::from_secs(*seconds) == length);
        found.map_or(Self::Other, |(_, unit, _)| *unit)
    }
}

/// The algorithm of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    FixedWindow,
    SlidingWindow,
    SlidingCounter,
    TokenBucket,
}

const METHODS: &[(&str, Method)] = &[
    (FixedWindow::NAME, Method::FixedWindow),
    (SlidingWindow::NAME, Method::SlidingWindow),
    (SlidingCounter::NAME, Method::SlidingCounter),
    (TokenBucket::NAME, Method::TokenBucket),
];

/// A parsed limit.
#[derive(Debug)]
pub(super) struct ReadLimit {
    pub(super) limits: Limits,
    pub(super) shown: Option<(u32, Unit)>,
    pub(super) name: Option<Box<str>>,
    pub(super) replaces: Box<[Box<str>]>,
}

/// Reads the limit of the rule called `rule`.
pub(super) fn read(reader: &Reader<'_>, rule: &str) -> Option<ReadLimit> {
    let section = reader.section(LIMIT_KEYS)?;
    let name = section.optional("name", None, read_name);
    let replaces = section.optional("replaces", Box::default(), |list| read_replaces(list, name.as_ref()));
    let is_unlimited = section.optional("unlimited", false, text::flag)?;
    if is_unlimited {
        check_unlimited(&section)?;
        return Some(ReadLimit { limits: Limits::Unlimited, shown: None, name: name?, replaces: replaces? });
    }
    let requests = section
        .required(
            "requests_per_unit",
            "say how many requests pass, for example requests_per_unit: 100; 0 denies always",
        )
        .and_then(|requests| requests.integer(0..=u32::MAX.into()));
    let window = read_window(&section);
    let method = section.optional("algorithm", Method::FixedWindow, |algorithm| algorithm.choice(METHODS));
    let burst = read_burst(&section, method);
    let (requests, (unit, window)) = (u32::try_from(requests?).ok()?, window?);
    let quota = built(&section, method?, requests, window, burst?)?;
    let (name, replaces) = (name?, replaces?);
    // A name that no header field can carry appears only in the protocol.
    let label = name.as_deref().and_then(|name| value::label(name).ok());
    let limits = Limits::all(rule, [(label, quota)]);
    Some(ReadLimit { limits, shown: Some((requests, unit)), name, replaces })
}

/// An unlimited entry has no unit; `requests_per_unit` beside it is ignored.
fn check_unlimited(section: &Section<'_>) -> Option<()> {
    section.get("requests_per_unit").and_then(|requests| requests.integer(0..=u32::MAX.into()));
    let mut is_good = true;
    for key in ["unit", "algorithm", "burst", "window"] {
        if let Some(value) = section.get(key) {
            value.report(ValueError::new("a limit that is unlimited", format!("remove `{key}`, or `unlimited`")));
            is_good = false;
        }
    }
    is_good.then_some(())
}

/// The unit with its length, or the window with the unit of the same length.
fn read_window(section: &Section<'_>) -> Option<(Unit, Micros)> {
    match (section.get("unit"), section.get("window")) {
        (None, Some(window)) => {
            let length = window.duration()?;
            Some((Unit::of_length(length), length))
        }
        (Some(_), Some(window)) => window.refuse(ValueError::new(
            "a window beside a unit",
            "keep one of the two: window: 15min, or unit: minute",
        )),
        (unit, None) => {
            let words: Vec<&str> = UNITS.iter().map(|(word, ..)| *word).collect();
            let remedy = format!("say which: {}; or write window: 15min, with any duration", words.join(", "));
            let unit = match unit {
                Some(unit) => unit,
                None => section.required("unit", &remedy)?,
            };
            read_unit(unit, &remedy)
        }
    }
}

fn read_unit(reader: &Reader<'_>, remedy: &str) -> Option<(Unit, Micros)> {
    let word = text::required(reader, remedy)?;
    match UNITS.iter().find(|(known, ..)| known.eq_ignore_ascii_case(word)) {
        Some((_, unit, seconds)) => Some((*unit, Micros::from_secs(*seconds))),
        None => reader.refuse(ValueError::new("unknown unit", remedy)),
    }
}

/// The burst; only a bucket has one.
fn read_burst(section: &Section<'_>, method: Option<Method>) -> Option<Option<u64>> {
    let Some(burst) = section.get("burst") else { return Some(None) };
    let units = burst.integer(1..=u32::MAX.into())?;
    if method.is_some_and(|method| method != Method::TokenBucket) {
        let remedy = format!("write algorithm: {}, or remove `burst`", TokenBucket::NAME);
        return burst.refuse(ValueError::new("a burst without a bucket to hold it", remedy));
    }
    Some(Some(units))
}

fn built(
    section: &Section<'_>,
    method: Method,
    requests: u32,
    window: Micros,
    burst: Option<u64>,
) -> Option<Quota> {
    let limit = u64::from(requests);
    let quota = match method {
        Method::FixedWindow => FixedWindow::new(limit, window, Align::Epoch).map(Quota::from),
        Method::SlidingWindow => SlidingWindow::new(limit, window).map(Quota::from),
        Method::SlidingCounter => SlidingCounter::new(limit, window).map(Quota::from),
        Method::TokenBucket => bucket(burst.unwrap_or(limit), limit, window),
    };
    quota.map_or_else(|error| refuse(section, &error), Some)
}

fn bucket(capacity: u64, amount: u64, period: Micros) -> Result<Quota, QuotaError> {
    Ok(TokenBucket::new(capacity, Rate::new(amount, period)?)?.into())
}

/// The error for numbers that are valid each but not together.
fn refuse<T>(section: &Section<'_>, error: &QuotaError) -> Option<T> {
    let key = match error.field() {
        "window" | "period" if section.get("window").is_some() => "window",
        "capacity" if section.get("burst").is_some() => "burst",
        _ => "requests_per_unit",
    };
    let wrong = ValueError::new("out of range", error.remedy());
    section.get(key).unwrap_or(section.reader()).refuse(wrong)
}

/// The limit's own name; an empty one counts as absent.
fn read_name(reader: &Reader<'_>) -> Option<Option<Box<str>>> {
    if reader.node().is_null() {
        return Some(None);
    }
    let name = text::written(reader)?;
    if name.len() > NAME_BYTES_MAX {
        let message = format!("a name of {} bytes", name.len());
        return reader.refuse(ValueError::new(message, format!("use at most {NAME_BYTES_MAX} bytes")));
    }
    Some(Some(name).filter(|name| !name.is_empty()).map(Into::into))
}

fn read_replaces(reader: &Reader<'_>, own: Option<&Option<Box<str>>>) -> Option<Box<[Box<str>]>> {
    if reader.node().is_null() {
        return Some(Box::default());
    }
    let items = reader.list("write a list, for example [{ name: per-minute }]")?;
    if items.len() > REPLACES_MAX {
        let remedy = format!("use at most {REPLACES_MAX}");
        return reader.refuse(ValueError::new(format!("{} limits to replace", items.len()), remedy));
    }
    let names: Vec<Option<Box<str>>> = items.iter().map(|item| read_replaced(item, own)).collect();
    names.into_iter().collect()
}

fn read_replaced(reader: &Reader<'_>, own: Option<&Option<Box<str>>>) -> Option<Box<str>> {
    let section = reader.section(REPLACES_KEYS)?;
    let remedy = "say which limit does not apply beside this one, by its `name`";
    let name = section.required("name", remedy)?;
    let text = text::required(name, remedy)?;
    if own.is_some_and(|own| own.as_deref() == Some(text)) {
        return name.refuse(ValueError::new("replaces itself", "name another limit, or remove it"));
    }
    Some(text.into())
}
