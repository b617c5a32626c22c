//! Limits in a file: a list, or the word `unlimited`.

use super::field::{
    Absent, Choice, Constraint, Custom, Described, Field, Form, Integer, Kind, Mapping, Shape, Text, words,
};
use super::problem::{Place, ValueError};
use super::reader::Reader;
use super::section::Section;
use super::value::{self, LABEL_BYTES_MAX};
use super::window::{self, ANCHOR, CALENDAR_WINDOWS, TIMEZONE, Window};
use crate::rules::{LIMITS_PER_RULE_MAX, Limits};
use sluicegate_core::algorithm::Algorithm as _;
use sluicegate_core::algorithm::token_bucket::CREDIT_TTL_DEFAULT;
use sluicegate_core::quota::UNITS_MAX;
use sluicegate_core::{
    Align, FixedWindow, Micros, Quota, QuotaError, Rate, SlidingCounter, SlidingWindow, TokenBucket,
};
use std::collections::HashMap;

/// The word for no limits at all.
pub const UNLIMITED: &str = "unlimited";
/// A limit with an unknown algorithm: all keys of all algorithms.
pub static LIMIT: Mapping = Mapping {
    doc: "A limit. The algorithm comes from an environment variable.",
    fields: &[
        &ALGORITHM,
        &NAME,
        &CAPACITY,
        &REFILL,
        &CREDITS,
        &CREDIT_TTL,
        &LIMIT_UNITS,
        &ANY_WINDOW,
        &ALIGN,
        &TIMEZONE,
        &ANCHOR,
    ],
    constraints: &[],
};

/// The keys of a token bucket.
pub static TOKEN_BUCKET: Mapping = Mapping {
    doc: "Capacity that refills at a steady rate: bursts up to the capacity, the rate in the long run.",
    fields: &[&IS_TOKEN_BUCKET, &NAME, &CAPACITY, &REFILL, &CREDITS, &CREDIT_TTL],
    constraints: &[],
};

/// The keys of a sliding window.
pub static SLIDING_WINDOW: Mapping = Mapping {
    doc: "Never more than the limit within any window; exact.",
    fields: &[&IS_SLIDING_WINDOW, &NAME, &LIMIT_UNITS, &WINDOW],
    constraints: &[],
};

/// The keys of a sliding counter.
pub static SLIDING_COUNTER: Mapping = Mapping {
    doc: "The limit within any window, in constant memory; approximate.",
    fields: &[&IS_SLIDING_COUNTER, &NAME, &LIMIT_UNITS, &WINDOW],
    constraints: &[],
};

/// The keys of a fixed window.
pub static FIXED_WINDOW: Mapping = Mapping {
    doc: "A counter that restarts with every window.",
    fields: &[&IS_FIXED_WINDOW, &NAME, &LIMIT_UNITS, &ANY_WINDOW, &ALIGN, &TIMEZONE, &ANCHOR],
    constraints: &[Constraint::CalendarWindow],
};

/// The remedy for a limit without an algorithm.
const ALGORITHM_REMEDY: &str = "say which: token_bucket, sliding_window, sliding_counter, fixed_window";

static ALGORITHM: Field<Described> = Field {
    key: "algorithm",
    doc: "The algorithm.",
    kind: Described(|| Form::Named("variable")),
    absent: Absent::Required(ALGORITHM_REMEDY),
    examples: &[],
};

static IS_TOKEN_BUCKET: Field<Described> =
    Field { kind: Described(|| Form::Literal(vec![TokenBucket::NAME])), ..ALGORITHM_OF };
static IS_SLIDING_WINDOW: Field<Described> =
    Field { kind: Described(|| Form::Literal(vec![SlidingWindow::NAME])), ..ALGORITHM_OF };
static IS_SLIDING_COUNTER: Field<Described> =
    Field { kind: Described(|| Form::Literal(vec![SlidingCounter::NAME])), ..ALGORITHM_OF };
static IS_FIXED_WINDOW: Field<Described> =
    Field { kind: Described(|| Form::Literal(vec![FixedWindow::NAME])), ..ALGORITHM_OF };

const ALGORITHM_OF: Field<Described> = Field {
    key: "algorithm",
    doc: "The algorithm.",
    kind: Described(|| Form::Named("variable")),
    absent: Absent::Required(ALGORITHM_REMEDY),
    examples: &[],
};

static NAME: Field<Text<Box<str>>> = Field {
    key: "name",
    doc: "The name of the limit in header fields.",
    kind: Text {
        parse: value::label,
        form: || {
            let pattern = format!("^[ !#-\\[\\]-~]{{1,{LABEL_BYTES_MAX}}}$");
            Form::Text(Shape::matching("1 to 64 printable ASCII characters without `\"` and `\\`", pattern))
        },
    },
    absent: Absent::Nothing("the rule's name, then `NAME.2` and so on"),
    examples: &["hourly"],
};

static CAPACITY: Field<Integer<u64>> = Field {
    key: "capacity",
    doc: "The most units that pass at once.",
    kind: Integer { min: 1, max: UNITS_MAX, convert: Some },
    absent: Absent::Required("say how many units pass at once, for example capacity: 100"),
    examples: &["100"],
};

static REFILL: Field<Custom<Rate>> = Field {
    key: "refill",
    doc: "The units that come back, and in which time.",
    kind: Custom { read: |reader| reader.rate(), form: || Form::Named("rate") },
    absent: Absent::Required("say how many units come back in which time, for example refill: 100/60s"),
    examples: &["100/60s", "5/s"],
};

static CREDITS: Field<Integer<u64>> = Field {
    key: "credits",
    doc: "Units above the capacity that a client saves up by staying below the rate.",
    kind: Integer { min: 0, max: UNITS_MAX, convert: Some },
    absent: Absent::Default("0"),
    examples: &["0", "50"],
};

static CREDIT_TTL: Field<Custom<Micros>> = Field {
    key: "credit_ttl",
    doc: "How long saved units are kept.",
    kind: Custom { read: |reader| reader.duration(), form: || Form::Named("duration") },
    absent: Absent::Default("24h"),
    examples: &["24h"],
};

static LIMIT_UNITS: Field<Integer<u64>> = Field {
    key: "limit",
    doc: "The most units that pass within the window; 0 denies always.",
    kind: Integer { min: 0, max: UNITS_MAX, convert: Some },
    absent: Absent::Required("say how many units pass within the window, for example limit: 1000"),
    examples: &["1000"],
};

static WINDOW: Field<Custom<Micros>> = Field {
    key: "window",
    doc: "The length of the window.",
    kind: Custom { read: window::length, form: || Form::Named("duration") },
    absent: Absent::Required(WINDOW_REMEDY),
    examples: &["1h"],
};

static ANY_WINDOW: Field<Custom<Window>> = Field {
    key: "window",
    doc: "The length of the window; of a `fixed_window` also the months, weeks, days or hours [of a calendar](#quotas-by-the-calendar).",
    kind: Custom {
        read: |reader| reader.window(),
        form: || Form::Any(vec![Form::Named("duration"), Form::Literal(words(CALENDAR_WINDOWS))]),
    },
    absent: Absent::Required(WINDOW_REMEDY),
    examples: &["1h", "month"],
};

/// The remedy for a limit without a window.
const WINDOW_REMEDY: &str = "say how long the window is, for example window: 1h";

static ALIGN: Field<Choice<Align>> = Field {
    key: "align",
    doc: "Windows start at multiples of their length since 1970, or shifted by an offset that the key selects, so that clients do not all return at once.",
    kind: Choice(&[("epoch", Align::Epoch), ("key", Align::Key)]),
    absent: Absent::Default("epoch"),
    examples: &[],
};

const SECOND: Micros = Micros::from_secs(1);

/// The keys of a limit by algorithm.
pub fn forms_by_algorithm() -> impl Iterator<Item = &'static Mapping> {
    FORMS.iter().map(|(_, form)| form.mapping)
}

/// The form of a list of limits.
#[must_use]
pub fn limits() -> Form {
    let item = Box::new(Form::Named("limit"));
    let list = Form::List { noun: "limits", item, min: 1, max: Some(LIMITS_PER_RULE_MAX), is_unique: false };
    Form::Any(vec![Form::Literal(vec![UNLIMITED]), list])
}

/// The reader of one algorithm.
#[derive(Clone, Copy)]
struct AlgorithmForm {
    mapping: &'static Mapping,
    read: fn(&Section<'_>) -> Option<Quota>,
    /// A stand-in for a limit with unreadable numbers, because the algorithm alone may contradict the rest of the rule.
    plain: fn() -> Result<Quota, QuotaError>,
}

const FORMS: &[(&str, AlgorithmForm)] = &[
    (TokenBucket::NAME, AlgorithmForm { mapping: &TOKEN_BUCKET, read: token_bucket, plain: || plain_bucket(0) }),
    (
        SlidingWindow::NAME,
        AlgorithmForm {
            mapping: &SLIDING_WINDOW,
            read: sliding_window,
            plain: || Ok(SlidingWindow::new(1, SECOND)?.into()),
        },
    ),
    (
        SlidingCounter::NAME,
        AlgorithmForm {
            mapping: &SLIDING_COUNTER,
            read: sliding_counter,
            plain: || Ok(SlidingCounter::new(1, SECOND)?.into()),
        },
    ),
    (
        FixedWindow::NAME,
        AlgorithmForm {
            mapping: &FIXED_WINDOW,
            read: fixed_window,
            plain: || Ok(FixedWindow::new(1, SECOND, Align::Epoch)?.into()),
        },
    ),
];

/// The readable limits of the rule called `rule`.
pub(super) fn read_limits(reader: &Reader<'_>, rule: &str) -> Limits {
    if reader.is_word(UNLIMITED) {
        return Limits::Unlimited;
    }
    let remedy = format!("write a list of 1 to {LIMITS_PER_RULE_MAX} limits, or the word {UNLIMITED}");
    let Some(items) = reader.list(&remedy) else { return Limits::Unlimited };
    if !(1..=LIMITS_PER_RULE_MAX).contains(&items.len()) {
        reader.report(ValueError::new(format!("a list of {} limits", items.len()), remedy));
        return Limits::Unlimited;
    }
    let mut labels = Labels::default();
    let read = items.iter().enumerate().filter_map(|(index, item)| {
        let section = item.open_section()?;
        let label = labels.read(&section, Limits::label(rule, index));
        Some((Some(label), read_quota(&section)?))
    });
    Limits::all(rule, read)
}

/// The names of the limits of one list, each with its place, to report duplicates, which clients could not distinguish.
#[derive(Default)]
struct Labels(HashMap<Box<str>, Place>);

impl Labels {
    /// The limit's own name, or else `default`.
    fn read(&mut self, section: &Section<'_>, default: Box<str>) -> Box<str> {
        let name = section.read_optional(&NAME);
        let Some(name) = name else { return default };
        let (label, item) = (name.unwrap_or(default), section.reader());
        if let Some(place) = self.0.get(&label) {
            let message = format!("has the same name in header fields as the limit at {place}");
            item.report(ValueError::new(message, "give one of the two another `name`"));
        } else {
            self.0.insert(label.clone(), item.place());
        }
        label
    }
}

fn read_quota(section: &Section<'_>) -> Option<Quota> {
    let form = section.find(&ALGORITHM).and_then(|algorithm| algorithm.choice(FORMS));
    section.only(&form.map_or(&LIMIT, |form| form.mapping).keys());
    match form {
        Some(form) => (form.read)(section).or_else(|| {
            section.reader().ensure_reported();
            (form.plain)().ok()
        }),
        None => report_problems(section),
    }
}

/// Without an algorithm there is no limit, but the values are checked as for any algorithm.
fn report_problems(section: &Section<'_>) -> Option<Quota> {
    let fields = LIMIT.fields.iter().filter(|field| field.key() != NAME.key);
    for (field, reader) in fields.filter_map(|field| Some((field, section.get(field.key())?))) {
        field.check(reader);
    }
    None
}

fn token_bucket(section: &Section<'_>) -> Option<Quota> {
    let (capacity, refill) = (section.read(&CAPACITY), section.read(&REFILL));
    let (credits, credit_ttl) = (section.read(&CREDITS), section.read(&CREDIT_TTL));
    if let (Some(capacity), Some(refill), Some(credits), Some(credit_ttl)) =
        (capacity, refill, credits, credit_ttl)
    {
        return built(section, TokenBucket::with_credits(capacity, refill, credits, credit_ttl));
    }
    section.reader().ensure_reported();
    plain_bucket(credits.unwrap_or_default().min(1)).ok()
}

/// A bucket so large and slow that it is compatible with every lease, unless it has credits.
fn plain_bucket(credits: u64) -> Result<Quota, QuotaError> {
    let refill = Rate::new(1, Micros::from_secs(3_600))?;
    TokenBucket::with_credits(1_000, refill, credits, CREDIT_TTL_DEFAULT).map(Quota::from)
}

fn sliding_window(section: &Section<'_>) -> Option<Quota> {
    let (limit, window) = limit_and_window(section, &WINDOW);
    built(section, SlidingWindow::new(limit?, window?))
}

fn sliding_counter(section: &Section<'_>) -> Option<Quota> {
    let (limit, window) = limit_and_window(section, &WINDOW);
    built(section, SlidingCounter::new(limit?, window?))
}

fn fixed_window(section: &Section<'_>) -> Option<Quota> {
    let (limit, window) = limit_and_window(section, &ANY_WINDOW);
    if let Some(Window::Calendar(window)) = window {
        let calendar = window::calendar(section, window);
        let (limit, calendar) = (limit?, calendar?);
        return built(section, calendar.and_then(|calendar| FixedWindow::on_calendar(limit, calendar)));
    }
    let align = section.read(&ALIGN);
    let Some(Window::Length(window)) = window else { return None };
    window::refuse_calendar(section);
    built(section, FixedWindow::new(limit?, window, align?))
}

fn limit_and_window<K: Kind>(section: &Section<'_>, window: &Field<K>) -> (Option<u64>, Option<K::Value>) {
    (section.read(&LIMIT_UNITS), section.read(window))
}

/// The quota, unless its numbers contradict each other.
fn built(section: &Section<'_>, quota: Result<impl Into<Quota>, QuotaError>) -> Option<Quota> {
    match quota {
        Ok(quota) => Some(quota.into()),
        Err(error) => {
            let wrong = ValueError::new("out of range", error.remedy());
            section.get(error.field()).unwrap_or(section.reader()).refuse(wrong)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_algorithm_of_the_core_can_be_written_in_a_file() {
        let names: Vec<&str> = FORMS.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, Quota::ALGORITHMS);
        assert_eq!(ALGORITHM_REMEDY, format!("say which: {}", names.join(", ")));
        let keys_of_all: Vec<&str> = FORMS.iter().flat_map(|(_, form)| form.mapping.keys()).collect();
        assert!(LIMIT.keys().iter().all(|key| keys_of_all.contains(key)));
        assert!(keys_of_all.iter().all(|key| LIMIT.keys().contains(key)));
        assert_eq!(CREDIT_TTL.default(), Some(CREDIT_TTL_DEFAULT));
    }
}
