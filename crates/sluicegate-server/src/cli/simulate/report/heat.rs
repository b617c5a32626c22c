//! A map of the week: how much was asked and denied in each hour of each day.

use super::grouped;
use super::markup::Markup;
use super::svg::{Anchor, Svg};
use crate::cli::simulate::tally::heat::Heat;

const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
/// The size of a cell, and where the first one is, in tenths.
const CELL: [i64; 2] = [270, 230];
const LEFT: i64 = 560;
const TOP: i64 = 240;

/// The map.
pub(super) fn section(page: &mut Markup, heat: &Heat) {
    page.open("section", "");
    page.element("h2", "", "When: hour and weekday");
    let mut svg =
        Svg::new(LEFT + 24 * CELL[0] + 40, TOP + 7 * CELL[1] + 20, "Requests and denials by hour and weekday");
    let cells = || (0..7).flat_map(|day| (0..24).map(move |hour| (day, hour)));
    let most =
        |part: fn(&Heat, usize, usize) -> u64| cells().map(|(day, hour)| part(heat, day, hour)).max().unwrap_or(0);
    let requests_most = most(|heat, day, hour| heat.at(day, hour).total());
    let denied_most = most(|heat, day, hour| heat.at(day, hour).denied);
    for hour in (0..24).step_by(3) {
        let x = LEFT + CELL[0] * hour + CELL[0] / 2;
        svg.text("axis", Anchor::Middle, [x, TOP - 80], &format!("{hour:02}"));
    }
    for (day, name) in DAYS.iter().enumerate() {
        svg.text("axis", Anchor::End, [LEFT - 80, TOP + CELL[1] * day as i64 + 150], name);
    }
    for (day, hour) in cells() {
        let count = heat.at(day, hour);
        let cell = [LEFT + CELL[0] * hour as i64, TOP + CELL[1] * day as i64, CELL[0] - 20, CELL[1] - 20];
        let title = format!(
            "{} {hour:02}:00: {} requests, {} denied",
            DAYS[day],
            grouped(count.total()),
            grouped(count.denied)
        );
        svg.titled(&title, |svg| {
            svg.rect("empty", cell);
            svg.shade("ok", cell, strength(count.total(), requests_most, 70));
            svg.shade("no", cell, strength(count.denied, denied_most, 99));
        });
    }
    svg.put(page);
    page.element("p", "soft", "The stronger the colour, the more requests; red are the denied ones.");
    page.close("section");
}

/// How opaque a cell is: nothing for nothing, and never too faint to be seen.
fn strength(count: u64, most: u64, top: u64) -> u64 {
    if count == 0 { 0 } else { 12 + (u128::from(count) * u128::from(top - 12) / u128::from(most.max(1))) as u64 }
}
