//! Decisions as JSON.
//!
//! The top level describes the tightest limit; `limits` lists all of them. A value that does not apply is null: the numbers
//! if no limit applies, and the waits if waiting does not help. Waits are rounded up, so a client that waits as long is not
//! too early. A limit in debt also has its `debt`. An undecided check has the same shape without numbers.

use sluicegate::core::{Outcome, Timestamp};
use sluicegate::headers::retry_after_secs;
use sluicegate::rules::Mode;
use sluicegate::{Decision, LimitReport, Retry};

/// The usual size of a body: two limits with names of ordinary length.
const BODY_BYTES_USUAL: usize = 512;

/// The body of the response to one check.
pub(crate) struct DecisionJson<'d> {
    allowed: bool,
    limit: Option<u64>,
    remaining: Option<u64>,
    reset_at: Option<u64>,
    retry_after: Option<u64>,
    retry_after_ms: Option<u64>,
    rule: Option<&'d str>,
    degraded: bool,
    /// The source of `limits`; `None` for an undecided check.
    decision: Option<&'d Decision>,
}

impl<'d> From<&'d Decision> for DecisionJson<'d> {
    fn from(decision: &'d Decision) -> Self {
        let tightest = decision.tightest();
        let (retry_after, retry_after_ms) = match decision.retry() {
            None => (Some(0), Some(0)),
            Some(Retry::After(wait)) => (retry_after_secs(decision), Some(wait.ceil_millis())),
            Some(Retry::Never) => (None, None),
        };
        Self {
            allowed: decision.is_allowed(),
            limit: tightest.map(|report| report.verdict.limit),
            remaining: decision.remaining(),
            reset_at: tightest.map(|report| report.reset_at_millis(decision.now())),
            retry_after,
            retry_after_ms,
            rule: tightest.map(|report| report.rule),
            degraded: decision.is_degraded(),
            decision: Some(decision),
        }
    }
}

impl DecisionJson<'_> {
    /// The denial of a check that the store could not decide. A retry after `retry_after` seconds may succeed.
    pub(crate) fn undecided(retry_after: u64) -> Self {
        Self {
            allowed: false,
            limit: None,
            remaining: None,
            reset_at: None,
            retry_after: Some(retry_after),
            retry_after_ms: Some(retry_after.saturating_mul(1_000)),
            rule: None,
            degraded: true,
            decision: None,
        }
    }
}

/// One check of a batch: its decision, or the wait in seconds if it is undecided.
pub(crate) type BatchOutcome = Result<Decision, u64>;

/// The body of the response to a batch, in the order of its checks: `{"results":[…]}`.
pub(crate) struct BatchJson<'d>(pub(crate) &'d [BatchOutcome]);

impl DecisionJson<'_> {
    /// The body as bytes.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        let mut body = Vec::new();
        self.write_json(&mut body);
        body
    }

    /// Appends the JSON to `body`.
    pub(crate) fn write_json(&self, body: &mut Vec<u8>) {
        body.reserve(BODY_BYTES_USUAL);
        self.write(&mut Json(body));
    }

    fn write(&self, json: &mut Json<'_>) {
        json.raw(r#"{"allowed":"#).boolean(self.allowed);
        json.raw(r#","limit":"#).number(self.limit);
        json.raw(r#","remaining":"#).number(self.remaining);
        json.raw(r#","resetAt":"#).number(self.reset_at);
        json.raw(r#","retryAfter":"#).number(self.retry_after);
        json.raw(r#","retryAfterMs":"#).number(self.retry_after_ms);
        json.raw(r#","rule":"#).string(self.rule);
        json.raw(r#","degraded":"#).boolean(self.degraded);
        json.raw(r#","limits":["#);
        if let Some(decision) = self.decision {
            json.list(decision.limits(), |json, report| write_limit(json, &report, decision.now()));
        }
        json.raw("]}");
    }
}

impl BatchJson<'_> {
    /// The body as bytes.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(BODY_BYTES_USUAL.saturating_mul(self.0.len()));
        let mut json = Json(&mut body);
        json.raw(r#"{"results":["#);
        json.list(self.0, |json, checked| match checked {
            Ok(decision) => DecisionJson::from(decision).write(json),
            Err(retry_after) => DecisionJson::undecided(*retry_after).write(json),
        });
        json.raw("]}");
        body
    }
}

fn write_limit(json: &mut Json<'_>, report: &LimitReport<'_>, now: Timestamp) {
    let retry_after_ms = match report.verdict.outcome {
        Outcome::Allowed => Some(0),
        Outcome::Denied { retry_after } => Some(retry_after.ceil_millis()),
        Outcome::NeverAdmissible => None,
    };
    json.raw(r#"{"rule":"#).string(Some(report.rule));
    json.raw(r#","algorithm":""#).raw(report.quota.algorithm());
    json.raw(r#"","allowed":"#).boolean(report.verdict.outcome.is_allowed());
    json.raw(r#","limit":"#).number(Some(report.verdict.limit));
    json.raw(r#","remaining":"#).number(Some(report.verdict.remaining));
    if report.verdict.debt > 0 {
        json.raw(r#","debt":"#).number(Some(report.verdict.debt));
    }
    json.raw(r#","resetAt":"#).number(Some(report.reset_at_millis(now)));
    json.raw(r#","retryAfterMs":"#).number(retry_after_ms);
    json.raw(r#","shadow":"#).boolean(report.mode == Mode::Shadow).raw("}");
}

/// A JSON writer. The shape is fixed, so member names and punctuation are constant text. Only rule names need escapes.
struct Json<'b>(&'b mut Vec<u8>);

impl Json<'_> {
    /// Appends text that is valid JSON.
    fn raw(&mut self, text: &str) -> &mut Self {
        self.0.extend_from_slice(text.as_bytes());
        self
    }

    fn boolean(&mut self, value: bool) -> &mut Self {
        self.raw(if value { "true" } else { "false" })
    }

    fn number(&mut self, value: Option<u64>) -> &mut Self {
        match value {
            Some(value) => self.raw(itoa::Buffer::new().format(value)),
            None => self.raw("null"),
        }
    }

    fn string(&mut self, value: Option<&str>) -> &mut Self {
        // Writing a string to memory cannot fail.
        let _ = serde_json::to_writer(&mut *self.0, &value);
        self
    }

    /// Writes `items`, separated by commas.
    fn list<T>(&mut self, items: impl IntoIterator<Item = T>, mut write: impl FnMut(&mut Self, T)) {
        for (index, item) in items.into_iter().enumerate() {
            if index > 0 {
                self.raw(",");
            }
            write(self, item);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use sluicegate::clock::ManualClock;
    use sluicegate::core::{Align, Cost, FixedWindow, Micros, Quota, Rate, TokenBucket};
    use sluicegate::rules::{Rule, RuleSet, Unmatched};
    use sluicegate::{Limiter, MemoryStore, Request, rules};

    use super::*;

    /// Half a millisecond after a second, so that rounding shows.
    const NOW_MICROS: u64 = 1_705_312_800_000_500;

    fn limiter(rules: Vec<Rule>, unmatched: Unmatched) -> Limiter<MemoryStore, ManualClock> {
        let rules = RuleSet::new(rules, Vec::new(), unmatched).expect("valid rules");
        Limiter::new(rules, MemoryStore::default(), ManualClock::at(Timestamp::now(NOW_MICROS)))
    }

    /// Four at once and three per second, so that a wait for one is a third of a second.
    fn bucket(name: &str) -> Rule {
        let rate = Rate::new(3, Micros::from_secs(1)).expect("valid");
        let quota = Quota::from(TokenBucket::new(4, rate).expect("valid"));
        Rule::new(name, rules::Limits::all(name, [(None, quota)]))
    }

    fn window(name: &str, limit: u64) -> Rule {
        let quota = Quota::from(FixedWindow::new(limit, Micros::from_secs(60), Align::Epoch).expect("valid"));
        Rule::new(name, rules::Limits::all(name, [(None, quota)]))
    }

    fn read(json: &[u8]) -> Value {
        serde_json::from_slice(json).expect("JSON")
    }

    async fn check(limiter: &Limiter<MemoryStore, ManualClock>, cost: u32) -> Value {
        let decision = limiter.check(&Request::new("r", "alice").cost(Cost::new(cost))).await;
        read(&DecisionJson::from(&decision.expect("the request is valid")).to_json())
    }

    #[tokio::test]
    async fn allowed_has_waits_of_zero() {
        let limiter = limiter(vec![bucket("api")], Unmatched::Allow);
        assert_eq!(
            check(&limiter, 1).await,
            json!({
                "allowed": true, "limit": 4, "remaining": 3, "resetAt": 1_705_312_800_334_u64,
                "retryAfter": 0, "retryAfterMs": 0, "rule": "api", "degraded": false,
                "limits": [{
                    "rule": "api", "algorithm": "token_bucket", "allowed": true, "limit": 4, "remaining": 3,
                    "resetAt": 1_705_312_800_334_u64, "retryAfterMs": 0, "shadow": false,
                }],
            })
        );
    }

    #[tokio::test]
    async fn denied_waits_are_rounded_up() {
        let limiter = limiter(vec![bucket("api")], Unmatched::Allow);
        check(&limiter, 4).await;
        let denied = check(&limiter, 1).await;
        assert_eq!(denied["allowed"], false);
        assert_eq!(denied["retryAfter"], 1);
        // A third of a second is 333.3 ms.
        assert_eq!(denied["retryAfterMs"], 334);
        assert_eq!(denied["limits"][0]["retryAfterMs"], 334);
        assert_eq!(check(&limiter, 4).await["retryAfter"], 2);
    }

    #[tokio::test]
    async fn a_cost_that_never_fits_has_no_wait() {
        let limiter = limiter(vec![bucket("api")], Unmatched::Allow);
        let denied = check(&limiter, 5).await;
        assert_eq!(denied["allowed"], false);
        assert_eq!(denied["remaining"], 4);
        for wait in [&denied["retryAfter"], &denied["retryAfterMs"], &denied["limits"][0]["retryAfterMs"]] {
            assert_eq!(*wait, Value::Null);
        }
    }

    #[tokio::test]
    async fn where_nothing_limits_the_numbers_are_null() {
        for (unmatched, allowed, wait) in
            [(Unmatched::Allow, true, json!(0)), (Unmatched::Deny, false, Value::Null)]
        {
            assert_eq!(
                check(&limiter(Vec::new(), unmatched), 1).await,
                json!({
                    "allowed": allowed, "limit": null, "remaining": null, "resetAt": null,
                    "retryAfter": wait, "retryAfterMs": wait, "rule": null, "degraded": false, "limits": [],
                })
            );
        }
    }

    #[tokio::test]
    async fn the_longest_wait_is_reported_and_shadow_limits_only_listed() {
        let mut shadow = window("tried", 0);
        shadow.mode = Mode::Shadow;
        let limiter = limiter(vec![bucket("api"), window("minute", 4), shadow], Unmatched::Allow);
        let allowed = check(&limiter, 4).await;
        assert_eq!(allowed["allowed"], true);
        assert_eq!(allowed["limits"][2]["shadow"], true);
        assert_eq!(allowed["limits"][2]["allowed"], false);

        let denied = check(&limiter, 1).await;
        assert_eq!(denied["rule"], "minute");
        let in_order = denied["limits"].as_array().expect("a list").iter().map(|limit| &limit["rule"]);
        assert_eq!(in_order.collect::<Vec<_>>(), ["api", "minute", "tried"]);
    }

    #[tokio::test]
    async fn results_are_in_order() {
        let limiter = limiter(vec![bucket("api")], Unmatched::Allow);
        let mut decisions = Vec::new();
        for _ in 0..2 {
            decisions.push(Ok(limiter.check(&Request::new("r", "alice")).await.expect("valid")));
        }
        decisions.push(Err(1));
        let results = read(&BatchJson(&decisions).to_json());
        assert_eq!(results["results"][0]["remaining"], 3);
        assert_eq!(results["results"][1]["remaining"], 2);
        assert_eq!(results["results"][2], read(&DecisionJson::undecided(1).to_json()));
        assert_eq!(results["results"][2]["degraded"], true);
        assert_eq!(BatchJson(&[]).to_json(), br#"{"results":[]}"#);
    }

    #[tokio::test]
    async fn names_of_rules_are_escaped() {
        let name = "a \"rule\\\u{7}é";
        let answer = check(&limiter(vec![bucket(name)], Unmatched::Allow), 1).await;
        assert_eq!(answer["rule"], name);
        assert_eq!(answer["limits"][0]["rule"], name);
    }
}
