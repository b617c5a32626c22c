//! The explanation as text: a line with the outcome, and a block for every rule. Durations and rates have the form of the
//! configuration file.

use std::fmt::Write as _;

use crate::cli::format;
use crate::explain::{
    BucketReport, ExpiredOverride, ExplainOutcome, ExplainReport, ExplainedLimit, ExplainedRequest, LeaseBound,
    LeaseReport, RuleEffect, RuleReport,
};

/// The reason why a store with leases does not use them for this request.
const NOT_THIS_REQUEST: &str = "not for this request: all enforced rules must have a lease, and the cost must not exceed the permits of one server";

/// The whole text.
pub(super) fn text(report: &ExplainReport) -> String {
    let mut text = format!("{}\n{}\n", outcome(report), request(&report.request));
    for rule in &report.rules {
        text.push('\n');
        describe(&mut text, rule, report);
    }
    text
}

fn outcome(report: &ExplainReport) -> String {
    let matching = report.rules.iter().filter(|rule| rule.matches).count();
    let count = format!("{matching} of {} rules", report.rules.len());
    match report.outcome {
        ExplainOutcome::Limited => format!("limited: {count} match"),
        ExplainOutcome::Unlimited => format!("unlimited: {count} match, and none of them denies"),
        ExplainOutcome::Allowed if report.request.cost == Some(0) => {
            "allowed: no rule matches, and it costs nothing".to_owned()
        }
        ExplainOutcome::Allowed => "allowed: no rule matches, and unmatched is allow".to_owned(),
        ExplainOutcome::Denied => "denied: no rule matches, and unmatched is deny".to_owned(),
    }
}

fn request(request: &ExplainedRequest) -> String {
    let mut text =
        format!("tenant {}, resource {}, identifier {}", request.tenant, request.resource, request.identifier);
    // Writing to a string cannot fail, here and below.
    let _ = request.tier.as_ref().map(|tier| write!(text, ", tier {tier}"));
    let _ = request.cost.map(|cost| write!(text, ", cost {cost}"));
    if let (Some(method), Some(path)) = (&request.method, &request.path) {
        let _ = write!(text, ", {method} {path}");
    }
    if !request.separated_paths.is_empty() {
        let _ = write!(text, ", also read as {}", request.separated_paths.join(" and "));
    }
    let _ = request.address.map(|address| write!(text, ", from {address}"));
    text
}

fn describe(text: &mut String, rule: &RuleReport, report: &ExplainReport) {
    let Some(effect) = &rule.terms else {
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
    line("mode", mode(effect.mode));
    line("limits", &limits_of(effect));
    if let Some(ExpiredOverride { name, until }) = &effect.ended {
        line("", &format!("the override {name} expired at {until}"));
    }
    if let (Some(key), Some(cost)) = (&effect.key, effect.cost) {
        line("key", key);
        line("cost", &cost.to_string());
        line(
            "store",
            &format!("{} within {}ms, else {}", report.store, effect.deadline_ms, effect.on_store_failure),
        );
    }
    for limit in &effect.limits {
        line("limit", &limit_text(limit, effect));
    }
    let Some(lease) = &effect.lease else { return };
    line("lease", &lease_text(lease, report));
    if lease.in_force && !lease.for_this_request {
        line("", NOT_THIS_REQUEST);
    }
    for limit in &effect.limits {
        if let (Some(bound), Some(bucket)) = (&limit.bound, &limit.bucket) {
            line("bound", &bound_text(limit, bound, bucket));
        }
    }
}

fn mode(mode: &'static str) -> &'static str {
    if mode == "shadow" { "shadow: it counts, and never denies" } else { mode }
}

fn limits_of(effect: &RuleEffect) -> String {
    let source = match (effect.limits_of.kind, &effect.limits_of.name) {
        (kind, Some(name)) => format!("the {kind} {name}"),
        (_, None) => "the rule".to_owned(),
    };
    if effect.unlimited { format!("{source} is unlimited") } else { format!("of {source}") }
}

fn limit_text(limit: &ExplainedLimit, effect: &RuleEffect) -> String {
    let mut text = match (&limit.bucket, &limit.calendar) {
        (Some(bucket), _) => format!("{} at once, refilled {}", bucket.capacity, rate(bucket)),
        (None, Some(calendar)) => format!("{} in every {calendar}", limit.limit),
        (None, None) => format!("{} in {}", limit.limit, format::duration(limit.window_micros)),
    };
    if let Some(bucket) = limit.bucket.as_ref().filter(|bucket| bucket.credits > 0) {
        let _ = write!(text, ", up to {} more saved up", bucket.credits);
    }
    if let Some(cost) = effect.cost.filter(|_| limit.never_fits) {
        let _ = write!(text, "; a cost of {cost} never fits");
    }
    format!("{}  {}  {text}", limit.name, limit.algorithm)
}

fn lease_text(lease: &LeaseReport, report: &ExplainReport) -> String {
    let ttl = format::duration(lease.ttl_micros);
    let servers = if report.instances == 1 { "server" } else { "servers" };
    let terms = format!("{}, up to {ttl} ahead, {} {servers}", lease.mode, report.instances);
    if lease.in_force { terms } else { format!("{terms}: not used with the store memory") }
}

fn bound_text(limit: &ExplainedLimit, bound: &LeaseBound, bucket: &BucketReport) -> String {
    let LeaseBound { burst, extra, stranded } = bound;
    let extra = if *extra == 0 { String::new() } else { format!(" + {extra}") };
    let charged = if limit.limit == *burst { String::new() } else { format!(" (charged as {})", limit.limit) };
    let rate = rate(bucket);
    format!(
        "{}  in any time d at most {burst} + {rate}·d{extra}{charged}; other servers may hold {stranded} unused at a denial",
        limit.name
    )
}

fn rate(bucket: &BucketReport) -> String {
    format::rate(bucket.refill_tokens, bucket.refill_micros)
}
