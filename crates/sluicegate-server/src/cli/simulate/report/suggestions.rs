//! What each size of a limit would have denied, and the rule that is suggested.

use super::grouped;
use super::markup::Markup;
use crate::cli::simulate::suggest::Suggestion;
use crate::cli::simulate::words::percent;

/// A table for every limit that was tried.
pub(super) fn section(page: &mut Markup, suggestions: &[Suggestion]) {
    for suggestion in suggestions {
        page.open("section", "");
        page.open("h2", "");
        page.text("Other sizes of limit ");
        page.text(&format!("{} of rule ", suggestion.limit + 1));
        page.name(&suggestion.rule);
        page.close("h2");
        table(page, suggestion);
        match &suggestion.yaml {
            Some(yaml) => {
                page.element("p", "", "The suggested rule:");
                page.open("pre", "");
                for line in yaml.lines() {
                    page.text(line);
                    page.raw("\n");
                }
                page.close("pre");
            }
            None => {
                page.element("p", "", "No size that was tried denies so little: raise the limit and try again.")
            }
        }
        page.close("section");
    }
}

fn table(page: &mut Markup, suggestion: &Suggestion) {
    page.open("div", "scroll");
    page.open("table", "");
    page.row("th", &["limit", "requests denied", "share", "identities hit", "share", ""]);
    for tried in &suggestion.table {
        let marks = [(tried.is_current, "now"), (tried.is_knee, "knee"), (tried.is_suggested, "suggested")];
        let marks: Vec<&str> = marks.into_iter().filter_map(|(is, mark)| is.then_some(mark)).collect();
        page.open("tr", if marks.is_empty() { "" } else { "marked" });
        let of_requests = percent(tried.denied, suggestion.requests);
        let of_identities = percent(tried.identities_denied, suggestion.identities);
        let (denied, identities) = (grouped(tried.denied), grouped(tried.identities_denied));
        page.cells(&[&tried.limit, &denied, &of_requests, &identities, &of_identities, &marks.join(", ")]);
        page.close("tr");
    }
    page.close("table");
    page.close("div");
}
