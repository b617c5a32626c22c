//! What a response tells Envoy beside the statuses: the deciding rule, and the limits that are exceeded and deny nothing.
//!
//! They are the member `sluicegate` of the dynamic metadata, which Envoy keeps in the namespace of its filter, for access logs,
//! routing and other filters. A call may also ask for them as header fields of the request to the upstream.

use std::collections::BTreeMap;

use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value};
use sluicegate::LimitReport;
use sluicegate::rules::Mode;

use super::decide::CallDecisions;
use super::descriptor::ResolvedDescriptor;
use super::messages::envoy::config::core::v3::HeaderValue;

/// The member of the dynamic metadata.
pub(super) const MEMBER: &str = "sluicegate";

/// The header fields of the request to the upstream.
const SHADOW_HEADER: &str = "x-sluicegate-shadow";
const QUOTA_HEADER: &str = "x-sluicegate-quota";

/// The signals about a call.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Signals<'d> {
    /// The rule of the limit that denies, or of that with the least remaining, and what remains.
    decided_by: Option<(&'d str, u64)>,
    /// The rules in shadow mode that would have denied.
    shadow: Vec<&'d str>,
    /// The exhausted rules in `quota_mode` beside one that has room.
    quota: Vec<&'d str>,
}

impl<'d> Signals<'d> {
    /// The signals about these decisions.
    pub(super) fn of(decided: &'d CallDecisions, lines: &[ResolvedDescriptor<'_>]) -> Self {
        let mut signals = Self::default();
        // Whether the limit denies comes first, then the least remaining.
        let mut tightest: Option<(bool, u64, &str)> = None;
        let in_shadow_mode = decided.in_shadow_mode.iter().copied().chain(std::iter::repeat(false));
        for ((line, decision), is_watched_quota) in lines.iter().zip(&decided.each).zip(in_shadow_mode) {
            for report in decision.iter().flat_map(|decision| decision.limits()) {
                let is_over = is_over(line, &report);
                match report.mode {
                    Mode::Enforce => {
                        let key = (!is_over, report.verdict.remaining, report.rule);
                        tightest = Some(tightest.map_or(key, |before| before.min(key)));
                    }
                    _ if !is_over => {}
                    _ if is_watched_quota => add(&mut signals.quota, report.rule),
                    _ => add(&mut signals.shadow, report.rule),
                }
            }
        }
        signals.decided_by = tightest.map(|(_, remaining, rule)| (rule, remaining));
        signals
    }

    /// The member of the dynamic metadata; `None` without any signal.
    pub(super) fn metadata(&self) -> Option<Value> {
        let mut fields = BTreeMap::new();
        if let Some((rule, remaining)) = self.decided_by {
            fields.insert("rule".to_owned(), text(rule));
            fields.insert("remaining".to_owned(), number(remaining));
        }
        for (name, rules) in [("shadow", &self.shadow), ("quota", &self.quota)] {
            if !rules.is_empty() {
                let values = rules.iter().map(|rule| text(rule)).collect();
                fields.insert(name.to_owned(), value(Kind::ListValue(ListValue { values })));
            }
        }
        (!fields.is_empty()).then(|| value(Kind::StructValue(Struct { fields })))
    }

    /// The header fields for the upstream: the exceeded limits that deny nothing.
    pub(super) fn request_headers(&self) -> Vec<HeaderValue> {
        let fields = [(SHADOW_HEADER, &self.shadow), (QUOTA_HEADER, &self.quota)];
        let field = |(name, rules): (&str, &Vec<&str>)| HeaderValue {
            key: name.to_owned(),
            value: rules.join(", "),
            ..HeaderValue::default()
        };
        fields.into_iter().filter(|(_, rules)| !rules.is_empty()).map(field).collect()
    }
}

/// True if the hits exceed the limit, or would exceed it if it were enforced.
fn is_over(line: &ResolvedDescriptor<'_>, report: &LimitReport<'_>) -> bool {
    if line.is_configured() { line.is_over(&report.verdict) } else { !report.verdict.outcome.is_allowed() }
}

/// A rule may apply to several descriptors.
fn add<'d>(rules: &mut Vec<&'d str>, rule: &'d str) {
    if !rules.contains(&rule) {
        rules.push(rule);
    }
}

fn value(kind: Kind) -> Value {
    Value { kind: Some(kind) }
}

fn text(text: &str) -> Value {
    value(Kind::StringValue(text.to_owned()))
}

/// Beyond 2⁵³, which no limit exceeds, a double would not be exact.
#[expect(clippy::cast_precision_loss, reason = "the amount is below 2⁵³")]
fn number(number: u64) -> Value {
    value(Kind::NumberValue(number as f64))
}
