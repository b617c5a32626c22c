//! Answers of the contract and of systems, compared field by field.

use std::fmt::Debug;

/// The answer to one request, or to several requests with one decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Whether the request is allowed.
    pub allowed: bool,
    /// The cost that would pass now; `None` if no enforced limit applies to the request.
    pub remaining: Option<u64>,
    /// The wait of a denied request; `None` for an allowed one.
    pub wait: Option<Wait>,
    /// The limit that determines the decision.
    pub tightest: Option<LimitAnswer>,
    /// All limits that were checked.
    pub limits: Vec<LimitAnswer>,
}

impl Answer {
    /// The same standing of all limits, as an allowed answer.
    pub(super) fn granted(mut self) -> Self {
        self.limits.iter_mut().for_each(|limit| limit.wait = None);
        Self { allowed: true, wait: None, ..self }
    }
}

/// The answer of one limit.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitAnswer {
    /// The rule.
    pub rule: String,
    /// The algorithm.
    pub algorithm: &'static str,
    /// Whether the rule is in shadow mode.
    pub shadow: bool,
    /// The maximum number of units that pass at once.
    pub limit: u64,
    /// `None` if this limit has room for the cost, otherwise the time until it has.
    pub wait: Option<Wait>,
    /// Remaining units, after the charge if there was one.
    pub remaining: u64,
    /// Units charged beyond the limit, rounded up.
    pub debt: u64,
    /// When the limit is fully restored, in microseconds since the epoch.
    pub restored_at: u64,
}

/// How long a request has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Exactly this many microseconds; a shorter wait is not enough.
    Micros(u64),
    /// No wait helps.
    Never,
}

/// The answer to an operation. For several requests, the joint answer comes first, followed by that of each request.
pub type Reply = Vec<Answer>;

/// How strictly a system is compared with the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every field of every answer.
    Everything,
    /// Every field, except that denied checks compare only the outcome. For systems with an unknown instant of decision
    /// or with a clock that stepped back.
    NoNumbersOfDeniedChecks,
    /// Every field, except that a denied check may report a lower remaining quota of a sliding window. For systems that
    /// cache denials: units that left the window since the last reply of the store are not visible. Waits are exact
    /// there, too, because in virtual time a call takes no time.
    RememberedDenials,
}

/// A valid cached denial for `expected`: the same answer, or one with a lower remaining quota of sliding windows.
fn remembered(expected: &Answer, actual: &Answer) -> Answer {
    let is_window = |limit: &LimitAnswer| limit.algorithm == "sliding_window";
    let lower = |expected: &mut LimitAnswer, actual: &LimitAnswer| {
        if is_window(expected) {
            expected.remaining = expected.remaining.min(actual.remaining);
            expected.debt = expected.debt.max(actual.debt);
        }
    };
    let mut allowed = expected.clone();
    allowed.limits.iter_mut().zip(&actual.limits).for_each(|(expected, actual)| lower(expected, actual));
    if let (Some(expected), Some(actual)) = (&mut allowed.tightest, &actual.tightest) {
        lower(expected, actual);
    }
    if expected.limits.iter().any(is_window) {
        allowed.remaining = allowed.remaining.min(actual.remaining);
    }
    allowed
}

/// The fields that differ, one per line; empty if there are none.
pub(super) fn differences(expected: &Reply, actual: &Reply, is_check: bool, scope: Scope) -> Vec<String> {
    let mut found = Vec::new();
    compare(&mut found, "answers", &expected.len(), &actual.len());
    let is_denied_check = is_check && !expected[0].allowed;
    if is_denied_check && scope == Scope::NoNumbersOfDeniedChecks {
        compare(&mut found, "allowed", &expected[0].allowed, &actual[0].allowed);
        return found;
    }
    let is_remembered = is_denied_check && scope == Scope::RememberedDenials;
    for (place, (expected, actual)) in expected.iter().zip(actual).enumerate() {
        let expected = if is_remembered { &remembered(expected, actual) } else { expected };
        let name = |field: &str| if place == 0 { field.to_owned() } else { format!("request {place}: {field}") };
        compare(&mut found, &name("allowed"), &expected.allowed, &actual.allowed);
        compare(&mut found, &name("remaining"), &expected.remaining, &actual.remaining);
        compare(&mut found, &name("wait"), &expected.wait, &actual.wait);
        compare(&mut found, &name("tightest limit"), &expected.tightest, &actual.tightest);
        compare(&mut found, &name("limits"), &expected.limits.len(), &actual.limits.len());
        for (index, (expected, actual)) in expected.limits.iter().zip(&actual.limits).enumerate() {
            compare(&mut found, &name(&format!("limits[{index}]")), expected, actual);
        }
    }
    found
}

fn compare<T: PartialEq + Debug>(found: &mut Vec<String>, field: &str, expected: &T, actual: &T) {
    if expected != actual {
        found.push(format!(
            "{field}: expected {expected:?}\n{:>width$}: actual   {actual:?}",
            "",
            width = field.len()
        ));
    }
}
