//! The goals as bars: the improvement over the reference on a logarithmic scale, with the goal as a
//! mark. Bars to the right of the line are better, bars to the left are worse.

use super::Kept;
use super::svg::{Anchor, Svg};
use crate::goal::{Goal, Sense};
use crate::statistics::{Spread, compact};

const WIDTH: f64 = 960.0;
const LABELS: f64 = 480.0;
const RIGHT: f64 = 865.0;
const ROW: f64 = 22.0;
const TOP: f64 = 94.0;
const HEADING: f64 = 26.0;
/// The ends of the scale, and the marks between them.
const SCALE: (f64, f64) = (0.25, 64.0);
const MARKS: [f64; 9] = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0];

/// The headings of the benchmarks.
const HEADINGS: [(&str, &str); 8] = [
    ("core", "Embedded store, time per decision"),
    ("redis", "On Redis"),
    ("protocols", "Protocols of the server"),
    ("gateway", "In front of an application"),
    ("rules", "Rules"),
    ("growth", "Growth"),
    ("simulate", "Logs replayed"),
    ("peers", "Whole servers"),
];

/// The chart.
pub(super) fn picture(kept: &[Kept]) -> String {
    let groups: Vec<(&str, Vec<&Goal>)> = kept.iter().map(group).filter(|(_, goals)| !goals.is_empty()).collect();
    let rows: usize = groups.iter().map(|(_, goals)| goals.len()).sum();
    let height = TOP + rows as f64 * ROW + groups.len() as f64 * HEADING + 34.0;
    let mut svg = Svg::new(WIDTH, height);
    svg.text("ink", 17.0, Anchor::Start, (20.0, 30.0), "How many times better than what stands beside it");
    let legend = "median of interleaved rounds; thin line: least to most; tick: the goal; logarithmic";
    svg.text("soft", 12.0, Anchor::Start, (20.0, 50.0), legend);
    draw_colours(&mut svg);
    draw_scale(&mut svg, height - 30.0);
    let mut y = TOP;
    for (heading, goals) in groups {
        svg.text("ink", 13.0, Anchor::Start, (20.0, y + 16.0), heading);
        y += HEADING;
        for goal in goals {
            draw_row(&mut svg, goal, y);
            y += ROW;
        }
    }
    svg.finish("How many times better Sluicegate is than what it is measured against")
}

/// Only ratios can be drawn on one scale.
fn group(kept: &Kept) -> (&'static str, Vec<&Goal>) {
    let heading = HEADINGS.iter().find(|(name, _)| *name == kept.run.benchmark).map_or("", |(_, heading)| heading);
    (heading, kept.run.goals.iter().filter(|goal| goal.unit == "×" && !goal.reached.is_empty()).collect())
}

fn draw_colours(svg: &mut Svg) {
    let meanings =
        [("good", "goal reached", 20.0), ("fair", "better, short of the goal", 140.0), ("poor", "worse", 330.0)];
    for (class, meaning, x) in meanings {
        svg.rect(class, [x, 62.0, 12.0, 12.0]);
        svg.text("soft", 12.0, Anchor::Start, (x + 18.0, 72.0), meaning);
    }
}

fn draw_scale(svg: &mut Svg, bottom: f64) {
    for mark in MARKS {
        let class = if mark == 1.0 { "axis" } else { "grid" };
        svg.line(class, if mark == 1.0 { 1.5 } else { 1.0 }, [place(mark), TOP - 4.0, place(mark), bottom]);
        let text = format!("{}×", if mark < 1.0 { format!("{mark}") } else { format!("{mark:.0}") });
        svg.text("soft", 11.0, Anchor::Middle, (place(mark), bottom + 16.0), &text);
    }
}

fn draw_row(svg: &mut Svg, goal: &Goal, y: f64) {
    let (spread, bound) = (better(goal), better_bound(goal));
    let class = match spread.median {
        median if median >= bound => "good",
        median if median > 1.0 => "fair",
        _ => "poor",
    };
    let middle = y + ROW / 2.0;
    svg.text("ink", 12.0, Anchor::End, (LABELS - 14.0, middle + 4.0), &goal.title());
    let (from, to) = (place(1.0).min(place(spread.median)), place(1.0).max(place(spread.median)));
    svg.rect(class, [from, middle - 6.0, (to - from).max(1.5), 12.0]);
    svg.line("axis", 1.0, [place(spread.least), middle, place(spread.most), middle]);
    svg.line("axis", 2.5, [place(bound), middle - 9.0, place(bound), middle + 9.0]);
    let text = format!("{}×", compact(spread.median));
    svg.text("ink", 12.0, Anchor::End, (WIDTH - 20.0, middle + 4.0), &text);
}

/// The improvement factor, for minimum and maximum goals alike.
fn better(goal: &Goal) -> Spread {
    match goal.sense {
        Sense::AtLeast => goal.spread(),
        Sense::AtMost => Spread::of(&goal.reached.iter().map(|reached| 1.0 / reached).collect::<Vec<_>>()),
    }
}

fn better_bound(goal: &Goal) -> f64 {
    if goal.sense == Sense::AtLeast { goal.bound } else { 1.0 / goal.bound }
}

/// The position of a ratio on the scale.
fn place(ratio: f64) -> f64 {
    let (least, most) = SCALE;
    let share = (ratio.clamp(least, most) / least).ln() / (most / least).ln();
    LABELS + share * (RIGHT - LABELS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_that_is_half_is_twice_as_good() {
        let goal = Goal::at_most("a", "b", 0.125, vec![0.5, 0.25, 1.0]);
        assert_eq!(better(&goal), Spread { least: 1.0, median: 2.0, most: 4.0 });
        assert_eq!(better_bound(&goal), 8.0);
    }

    #[test]
    fn the_scale_ends_where_it_is_drawn() {
        assert_eq!((place(0.25), place(64.0)), (LABELS, RIGHT));
        assert_eq!((place(0.001), place(1_000.0)), (LABELS, RIGHT));
        assert!((place(4.0) - (LABELS + RIGHT) / 2.0).abs() < 0.001);
    }
}
