//! Rules as a user writes them. The product reads this text, so a failing case can be reproduced as printed.

use super::limit::{Limit, Windows, date_of};
use super::rules::{Limits, Mode, Override, Per, Rule, Rules};
use std::fmt::Write;

const WEEKDAYS: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

impl Rules {
    /// The text of a configuration file with these rules. Every rule has the longest store timeout that a rule may
    /// have, so that a slow machine is not mistaken for a failing store.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        self.to_yaml_named("")
    }

    /// The same, with a prefix for the name of every rule, so that cases that share a store have separate rules.
    #[must_use]
    pub fn to_yaml_named(&self, prefix: &str) -> String {
        let unmatched = if self.denies_unmatched { "deny" } else { "allow" };
        let mut text = format!("tiers: [{}]\nunmatched: {unmatched}\nrules:\n", self.tiers.join(", "));
        self.rules.iter().for_each(|rule| push_rule(&mut text, prefix, rule));
        if self.rules.is_empty() {
            text.push_str("  []\n");
        }
        text
    }
}

fn push_rule(text: &mut String, prefix: &str, rule: &Rule) {
    _ = writeln!(text, "  - name: {prefix}{}", rule.name);
    let mut line = |line: String| _ = writeln!(text, "    {line}");
    line(format!("per: {}", per(rule.per)));
    let parts = [("tenant", rule.tenant), ("resource", rule.resource)];
    let parts: Vec<String> =
        parts.iter().filter_map(|(key, pattern)| pattern.map(|pattern| format!("{key}: \"{pattern}\""))).collect();
    if !parts.is_empty() {
        line(format!("match: {{ {} }}", parts.join(", ")));
    }
    line(format!("mode: \"{}\"", mode(rule.mode)));
    line(format!("cost: {}", rule.cost));
    line("deadline: 10s".to_owned());
    line("on_store_failure: closed".to_owned());
    line(format!("limits: {}", limits(&rule.limits)));
    if !rule.tiers.is_empty() {
        line("tiers:".to_owned());
        rule.tiers.iter().for_each(|(tier, each)| line(format!("  {tier}: {}", limits(each))));
    }
    if !rule.overrides.is_empty() {
        line("overrides:".to_owned());
        rule.overrides.iter().for_each(|each| line(overridden(each)));
    }
}

fn overridden(each: &Override) -> String {
    let until = each.until.map(|until| format!(", until: \"{}\"", date(until))).unwrap_or_default();
    format!("  - {{ identifier: \"{}\"{until}, limits: {} }}", each.identifier, limits(&each.limits))
}

fn per(per: Per) -> String {
    let parts = [(per.tenant && !per.identifier, "tenant"), (per.identifier, "identifier"), (per.address, "ip")];
    let parts: Vec<&str> = parts.iter().filter(|(applies, _)| *applies).map(|(_, name)| *name).collect();
    if parts.is_empty() { "global".to_owned() } else { format!("[{}]", parts.join(", ")) }
}

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Enforce => "enforce",
        Mode::Shadow => "shadow",
        Mode::Off => "off",
    }
}

fn limits(limits: &Limits) -> String {
    match limits {
        None => "unlimited".to_owned(),
        Some(limits) => format!("[{}]", limits.iter().map(limit).collect::<Vec<_>>().join(", ")),
    }
}

fn limit(limit: &Limit) -> String {
    let numbers = match limit {
        Limit::Bucket(bucket) => {
            let rate = format!("{}/{}", bucket.amount, length(bucket.period));
            let credits = format!("credits: {}, credit_ttl: {}", bucket.credits, length(bucket.credit_ttl));
            format!("capacity: {}, refill: {rate}, {credits}", bucket.capacity)
        }
        Limit::SlidingWindow(window) => format!("limit: {}, window: {}", window.limit, length(window.window)),
        Limit::SlidingCounter(counter) => format!("limit: {}, window: {}", counter.limit, length(counter.window)),
        Limit::FixedWindow(window) => format!("limit: {}, window: {}", window.limit, windows(window.windows)),
    };
    format!("{{ algorithm: {}, {numbers} }}", limit.algorithm())
}

fn windows(windows: Windows) -> String {
    match windows {
        Windows::Even(window) => length(window),
        Windows::Hours => "hour".to_owned(),
        Windows::Days => "day".to_owned(),
        Windows::Weeks(first) => format!("week, anchor: {}", WEEKDAYS[first as usize]),
        Windows::Months(anchor) => format!("month, anchor: {anchor}"),
    }
}

fn length(micros: u64) -> String {
    let millis = micros / 1_000;
    let units = [("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)];
    let unit = units.iter().find(|(_, unit)| millis.is_multiple_of(*unit));
    unit.map_or_else(|| format!("{millis}ms"), |(name, unit)| format!("{}{name}", millis / unit))
}

fn date(seconds: u64) -> String {
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date_of(days);
    format!("{year}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", of_day / 3_600, of_day / 60 % 60, of_day % 60)
}

#[cfg(test)]
mod tests {
    use super::date;

    #[test]
    fn an_instant_is_written_as_its_date() {
        assert_eq!(date(0), "1970-01-01T00:00:00Z");
        assert_eq!(date(1_709_210_096), "2024-02-29T12:34:56Z");
        assert_eq!(date(1_798_761_599), "2026-12-31T23:59:59Z");
    }
}
