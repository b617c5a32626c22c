//! The result for a person at a terminal. Nothing from a log acts on the terminal.

use std::fmt::Write as _;

use super::compare::Compared;
use super::suggest;
use super::summary::{RuleSummary, Summary};
use crate::telemetry::escape::is_dangerous;

/// How many of those who were denied most are shown.
const HIT_SHOWN: usize = 10;

/// The whole text.
pub(super) fn text(summary: &Summary) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail, here and below.
    let _ = writeln!(
        text,
        "{} requests, {} allowed, {} denied ({})",
        summary.requests,
        summary.allowed,
        summary.denied,
        percent(summary.denied, summary.requests)
    );
    if let (Some(from), Some(to)) = (&summary.from, &summary.to) {
        let _ = writeln!(text, "from {from} to {to}");
    }
    lines(&mut text, summary);
    rules(&mut text, &summary.rules);
    untried(&mut text, &summary.untried);
    people(&mut text, summary);
    malformed(&mut text, summary);
    if let Some(compared) = &summary.compare {
        comparison(&mut text, compared);
    }
    if let Some(suggestions) = &summary.suggestions {
        suggest::words::append(&mut text, suggestions);
    }
    text
}

fn comparison(text: &mut String, compared: &Compared) {
    let Compared { config, requests, denied, newly_denied, newly_allowed, .. } = compared;
    let share = percent(*denied, *requests);
    let _ = writeln!(text, "\nwith {config}: {} allowed, {denied} denied ({share})", compared.allowed);
    let _ = writeln!(
        text,
        "{newly_denied} newly denied, {newly_allowed} newly allowed, {} allowed and {} denied by both",
        compared.both_allowed, compared.both_denied
    );
    rules(text, &compared.rules);
    if !compared.identities.is_empty() {
        text.push_str("\nwho changes sides\n");
    }
    for changed in &compared.identities[..compared.identities.len().min(HIT_SHOWN)] {
        let (name, denied, allowed) = (visible(&changed.identity), changed.newly_denied, changed.newly_allowed);
        let _ = writeln!(text, "  {denied:>12} newly denied  {allowed:>12} newly allowed  {name}");
    }
}

fn lines(text: &mut String, summary: &Summary) {
    let Summary { lines, malformed, exempt, unauthorized, late, .. } = summary;
    let _ = write!(text, "{lines} lines, {malformed} malformed");
    if late.lines > 0 {
        let _ = write!(text, ", {} late by up to {} s", late.lines, late.micros_max.div_ceil(1_000_000));
    }
    if *exempt > 0 {
        let _ = write!(text, ", {exempt} exempt");
    }
    if *unauthorized > 0 {
        let _ = write!(text, ", {unauthorized} of unknown callers, who would be answered with 401");
    }
    text.push('\n');
}

pub(super) fn rules(text: &mut String, rules: &[RuleSummary]) {
    // A file has no rule with such a name, but a server that is asked may say anything.
    let shown: Vec<String> = rules.iter().map(|rule| visible(&rule.name) + mode(rule)).collect();
    let names = shown.iter().map(|name| name.chars().count()).max().unwrap_or_default().max(4);
    let _ = writeln!(text, "\n{:names$}  {:>12}  {:>12}  {:>12}", "rule", "requests", "allowed", "denied");
    for (rule, name) in rules.iter().zip(shown) {
        let denied = rule.denied + rule.shadow_denied;
        let share = percent(denied, rule.requests);
        let _ =
            writeln!(text, "{name:names$}  {:>12}  {:>12}  {denied:>12}  {share}", rule.requests, rule.allowed);
    }
}

/// Said aloud, because a rule that had no say looks like one that denies nobody.
fn untried(text: &mut String, names: &[String]) {
    if !names.is_empty() {
        let _ = writeln!(text, "\nnot tried, because they match by what no log has: {}", names.join(", "));
    }
}

/// What is said behind the name of a rule that does not decide.
fn mode(rule: &RuleSummary) -> &'static str {
    match rule.mode {
        "shadow" => " (shadow)",
        "off" => " (off)",
        _ => "",
    }
}

fn people(text: &mut String, summary: &Summary) {
    let identities = &summary.identities;
    let (known, denied) = (identities.known, identities.denied);
    let _ = write!(text, "\n{denied} of {known} identities were denied something");
    if identities.others > 0 {
        let _ = write!(text, "; {} more were never denied and are not kept", identities.others);
    }
    if identities.is_cut {
        text.push_str("; there were too many to keep all");
    }
    text.push('\n');
    let shown = &summary.hardest_hit[..summary.hardest_hit.len().min(HIT_SHOWN)];
    let rows: Vec<(String, u64, u64)> =
        shown.iter().map(|hit| (visible(&hit.identity), hit.denied, hit.requests)).collect();
    let names = rows.iter().map(|(name, ..)| name.chars().count()).max().unwrap_or_default();
    for (name, denied, requests) in rows {
        let share = percent(denied, requests);
        let _ = writeln!(text, "  {name:names$}  {denied:>12} of {requests:>12}  {share}");
    }
}

fn malformed(text: &mut String, summary: &Summary) {
    if summary.reasons.is_empty() {
        return;
    }
    text.push_str("\nmalformed lines\n");
    for reason in &summary.reasons {
        let _ = writeln!(text, "  {:>12}  {}", reason.lines, reason.reason);
    }
    for sample in &summary.samples {
        let _ = writeln!(text, "  {}:{}: {}: {}", sample.log, sample.line, sample.reason, sample.text);
    }
}

/// A share with one digit behind the point, rounded down, so that only all of it is 100 %.
pub(super) fn percent(part: u64, whole: u64) -> String {
    let permille = (u128::from(part) * 1_000).checked_div(u128::from(whole)).unwrap_or_default();
    format!("{}.{} %", permille / 10, permille % 10)
}

/// Control characters must not act on the reader's terminal.
pub(super) fn visible(text: &str) -> String {
    let shown = |character: char| {
        let escaped: String =
            if is_dangerous(character) { character.escape_debug().collect() } else { character.into() };
        escaped
    };
    text.chars().map(shown).collect()
}
