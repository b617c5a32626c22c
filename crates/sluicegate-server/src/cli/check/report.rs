//! The server's decision: parsing and text.

use std::fmt::Write as _;

use axum::http::StatusCode;
use serde::Deserialize;
use sluicegate::core::{Micros, Timestamp};

use super::Undecided;
use crate::cli::client;
use crate::cli::format::excerpt;

/// The fields of a decision that the text shows. A newer server may send more.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CheckResponse {
    pub(super) allowed: bool,
    limit: Option<u64>,
    remaining: Option<u64>,
    reset_at: Option<u64>,
    retry_after_ms: Option<u64>,
    rule: Option<String>,
    #[serde(default)]
    degraded: bool,
    limits: Vec<DecidedLimit>,
}

/// One limit.
#[derive(Debug, Deserialize)]
struct DecidedLimit {
    rule: String,
    algorithm: String,
    allowed: bool,
    limit: u64,
    remaining: u64,
    shadow: bool,
}

impl CheckResponse {
    /// Parses a response. Only the statuses 200 and 429 are decisions.
    pub(super) fn parse(status: StatusCode, text: &str, api: &str) -> Result<Self, Undecided> {
        let is_allowed = match status {
            StatusCode::OK => true,
            StatusCode::TOO_MANY_REQUESTS => false,
            _ => return Err(Undecided::Status { status, detail: detail(text) }),
        };
        let invalid = |reason| Undecided::InvalidResponse { api: excerpt(api), status, reason };
        let decision: Self = serde_json::from_str(text).map_err(|error| invalid(excerpt(&error.to_string())))?;
        if decision.allowed != is_allowed {
            return Err(invalid(format!("`allowed` is {}", decision.allowed)));
        }
        Ok(decision)
    }

    /// A line for the decision, and a line per limit if there are several.
    pub(super) fn describe(&self, cost: Option<u32>, now: Timestamp) -> String {
        let word = if self.allowed { "allowed" } else { "denied" };
        let mut text = match (&self.rule, self.limit, self.remaining) {
            (Some(rule), Some(limit), Some(remaining)) => {
                let (outlook, degraded) =
                    (self.outlook(cost, now), if self.degraded { " (degraded)" } else { "" });
                format!("{word}  {}  {remaining} of {limit} left, {outlook}{degraded}\n", excerpt(rule))
            }
            _ if self.allowed && self.degraded => {
                format!("{word}  the store could not decide, and no rule denies (degraded)\n")
            }
            _ if self.allowed => format!("{word}  no limit applies\n"),
            _ => format!("{word}  no rule matches\n"),
        };
        if self.limits.len() > 1 {
            for limit in &self.limits {
                // Writing to a string cannot fail.
                let _ = writeln!(text, "  {}", limit.describe());
            }
        }
        text
    }

    /// The time until the quota is restored, or until a retry can succeed.
    fn outlook(&self, cost: Option<u32>, now: Timestamp) -> String {
        match (self.allowed, self.retry_after_ms) {
            // Compares the quota, not the time, because this clock may differ from the server's.
            (true, _) if self.remaining == self.limit => "quota full".to_owned(),
            (true, _) => {
                let reset_at = Timestamp::from_micros(self.reset_at.unwrap_or(0).saturating_mul(1_000));
                format!("quota fully restored in {}", seconds(reset_at.since(now)))
            }
            (false, Some(wait)) => format!("try again in {}", seconds(Micros::from_millis(wait))),
            (false, None) => match cost {
                Some(cost) => format!("a cost of {cost} never fits"),
                None => "the cost never fits".to_owned(),
            },
        }
    }
}

impl DecidedLimit {
    fn describe(&self) -> String {
        let Self { remaining, limit, .. } = self;
        let word = if self.allowed { "allows" } else { "denies" };
        let shadow = if self.shadow { " (shadow)" } else { "" };
        format!(
            "{word}  {}  {}  {remaining} of {limit} left{shadow}",
            excerpt(&self.rule),
            excerpt(&self.algorithm)
        )
    }
}

/// A duration in seconds, rounded up; below ten seconds with tenths.
fn seconds(wait: Micros) -> String {
    let tenths = wait.as_micros().div_ceil(100_000);
    match (tenths / 10, tenths % 10) {
        (whole @ 0..10, rest @ 1..) => format!("{whole}.{rest} s"),
        _ => format!("{} s", wait.as_micros().div_ceil(1_000_000)),
    }
}

/// The detail of a problem document, a text for a degraded decision, or the start of the body.
fn detail(text: &str) -> String {
    #[derive(Deserialize)]
    struct Degraded {
        degraded: bool,
    }
    if let Ok(Degraded { degraded: true }) = serde_json::from_str(text) {
        return "its store could not decide; try again later".to_owned();
    }
    client::detail(text)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const API: &str = "http://127.0.0.1:8081";

    fn now() -> Timestamp {
        Timestamp::now(1_705_312_800_000_000)
    }

    fn decision() -> Value {
        json!({
            "allowed": true, "limit": 10, "remaining": 9, "resetAt": 1_705_312_801_000_u64, "retryAfter": 0,
            "retryAfterMs": 0, "rule": "demo", "degraded": false,
            "limits": [{
                "rule": "demo", "algorithm": "token_bucket", "allowed": true, "limit": 10, "remaining": 9,
                "resetAt": 1_705_312_801_000_u64, "retryAfterMs": 0, "shadow": false,
            }],
        })
    }

    fn parse(status: u16, body: &Value) -> Result<CheckResponse, Undecided> {
        CheckResponse::parse(StatusCode::from_u16(status).expect("a status"), &body.to_string(), API)
    }

    #[track_caller]
    fn described(status: u16, body: &Value) -> String {
        parse(status, body).expect("a decision").describe(Some(11), now())
    }

    #[test]
    fn an_allowed_decision_shows_the_remaining_quota_and_its_restoration() {
        assert_eq!(described(200, &decision()), "allowed  demo  9 of 10 left, quota fully restored in 1 s\n");
        let mut full = decision();
        full["remaining"] = json!(10);
        assert_eq!(described(200, &full), "allowed  demo  10 of 10 left, quota full\n");
        let mut behind = decision();
        behind["resetAt"] = json!(1_705_312_799_000_u64);
        assert_eq!(described(200, &behind), "allowed  demo  9 of 10 left, quota fully restored in 0 s\n");
    }

    #[test]
    fn a_denied_decision_shows_the_retry_time_or_that_it_never_fits() {
        let mut denied = decision();
        denied["allowed"] = json!(false);
        denied["remaining"] = json!(0);
        denied["retryAfterMs"] = json!(812);
        assert_eq!(described(429, &denied), "denied  demo  0 of 10 left, try again in 0.9 s\n");
        denied["retryAfterMs"] = json!(61_001);
        assert_eq!(described(429, &denied), "denied  demo  0 of 10 left, try again in 62 s\n");
        denied["retryAfterMs"] = Value::Null;
        assert_eq!(described(429, &denied), "denied  demo  0 of 10 left, a cost of 11 never fits\n");
    }

    #[test]
    fn a_decision_without_limits_is_described() {
        let mut free = decision();
        for field in ["limit", "remaining", "resetAt", "rule"] {
            free[field] = Value::Null;
        }
        free["limits"] = json!([]);
        assert_eq!(described(200, &free), "allowed  no limit applies\n");
        free["allowed"] = json!(false);
        free["retryAfterMs"] = Value::Null;
        assert_eq!(described(429, &free), "denied  no rule matches\n");
    }

    #[test]
    fn a_degraded_decision_is_marked() {
        let mut degraded = decision();
        degraded["degraded"] = json!(true);
        assert_eq!(
            described(200, &degraded),
            "allowed  demo  9 of 10 left, quota fully restored in 1 s (degraded)\n"
        );
        for field in ["limit", "remaining", "resetAt", "rule"] {
            degraded[field] = Value::Null;
        }
        degraded["limits"] = json!([]);
        let expected = "allowed  the store could not decide, and no rule denies (degraded)\n";
        assert_eq!(described(200, &degraded), expected);
    }

    #[test]
    fn several_limits_have_one_line_each_and_names_are_escaped() {
        let mut several = decision();
        let mut second = several["limits"][0].clone();
        second["rule"] = json!("\u{1b}[2Jtried");
        second["shadow"] = json!(true);
        second["allowed"] = json!(false);
        several["limits"].as_array_mut().expect("a list").push(second);
        assert_eq!(
            described(200, &several),
            "allowed  demo  9 of 10 left, quota fully restored in 1 s\n  \
             allows  demo  token_bucket  9 of 10 left\n  \
             denies  \\u{1b}[2Jtried  token_bucket  9 of 10 left (shadow)\n"
        );
    }

    #[test]
    fn responses_that_are_not_decisions_are_errors() {
        for (status, body, expected) in [
            (400, json!({ "detail": "`cost` is -1" }), "the server answered 400 Bad Request: `cost` is -1"),
            (503, json!({ "allowed": false }), "the server answered 503 Service Unavailable: {\"allowed\":false}"),
            (
                503,
                json!({ "allowed": false, "degraded": true }),
                "503 Service Unavailable: its store could not decide; try again later",
            ),
            (200, json!({ "allowed": true }), "is not a decision: missing field `limits`"),
            (200, json!("pong"), "is not a decision: invalid type"),
            (429, decision(), "is not a decision: `allowed` is true"),
        ] {
            let message = parse(status, &body).expect_err("undecided").to_string();
            assert!(message.contains(expected), "{message}");
        }
    }
}
