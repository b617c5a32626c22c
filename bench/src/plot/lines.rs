//! Growth charts: one small chart per growing quantity, with decisions per second as a line from zero.

use super::Kept;
use super::svg::{Anchor, Svg};
use crate::growth::{P99_MICROS, P99_NANOS, PER_SECOND};
use crate::sheet::Sheet;

const WIDTH: f64 = 960.0;
const COLUMNS: usize = 2;
const PANEL: (f64, f64) = (460.0, 200.0);
const TOP: f64 = 62.0;
/// The space around the line within its panel: left, top, right, bottom.
const INSET: (f64, f64, f64, f64) = (40.0, 44.0, 40.0, 44.0);

/// The chart.
pub(super) fn picture(kept: &[Kept]) -> String {
    let grows = |kept: &&Kept| matches!(kept.run.benchmark.as_str(), "growth" | "rules");
    let sheets: Vec<&Sheet> = kept.iter().filter(grows).flat_map(|kept| &kept.run.sheets).collect();
    let rows = sheets.len().div_ceil(COLUMNS);
    let mut svg = Svg::new(WIDTH, TOP + rows as f64 * PANEL.1 + 10.0);
    svg.text("ink", 17.0, Anchor::Start, (20.0, 30.0), "Decisions per second as things grow");
    let legend =
        "each line starts at zero; below each point the 99th percentile of a decision, where it was measured";
    svg.text("soft", 12.0, Anchor::Start, (20.0, 50.0), legend);
    for (at, sheet) in sheets.iter().enumerate() {
        let corner = (20.0 + (at % COLUMNS) as f64 * PANEL.0, TOP + (at / COLUMNS) as f64 * PANEL.1);
        draw(&mut svg, sheet, corner);
    }
    svg.finish("Decisions per second as keys, instances and rules grow")
}

fn draw(svg: &mut Svg, sheet: &Sheet, (x, y): (f64, f64)) {
    let (left, top, right, bottom) = INSET;
    let (width, height) = (PANEL.0 - left - right, PANEL.1 - top - bottom);
    let base = y + top + height;
    let values: Vec<f64> = sheet.rows.iter().map(|row| sheet.median(&row.name, PER_SECOND)).collect();
    let most = values.iter().copied().fold(0.0, f64::max);
    let step = width / (values.len().max(2) - 1) as f64;
    let point = |at: usize| (x + left + at as f64 * step, base - values[at] / most * height);
    svg.text("ink", 13.0, Anchor::Start, (x, y + 20.0), &sheet.title);
    svg.line("axis", 1.0, [x + left, base, x + left + width, base]);
    svg.path("line", &(0..values.len()).map(point).collect::<Vec<_>>());
    for (at, row) in sheet.rows.iter().enumerate() {
        let (across, up) = point(at);
        svg.dot("dot", (across, up));
        svg.text("ink", 11.0, Anchor::Middle, (across, up - 8.0), &rate(values[at]));
        svg.text("ink", 11.0, Anchor::Middle, (across, base + 15.0), &row.name);
        svg.text("soft", 11.0, Anchor::Middle, (across, base + 30.0), &tail(sheet, &row.name));
    }
}

/// `1.25 M/s`.
fn rate(per_second: f64) -> String {
    if per_second >= 999_500.0 {
        format!("{:.2} M/s", per_second / 1e6)
    } else if per_second >= 9_950.0 {
        format!("{:.0} k/s", per_second / 1e3)
    } else {
        format!("{:.1} k/s", per_second / 1e3)
    }
}

fn tail(sheet: &Sheet, row: &str) -> String {
    let found = [(P99_NANOS, "ns"), (P99_MICROS, "µs")].into_iter().find_map(|(column, unit)| {
        let median = sheet.median(row, column);
        median.is_finite().then(|| time(median, unit))
    });
    found.unwrap_or_default()
}

/// `146 ms` rather than `146407 µs`.
fn time(number: f64, unit: &str) -> String {
    match unit {
        "ns" if number >= 9_999.5 => format!("{:.0} µs", number / 1e3),
        "µs" if number >= 9_999.5 => format!("{:.0} ms", number / 1e3),
        _ => format!("{number:.0} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        assert_eq!(
            [time(531.0, "ns"), time(9_000.0, "µs"), time(146_407.0, "µs")],
            ["531 ns", "9000 µs", "146 ms"]
        );
    }

    #[test]
    fn rates_are_short() {
        assert_eq!(
            [950.0, 9_960.0, 999_600.0, 12_345_678.0].map(rate),
            ["0.9 k/s", "10 k/s", "1.00 M/s", "12.35 M/s"]
        );
    }
}
