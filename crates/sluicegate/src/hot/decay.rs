//! Counts that fade, without anybody having to make them smaller.
//!
//! The idea is forward decay: instead of shrinking every count as time goes by, what comes later weighs more. A request
//! at time t weighs 2^(t/h), with h the half-life; divided by the weight of a request now, a sum of weights is the count
//! that has faded to now. Sums of weights are sums like any others, so whatever is known of a sketch of sums holds for
//! faded counts.
//!
//! Weights are integers: [`UNIT`] times a power of two, in [`STEPS`] steps to the double. A step is 1.1 %, and that is
//! how exact a faded count is. They start over from a new beginning every [`HALVINGS_MAX`] half-lives, when all sums are
//! divided.
//!
//! A steady stream of r per second has a faded count of r·h/ln 2, which is how a rate is read from it. Example: with a
//! half-life of 1 s, a count of 288.5 is 200 per second.

use sluicegate_core::{Micros, Timestamp};

/// The weight of one request at the beginning: one request is told from none for twenty half-lives.
const UNIT: u64 = 1 << 20;

/// How many steps it takes a weight to double.
const STEPS: usize = 64;

/// How often weights may double before sums are divided. A sum has 64 bits: 20 of the unit and 9 of the weight leave
/// room for 34 thousand million requests in a half-life.
const HALVINGS_MAX: u32 = 8;

/// ln 2 in 32-bit fixed point.
const LN_2: u64 = 2_977_044_472;

/// The weights of the first half-life.
const WEIGHTS: [u64; STEPS] = weights();

/// How fast counts fade.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decay {
    half_life: Micros,
    step_micros: u64,
}

/// The time since the last beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Age {
    halvings: u32,
    step: usize,
}

impl Decay {
    /// Counts are half of what they were after `half_life`.
    pub(super) fn new(half_life: Micros) -> Self {
        let step_micros = (half_life.as_micros() / STEPS as u64).max(1);
        Self { half_life: Micros::from_micros(step_micros * STEPS as u64), step_micros }
    }

    /// The time from `beginning` to `now`. Time that goes back stands still.
    #[inline]
    pub(super) fn age(&self, beginning: Timestamp, now: Timestamp) -> Age {
        let steps = now.since(beginning).as_micros() / self.step_micros;
        let halvings = u32::try_from(steps / STEPS as u64).unwrap_or(u32::MAX);
        Age { halvings, step: (steps % STEPS as u64) as usize }
    }

    /// The new beginning, if it is time for one, and by how many halves all sums are to be divided.
    #[inline]
    pub(super) fn renewed(&self, beginning: Timestamp, now: Timestamp) -> Option<(Timestamp, u32)> {
        let Age { halvings, .. } = self.age(beginning, now);
        if halvings < HALVINGS_MAX {
            return None;
        }
        let length = u64::from(halvings).saturating_mul(self.half_life.as_micros());
        Some((beginning.plus(Micros::from_micros(length)), halvings))
    }

    /// How many thousandths of requests per second a sum of weights stands for.
    pub(super) fn millis_per_second(&self, sum: u64, age: Age) -> u64 {
        // Below 2¹²⁸: 64 bits of the sum, and 10, 32 and 20 of the factors.
        let faded = u128::from(sum) * 1_000 * u128::from(LN_2) * 1_000_000;
        let length = u128::from(age.weight()) * u128::from(self.half_life.as_micros());
        u64::try_from((faded / length) >> 32).unwrap_or(u64::MAX)
    }
}

impl Age {
    /// What a request weighs at this age. Beyond the age at which sums are divided it grows no more.
    #[inline]
    pub(super) fn weight(self) -> u64 {
        WEIGHTS[self.step] << self.halvings.min(HALVINGS_MAX)
    }
}

/// A sum after so many halvings, rounded up.
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
    fn weights_double_in_a_half_life_in_even_steps() {
        assert_eq!((WEIGHTS[0], WEIGHTS[32] >> 10), (UNIT, 1_448));
        for pair in WEIGHTS.windows(2) {
            // Each step is 1.0889 %, to a part in a hundred thousand.
            let growth = (pair[1] - pair[0]) * 100_000 / pair[0];
            assert!((1_088..=1_089).contains(&growth), "{pair:?}");
        }
        let decay = Decay::new(SECOND);
        let weight = |micros| decay.age(at(0), at(micros)).weight();
        assert_eq!(weight(1_000_000), 2 * weight(0));
        assert_eq!(weight(7_500_000), 128 * weight(500_000));
    }

    #[test]
    fn time_that_goes_back_stands_still() {
        let decay = Decay::new(SECOND);
        assert_eq!(decay.age(at(5), at(0)), decay.age(at(5), at(5)));
        assert_eq!(decay.renewed(at(5), at(0)), None);
    }

    #[test]
    fn sums_are_divided_when_weights_have_become_large() {
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
    fn a_steady_stream_is_read_as_its_rate() {
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
            // Right after a request, the faded count is up to one more than on average.
            let one = 700_000_000 / half_life.as_micros();
            let expected = per_second * 1_000;
            let range = expected * 98 / 100..=expected * 102 / 100 + one;
            assert!(range.contains(&millis), "{millis} for {per_second} per second");
        }
    }
}
