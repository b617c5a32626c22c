//! What another configuration changes.

use super::grouped;
use super::markup::Markup;
use super::over_time;
use crate::cli::simulate::compare::Compared;
use crate::cli::simulate::tally::timeline::Timeline;
use crate::cli::simulate::words::percent;

/// Totals, when something changes, and for whom.
pub(super) fn section(page: &mut Markup, compared: &Compared, timeline: &Timeline) {
    page.open("section", "");
    page.open("h2", "");
    page.text("With ");
    page.name(&compared.config);
    page.close("h2");
    let text = format!(
        "{} of {} requests would be denied ({}): {} newly denied and {} newly allowed.",
        grouped(compared.denied),
        grouped(compared.requests),
        percent(compared.denied, compared.requests),
        grouped(compared.newly_denied),
        grouped(compared.newly_allowed),
    );
    page.element("p", "", &text);
    if compared.identities.is_empty() {
        page.element("p", "", "Nobody changes sides.");
    } else {
        over_time::picture(page, "Newly allowed and newly denied", timeline);
        table(page, compared);
    }
    page.close("section");
}

fn table(page: &mut Markup, compared: &Compared) {
    page.open("div", "scroll");
    page.open("table", "");
    page.row("th", &["who changes sides", "newly denied", "newly allowed"]);
    for changed in &compared.identities {
        page.open("tr", "");
        page.open("td", "");
        page.name(&changed.identity);
        page.close("td");
        page.cells(&[&grouped(changed.newly_denied), &grouped(changed.newly_allowed)]);
        page.close("tr");
    }
    page.close("table");
    page.close("div");
}
