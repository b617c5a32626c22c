//! Counts over time in a fixed number of steps, whatever the length of the log: when it grows beyond them, several
//! become one.

use super::Count;

/// The most steps: about as many as a picture has room for.
pub(crate) const STEPS_MAX: usize = 240;
/// How wide steps are, in seconds, one after the other; each is a multiple of the one before it. Beyond the last they double.
const WIDTHS: [u64; 13] = [1, 2, 10, 30, 60, 120, 600, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400];
const SECOND_MICROS: u64 = 1_000_000;

/// Counts over time. Steps begin at multiples of their width.
#[derive(Clone, Debug)]
pub(crate) struct Timeline {
    width_micros: u64,
    /// Where the first step begins, in widths.
    first: u64,
    steps: Vec<Count>,
}

impl Default for Timeline {
    fn default() -> Self {
        Self { width_micros: WIDTHS[0] * SECOND_MICROS, first: 0, steps: Vec::new() }
    }
}

impl Timeline {
    /// Counts a request. Times never go back.
    #[inline]
    pub(crate) fn add(&mut self, at_micros: u64, is_allowed: bool) {
        self.at(at_micros).add(is_allowed);
    }

    /// Counts several at once.
    pub(crate) fn add_all(&mut self, at_micros: u64, count: Count) {
        let step = self.at(at_micros);
        *step = step.and(count);
    }

    /// The step of this time.
    #[inline]
    fn at(&mut self, at_micros: u64) -> &mut Count {
        let mut step = at_micros / self.width_micros;
        if self.steps.is_empty() {
            self.first = step;
        }
        while step.saturating_sub(self.first) >= STEPS_MAX as u64 {
            self.widen();
            step = at_micros / self.width_micros;
        }
        let place = step.saturating_sub(self.first) as usize;
        if place >= self.steps.len() {
            self.steps.resize(place + 1, Count::default());
        }
        &mut self.steps[place]
    }

    /// Makes several steps one.
    fn widen(&mut self) {
        let seconds = self.width_micros / SECOND_MICROS;
        let wider = WIDTHS.iter().copied().find(|width| *width > seconds).unwrap_or(seconds * 2);
        let factor = wider / seconds;
        let mut widened = vec![Count::default(); self.steps.len() / factor as usize + 2];
        for (step, count) in (self.first..).zip(&self.steps) {
            let place = &mut widened[(step / factor - self.first / factor) as usize];
            *place = place.and(*count);
        }
        while widened.last().is_some_and(|count| count.total() == 0) {
            widened.pop();
        }
        self.first /= factor;
        self.width_micros = wider * SECOND_MICROS;
        self.steps = widened;
    }

    /// Widens the steps until they are at least so wide, for pictures that stand side by side.
    pub(crate) fn widened(mut self, width_micros: u64) -> Self {
        while self.width_micros < width_micros {
            self.widen();
        }
        self
    }

    /// How long a step is.
    pub(crate) fn width_micros(&self) -> u64 {
        self.width_micros
    }

    /// All steps with the time at which each begins.
    pub(crate) fn steps(&self) -> impl Iterator<Item = (u64, Count)> {
        (self.first..).map(|step| step * self.width_micros).zip(self.steps.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_when_steps_are_joined() {
        assert!(WIDTHS.windows(2).all(|pair| pair[1].is_multiple_of(pair[0])));
        let mut timeline = Timeline::default();
        let times: Vec<u64> = (0..10_000).map(|number| 1_700_000_001_500_000 + number * number * 1_000).collect();
        for (number, at_micros) in times.iter().enumerate() {
            timeline.add(*at_micros, number % 3 > 0);
        }
        let all = timeline.steps().map(|(_, count)| count).fold(Count::default(), Count::and);
        assert_eq!(all, Count { allowed: 6_666, denied: 3_334 });
        assert!(timeline.steps().count() <= STEPS_MAX);
        for (start, count) in timeline.steps() {
            let within = |at: &&u64| (start..start + timeline.width_micros()).contains(*at);
            assert_eq!(times.iter().filter(within).count() as u64, count.total(), "{start}");
        }
        assert!(timeline.steps().count() > STEPS_MAX / 6);
    }
}
