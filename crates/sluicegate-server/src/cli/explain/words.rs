//! The explanation for a person: a line that says what comes of it, and a block for every rule. Lengths and rates are
//! written as the configuration writes them.

use std::fmt::Write as _;

use sluicegate::rules::file::value::UNITS;

use crate::explain::{Asked, Bound, Bucket, Ended, LeaseReport, LimitReport, Outcome, Report, RuleReport, Terms};

/// Why a store that charges ahead never does it with this request.
const NOT_THIS_REQUEST: &str =
    "not this request: all that decides must have a lease, and cost no more than one server may hold";

/// The whole text.
pub(super) fn text(report: &Report) -> String {
    let mut text = format!("{}\n{}\n", outcome(report), asked(&report.request));
    for rule in &report.rules {
        text.push('\n');
        describe(&mut text, rule, report);
    }
    text
}

fn outcome(report: &Report) -> String {
    let matching = report.rules.iter().filter(|rule| rule.matches).count();
    let count = format!("{matching} of {} rules", report.rules.len());
    match report.outcome {
        Outcome::Limited => format!("limited: {count} match"),
        Outcome::Unlimited => format!("unlimited: {count} match, and none of them denies"),
        Outcome::Allowed if report.request.cost == Some(0) => {
            "allowed: no rule matches, and it costs nothing".to_owned()
        }
        Outcome::Allowed => "allowed: no rule matches, and unmatched is allow".to_owned(),
        Outcome::Denied => "denied: no rule matches, and unmatched is deny".to_owned(),
    }
}

fn asked(asked: &Asked) -> String {
    let mut text =
        format!("tenant {}, resource {}, identifier {}", asked.tenant, asked.resource, asked.identifier);
    // Writing to a string cannot fail, here and below.
    let _ = asked.tier.as_ref().map(|tier| write!(text, ", tier {tier}"));
    let _ = asked.cost.map(|cost| write!(text, ", cost {cost}"));
    if let (Some(method), Some(path)) = (&asked.method, &asked.path) {
        let _ = write!(text, ", {method} {path}");
    }
    let _ = asked.address.map(|address| write!(text, ", from {address}"));
    text
}

fn describe(text: &mut String, rule: &RuleReport, report: &Report) {
    let Some(terms) = &rule.terms else {
        let _ = writeln!(text, "{}  does not match", rule.name);
        for mismatch in &rule.mismatches {
            let _ = writeln!(text, "  {}", mismatch.reason);
        }
        return;
    };
    let _ = writeln!(text, "{}  matches", rule.name);
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(text, "  {name:<8}{value}");
    };
    line("mode", mode(terms.mode));
    line("limits", &limits_of(terms));
    if let Some(Ended { name, until }) = &terms.ended {
        line("", &format!("the override {name} ended at {until}"));
    }
    if let (Some(key), Some(cost)) = (&terms.key, terms.cost) {
        line("key", key);
        line("cost", &cost.to_string());
        line(
            "store",
            &format!("{} within {}ms, else {}", report.store, terms.deadline_ms, terms.on_store_failure),
        );
    }
    for limit in &terms.limits {
        line("limit", &limit_words(limit, terms));
    }
    let Some(lease) = &terms.lease else { return };
    line("lease", &lease_words(lease, report));
    if lease.in_force && !lease.for_this_request {
        line("", NOT_THIS_REQUEST);
    }
    for limit in &terms.limits {
        if let (Some(bound), Some(bucket)) = (&limit.bound, &limit.bucket) {
            line("bound", &bound_words(limit, bound, bucket));
        }
    }
}

fn mode(mode: &'static str) -> &'static str {
    if mode == "shadow" { "shadow: it counts, and never denies" } else { mode }
}

fn limits_of(terms: &Terms) -> String {
    let whose = match (terms.limits_of.kind, &terms.limits_of.name) {
        (kind, Some(name)) => format!("the {kind} {name}"),
        (_, None) => "the rule".to_owned(),
    };
    if terms.unlimited { format!("{whose} is unlimited") } else { format!("of {whose}") }
}

fn limit_words(limit: &LimitReport, terms: &Terms) -> String {
    let mut text = match (&limit.bucket, &limit.calendar) {
        (Some(bucket), _) => format!("{} at once, refilled {}", bucket.capacity, rate(bucket)),
        (None, Some(calendar)) => format!("{} in every {calendar}", limit.limit),
        (None, None) => format!("{} in {}", limit.limit, length(limit.window_micros)),
    };
    if let Some(bucket) = limit.bucket.as_ref().filter(|bucket| bucket.credits > 0) {
        let _ = write!(text, ", up to {} more saved up", bucket.credits);
    }
    if let Some(cost) = terms.cost.filter(|_| limit.never_fits) {
        let _ = write!(text, "; a cost of {cost} never fits");
    }
    format!("{}  {}  {text}", limit.name, limit.algorithm)
}

fn lease_words(lease: &LeaseReport, report: &Report) -> String {
    let ttl = length(lease.ttl_micros);
    let servers = if report.instances == 1 { "server" } else { "servers" };
    let terms = format!("{}, up to {ttl} ahead, {} {servers}", lease.mode, report.instances);
    if lease.in_force { terms } else { format!("{terms}: not with the store memory, which needs none") }
}

fn bound_words(limit: &LimitReport, bound: &Bound, bucket: &Bucket) -> String {
    let Bound { burst, extra, stranded } = bound;
    let extra = if *extra == 0 { String::new() } else { format!(" + {extra}") };
    let whole = if limit.limit == *burst { String::new() } else { format!(" (charged as {})", limit.limit) };
    let rate = rate(bucket);
    format!(
        "{}  in any time d at most {burst} + {rate}·d{extra}{whole}; {stranded} may sit unused elsewhere at a denial",
        limit.name
    )
}

fn rate(bucket: &Bucket) -> String {
    rate_words(bucket.refill_tokens, bucket.refill_micros)
}

/// A rate per the shortest unit that has a whole number of tokens.
pub(in crate::cli) fn rate_words(tokens: u64, micros: u64) -> String {
    let (length, tokens, micros) = (length(micros), u128::from(tokens), u128::from(micros));
    let units = UNITS.iter().filter(|(name, _)| *name != "ms");
    let whole = |(name, millis): &(&'static str, u64)| {
        let within = tokens * u128::from(*millis) * 1_000;
        within.is_multiple_of(micros).then(|| format!("{}/{name}", within / micros))
    };
    units.into_iter().find_map(whole).unwrap_or_else(|| format!("{tokens}/{length}"))
}

/// A length in the largest unit that has a whole number of them.
fn length(micros: u64) -> String {
    let whole = |(name, millis): &(&'static str, u64)| {
        let unit = millis * 1_000;
        (micros > 0 && micros.is_multiple_of(unit)).then(|| format!("{}{name}", micros / unit))
    };
    UNITS.iter().rev().find_map(whole).unwrap_or_else(|| format!("{micros}µs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_and_rates_are_written_as_a_configuration_writes_them() {
        for (micros, expected) in [
            (250_000, "250ms"),
            (60_000_000, "1min"),
            (90_000_000, "90s"),
            (86_400_000_000, "1d"),
            (1_500, "1500µs"),
        ] {
            assert_eq!(length(micros), expected);
        }
        for (refill_tokens, refill_micros, expected) in [
            (1, 600_000, "100/min"),
            (1, 10_000, "100/s"),
            (1, 3_600_000_000, "1/h"),
            (1, 7 * 86_400_000_000, "1/7d"),
            (3, 7_000_000, "3/7s"),
            (u64::MAX, 1, "18446744073709551615000000/s"),
        ] {
            let bucket = Bucket { capacity: 1, credits: 0, refill_tokens, refill_micros };
            assert_eq!(rate(&bucket), expected);
        }
    }
}
