//! The HTML report: one self-contained file with inline SVG pictures. It has no script, and its Content-Security-Policy
//! forbids loading anything. Colours follow the reader's light or dark setting.
//!
//! Log lines come from untrusted clients. The `maud` templates escape all text; [`EscapedText`] also replaces control characters.

use maud::{DOCTYPE, Markup, PreEscaped, Render, html};

use super::chart::{Bar, bar_chart};
use super::clients;
use super::rejected_lines;
use super::rules;
use super::suggest;
use super::summary::Summary;
use super::tally::{ReplayTally, RequestCount, RuleTally};
use super::timeline::Timeline;
use super::weekly_heatmap;
use crate::cli::format::percent;

const STYLE: &str = include_str!("report.css");
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// The report of a replay. `config` names the tested configuration, `names` the logs, and `changes` holds the changed
/// outcomes of `--compare` over time.
pub(super) fn html(
    summary: &Summary,
    tally: &ReplayTally,
    changes: Option<&Timeline>,
    config: &str,
    names: &[String],
) -> String {
    let compared = summary.compare.as_ref().zip(changes);
    let intro = html! {
        h1 { "What these limits would have done" }
        p.soft {
            "Configuration " (name(config)) ", logs "
            @for (index, log) in names.iter().enumerate() {
                @if index > 0 { ", " }
                (name(log))
            }
            (time_range(&summary.from, &summary.to))
        }
    };
    let content = html! {
        section.cards {
            (request_cards(RequestCount { allowed: summary.allowed, denied: summary.denied }))
            (card(&grouped(summary.identities.denied), "clients with denied requests"))
            (card(&percent(summary.identities.denied, summary.identities.known), "of all clients"))
        }
        (over_time(&tally.timeline, &tally.rules))
        (rules::section(&summary.rules, &summary.untried))
        (clients::most_denied_section(summary))
        (clients::peak_usage_section(tally))
        (weekly_heatmap::section(&tally.heatmap))
        (super::worst_minute::section(tally.minutes.worst()))
        @if let Some((compared, timeline)) = compared { (compared.section(timeline)) }
        @for suggestion in summary.suggestions.as_deref().unwrap_or_default() { (suggest::section(suggestion)) }
        (rejected_lines::section(summary))
    };
    page(config, &intro, &content)
}

/// A complete page with the style sheet.
pub(super) fn page(title: &str, intro: &Markup, content: &Markup) -> String {
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width,initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="referrer" content="no-referrer";
                title { "Sluicegate: " (EscapedText(title)) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header { (intro) }
                main { (content) }
            }
        }
    };
    markup.into_string()
}

/// The first and the last time of the data, if there is any.
pub(super) fn time_range(from: &Option<String>, to: &Option<String>) -> Markup {
    html! {
        @if let (Some(from), Some(to)) = (from, to) { ", from " (from) " to " (to) ". All times are UTC." }
    }
}

/// The totals of all requests as cards.
pub(super) fn request_cards(count: RequestCount) -> Markup {
    html! {
        (card(&grouped(count.total()), "requests"))
        (card(&grouped(count.allowed), "allowed"))
        div.card {
            b.bad[count.denied > 0] { (grouped(count.denied)) }
            span.soft { "denied" }
        }
        (card(&percent(count.denied, count.total()), "of all requests denied"))
    }
}

/// A number with its label.
pub(super) fn card(number: &str, label: &str) -> Markup {
    html! {
        div.card {
            b { (number) }
            span.soft { (label) }
        }
    }
}

/// Bar charts over time for all requests and for every rule that has a timeline and matched a request.
pub(super) fn over_time(all: &Timeline, rules: &[RuleTally]) -> Markup {
    let matched = || rules.iter().filter(|rule| rule.count.total() > 0);
    html! {
        section {
            h2 { "Allowed and denied over time" }
            (all.chart("All requests"))
            @for rule in matched() {
                @if let Some(timeline) = &rule.timeline {
                    h3 { "Rule " (name(&rule.name)) }
                    (timeline.clone().widened(all.width_micros()).chart(&format!("Rule {}", rule.name)))
                }
            }
            @if matched().any(|rule| rule.timeline.is_none()) {
                p.soft { "Further rules are in the table below; only the first ones are drawn." }
            }
        }
    }
}

/// The minute with the most denied requests: its totals and a bar chart. `details` follow the chart.
pub(super) fn worst_minute(intro: &str, count: RequestCount, bars: &[Bar], ticks: &[(usize, String)]) -> Markup {
    html! {
        p { (intro) ": " (grouped(count.allowed)) " requests allowed and " (grouped(count.denied)) " denied." }
        (bar_chart("The worst minute", bars, ticks))
    }
}

/// Text for an element or an attribute. It replaces the characters with a meaning in HTML, and control characters by U+FFFD.
#[derive(Clone, Copy, Debug)]
pub(super) struct EscapedText<'t>(pub(super) &'t str);

impl Render for EscapedText<'_> {
    fn render_to(&self, buffer: &mut String) {
        for character in self.0.chars() {
            match character {
                '&' => buffer.push_str("&amp;"),
                '<' => buffer.push_str("&lt;"),
                '>' => buffer.push_str("&gt;"),
                '"' => buffer.push_str("&quot;"),
                '\'' => buffer.push_str("&#39;"),
                character if character.is_control() => buffer.push('\u{fffd}'),
                character => buffer.push(character),
            }
        }
    }
}

/// A name from a log, a file or a server. `bdi` keeps right-to-left text from reordering the text around it.
pub(super) fn name(text: &str) -> Markup {
    html! { bdi { (EscapedText(text)) } }
}

/// A number with a thin space between groups of three digits.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 2);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_becomes_markup() {
        let text = "<script>\"a\" & 'b'</script>\0\u{1b}[31m é";
        assert_eq!(
            EscapedText(text).render().into_string(),
            "&lt;script&gt;&quot;a&quot; &amp; &#39;b&#39;&lt;/script&gt;\u{fffd}\u{fffd}[31m é"
        );
        assert_eq!(name("<i>").into_string(), "<bdi>&lt;i&gt;</bdi>");
        let page = page("</title><script>", &name("<i>"), &html! { p { "<b>" } });
        assert!(page.contains("<title>Sluicegate: &lt;/title&gt;&lt;script&gt;</title>"), "{page}");
        assert!(
            page.ends_with("<header><bdi>&lt;i&gt;</bdi></header><main><p>&lt;b&gt;</p></main></body></html>")
        );
    }

    #[test]
    fn numbers_are_grouped_by_three_digits() {
        assert_eq!(grouped(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!([0, 999, 1_000].map(grouped), ["0", "999", "1\u{202f}000"]);
    }
}
