//! The server's answer, read and said in words.

use std::fmt::Write as _;

use axum::http::StatusCode;
use serde::Deserialize;
use sluicegate::core::{Micros, Timestamp};

use super::Undecided;
use crate::cli::client::{self, shown};

/// What of an answer is told. A newer server may say more.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Answer {
    pub(super) allowed: bool,
    limit: Option<u64>,
    remaining: Option<u64>,
    reset_at: Option<u64>,
    retry_after_ms: Option<u64>,
    rule: Option<String>,
    #[serde(default)]
    degraded: bool,
    limits: Vec<Limit>,
}

/// One limit.
#[derive(Debug, Deserialize)]
struct Limit {
    rule: String,
    algorithm: String,
    allowed: bool,
    limit: u64,
    remaining: u64,
    shadow: bool,
}

impl Answer {
    /// Reads an answer; only 200 and 429 are decisions.
    pub(super) fn read(status: StatusCode, text: &str, api: &str) -> Result<Self, Undecided> {
        let is_allowed = match status {
            StatusCode::OK => true,
            StatusCode::TOO_MANY_REQUESTS => false,
            _ => return Err(Undecided::Refused { status, detail: detail(text) }),
        };
        let unintelligible = |reason| Undecided::Unintelligible { api: shown(api), status, reason };
        let answer: Self =
            serde_json::from_str(text).map_err(|error| unintelligible(shown(&error.to_string())))?;
        if answer.allowed != is_allowed {
            return Err(unintelligible(format!("`allowed` is {}", answer.allowed)));
        }
        Ok(answer)
    }

    /// One line for the decision, and one per limit where there are several.
    pub(super) fn describe(&self, cost: Option<u32>, now: Timestamp) -> String {
        let word = if self.allowed { "allowed" } else { "denied" };
        let mut text = match (&self.rule, self.limit, self.remaining) {
            (Some(rule), Some(limit), Some(remaining)) => {
                let (then, degraded) = (self.then(cost, now), if self.degraded { " (degraded)" } else { "" });
                format!("{word}  {}  {remaining} of {limit} left, {then}{degraded}\n", shown(rule))
            }
            _ if self.allowed && self.degraded => {
                format!("{word}  the store could not decide, and no rule objects (degraded)\n")
            }
            _ if self.allowed => format!("{word}  nothing limits this\n"),
            _ => format!("{word}  no rule covers this\n"),
        };
        if self.limits.len() > 1 {
            for limit in &self.limits {
                // Writing to a string cannot fail.
                let _ = writeln!(text, "  {}", limit.describe());
            }
        }
        text
    }

    /// What the caller may expect next.
    fn then(&self, cost: Option<u32>, now: Timestamp) -> String {
        match (self.allowed, self.retry_after_ms) {
            // By what is left, not by the time: this clock is not the server's.
            (true, _) if self.remaining == self.limit => "whole".to_owned(),
            (true, _) => {
                let reset_at = Timestamp::from_micros(self.reset_at.unwrap_or(0).saturating_mul(1_000));
                format!("whole again in {}", seconds(reset_at.since(now)))
            }
            (false, Some(wait)) => format!("try again in {}", seconds(Micros::from_millis(wait))),
            (false, None) => match cost {
                Some(cost) => format!("a cost of {cost} never fits"),
                None => "the cost never fits".to_owned(),
            },
        }
    }
}

impl Limit {
    fn describe(&self) -> String {
        let Self { remaining, limit, .. } = self;
        let word = if self.allowed { "allows" } else { "denies" };
        let shadow = if self.shadow { " (shadow)" } else { "" };
        format!("{word}  {}  {}  {remaining} of {limit} left{shadow}", shown(&self.rule), shown(&self.algorithm))
    }
}

/// Rounded up, to tenths below ten seconds.
fn seconds(wait: Micros) -> String {
    let tenths = wait.as_micros().div_ceil(100_000);
    match (tenths / 10, tenths % 10) {
        (whole @ 0..10, rest @ 1..) => format!("{whole}.{rest} s"),
        _ => format!("{} s", wait.as_micros().div_ceil(1_000_000)),
    }
}

/// What a problem document says, that the store failed, or else the start of the body.
fn detail(text: &str) -> String {
    #[derive(Deserialize)]
    struct Refusal {
        degraded: bool,
    }
    if let Ok(Refusal { degraded: true }) = serde_json::from_str(text) {
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

    fn answer() -> Value {
        json!({
            "allowed": true, "limit": 10, "remaining": 9, "resetAt": 1_705_312_801_000_u64, "retryAfter": 0,
            "retryAfterMs": 0, "rule": "demo", "degraded": false,
            "limits": [{
                "rule": "demo", "algorithm": "token_bucket", "allowed": true, "limit": 10, "remaining": 9,
                "resetAt": 1_705_312_801_000_u64, "retryAfterMs": 0, "shadow": false,
            }],
        })
    }

    fn read(status: u16, body: &Value) -> Result<Answer, Undecided> {
        Answer::read(StatusCode::from_u16(status).expect("a status"), &body.to_string(), API)
    }

    #[track_caller]
    fn described(status: u16, body: &Value) -> String {
        read(status, body).expect("a decision").describe(Some(11), now())
    }

    #[test]
    fn allowed_says_what_is_left_and_when_it_is_whole() {
        assert_eq!(described(200, &answer()), "allowed  demo  9 of 10 left, whole again in 1 s\n");
        let mut whole = answer();
        whole["remaining"] = json!(10);
        assert_eq!(described(200, &whole), "allowed  demo  10 of 10 left, whole\n");
        let mut behind = answer();
        behind["resetAt"] = json!(1_705_312_799_000_u64);
        assert_eq!(described(200, &behind), "allowed  demo  9 of 10 left, whole again in 0 s\n");
    }

    #[test]
    fn denied_says_when_to_try_again_or_that_it_never_fits() {
        let mut denied = answer();
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
    fn where_nothing_limits_it_says_so() {
        let mut free = answer();
        for field in ["limit", "remaining", "resetAt", "rule"] {
            free[field] = Value::Null;
        }
        free["limits"] = json!([]);
        assert_eq!(described(200, &free), "allowed  nothing limits this\n");
        free["allowed"] = json!(false);
        free["retryAfterMs"] = Value::Null;
        assert_eq!(described(429, &free), "denied  no rule covers this\n");
    }

    #[test]
    fn an_answer_without_the_store_says_so() {
        let mut degraded = answer();
        degraded["degraded"] = json!(true);
        assert_eq!(described(200, &degraded), "allowed  demo  9 of 10 left, whole again in 1 s (degraded)\n");
        for field in ["limit", "remaining", "resetAt", "rule"] {
            degraded[field] = Value::Null;
        }
        degraded["limits"] = json!([]);
        let expected = "allowed  the store could not decide, and no rule objects (degraded)\n";
        assert_eq!(described(200, &degraded), expected);
    }

    #[test]
    fn several_limits_have_a_line_each_and_nothing_acts_on_the_terminal() {
        let mut several = answer();
        let mut second = several["limits"][0].clone();
        second["rule"] = json!("\u{1b}[2Jtried");
        second["shadow"] = json!(true);
        second["allowed"] = json!(false);
        several["limits"].as_array_mut().expect("a list").push(second);
        assert_eq!(
            described(200, &several),
            "allowed  demo  9 of 10 left, whole again in 1 s\n  \
             allows  demo  token_bucket  9 of 10 left\n  \
             denies  \\u{1b}[2Jtried  token_bucket  9 of 10 left (shadow)\n"
        );
    }

    #[test]
    fn anything_but_a_decision_is_none() {
        for (status, body, expected) in [
            (400, json!({ "detail": "`cost` is -1" }), "the server answered 400 Bad Request: `cost` is -1"),
            (503, json!({ "allowed": false }), "the server answered 503 Service Unavailable: {\"allowed\":false}"),
            (
                503,
                json!({ "allowed": false, "degraded": true }),
                "503 Service Unavailable: its store could not decide; try again later",
            ),
            (200, json!({ "allowed": true }), "is no decision: missing field `limits`"),
            (200, json!("pong"), "is no decision: invalid type"),
            (429, answer(), "is no decision: `allowed` is true"),
        ] {
            let message = read(status, &body).expect_err("undecided").to_string();
            assert!(message.contains(expected), "{message}");
        }
    }
}
