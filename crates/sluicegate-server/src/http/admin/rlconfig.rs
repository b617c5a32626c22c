//! `GET /rlconfig`: the limits in force in the text format of `envoyproxy/ratelimit`, which `egctl` and its users read.

use std::fmt::Write as _;

use axum::extract::State;
use axum::http::header::{self, HeaderValue};
use axum::http::request::Parts;
use axum::response::{IntoResponse as _, Response};
use sluicegate::rules::envoy::{ListedLimit, Unit};
use sluicegate::rules::{Mode, RuleSet};

use super::no_store;
use crate::admin_tokens;
use crate::engine::Engine;
use crate::problem::Problem;

/// Lists the limits, one per line. They name clients at times, so remote reads need a token.
pub(super) async fn rlconfig(State(engine): State<Engine>, head: Parts) -> Result<Response, Problem> {
    admin_tokens::require_to_read(engine.admin_tokens(), &head).await?;
    let text = (header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    Ok(([text, no_store()], listed(&engine.limiter().rules())).into_response())
}

fn listed(rules: &RuleSet) -> String {
    let mut text = String::new();
    if let Some(envoy) = rules.envoy() {
        envoy.for_each_limit(|limit| line(&mut text, rules, limit));
    }
    text
}

fn line(text: &mut String, rules: &RuleSet, limit: &ListedLimit<'_>) {
    text.push_str(limit.domain);
    for (key, value) in limit.path {
        text.push('.');
        text.push_str(key);
        if let Some(value) = value {
            text.push('_');
            text.push_str(value);
        }
    }
    // A window of another length has the number of no unit, as a limit that is unlimited.
    let (requests, unit) = limit.limit.unwrap_or((0, Unit::Other));
    let is_shadow = rules.rules().get(limit.rule).is_some_and(|rule| rule.mode == Mode::Shadow);
    let (unit, is_quota) = (name(unit), limit.is_quota);
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        ": unit={unit} requests_per_unit={requests}, shadow_mode: {is_shadow}, quota_mode: {is_quota}"
    );
}

/// The name of a unit in the protocol.
fn name(unit: Unit) -> &'static str {
    match unit {
        Unit::Second => "SECOND",
        Unit::Minute => "MINUTE",
        Unit::Hour => "HOUR",
        Unit::Day => "DAY",
        Unit::Week => "WEEK",
        Unit::Month => "MONTH",
        Unit::Year => "YEAR",
        _ => "UNKNOWN",
    }
}

#[cfg(test)]
mod tests {
    use sluicegate::rules::envoy::{EnvoyConfig, EnvoyOptions};

    use super::*;

    #[test]
    fn every_limit_has_its_line() {
        let file = "
domain: edge
descriptors:
  - { key: path, value: /login, rate_limit: { unit: minute, requests_per_unit: 5 },
      descriptors: [ { key: ip, shadow_mode: true, quota_mode: true, rate_limit: { unit: week, requests_per_unit: 7 } } ] }
  - { key: free, rate_limit: { unlimited: true } }
";
        let config = EnvoyConfig::read([("edge.yaml", file)], &EnvoyOptions::default()).expect("valid");
        let rules = RuleSet::default().with_envoy(config).expect("valid");
        assert_eq!(
            listed(&rules),
            "edge.path_/login: unit=MINUTE requests_per_unit=5, shadow_mode: false, quota_mode: false\n\
             edge.path_/login.ip: unit=WEEK requests_per_unit=7, shadow_mode: true, quota_mode: true\n\
             edge.free: unit=UNKNOWN requests_per_unit=0, shadow_mode: false, quota_mode: false\n"
        );
        assert_eq!(listed(&RuleSet::default()), "");
    }
}
