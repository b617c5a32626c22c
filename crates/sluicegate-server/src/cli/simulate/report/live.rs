//! The report of what a running server did: the parts that it keeps the numbers for, drawn as those of a log.

use super::markup::Markup;
use super::over_time::{Bar, bars_with_ticks, shown};
use super::{card, grouped, head, over_time, requests_cards, rules};
use crate::cli::simulate::live::{Denied, Live};

/// The whole file.
pub(in crate::cli::simulate) fn html(live: &Live) -> String {
    let mut page = Markup::default();
    head(&mut page, &live.url);
    page.open("header", "");
    page.element("h1", "", "What these limits did within the last hour");
    page.open("p", "soft");
    page.text("The server at ");
    page.name(&live.url);
    if let (Some(from), Some(to)) = (&live.summary.from, &live.summary.to) {
        page.text(&format!(", from {from} to {to}. All times are UTC."));
    }
    page.close("p");
    page.close("header");
    page.open("main", "");
    page.open("section", "cards");
    for (number, what, class) in requests_cards(live.requests) {
        card(&mut page, &number, what, class);
    }
    card(&mut page, &grouped(live.summary.degraded), "decided without the store", "");
    page.close("section");
    over_time(&mut page, &live.timeline, &live.rules);
    rules(&mut page, &live.summary.rules, &[]);
    most_denied(&mut page, &live.summary.most_denied);
    worst_minute(&mut page, live);
    page.open("section", "");
    page.element("h2", "", "What a server does not keep");
    page.element(
        "p",
        "",
        "It counts by rule, not by identity: who was denied how much in all, how close everybody came to the limits, and \
         hours longer ago are in its access log. Replay that with sluicegate simulate --log.",
    );
    page.close("section");
    page.close("main");
    page.finish()
}

fn most_denied(page: &mut Markup, denied: &[Denied]) {
    page.open("section", "");
    page.element("h2", "", "Who is denied most, now");
    if denied.is_empty() {
        page.element("p", "", "Nobody is denied anything at the moment.");
    } else {
        page.open("div", "scroll");
        page.open("table", "");
        page.row("th", &["identity", "tenant", "denied per second", "requests per second"]);
        for each in denied {
            page.open("tr", "");
            for text in [&each.identifier, &each.tenant] {
                page.open("td", "left");
                page.name(text);
                page.close("td");
            }
            page.cells(&[&each.denied_per_second.to_string(), &each.requests_per_second.to_string()]);
            page.close("tr");
        }
        page.close("table");
        page.close("div");
    }
    page.close("section");
}

fn worst_minute(page: &mut Markup, live: &Live) {
    page.open("section", "");
    page.element("h2", "", "The worst minute");
    let Some((start_micros, steps)) = live.worst_minute() else {
        page.element("p", "", "Nothing was denied in any minute.");
        page.close("section");
        return;
    };
    let start = shown(start_micros, "%A %d %B %Y, %H:%M:%S");
    let count = steps.iter().fold(Default::default(), |sum: super::Count, step| sum.and(*step));
    let text =
        format!("From {start}: {} requests allowed and {} denied.", grouped(count.allowed), grouped(count.denied));
    page.element("p", "", &text);
    let seconds = |step: usize| step as u64 * live.step_seconds;
    let bars: Vec<Bar> = (0..)
        .zip(steps)
        .map(|(step, count)| Bar { title: format!("seconds {} to {}", seconds(step), seconds(step + 1)), count })
        .collect();
    let ticks: Vec<(usize, String)> =
        (0..bars.len()).map(|step| (step, format!("+{} s", seconds(step)))).collect();
    bars_with_ticks(page, "The worst minute", &bars, &ticks);
    page.close("section");
}
