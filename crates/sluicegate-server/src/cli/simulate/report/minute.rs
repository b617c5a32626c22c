//! The worst minute, second by second.

use super::grouped;
use super::markup::Markup;
use super::over_time::{Bar, bars_with_ticks, shown};
use crate::cli::simulate::tally::minute::Minute;

/// How many identities and paths are named.
const NAMED: usize = 10;

/// The minute in which most was denied.
pub(super) fn section(page: &mut Markup, minute: Option<&Minute>) {
    page.open("section", "");
    page.element("h2", "", "The worst minute");
    let Some(minute) = minute else {
        page.element("p", "", "Nothing was denied in any minute.");
        page.close("section");
        return;
    };
    let start = shown(minute.start_micros(), "%A %d %B %Y, %H:%M");
    let count = minute.count;
    let text =
        format!("{start}: {} requests allowed and {} denied.", grouped(count.allowed), grouped(count.denied));
    page.element("p", "", &text);
    let bars: Vec<Bar> = (0..)
        .zip(&minute.seconds)
        .map(|(second, count)| Bar { title: format!("second {second}"), count: *count })
        .collect();
    let ticks: Vec<(usize, String)> =
        (0..60).step_by(10).map(|second| (second, format!(":{second:02}"))).collect();
    bars_with_ticks(page, "The worst minute", &bars, &ticks);
    page.open("div", "columns");
    table(page, "identity", &minute.people(NAMED));
    table(page, "path", &minute.paths(NAMED));
    page.close("div");
    page.close("section");
}

fn table(page: &mut Markup, what: &str, rows: &[(&str, u64)]) {
    page.open("div", "scroll");
    page.open("table", "");
    page.row("th", &[what, "denied"]);
    for (name, count) in rows {
        page.open("tr", "");
        page.open("td", "");
        page.name(if name.is_empty() { "others" } else { name });
        page.close("td");
        page.cells(&[&grouped(*count)]);
        page.close("tr");
    }
    page.close("table");
    page.close("div");
}
