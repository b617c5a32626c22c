//! The report: one HTML file that needs nothing else. Pictures are inline SVG, colours follow the reader's setting, there
//! is no script, and a policy in the file forbids to load anything.
//!
//! Every text goes through [`markup`], which escapes it: logs are written by strangers.

mod changes;
mod heat;
pub(super) mod live;
mod markup;
mod minute;
mod over_time;
mod peaks;
mod people;
mod suggestions;
mod svg;
#[cfg(test)]
mod tests;

use markup::Markup;

use super::summary::{RuleSummary, Summary};
use super::tally::timeline::Timeline;
use super::tally::{Count, RuleTally, Tally};
use super::words::percent;

const STYLE: &str = include_str!("report/style.css");
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// The whole file. `names` are the logs, `config` is what was tried, and `changes` what another configuration changes over
/// time.
pub(super) fn html(
    summary: &Summary,
    tally: &Tally,
    changes: Option<&Timeline>,
    config: &str,
    names: &[String],
) -> String {
    let mut page = Markup::default();
    head(&mut page, config);
    page.open("header", "");
    page.element("h1", "", "What these limits would have done");
    page.open("p", "soft");
    page.text("Configuration ");
    page.name(config);
    page.text(", logs ");
    for (place, name) in names.iter().enumerate() {
        page.text(if place == 0 { "" } else { ", " });
        page.name(name);
    }
    if let (Some(from), Some(to)) = (&summary.from, &summary.to) {
        page.text(&format!(", from {from} to {to}. All times are UTC."));
    }
    page.close("p");
    page.close("header");
    page.open("main", "");
    totals(&mut page, summary);
    over_time(&mut page, &tally.timeline, &tally.rules);
    rules(&mut page, &summary.rules, &summary.untried);
    people::hardest_hit(&mut page, summary);
    peaks::section(&mut page, tally);
    heat::section(&mut page, &tally.heat);
    minute::section(&mut page, tally.minutes.worst());
    if let (Some(compared), Some(timeline)) = (&summary.compare, changes) {
        changes::section(&mut page, compared, timeline);
    }
    suggestions::section(&mut page, summary.suggestions.as_deref().unwrap_or_default());
    malformed(&mut page, summary);
    page.close("main");
    page.finish()
}

fn head(page: &mut Markup, config: &str) {
    page.raw("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    page.raw("<meta http-equiv=\"Content-Security-Policy\" content=\"");
    page.raw(POLICY);
    page.raw("\"><meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">");
    page.raw(
        "<meta name=\"color-scheme\" content=\"light dark\"><meta name=\"referrer\" content=\"no-referrer\">",
    );
    page.element("title", "", &format!("Sluicegate: {config}"));
    page.raw("<style>");
    page.raw(STYLE);
    page.raw("</style></head><body>");
}

fn totals(page: &mut Markup, summary: &Summary) {
    page.open("section", "cards");
    let identities = &summary.identities;
    let people = [
        (grouped(identities.denied), "identities hit", ""),
        (percent(identities.denied, identities.known), "of all identities hit", ""),
    ];
    let requests = Count { allowed: summary.allowed, denied: summary.denied };
    for (number, what, class) in requests_cards(requests).into_iter().chain(people) {
        card(page, &number, what, class);
    }
    page.close("section");
}

/// What came of all requests.
fn requests_cards(count: Count) -> [(String, &'static str, &'static str); 4] {
    [
        (grouped(count.total()), "requests", ""),
        (grouped(count.allowed), "allowed", ""),
        (grouped(count.denied), "denied", if count.denied > 0 { "bad" } else { "" }),
        (percent(count.denied, count.total()), "of all requests denied", ""),
    ]
}

fn card(page: &mut Markup, number: &str, what: &str, class: &str) {
    page.open("div", "card");
    page.element("b", class, number);
    page.element("span", "soft", what);
    page.close("div");
}

fn over_time(page: &mut Markup, all: &Timeline, rules: &[RuleTally]) {
    page.open("section", "");
    page.element("h2", "", "Allowed and denied over time");
    over_time::picture(page, "All requests", all);
    let width_micros = all.width_micros();
    let drawn = rules.iter().filter(|rule| rule.said.total() > 0);
    for rule in drawn {
        if let Some(timeline) = &rule.timeline {
            page.open("h3", "");
            page.text("Rule ");
            page.name(&rule.name);
            page.close("h3");
            let timeline: Timeline = timeline.clone().widened(width_micros);
            over_time::picture(page, &format!("Rule {}", rule.name), &timeline);
        }
    }
    if rules.iter().any(|rule| rule.timeline.is_none() && rule.said.total() > 0) {
        page.element("p", "soft", "Further rules are in the table below; only the first ones are drawn.");
    }
    page.close("section");
}

fn rules(page: &mut Markup, rules: &[RuleSummary], untried: &[String]) {
    page.open("section", "");
    page.element("h2", "", "Rules");
    page.open("div", "scroll");
    page.open("table", "");
    page.row("th", &["rule", "mode", "requests", "had room", "had none", "share"]);
    for rule in rules {
        let denied = rule.denied + rule.shadow_denied;
        page.open("tr", "");
        page.open("td", "");
        page.name(&rule.name);
        page.close("td");
        let share = percent(denied, rule.requests);
        page.cells(&[rule.mode, &grouped(rule.requests), &grouped(rule.allowed), &grouped(denied), &share]);
        page.close("tr");
    }
    page.close("table");
    page.close("div");
    page.element("p", "soft", "A request is denied if any rule in mode enforce that matches it has no room. Rules in mode shadow only watch.");
    if !untried.is_empty() {
        let names = untried.join(", ");
        page.element("p", "soft", &format!("Not tried, because they match by what no log has: {names}."));
    }
    page.close("section");
}

fn malformed(page: &mut Markup, summary: &Summary) {
    page.open("section", "");
    page.element("h2", "", "Lines");
    let late = &summary.late;
    let text = format!(
        "{} lines, {} malformed, {} exempt, {} of unknown callers; {} were late by up to {} s and count as of the time of \
         those before them.",
        grouped(summary.lines),
        grouped(summary.malformed),
        grouped(summary.exempt),
        grouped(summary.unauthorized),
        grouped(late.lines),
        grouped(late.micros_max.div_ceil(1_000_000)),
    );
    page.element("p", "", &text);
    if !summary.reasons.is_empty() {
        page.open("div", "scroll");
        page.open("table", "");
        page.row("th", &["log", "line", "reason", "text"]);
        for sample in &summary.samples {
            page.open("tr", "");
            for text in [&*sample.log, &sample.line.to_string(), &sample.reason, &sample.text] {
                page.open("td", "left");
                page.name(text);
                page.close("td");
            }
            page.close("tr");
        }
        page.close("table");
        page.close("div");
        page.open("ul", "");
        for reason in &summary.reasons {
            page.element("li", "", &format!("{} lines: {}", grouped(reason.lines), reason.reason));
        }
        page.close("ul");
    }
    page.close("section");
}

/// A number with a thin space between each three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 2);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}
