//! Forward decay: counts that fade without periodic updates.
//!
//! Instead of shrinking every count over time, later requests get larger weights. A request at time t has the weight
//! 2^(t/h), where h is the half-life. The sum of the weights divided by the current weight is the decayed count. Sums
//! of weights are ordinary sums, so every property of a sketch of sums also holds for decayed counts.
//!
//! Weights are integers: [`UNIT`] times a power of two, in [`STEPS`] steps per doubling. A step is 1.1 %, which is
//! the precision of a decayed count. Every [`HALVINGS_MAX`] half-lives all sums are divided, and the weights restart.
//!
//! A steady stream of r per second has a decayed count of r·h/ln 2, which yields the rate. Example: with a half-life
//! of 1 s, a count of 288.5 is a rate of 200 per second.

use sluicegate_core::{Micros, Timestamp};

/// The initial weight of one request. A single request remains visible for twenty half-lives.
const UNIT: u64 = 1 << 20;

/// The number of steps per doubling of the weight.
const STEPS: usize = 64;

/// The number of doublings of the weights before all sums are divided. A sum has 64 bits: 20 for the unit and 9 for
/// the weight leave room for 34 thousand million requests per half-life.
const HALVINGS_MAX: u32 = 8;

/// ln 2 in 32-bit fixed point.
const LN_2: u64 = 2_977_044_472;

/// The weights of the first half-life.
const WEIGHTS: [u64; STEPS] = weights();

/// The rate of decay.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decay {
    half_life: Micros,
    step_micros: u64,
}

/// The time since the last division of the sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Age {
    halvings: u32,
    step: usize,
}

impl Decay {
    /// Counts halve in every `half_life`.
    pub(super) fn new(half_life: Micros) -> Self {
        let step_micros = (half_life.as_micros() / STEPS as u64).max(1);
        Self { half_life: Micros::from_micros(step_micros * STEPS as u64), step_micros }
    }

    /// The time from `beginning` to `now`; zero if `now` is earlier.
    #[inline]
    pub(super) fn age(&self, beginning: Timestamp, now: Timestamp) -> Age {
        let steps = now.since(beginning).as_micros() / self.step_micros;
        let halvings = u32::try_from(steps / STEPS as u64).unwrap_or(u32::MAX);
        Age { halvings, step: (steps % STEPS as u64) as usize }
    }

    /// The new beginning and the number of halvings for all sums, if a division is due.
    #[inline]
    pub(super) fn renewed(&self, beginning: Timestamp, now: Timestamp) -> Option<(Timestamp, u32)> {
        let Age { halvings, .. } = self.age(beginning, now);
        if halvings < HALVINGS_MAX {
            return None;
        }
        let length = u64::from(halvings).saturating_mul(self.half_life.as_micros());
        Some((beginning.plus(Micros::from_micros(length)), halvings))
    }

    /// The rate of a sum of weights, in thousandths of requests per second.
    pub(super) fn millis_per_second(&self, sum: u64, age: Age) -> u64 {
        // Below 2¹²⁸: the sum has 64 bits, and the factors have 10, 32 and 20.
        let faded = u128::from(sum) * 1_000 * u128::from(LN_2) * 1_000_000;
        let length = u128::from(age.weight()) * u128::from(self.half_life.as_micros());
        u64::try_from((faded / length) >> 32).unwrap_or(u64::MAX)
    }
}

impl Age {
    /// The weight of a request at this age. It stops growing at the age at which sums are divided.
    #[inline]
    pub(super) fn weight(self) -> u64 {
        WEIGHTS[self.step] << self.halvings.min(HALVINGS_MAX)
    }
}

/// A sum after this many halvings, rounded up.
pub(super) fn halved(sum: u64, halvings: u32) -> u64 {
    match 1_u64.checked_shl(halvings) {
        Some(divisor) => sum.div_ceil(divisor),
        None => sum.min(1),
    }
}

const fn weights() -> [u64; STEPS] {
    /// 2^(1/64) in 32-bit fixed point.
    const ROOT: u64 = 4_341_736_423;
    let mut weights = [0; STEPS];
    let (mut step, mut exact) = (0, UNIT << 11);
    while step < STEPS {
        weights[step] = exact >> 11;
        exact = ((exact as u128 * ROOT as u128) >> 32) as u64;
        step += 1;
    }
    weights
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Micros = Micros::from_secs(1);

    fn at(micros: u64) -> Timestamp {
        Timestamp::now(1_705_312_800_000_000 + micros)
    }

    #[test]
    fn weights_double_per_half_life_in_equal_steps() {
        assert_eq!((WEIGHTS[0], WEIGHTS[32] >> 10), (UNIT, 1_448));
        for pair in WEIGHTS.windows(2) {
            // Each step is 1.0889 %, within one part in a hundred thousand.
            let growth = (pair[1] - pair[0]) * 100_000 / pair[0];
            assert!((1_088..=1_089).contains(&growth), "{pair:?}");
        }
        let decay = Decay::new(SECOND);
        let weight = |micros| decay.age(at(0), at(micros)).weight();
        assert_eq!(weight(1_000_000), 2 * weight(0));
        assert_eq!(weight(7_500_000), 128 * weight(500_000));
    }

    #[test]
    fn age_is_zero_when_time_goes_back() {
        let decay = Decay::new(SECOND);
        assert_eq!(decay.age(at(5), at(0)), decay.age(at(5), at(5)));
        assert_eq!(decay.renewed(at(5), at(0)), None);
    }

    #[test]
    fn sums_are_divided_after_eight_half_lives() {
        let decay = Decay::new(SECOND);
        assert_eq!(decay.renewed(at(0), at(7_999_999)), None);
        assert_eq!(decay.renewed(at(0), at(8_000_000)), Some((at(8_000_000), 8)));
        assert_eq!(decay.renewed(at(0), at(100_900_000)), Some((at(100_000_000), 100)));
        assert_eq!(
            [halved(256, 8), halved(257, 8), halved(1, 63), halved(u64::MAX, 64), halved(0, 64)],
            [1, 2, 1, 1, 0]
        );
    }

    #[test]
    fn steady_stream_yields_its_rate() {
        for (half_life, per_second) in [(SECOND, 200), (Micros::from_secs(10), 1_000), (SECOND, 1)] {
            let decay = Decay::new(half_life);
            let (mut sum, mut beginning) = (0, at(0));
            let requests = per_second * 30 * half_life.as_micros() / 1_000_000;
            for request in 0..=requests {
                let now = at(request * 1_000_000 / per_second);
                if let Some((renewed, halvings)) = decay.renewed(beginning, now) {
                    (beginning, sum) = (renewed, halved(sum, halvings));
                }
                sum += decay.age(beginning, now).weight();
            }
            let end = at(requests * 1_000_000 / per_second);
            let millis = decay.millis_per_second(sum, decay.age(beginning, end));
            // Right after a request, the decayed count exceeds the average by up to one.
            let one = 700_000_000 / half_life.as_micros();
            let expected = per_second * 1_000;
            let range = expected * 98 / 100..=expected * 102 / 100 + one;
            assert!(range.contains(&millis), "{millis} for {per_second} per second");
        }
    }
}
