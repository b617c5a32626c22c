//! Rates and percentiles from two overviews of a server. Counts in an overview are totals since the start of the server, so a
//! missed event does not distort rates.

use std::time::Duration;

use crate::admin_api::{Overview, RequestCounts, RuleOverview};

/// All decided requests.
pub(super) fn decided(requests: &RequestCounts) -> u64 {
    requests.allowed.saturating_add(requests.denied)
}

/// All decisions of a rule.
pub(super) fn decided_by(rule: &RuleOverview) -> u64 {
    rule.allowed.saturating_add(denied_by(rule))
}

/// Requests that a rule denied, or would have denied in enforced mode.
pub(super) fn denied_by(rule: &RuleOverview) -> u64 {
    rule.denied.saturating_add(rule.shadow_denied)
}

/// The rate of `added` events within `time`, in thousandths per second; `None` if no time has passed.
pub(super) fn per_second(added: u64, time: Duration) -> Option<u64> {
    let millis = u64::try_from(time.as_millis()).ok().filter(|millis| *millis > 0)?;
    Some(added.saturating_mul(1_000_000) / millis)
}

/// The time between two overviews.
pub(super) fn between(before: &Overview, now: &Overview) -> Duration {
    Duration::from_millis(now.at.saturating_sub(before.at))
}

/// The increase of each bucket of a histogram.
pub(super) fn added(before: &[u64], now: &[u64]) -> Vec<u64> {
    now.iter()
        .enumerate()
        .map(|(index, count)| count.saturating_sub(before.get(index).copied().unwrap_or(0)))
        .collect()
}

/// A percentile of a histogram, by linear interpolation within a bucket. Values above the last bound count as that bound. `None`
/// if the histogram is empty.
pub(super) fn quantile(bounds: &[u64], counts: &[u64], percent: u64) -> Option<u64> {
    let all: u64 = counts.iter().fold(0, |sum, count| sum.saturating_add(*count));
    if all == 0 {
        return None;
    }
    // All counts are in hundredths, so that no division loses precision.
    let wanted = u128::from(all) * u128::from(percent);
    let mut below: u128 = 0;
    for (index, (bound, count)) in bounds.iter().zip(counts).enumerate() {
        let here = u128::from(*count) * 100;
        if here > 0 && below.saturating_add(here) >= wanted {
            let low = if index == 0 { 0 } else { bounds[index - 1] };
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
    fn rates_are_relative_to_the_elapsed_time() {
        assert_eq!(per_second(10, Duration::from_millis(2_000)), Some(5_000));
        assert_eq!(per_second(1, Duration::from_millis(1_500)), Some(666));
        assert_eq!(per_second(1, Duration::ZERO), None);
    }

    #[test]
    fn a_quantile_is_interpolated_within_its_bucket() {
        let bounds = [10, 20, 40];
        assert_eq!(quantile(&bounds, &[0, 0, 0, 0], 50), None);
        assert_eq!(quantile(&bounds, &[100, 0, 0, 0], 50), Some(5));
        assert_eq!(quantile(&bounds, &[50, 50, 0, 0], 75), Some(15));
        assert_eq!(quantile(&bounds, &[0, 0, 10, 0], 100), Some(40));
        assert_eq!(quantile(&bounds, &[0, 0, 0, 7], 50), Some(40), "beyond the last bound");
    }
}
