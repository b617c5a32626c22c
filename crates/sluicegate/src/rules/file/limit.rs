//! Limits as they stand in a file: a list of them, or the word `unlimited`.

use super::problem::{Place, Wrong};
use super::reader::Reader;
use super::section::Section;
use super::value;
use super::window::{self, Window};
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
/// The keys of a limit, whatever its algorithm.
pub const LIMIT_KEYS: &[&str] = &[
    "algorithm",
    "name",
    "capacity",
    "refill",
    "credits",
    "credit_ttl",
    "limit",
    "window",
    "align",
    "timezone",
    "anchor",
];
/// The keys of a token bucket.
pub const TOKEN_BUCKET_KEYS: &[&str] = &["algorithm", "name", "capacity", "refill", "credits", "credit_ttl"];
/// The keys of a sliding window and of a sliding counter.
pub const SLIDING_KEYS: &[&str] = &["algorithm", "name", "limit", "window"];
/// The keys of a fixed window.
pub const FIXED_WINDOW_KEYS: &[&str] = &["algorithm", "name", "limit", "window", "align", "timezone", "anchor"];
/// Where the windows of a fixed window may start.
pub const ALIGNS: &[(&str, Align)] = &[("epoch", Align::Epoch), ("key", Align::Key)];

const SECOND: Micros = Micros::from_secs(1);

/// How the limits of one algorithm are read.
#[derive(Clone, Copy)]
struct Form {
    keys: &'static [&'static str],
    read: fn(&Section<'_>) -> Option<Quota>,
    /// What stands for a limit whose numbers cannot be read: the algorithm alone may not go with the rest of the rule.
    plain: fn() -> Result<Quota, QuotaError>,
}

const FORMS: &[(&str, Form)] = &[
    (TokenBucket::NAME, Form { keys: TOKEN_BUCKET_KEYS, read: token_bucket, plain: || plain_bucket(0) }),
    (
        SlidingWindow::NAME,
        Form { keys: SLIDING_KEYS, read: sliding_window, plain: || Ok(SlidingWindow::new(1, SECOND)?.into()) },
    ),
    (
        SlidingCounter::NAME,
        Form { keys: SLIDING_KEYS, read: sliding_counter, plain: || Ok(SlidingCounter::new(1, SECOND)?.into()) },
    ),
    (
        FixedWindow::NAME,
        Form {
            keys: FIXED_WINDOW_KEYS,
            read: fixed_window,
            plain: || Ok(FixedWindow::new(1, SECOND, Align::Epoch)?.into()),
        },
    ),
];

/// The limits of the rule called `rule`; without those that cannot be read.
pub(super) fn read_limits(reader: &Reader<'_>, rule: &str) -> Limits {
    if reader.is_word(UNLIMITED) {
        return Limits::Unlimited;
    }
    let remedy = format!("write a list of 1 to {LIMITS_PER_RULE_MAX} limits, or the word {UNLIMITED}");
    let Some(items) = reader.list(&remedy) else { return Limits::Unlimited };
    if !(1..=LIMITS_PER_RULE_MAX).contains(&items.len()) {
        reader.report(Wrong::new(format!("a list of {} limits", items.len()), remedy));
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

/// The names of the limits of one list, with the place of each: clients could not tell two of one name apart.
#[derive(Default)]
struct Labels(HashMap<Box<str>, Place>);

impl Labels {
    /// The limit's own name, or else `default`.
    fn read(&mut self, section: &Section<'_>, default: Box<str>) -> Box<str> {
        let name = section.optional("name", None, |name| name.text_as(value::label).map(Some));
        let Some(name) = name else { return default };
        let (label, item) = (name.unwrap_or(default), section.reader());
        if let Some(place) = self.0.get(&label) {
            let message = format!("has the same name in header fields as the limit at {place}");
            item.report(Wrong::new(message, "give one of the two another `name`"));
        } else {
            self.0.insert(label.clone(), item.place());
        }
        label
    }
}

fn read_quota(section: &Section<'_>) -> Option<Quota> {
    let remedy = format!("say which: {}", Quota::ALGORITHMS.join(", "));
    let form = section.required("algorithm", &remedy).and_then(|algorithm| algorithm.choice(FORMS));
    section.only(form.map_or(LIMIT_KEYS, |form| form.keys));
    match form {
        Some(form) => (form.read)(section).or_else(|| {
            section.reader().give_up();
            (form.plain)().ok()
        }),
        None => read_in_vain(section),
    }
}

/// Without an algorithm there is no limit, but what is wrong with the values is wrong under any.
fn read_in_vain(section: &Section<'_>) -> Option<Quota> {
    section.get("capacity").and_then(|capacity| capacity.integer(1..=UNITS_MAX));
    for key in ["credits", "limit"] {
        section.get(key).and_then(|units| units.integer(0..=UNITS_MAX));
    }
    section.get("credit_ttl").and_then(Reader::duration);
    section.get("window").and_then(Reader::window);
    section.get("timezone").and_then(|zone| zone.text_as(window::timezone));
    section.get("refill").and_then(Reader::rate);
    section.get("align").and_then(|align| align.choice(ALIGNS));
    None
}

fn token_bucket(section: &Section<'_>) -> Option<Quota> {
    let capacity = section
        .required("capacity", "say how many units pass at once, for example capacity: 100")
        .and_then(|capacity| capacity.integer(1..=UNITS_MAX));
    let refill = section
        .required("refill", "say how many units come back in which time, for example refill: 100/60s")
        .and_then(Reader::rate);
    let credits = section.optional("credits", 0, |credits| credits.integer(0..=UNITS_MAX));
    let credit_ttl = section.optional("credit_ttl", CREDIT_TTL_DEFAULT, Reader::duration);
    if let (Some(capacity), Some(refill), Some(credits), Some(credit_ttl)) =
        (capacity, refill, credits, credit_ttl)
    {
        return built(section, TokenBucket::with_credits(capacity, refill, credits, credit_ttl));
    }
    section.reader().give_up();
    plain_bucket(credits.unwrap_or_default().min(1)).ok()
}

/// A bucket so large and so slow that every lease goes with it, unless there are credits.
fn plain_bucket(credits: u64) -> Result<Quota, QuotaError> {
    let refill = Rate::new(1, Micros::from_secs(3_600))?;
    TokenBucket::with_credits(1_000, refill, credits, CREDIT_TTL_DEFAULT).map(Quota::from)
}

fn sliding_window(section: &Section<'_>) -> Option<Quota> {
    let (limit, window) = limit_and_window(section, window::length);
    built(section, SlidingWindow::new(limit?, window?))
}

fn sliding_counter(section: &Section<'_>) -> Option<Quota> {
    let (limit, window) = limit_and_window(section, window::length);
    built(section, SlidingCounter::new(limit?, window?))
}

fn fixed_window(section: &Section<'_>) -> Option<Quota> {
    let (limit, window) = limit_and_window(section, |window| window.window());
    if let Some(Window::Calendar(window)) = window {
        let calendar = window::calendar(section, window);
        let (limit, calendar) = (limit?, calendar?);
        return built(section, calendar.and_then(|calendar| FixedWindow::on_calendar(limit, calendar)));
    }
    let align = section.optional("align", Align::default(), |align| align.choice(ALIGNS));
    let Some(Window::Length(window)) = window else { return None };
    window::refuse_calendar(section);
    built(section, FixedWindow::new(limit?, window, align?))
}

/// The limit, and what `read` makes of the window.
fn limit_and_window<T>(
    section: &Section<'_>,
    read: impl FnOnce(&Reader<'_>) -> Option<T>,
) -> (Option<u64>, Option<T>) {
    let limit = section
        .required("limit", "say how many units pass within the window, for example limit: 1000")
        .and_then(|limit| limit.integer(0..=UNITS_MAX));
    let window = section.required("window", "say how long the window is, for example window: 1h").and_then(read);
    (limit, window)
}

/// The quota, unless its numbers do not go together.
fn built(section: &Section<'_>, quota: Result<impl Into<Quota>, QuotaError>) -> Option<Quota> {
    match quota {
        Ok(quota) => Some(quota.into()),
        Err(error) => {
            let wrong = Wrong::new("out of range", error.remedy());
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
        let keys_of_all: Vec<&str> = FORMS.iter().flat_map(|(_, form)| form.keys.iter().copied()).collect();
        assert!(LIMIT_KEYS.iter().all(|key| keys_of_all.contains(key)));
        assert!(keys_of_all.iter().all(|key| LIMIT_KEYS.contains(key)));
    }
}
