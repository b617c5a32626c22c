//! What the server tells once per second, and what two of these say together. Counts are since its start, so whoever missed
//! some still gets the right rates. Fields that a newer server adds are passed over.

use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// How things stand at one moment.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Look {
    /// In milliseconds since 1970.
    pub(super) at: u64,
    pub(super) version: String,
    pub(super) health: Health,
    pub(super) store: Store,
    pub(super) requests: Requests,
    pub(super) tracked_keys: u64,
    pub(super) latency: Latency,
    pub(super) remaining: Remaining,
    pub(super) rule_count: usize,
    pub(super) rules: Vec<Rule>,
    pub(super) heaviest: Vec<Identity>,
    pub(super) most_denied: Vec<Identity>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Health {
    pub(super) status: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Store {
    pub(super) kind: String,
    pub(super) state: String,
    pub(super) trouble: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Requests {
    pub(super) allowed: u64,
    pub(super) denied: u64,
    pub(super) undecided: u64,
    pub(super) degraded: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Latency {
    pub(super) bounds_micros: Vec<u64>,
    pub(super) decisions: Vec<u64>,
    pub(super) charges: Vec<u64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Remaining {
    pub(super) bounds_millionths: Vec<u64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Rule {
    pub(super) name: String,
    pub(super) mode: Option<String>,
    pub(super) allowed: u64,
    pub(super) denied: u64,
    pub(super) shadow_denied: u64,
    pub(super) remaining: Vec<u64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Identity {
    pub(super) tenant: String,
    pub(super) identifier: String,
    pub(super) kind: String,
    /// In thousandths.
    #[serde(deserialize_with = "thousandths")]
    pub(super) requests_per_second: u64,
    /// In thousandths.
    #[serde(deserialize_with = "thousandths")]
    pub(super) denied_per_second: u64,
}

/// A number such as `12.345`, without the detour over floating point.
fn thousandths<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let number = Box::<RawValue>::deserialize(deserializer)?;
    let (whole, part) = number.get().split_once('.').unwrap_or((number.get(), ""));
    let digits: String = part.chars().chain("000".chars()).take(3).collect();
    let millis = whole.parse::<u64>().ok().zip(digits.parse::<u64>().ok());
    let millis = millis.and_then(|(whole, millis)| whole.checked_mul(1_000)?.checked_add(millis));
    millis.ok_or_else(|| D::Error::custom("no number with at most three digits behind its point"))
}

impl Requests {
    /// All that were decided.
    pub(super) fn all(&self) -> u64 {
        self.allowed.saturating_add(self.denied)
    }
}

impl Rule {
    /// All that was decided by it.
    pub(super) fn all(&self) -> u64 {
        self.allowed.saturating_add(self.against())
    }

    /// What it denied, or would have denied if it did not only watch.
    pub(super) fn against(&self) -> u64 {
        self.denied.saturating_add(self.shadow_denied)
    }
}

/// What was added from `before` to `now`, per second, in thousandths. None if no time has passed.
pub(super) fn per_second(added: u64, time: Duration) -> Option<u64> {
    let millis = u64::try_from(time.as_millis()).ok().filter(|millis| *millis > 0)?;
    Some(added.saturating_mul(1_000_000) / millis)
}

/// The time between two looks.
pub(super) fn between(before: &Look, now: &Look) -> Duration {
    Duration::from_millis(now.at.saturating_sub(before.at))
}

/// What was added to each bucket of a histogram.
pub(super) fn added(before: &[u64], now: &[u64]) -> Vec<u64> {
    now.iter()
        .enumerate()
        .map(|(place, count)| count.saturating_sub(before.get(place).copied().unwrap_or(0)))
        .collect()
}

/// The value below which so many percent of all lie; within a bucket they are taken as evenly spread, and those beyond
/// the last bound count as that. None if there are none.
pub(super) fn quantile(bounds: &[u64], counts: &[u64], percent: u64) -> Option<u64> {
    let all: u64 = counts.iter().fold(0, |sum, count| sum.saturating_add(*count));
    if all == 0 {
        return None;
    }
    // In hundredths, so that nothing is lost by dividing.
    let wanted = u128::from(all) * u128::from(percent);
    let mut below: u128 = 0;
    for (place, (bound, count)) in bounds.iter().zip(counts).enumerate() {
        let here = u128::from(*count) * 100;
        if here > 0 && below.saturating_add(here) >= wanted {
            let low = if place == 0 { 0 } else { bounds[place - 1] };
            let width = u128::from(bound.saturating_sub(low));
            let part = width.saturating_mul(wanted.saturating_sub(below)) / here;
            return Some(low.saturating_add(u64::try_from(part).unwrap_or(u64::MAX)));
        }
        below = below.saturating_add(here);
    }
    bounds.last().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_the_time_that_has_passed() {
        assert_eq!(per_second(10, Duration::from_millis(2_000)), Some(5_000));
        assert_eq!(per_second(1, Duration::from_millis(1_500)), Some(666));
        assert_eq!(per_second(1, Duration::ZERO), None);
    }

    #[test]
    fn a_quantile_lies_within_its_bucket() {
        let bounds = [10, 20, 40];
        assert_eq!(quantile(&bounds, &[0, 0, 0, 0], 50), None);
        assert_eq!(quantile(&bounds, &[100, 0, 0, 0], 50), Some(5));
        assert_eq!(quantile(&bounds, &[50, 50, 0, 0], 75), Some(15));
        assert_eq!(quantile(&bounds, &[0, 0, 10, 0], 100), Some(40));
        assert_eq!(quantile(&bounds, &[0, 0, 0, 7], 50), Some(40), "beyond the last bound");
    }

    #[test]
    fn numbers_with_a_point_are_exact() {
        let read = |text: &str| {
            let text = format!(r#"{{"requestsPerSecond":{text}}}"#);
            serde_json::from_str::<Identity>(&text).ok().map(|identity| identity.requests_per_second)
        };
        assert_eq!(["0.000", "4.5", "12.345", "7"].map(read), [Some(0), Some(4_500), Some(12_345), Some(7_000)]);
        assert_eq!(["-1.0", "1e3", "\"1\"", "99999999999999999999"].map(read), [None; 4]);
    }

    #[test]
    fn a_newer_server_is_understood() {
        let look: Look =
            serde_json::from_str(r#"{"at":5,"novelty":[],"store":{"kind":"redis","more":1}}"#).expect("read");
        assert_eq!((look.at, look.store.kind.as_str()), (5, "redis"));
    }
}
