//! The response to Envoy: statuses, header fields and the overall code.
//!
//! Envoy's limits are requests per unit of time, and Envoy writes header fields of its own from them. Each status therefore
//! describes the tightest limit of its descriptor, with the same numbers as the other front doors:
//! - `requests_per_unit` is the limit. The unit is its window (for a token bucket the time to fill it), or the next longer
//!   unit if there is none of that length: a client that keeps to the limit in the longer time is never denied. For a calendar
//!   it is the unit of that name.
//! - `duration_until_reset` is the wait of a denial, otherwise the time until the limit is fully restored, in whole
//!   seconds rounded up, because Envoy shows no fractions.

use axum::http::HeaderName;
use prost_types::Duration;
use sluicegate::core::{Calendar, Outcome, Quota};
use sluicegate::headers::{HeaderOptions, write_headers};
use sluicegate::{Decision, LimitReport};

use super::call_options::CallOptions;
use super::configured_status::SharedStates;
use super::decide::CallDecisions;
use super::descriptor::ResolvedDescriptor;
use super::messages::envoy::config::core::v3::HeaderValue;
use super::messages::envoy::service::ratelimit::v3::RateLimitResponse;
use super::messages::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use super::messages::envoy::service::ratelimit::v3::rate_limit_response::{Code, DescriptorStatus, RateLimit};
use super::signals::{self, Signals};
use super::{configured_status, metadata};
use crate::config::envoy_headers::{EnvoyHeaders, HeaderNames};
use crate::engine::Engine;

/// Envoy's units and their lengths in seconds, ascending. Its month has 30 days and its year 365.
const UNITS: [(Unit, u64); 7] = [
    (Unit::Second, 1),
    (Unit::Minute, 60),
    (Unit::Hour, 3_600),
    (Unit::Day, 86_400),
    (Unit::Week, 604_800),
    (Unit::Month, 2_592_000),
    (Unit::Year, 31_536_000),
];

/// The response for these decisions about these descriptors.
pub(super) fn response(
    decided: &CallDecisions,
    lines: &[ResolvedDescriptor<'_>],
    options: CallOptions,
    engine: &Engine,
) -> RateLimitResponse {
    let signals = Signals::of(decided, lines);
    // Configured metadata is for requests that pass.
    let told = lines.iter().filter(|_| decided.is_allowed).filter_map(ResolvedDescriptor::metadata);
    let in_shadow_mode = decided.in_shadow_mode.iter().copied().chain(std::iter::repeat(false));
    let each = lines.iter().zip(&decided.each).zip(in_shadow_mode);
    let each = each.map(|((line, decision), watches)| (line, decision.as_ref(), watches));
    let mut shared = SharedStates::of(each.clone().filter(|(line, ..)| line.is_configured()));
    let statuses: Vec<DescriptorStatus> = each
        .map(|(line, decision, watches)| match line.is_configured() {
            true => configured_status::status((line, decision, watches), decided.is_allowed, &mut shared),
            false => status(decision),
        })
        .collect();
    RateLimitResponse {
        overall_code: code(decided.is_allowed).into(),
        response_headers_to_add: added(decided, &statuses, engine),
        statuses,
        request_headers_to_add: if options.has_request_headers { signals.request_headers() } else { Vec::new() },
        dynamic_metadata: metadata::merged(told, (signals::MEMBER, signals.metadata())),
        ..RateLimitResponse::default()
    }
}

pub(super) fn code(is_allowed: bool) -> Code {
    if is_allowed { Code::Ok } else { Code::OverLimit }
}

/// The status of a descriptor that native rules decide.
fn status(decision: Option<&Decision>) -> DescriptorStatus {
    let passes = DescriptorStatus { code: Code::Ok.into(), ..DescriptorStatus::default() };
    let Some(decision) = decision else { return passes };
    let is_allowed = decision.is_allowed();
    let Some(report) = decision.tightest() else {
        return DescriptorStatus { code: code(is_allowed).into(), ..passes };
    };
    DescriptorStatus {
        code: code(is_allowed).into(),
        current_limit: Some(current_limit(&report)),
        limit_remaining: narrowed(report.verdict.remaining),
        duration_until_reset: Some(until_reset(&report)),
    }
}

fn current_limit(report: &LimitReport<'_>) -> RateLimit {
    let unit = unit_of(report.quota);
    let requests_per_unit = narrowed(report.verdict.limit);
    RateLimit { requests_per_unit, unit: unit.into(), name: report.label.to_owned() }
}

fn unit_of(quota: &Quota) -> Unit {
    let calendar = if let Quota::FixedWindow(window) = quota { window.calendar() } else { None };
    calendar.map_or_else(|| unit_from(quota.window().ceil_secs()), calendar_unit)
}

fn unit_from(window_secs: u64) -> Unit {
    UNITS.iter().find(|(_, secs)| window_secs <= *secs).map_or(Unit::Year, |(unit, _)| *unit)
}

/// The months of a calendar are called months, although the unit is shorter than some of them. Its shortest window would
/// be misleading: a clock change one minute after midnight leaves an hour of one minute.
fn calendar_unit(calendar: &Calendar) -> Unit {
    let longest = calendar.longest().ceil_secs();
    UNITS.iter().rfind(|(_, secs)| *secs <= longest).map_or(Unit::Second, |(unit, _)| *unit)
}

/// The wait of a denial, otherwise the time until the limit is fully restored.
pub(super) fn until_reset(report: &LimitReport<'_>) -> Duration {
    let secs = match report.verdict.outcome {
        Outcome::Denied { retry_after } => retry_after.ceil_secs().max(1),
        Outcome::Allowed | Outcome::NeverAdmissible => report.verdict.reset_after.ceil_secs(),
    };
    Duration { seconds: i64::try_from(secs).unwrap_or(i64::MAX), nanos: 0 }
}

/// A number that does not fit becomes the maximum.
pub(super) fn narrowed(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// The header fields that Envoy adds to the response.
fn added(decided: &CallDecisions, statuses: &[DescriptorStatus], engine: &Engine) -> Vec<HeaderValue> {
    match engine.envoy_headers() {
        EnvoyHeaders::AsElsewhere => {
            // Without a charge, a decision may deny as much again of a request that is allowed.
            let joint = decided.joint.as_ref().filter(|joint| joint.is_allowed() || !decided.is_allowed);
            joint.map_or_else(Vec::new, |joint| headers(joint, engine.headers()))
        }
        EnvoyHeaders::Nothing => Vec::new(),
        EnvoyHeaders::Named(names) => named(names, statuses),
    }
}

/// The three fields of `envoyproxy/ratelimit`: for the last status over its limit, otherwise for that with the least remaining.
fn named(names: &HeaderNames, statuses: &[DescriptorStatus]) -> Vec<HeaderValue> {
    let limited = || statuses.iter().filter(|status| status.current_limit.is_some());
    let over = limited().rfind(|status| status.code() == Code::OverLimit);
    let Some(status) = over.or_else(|| limited().min_by_key(|status| status.limit_remaining)) else {
        return Vec::new();
    };
    let limit = status.current_limit.as_ref().map_or(0, |limit| limit.requests_per_unit);
    let reset = status.duration_until_reset.as_ref().map_or(0, |duration| duration.seconds);
    let field = |name: &HeaderName, value: String| HeaderValue {
        key: name.as_str().to_owned(),
        value,
        ..HeaderValue::default()
    };
    vec![
        field(&names.limit, limit.to_string()),
        field(&names.remaining, status.limit_remaining.to_string()),
        field(&names.reset, reset.to_string()),
    ]
}

fn headers(decision: &Decision, options: HeaderOptions) -> Vec<HeaderValue> {
    let mut headers = Vec::new();
    write_headers(decision, options, |field, value| {
        headers.push(HeaderValue {
            key: field.name().to_owned(),
            value: value.to_owned(),
            ..HeaderValue::default()
        });
    });
    headers
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluicegate::calendar::{Cycle, Weekday, Zone};
    use sluicegate::core::FixedWindow;

    #[test]
    fn a_window_is_reported_as_its_unit_or_the_next_longer_one() {
        let cases = [
            (1, Unit::Second),
            (2, Unit::Minute),
            (60, Unit::Minute),
            (61, Unit::Hour),
            (3_600, Unit::Hour),
            (86_400, Unit::Day),
            (86_401, Unit::Week),
            (2_592_000, Unit::Month),
            (31_536_000, Unit::Year),
            (31_536_001, Unit::Year),
        ];
        for (secs, unit) in cases {
            assert_eq!(unit_from(secs), unit, "{secs}");
        }
    }

    #[test]
    fn a_window_of_a_calendar_is_reported_as_the_unit_of_its_name() {
        let cases = [
            (Cycle::Hour, Unit::Hour),
            (Cycle::Day, Unit::Day),
            (Cycle::Week(Weekday::Monday), Unit::Week),
            (Cycle::Month(1), Unit::Month),
            (Cycle::Month(31), Unit::Month),
        ];
        // In the other zones clocks changed by parts of an hour, a minute after midnight, or by a whole day.
        for name in ["UTC", "Europe/Berlin", "Australia/Lord_Howe", "America/St_Johns", "Pacific/Apia"] {
            let zone = Zone::named(name).expect("a zone");
            for (cycle, unit) in cases {
                let calendar = zone.calendar(cycle).expect("a calendar");
                let window = FixedWindow::on_calendar(5, calendar).expect("a limit");
                assert_eq!(unit_of(&window.into()), unit, "{name} {cycle}");
            }
        }
    }
}
