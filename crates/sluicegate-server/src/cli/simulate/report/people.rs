//! Who is hit hardest.

use super::grouped;
use super::markup::Markup;
use super::svg::scaled;
use crate::cli::simulate::summary::Summary;
use crate::cli::simulate::words::percent;

/// How wide the bar of a share is, in tenths.
const BAR: i64 = 1_000;

/// The table of those who were denied most.
pub(super) fn hardest_hit(page: &mut Markup, summary: &Summary) {
    page.open("section", "");
    page.element("h2", "", "Who is hit hardest");
    if summary.hardest_hit.is_empty() {
        page.element("p", "", "Nobody was denied anything.");
        page.close("section");
        return;
    }
    page.open("div", "scroll");
    page.open("table", "");
    page.row("th", &["identity", "requests", "denied", "share of its requests", ""]);
    for hit in &summary.hardest_hit {
        page.open("tr", "");
        page.open("td", "");
        page.name(&hit.identity);
        page.close("td");
        page.cells(&[&grouped(hit.requests), &grouped(hit.denied), &percent(hit.denied, hit.requests)]);
        let width = scaled(BAR, hit.denied, hit.requests) / 10;
        page.raw("<td><svg class=\"bar\" viewBox=\"0 0 100 10\" aria-hidden=\"true\">");
        page.raw("<rect class=\"ok\" width=\"100\" height=\"10\"/>");
        page.raw(&format!("<rect class=\"no\" width=\"{width}\" height=\"10\"/></svg></td>"));
        page.close("tr");
    }
    page.close("table");
    page.close("div");
    let identities = &summary.identities;
    let mut text = format!(
        "{} of {} identities were denied something.",
        grouped(identities.denied),
        grouped(identities.known)
    );
    if identities.others > 0 {
        text += &format!(
            " {} more were never denied anything and are not kept one by one.",
            grouped(identities.others)
        );
    }
    if identities.is_cut {
        text += " There were too many to keep all: some of those who came last are missing here.";
    }
    page.element("p", "soft", &text);
    page.close("section");
}
