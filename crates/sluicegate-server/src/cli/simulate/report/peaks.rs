//! How close identities come to their limits: how many used how much of them at the worst moment.

use super::grouped;
use super::markup::Markup;
use super::svg::{Anchor, Svg, scaled};
use crate::cli::simulate::tally::people::CLASSES;
use crate::cli::simulate::tally::{RULES_DRAWN_MAX, Tally};

/// The height of a row and the places of its parts, in tenths.
const ROW: i64 = 200;
const LEFT: i64 = 1_100;
const WIDTH: i64 = 5_000;

/// A distribution for every rule that had a say.
pub(super) fn section(page: &mut Markup, tally: &Tally) {
    page.open("section", "");
    page.element("h2", "", "How close everybody comes to the limit");
    let text = "Identities by the most of a limit that each had used at any moment. Those at the bottom were denied, or \
                would be by one request more.";
    page.element("p", "soft", text);
    for (place, rule) in tally.rules.iter().enumerate().take(RULES_DRAWN_MAX) {
        let counts = tally.people.peaks(place);
        if counts.iter().any(|count| *count > 0) {
            page.open("h3", "");
            page.text("Rule ");
            page.name(&rule.name);
            page.close("h3");
            picture(page, &rule.name, &counts);
        }
    }
    page.close("section");
}

fn picture(page: &mut Markup, rule: &str, counts: &[u64]) {
    let mut svg = Svg::new(7_200, ROW * CLASSES.len() as i64, &format!("Peak use of the limits of rule {rule}"));
    let most = counts.iter().copied().max().unwrap_or_default();
    for (row, count) in counts.iter().enumerate() {
        let y = ROW * row as i64;
        let class = if row + 1 == CLASSES.len() { "no" } else { "ok" };
        let range = format!("{} to {} %", row * 10, row * 10 + 10);
        svg.text("axis", Anchor::End, [LEFT - 80, y + 140], &range);
        svg.titled(&format!("{range} of the limit: {count} identities"), |svg| {
            svg.rect(class, [LEFT, y + 30, scaled(WIDTH, *count, most), ROW - 60]);
        });
        let end = LEFT + scaled(WIDTH, *count, most) + 60;
        svg.text("axis", Anchor::Start, [end, y + 140], &grouped(*count));
    }
    svg.put(page);
}
