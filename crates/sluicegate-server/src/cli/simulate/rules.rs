//! The results per rule: JSON, text and report section.

use std::fmt::Write as _;

use maud::{Markup, html};
use serde::Serialize;
use sluicegate::identity::Stage;
use sluicegate::rules::{Mode, Rule, RuleSet, Selector};

use super::report::{EscapedText, grouped, name};
use super::tally::RuleTally;
use crate::cli::format::{percent, terminal_safe};

/// The result of one rule for the requests that it matched.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RuleSummary {
    pub(super) name: String,
    pub(super) mode: &'static str,
    pub(super) requests: u64,
    pub(super) allowed: u64,
    pub(super) denied: u64,
    /// Requests that a rule in shadow mode would have denied.
    pub(super) shadow_denied: u64,
}

impl RuleSummary {
    pub(super) fn new(tally: &RuleTally) -> Self {
        let is_shadow = tally.mode == Mode::Shadow;
        let count = tally.count;
        Self {
            name: tally.name.to_string(),
            mode: tally.mode.name(),
            requests: count.total(),
            allowed: count.allowed,
            denied: if is_shadow { 0 } else { count.denied },
            shadow_denied: if is_shadow { count.denied } else { 0 },
        }
    }

    /// Requests that were denied, or would have been denied in enforced mode.
    fn denied_in_any_mode(&self) -> u64 {
        self.denied + self.shadow_denied
    }
}

/// The names of rules that a log cannot exercise: they match by host, header fields, claims, a descriptor, or a credential
/// before its verification.
pub(super) fn untested(rules: &RuleSet) -> Vec<String> {
    let is_untested = |rule: &&Rule| {
        // All fields, so that the compiler asks about a new condition.
        let Selector {
            tenant: _,
            resource: _,
            path: _,
            methods: _,
            host,
            headers,
            claims,
            descriptor,
            stage,
            only_by_place,
        } = &rule.selector;
        let is_of_http = host.is_some() || !headers.is_empty() || !claims.is_empty();
        is_of_http || !descriptor.is_empty() || *only_by_place || *stage == Stage::Credential
    };
    rules.rules().iter().filter(is_untested).map(|rule| rule.space.name().to_owned()).collect()
}

/// Appends the table of rules to the text.
pub(super) fn write_text(text: &mut String, rules: &[RuleSummary]) {
    // A rule of a file has a harmless name. A server that is not ours may send any name.
    let names: Vec<String> = rules.iter().map(|rule| terminal_safe(&rule.name) + mode_suffix(rule)).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or_default().max(4);
    // Writing to a string cannot fail, here and below.
    let _ = writeln!(text, "\n{:width$}  {:>12}  {:>12}  {:>12}", "rule", "requests", "allowed", "denied");
    for (rule, name) in rules.iter().zip(names) {
        let denied = rule.denied_in_any_mode();
        let share = percent(denied, rule.requests);
        let _ =
            writeln!(text, "{name:width$}  {:>12}  {:>12}  {denied:>12}  {share}", rule.requests, rule.allowed);
    }
}

/// Appends the names of untested rules to the text. Without this line, such a rule looks like one that denies nothing.
pub(super) fn write_untested(text: &mut String, names: &[String]) {
    if !names.is_empty() {
        let _ =
            writeln!(text, "\nnot tested, because no log has the fields that they match by: {}", names.join(", "));
    }
}

fn mode_suffix(rule: &RuleSummary) -> &'static str {
    match rule.mode {
        "shadow" => " (shadow)",
        "off" => " (off)",
        _ => "",
    }
}

/// The section of the report.
pub(super) fn section(rules: &[RuleSummary], untested: &[String]) -> Markup {
    html! {
        section {
            h2 { "Rules" }
            div.scroll {
                table {
                    tr { th { "rule" } th { "mode" } th { "requests" } th { "allowed" } th { "denied" } th { "share" } }
                    @for rule in rules {
                        tr {
                            td { (name(&rule.name)) }
                            td { (rule.mode) }
                            td { (grouped(rule.requests)) }
                            td { (grouped(rule.allowed)) }
                            td { (grouped(rule.denied_in_any_mode())) }
                            td { (percent(rule.denied_in_any_mode(), rule.requests)) }
                        }
                    }
                }
            }
            p.soft {
                "A request is denied if at least one matching rule in mode enforce denies it. A rule in mode shadow counts the \
                 requests that it would deny, and denies none."
            }
            @if !untested.is_empty() {
                p.soft { "Not tested, because no log has the fields that they match by: " (EscapedText(&untested.join(", "))) "." }
            }
        }
    }
}
