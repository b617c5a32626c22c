//! Bars over time: allowed below, denied above.

use jiff::Timestamp;

use super::grouped;
use super::markup::Markup;
use super::svg::{Anchor, Svg, axis_end, scaled};
use crate::cli::simulate::tally::Count;
use crate::cli::simulate::tally::timeline::Timeline;

/// The picture and where the bars are in it, in tenths.
const SIZE: [i64; 2] = [7_200, 1_900];
const LEFT: i64 = 560;
const TOP: i64 = 100;
const AREA: [i64; 2] = [6_500, 1_500];
/// How many times are written below the bars.
const TICKS: usize = 5;

/// One bar.
pub(super) struct Bar {
    /// What is shown when somebody points at it.
    pub(super) title: String,
    pub(super) count: Count,
}

/// Draws a timeline.
pub(super) fn picture(page: &mut Markup, label: &str, timeline: &Timeline) {
    let width = length(timeline.width_micros());
    let steps: Vec<(u64, Count)> = timeline.steps().collect();
    let bars: Vec<Bar> = steps
        .iter()
        .map(|(start, count)| Bar { title: shown(*start, "%a %d %b %H:%M:%S"), count: *count })
        .collect();
    let last = steps.last().map_or(0, |(start, _)| *start);
    let span = last.saturating_sub(steps.first().map_or(0, |(start, _)| *start));
    let format = if span < 86_400_000_000 { "%H:%M:%S" } else { "%d %b %H:%M" };
    let every = steps.len().div_ceil(TICKS).max(1);
    let ticks: Vec<(usize, String)> = steps
        .iter()
        .enumerate()
        .step_by(every)
        .map(|(place, (start, _))| (place, shown(*start, format)))
        .collect();
    bars_with_ticks(page, label, &bars, &ticks);
    page.element("p", "legend", &format!("Blue is allowed, red is denied; each bar is {width}."));
}

/// Draws bars with some words below.
pub(super) fn bars_with_ticks(page: &mut Markup, label: &str, bars: &[Bar], ticks: &[(usize, String)]) {
    let total = bars.iter().map(|bar| bar.count).fold(Count::default(), Count::and);
    let label = format!("{label}: {} allowed, {} denied", total.allowed, total.denied);
    let mut svg = Svg::new(SIZE[0], SIZE[1], &label);
    let end = axis_end(bars.iter().map(|bar| bar.count.total()).max().unwrap_or_default());
    grid(&mut svg, end);
    let count = bars.len().max(1) as i64;
    for (place, bar) in bars.iter().enumerate() {
        let x = LEFT + AREA[0] * place as i64 / count;
        let width = (LEFT + AREA[0] * (place as i64 + 1) / count - x).clamp(4, 300);
        let width = width - (width / 8);
        let (allowed, denied) = (scaled(AREA[1], bar.count.allowed, end), scaled(AREA[1], bar.count.denied, end));
        if bar.count.total() == 0 {
            continue;
        }
        let title =
            format!("{}: {} allowed, {} denied", bar.title, grouped(bar.count.allowed), grouped(bar.count.denied));
        svg.titled(&title, |svg| {
            let foot = TOP + AREA[1];
            if allowed > 0 {
                svg.rect("ok", [x, foot - allowed, width, allowed]);
            }
            if denied > 0 {
                svg.rect("no", [x, foot - allowed - denied, width, denied]);
            }
        });
    }
    for (place, text) in ticks {
        let x = LEFT + AREA[0] * *place as i64 / count;
        svg.text("axis", Anchor::Start, [x, SIZE[1] - 100], text);
    }
    svg.put(page);
}

fn grid(svg: &mut Svg, end: u64) {
    for (value, y) in [(end, TOP), (end / 2, TOP + AREA[1] / 2), (0, TOP + AREA[1])] {
        svg.line("grid", [LEFT, y, LEFT + AREA[0], y]);
        if end > 1 || value != end / 2 {
            svg.text("axis", Anchor::End, [LEFT - 60, y + 35], &grouped(value));
        }
    }
}

/// A time in UTC.
pub(super) fn shown(at_micros: u64, format: &str) -> String {
    let at = i64::try_from(at_micros).ok().and_then(|at| Timestamp::from_microsecond(at).ok());
    at.unwrap_or_default().strftime(format).to_string()
}

/// A length of time in its largest whole unit.
pub(super) fn length(micros: u64) -> String {
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
