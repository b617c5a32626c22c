//! Counts over time, and their bar chart. The number of steps is bounded: when a log outgrows them, steps become wider.

use jiff::Timestamp;
use maud::{Markup, html};

use super::chart::{Bar, bar_chart};
use super::tally::RequestCount;

/// The most steps: about as many bars as a chart has room for.
const STEPS_MAX: usize = 240;
/// The number of time labels below a chart.
const TICKS: usize = 5;
/// The widths of steps, in seconds. Each is a multiple of the one before it. Beyond the last one, the width doubles.
const WIDTHS: [u64; 13] = [1, 2, 10, 30, 60, 120, 600, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400];
const SECOND_MICROS: u64 = 1_000_000;

/// Counts over time. Every step starts at a multiple of the width.
#[derive(Clone, Debug)]
pub(super) struct Timeline {
    width_micros: u64,
    /// The start of the first step, in widths since 1970.
    first: u64,
    steps: Vec<RequestCount>,
}

impl Default for Timeline {
    fn default() -> Self {
        Self { width_micros: WIDTHS[0] * SECOND_MICROS, first: 0, steps: Vec::new() }
    }
}

impl Timeline {
    /// Counts a request. Times must not decrease.
    #[inline]
    pub(super) fn add(&mut self, at_micros: u64, is_allowed: bool) {
        self.at(at_micros).add(is_allowed);
    }

    /// Counts several requests.
    pub(super) fn add_all(&mut self, at_micros: u64, count: RequestCount) {
        let step = self.at(at_micros);
        *step = step.and(count);
    }

    /// The step that contains a time; widens the steps if there would be too many.
    #[inline]
    fn at(&mut self, at_micros: u64) -> &mut RequestCount {
        let mut step = at_micros / self.width_micros;
        if self.steps.is_empty() {
            self.first = step;
        }
        while step.saturating_sub(self.first) >= STEPS_MAX as u64 {
            self.widen();
            step = at_micros / self.width_micros;
        }
        let index = step.saturating_sub(self.first) as usize;
        if index >= self.steps.len() {
            self.steps.resize(index + 1, RequestCount::default());
        }
        &mut self.steps[index]
    }

    /// Merges steps to the next width.
    fn widen(&mut self) {
        let seconds = self.width_micros / SECOND_MICROS;
        let wider = WIDTHS.iter().copied().find(|width| *width > seconds).unwrap_or(seconds * 2);
        let factor = wider / seconds;
        let mut widened = vec![RequestCount::default(); self.steps.len() / factor as usize + 2];
        for (step, count) in (self.first..).zip(&self.steps) {
            let merged = &mut widened[(step / factor - self.first / factor) as usize];
            *merged = merged.and(*count);
        }
        while widened.last().is_some_and(|count| count.total() == 0) {
            widened.pop();
        }
        self.first /= factor;
        self.width_micros = wider * SECOND_MICROS;
        self.steps = widened;
    }

    /// Widens the steps to at least `width_micros`, so that charts below each other have the same scale.
    pub(super) fn widened(mut self, width_micros: u64) -> Self {
        while self.width_micros < width_micros {
            self.widen();
        }
        self
    }

    /// The width of a step.
    pub(super) fn width_micros(&self) -> u64 {
        self.width_micros
    }

    /// All steps with their start times.
    fn steps(&self) -> impl Iterator<Item = (u64, RequestCount)> {
        (self.first..).map(|step| step * self.width_micros).zip(self.steps.iter().copied())
    }

    /// The bar chart for the report.
    pub(super) fn chart(&self, label: &str) -> Markup {
        let steps: Vec<(u64, RequestCount)> = self.steps().collect();
        let bars: Vec<Bar> = steps
            .iter()
            .map(|(start, count)| Bar { title: format_time(*start, "%a %d %b %H:%M:%S"), count: *count })
            .collect();
        let last = steps.last().map_or(0, |(start, _)| *start);
        let span = last.saturating_sub(steps.first().map_or(0, |(start, _)| *start));
        let format = if span < 86_400_000_000 { "%H:%M:%S" } else { "%d %b %H:%M" };
        let every = steps.len().div_ceil(TICKS).max(1);
        let ticks: Vec<(usize, String)> = steps
            .iter()
            .enumerate()
            .step_by(every)
            .map(|(index, (start, _))| (index, format_time(*start, format)))
            .collect();
        html! {
            (bar_chart(label, &bars, &ticks))
            p.legend { "Blue is allowed, red is denied; each bar is " (length(self.width_micros)) "." }
        }
    }
}

/// A time in UTC, in a format of `strftime`.
pub(super) fn format_time(at_micros: u64, format: &str) -> String {
    let at = i64::try_from(at_micros).ok().and_then(|at| Timestamp::from_microsecond(at).ok());
    at.unwrap_or_default().strftime(format).to_string()
}

/// A duration in the largest unit that divides it, else in hours, minutes and seconds.
fn length(micros: u64) -> String {
    let seconds = micros / 1_000_000;
    for (unit, name) in [(86_400, "d"), (3_600, "h"), (60, "min")] {
        if seconds >= unit && seconds.is_multiple_of(unit) {
            return format!("{} {name}", seconds / unit);
        }
    }
    match (seconds / 3_600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, seconds) => format!("{hours} h {minutes} min {seconds} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_steps_keeps_all_counts() {
        assert!(WIDTHS.windows(2).all(|pair| pair[1].is_multiple_of(pair[0])));
        let mut timeline = Timeline::default();
        let times: Vec<u64> = (0..10_000).map(|number| 1_700_000_001_500_000 + number * number * 1_000).collect();
        for (number, at_micros) in times.iter().enumerate() {
            timeline.add(*at_micros, number % 3 > 0);
        }
        let all = timeline.steps().map(|(_, count)| count).fold(RequestCount::default(), RequestCount::and);
        assert_eq!(all, RequestCount { allowed: 6_666, denied: 3_334 });
        assert!(timeline.steps().count() <= STEPS_MAX);
        for (start, count) in timeline.steps() {
            let within = |at: &&u64| (start..start + timeline.width_micros()).contains(*at);
            assert_eq!(times.iter().filter(within).count() as u64, count.total(), "{start}");
        }
        assert!(timeline.steps().count() > STEPS_MAX / 6);
    }

    #[test]
    fn lengths_use_the_largest_unit_that_divides_them() {
        assert_eq!(
            [1, 60, 7_200, 64, 4_096].map(|s| length(s * 1_000_000)),
            ["1 s", "1 min", "2 h", "1 min 4 s", "1 h 8 min 16 s"]
        );
    }
}
