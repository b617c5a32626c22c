//! The JSON shapes of the admin API that programs read back: the overview, the history and the busiest identities.
//!
//! The server writes them, and `sluicegate top` and `sluicegate simulate --from-admin` read them. Readers skip fields that
//! they do not know, and the overview has a default for every field, so a newer or older server is understood.

use std::borrow::Cow;

use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// A text that the server writes from constants and a reader owns.
pub(crate) type Text = Cow<'static, str>;

/// One event of `GET /admin/v1/events`. Counts are totals since the start, so a reader that missed events still computes
/// correct rates from any two.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Overview {
    /// Milliseconds since 1970.
    pub(crate) at: u64,
    pub(crate) version: Text,
    pub(crate) health: HealthReport,
    pub(crate) store: StoreState,
    pub(crate) requests: RequestCounts,
    pub(crate) tracked_keys: u64,
    pub(crate) latency: LatencyCounts,
    pub(crate) remaining: RemainingCounts,
    /// `database`, where the admin API can change rules, or `file`.
    pub(crate) rules_from: Text,
    pub(crate) rule_count: usize,
    /// The busiest rules only.
    pub(crate) rules: Vec<RuleOverview>,
    pub(crate) heaviest: Vec<BusyIdentity>,
    pub(crate) most_denied: Vec<BusyIdentity>,
}

/// The body of `/readyz`, and the `health` of the overview.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct HealthReport {
    pub(crate) status: Text,
    pub(crate) degraded: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) stale_configuration: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) awaiting_configuration: bool,
}

/// The kind and the reachability of the store.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct StoreState {
    pub(crate) kind: Text,
    /// `up`, `partial` or `down`.
    pub(crate) state: Text,
    /// The class of the error that keeps the store from answering.
    #[serde(rename = "trouble")]
    pub(crate) error_class: Option<Text>,
}

/// Requests since the start, by outcome.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RequestCounts {
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    pub(crate) undecided: u64,
    /// Requests decided without the store. They are among those above.
    pub(crate) degraded: u64,
}

/// Histograms of the time of decisions and of charges to the store.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct LatencyCounts {
    /// The upper bounds of the buckets. Each list of counts has one bucket more, without a bound.
    pub(crate) bounds_micros: Vec<u64>,
    pub(crate) decisions: Vec<u64>,
    pub(crate) charges: Vec<u64>,
}

/// The histogram of the share of a limit that remained after each decision, over all rules.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RemainingCounts {
    /// The upper bounds of the buckets, in millionths of the limit.
    pub(crate) bounds_millionths: Vec<u64>,
    pub(crate) counts: Vec<u64>,
}

/// The counts of one rule since the start.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RuleOverview {
    pub(crate) name: String,
    /// `None` for limits that requests bring themselves.
    pub(crate) mode: Option<Text>,
    pub(crate) on_store_failure: Option<Text>,
    pub(crate) algorithms: Vec<Text>,
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    pub(crate) shadow_denied: u64,
    pub(crate) degraded: u64,
    /// The histogram of [`RemainingCounts`] for this rule.
    pub(crate) remaining: Vec<u64>,
}

/// The response of `GET /admin/v1/top`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Top {
    #[serde(default)]
    pub(crate) heaviest: Vec<BusyIdentity>,
    pub(crate) most_denied: Vec<BusyIdentity>,
    /// Rates decay exponentially: an event of one half-life ago counts half.
    #[serde(default)]
    pub(crate) half_life_seconds: u64,
    #[serde(default)]
    pub(crate) sampled_one_in: u64,
    /// Samples that were dropped because their shard was busy.
    #[serde(default)]
    pub(crate) skipped: u64,
}

/// One identity of a list of the busiest. A rate is a lower bound, and its error is how much higher the rate may be.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct BusyIdentity {
    pub(crate) tenant: String,
    pub(crate) identifier: String,
    /// `named`, `claimed` (not verified) or `address`.
    pub(crate) kind: Text,
    pub(crate) requests_per_second: Thousandths,
    pub(crate) error: Thousandths,
    pub(crate) denied_per_second: Thousandths,
    pub(crate) denied_error: Thousandths,
}

/// A number with three decimals such as `12.345`, kept in thousandths and never converted to floating point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Thousandths(pub(crate) u64);

impl Serialize for Thousandths {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let digits = format!("{}.{:03}", self.0 / 1_000, self.0 % 1_000);
        RawValue::from_string(digits).map_err(S::Error::custom)?.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Thousandths {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = Box::<RawValue>::deserialize(deserializer)?;
        let (whole, part) = number.get().split_once('.').unwrap_or((number.get(), ""));
        let digits: String = part.chars().chain("000".chars()).take(3).collect();
        let millis = whole.parse::<u64>().ok().zip(digits.parse::<u64>().ok());
        let millis = millis.and_then(|(whole, millis)| whole.checked_mul(1_000)?.checked_add(millis));
        millis.map(Self).ok_or_else(|| D::Error::custom("not a number with at most three decimals"))
    }
}

/// The response of `GET /admin/v1/history`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct History {
    /// The end of the last step, in milliseconds since 1970. `None` if no step is complete yet.
    pub(crate) until: Option<u64>,
    pub(crate) step_seconds: u64,
    pub(crate) points: Vec<Point>,
    /// Present if the query is `rules=all`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rules: Option<Vec<RulePoints>>,
}

/// The steps of one rule.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RulePoints {
    pub(crate) name: String,
    pub(crate) mode: Text,
    pub(crate) points: Vec<Point>,
}

/// The counts of one step: allowed, denied, denied in shadow mode, and of all these decided without the store.
pub(crate) type Point = [u32; 4];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousandths_are_exact_and_survive_a_round_trip() {
        let read = |text: &str| serde_json::from_str::<Thousandths>(text).ok().map(|number| number.0);
        assert_eq!(["0.000", "4.5", "12.345", "7"].map(read), [Some(0), Some(4_500), Some(12_345), Some(7_000)]);
        assert_eq!(["-1.0", "1e3", "\"1\"", "99999999999999999999"].map(read), [None; 4]);
        assert_eq!(serde_json::to_string(&Thousandths(12_005)).expect("JSON"), "12.005");
    }

    #[test]
    fn unknown_and_missing_fields_of_an_overview_are_accepted() {
        let text = r#"{"at":5,"novelty":[],"store":{"kind":"redis","more":1}}"#;
        let overview: Overview = serde_json::from_str(text).expect("read");
        assert_eq!((overview.at, &*overview.store.kind), (5, "redis"));
    }
}
