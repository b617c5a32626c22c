//! One frame of the display as lines of text that fit a terminal, without input or output.

use super::rates;
use crate::admin_api::{BusyIdentity, Overview, RequestCounts, RuleOverview};
use crate::cli::format;

/// The style of a part of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Title,
    Good,
    Bad,
    Quiet,
}

/// A line: consecutive parts with their tones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StyledLine(pub(super) Vec<(Tone, String)>);

impl StyledLine {
    fn one(tone: Tone, text: impl Into<String>) -> Self {
        Self(vec![(tone, text.into())])
    }

    /// The text for a terminal, without the line break.
    pub(super) fn paint(&self, width: usize, is_coloured: bool) -> String {
        let mut rest = width;
        let mut painted = String::new();
        for (tone, text) in &self.0 {
            let (text, used) = format::cut(text, rest);
            rest -= used;
            match tone.sequence().filter(|_| is_coloured) {
                Some(begin) => painted.extend([begin, &*text, "\u{1b}[0m"]),
                None => painted.push_str(&text),
            }
        }
        painted
    }
}

impl Tone {
    const fn sequence(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Title => Some("\u{1b}[1m"),
            Self::Good => Some("\u{1b}[32m"),
            Self::Bad => Some("\u{1b}[31m"),
            Self::Quiet => Some("\u{1b}[2m"),
        }
    }
}

/// The content of a frame.
#[derive(Debug)]
pub(super) struct Frame<'a> {
    /// The server's URL.
    pub(super) url: &'a str,
    /// The newest overview.
    pub(super) now: &'a Overview,
    /// The overview before it.
    pub(super) before: &'a Overview,
    /// The start of the interval for percentiles: the overview of a minute ago, or the oldest one. If this is `now` itself, the
    /// interval begins with the start of the server.
    pub(super) since: &'a Overview,
    /// The error of the connection.
    pub(super) error: Option<&'a str>,
    /// A text at the end of the first line.
    pub(super) hint: &'a str,
}

/// The fewest rows of a list.
const ROWS_MIN: usize = 2;
/// The lines above the lists.
const HEAD: usize = 4;

impl Frame<'_> {
    /// At most `height` lines.
    pub(super) fn lines(&self, width: usize, height: usize) -> Vec<StyledLine> {
        let mut lines = vec![self.state(), self.outcomes(), self.times(), self.notice()];
        // Each list has a title and an empty line before it.
        let rows = height.saturating_sub(HEAD).saturating_sub(6);
        let clients = (rows / 4).max(ROWS_MIN);
        let rules = rows.saturating_sub(2 * clients).max(ROWS_MIN);
        lines.extend(self.rules(width, rules));
        lines.extend(identities("MOST DENIED", &self.now.most_denied, width, clients));
        lines.extend(identities("MOST REQUESTS", &self.now.heaviest, width, clients));
        lines.truncate(height);
        lines
    }

    fn state(&self) -> StyledLine {
        let Overview { version, health, store, .. } = self.now;
        let is_up = store.state == "up";
        let tone = |is_good| if is_good { Tone::Good } else { Tone::Bad };
        let error = store.error_class.as_ref().map_or(String::new(), |error| format!(" ({error})"));
        StyledLine(vec![
            (Tone::Title, format!("sluicegate {version} ")),
            (Tone::Plain, format!("{}  store ", self.url)),
            (tone(is_up), format!("{} {}{error}  ", store.kind, store.state)),
            (tone(health.status == "ready"), health.status.to_string()),
            (Tone::Quiet, self.hint.to_owned()),
        ])
    }

    fn outcomes(&self) -> StyledLine {
        let time = rates::between(self.before, self.now);
        let (now, before) = (&self.now.requests, &self.before.requests);
        let added = |of: fn(&RequestCounts) -> u64| of(now).saturating_sub(of(before));
        let rate = |added: u64| rates::per_second(added, time).map_or("–".to_owned(), format::short_number);
        let (allowed, denied, undecided) =
            (added(|each| each.allowed), added(|each| each.denied), added(|each| each.undecided));
        let against = denied.saturating_add(undecided);
        let share = format::short_percent(against, against.saturating_add(allowed));
        let is_bad = |count: u64| if count > 0 { Tone::Bad } else { Tone::Plain };
        StyledLine(vec![
            (Tone::Plain, format!("allowed {}/s  denied {}/s ({share})", rate(allowed), rate(denied))),
            (is_bad(undecided), format!("  undecided {}/s", rate(undecided))),
            (
                is_bad(added(|each| each.degraded)),
                format!("  without the store {}/s", rate(added(|each| each.degraded))),
            ),
        ])
    }

    fn times(&self) -> StyledLine {
        let (now, since) = (&self.now.latency, &self.since.latency);
        let is_first = std::ptr::eq(self.since, self.now);
        let spread = |now: &[u64], since: &[u64]| rates::added(if is_first { &[] } else { since }, now);
        let (decisions, charges) =
            (spread(&now.decisions, &since.decisions), spread(&now.charges, &since.charges));
        let of =
            |counts: &[u64], percent| format::short_duration(rates::quantile(&now.bounds_micros, counts, percent));
        StyledLine::one(
            Tone::Plain,
            format!(
                "p50 {}  p95 {}  p99 {}  store p99 {}  tracked keys {}",
                of(&decisions, 50),
                of(&decisions, 95),
                of(&decisions, 99),
                of(&charges, 99),
                format::short_count(self.now.tracked_keys)
            ),
        )
    }

    fn notice(&self) -> StyledLine {
        match self.error {
            Some(error) => StyledLine::one(Tone::Bad, error),
            None => StyledLine::one(Tone::Plain, ""),
        }
    }

    fn rules(&self, width: usize, rows: usize) -> Vec<StyledLine> {
        let names = name_width(width, 46);
        let row = |name: &str, mode: &str, rate: &str, denied: &str, left: &str| {
            format!(
                "{} {} {} {} {}",
                format::left(name, names),
                format::left(mode, 8),
                format::right(rate, 9),
                format::right(denied, 18),
                format::right(left, 7)
            )
        };
        let time = rates::between(self.before, self.now);
        let rule = |rule: &RuleOverview| {
            let former =
                self.before.rules.iter().find(|former| former.name == rule.name).map_or(0, rates::decided_by);
            let rate = rates::per_second(rates::decided_by(rule).saturating_sub(former), time)
                .map_or("–".to_owned(), format::short_number);
            let share = format::short_percent(rates::denied_by(rule), rates::decided_by(rule));
            let is_shadow = rule.mode.as_deref() == Some("shadow");
            let denied = if is_shadow { format!("would deny {share}") } else { share };
            let middle = rates::quantile(&self.now.remaining.bounds_millionths, &rule.remaining, 50);
            let left = middle.map_or("–".to_owned(), |millionths| format!("{} %", millionths / 10_000));
            StyledLine::one(
                Tone::Plain,
                row(&rule.name, rule.mode.as_deref().unwrap_or("inline"), &rate, &denied, &left),
            )
        };
        let lines = self.now.rules.iter().take(rows).map(rule);
        let count = self.now.rule_count;
        let title = row(&format!("RULE (of {count})"), "MODE", "PER S", "DENIED", "LEFT");
        listed(title, lines.collect(), "no rules: all requests are allowed")
    }
}

fn identities(title: &str, list: &[BusyIdentity], width: usize, rows: usize) -> Vec<StyledLine> {
    let names = name_width(width, 29);
    let row = |name: &str, kind: &str, denied: &str, rate: &str| {
        format!(
            "{} {} {} {}",
            format::left(name, names),
            format::left(kind, 8),
            format::right(denied, 9),
            format::right(rate, 9)
        )
    };
    let one = |identity: &BusyIdentity| {
        let BusyIdentity { tenant, identifier, kind, requests_per_second, denied_per_second, .. } = identity;
        let name = if tenant == "default" { identifier.clone() } else { format!("{tenant} / {identifier}") };
        StyledLine::one(
            Tone::Plain,
            row(
                &name,
                kind,
                &format::short_number(denied_per_second.0),
                &format::short_number(requests_per_second.0),
            ),
        )
    };
    let lines = list.iter().take(rows).map(one).collect();
    listed(row(title, "KIND", "DENIED/S", "REQ/S"), lines, "none within the last seconds")
}

/// A title and its rows, or a text for an empty list.
fn listed(title: String, rows: Vec<StyledLine>, empty: &str) -> Vec<StyledLine> {
    let rows = if rows.is_empty() { vec![StyledLine::one(Tone::Quiet, empty)] } else { rows };
    [StyledLine::one(Tone::Plain, ""), StyledLine::one(Tone::Title, title)].into_iter().chain(rows).collect()
}

/// The width of a name beside columns with a total width of `others`.
fn name_width(width: usize, others: usize) -> usize {
    width.saturating_sub(others).clamp(8, 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overview(text: &str) -> Overview {
        serde_json::from_str(text).expect("an overview")
    }

    fn drawn(before: &Overview, now: &Overview, width: usize, height: usize) -> Vec<String> {
        let frame = Frame { url: "here:1", now, before, since: before, error: None, hint: "  q quits" };
        frame.lines(width, height).iter().map(|line| line.paint(width, false)).collect()
    }

    const BEFORE: &str = r#"{"at":1000,"requests":{"allowed":10}}"#;
    const NOW: &str = r#"{"at":2000,"version":"1","health":{"status":"ready"},"store":{"kind":"redis","state":"down","trouble":"connection"},
        "requests":{"allowed":40,"denied":10},"trackedKeys":12345,"ruleCount":1,
        "latency":{"boundsMicros":[10,20],"decisions":[100,0,0]},"remaining":{"boundsMillionths":[0,1000000]},
        "rules":[{"name":"payments","mode":"shadow","allowed":3,"shadowDenied":1,"remaining":[0,4]}],
        "mostDenied":[{"tenant":"t","identifier":"\u001b[2Jx","kind":"named","requestsPerSecond":4.5,"deniedPerSecond":1.250}]}"#;

    #[test]
    fn the_frame_shows_rates_latencies_rules_and_clients() {
        let lines = drawn(&overview(BEFORE), &overview(NOW), 80, 24);
        assert_eq!(lines[0], "sluicegate 1 here:1  store redis down (connection)  ready  q quits");
        assert_eq!(lines[1], "allowed 30/s  denied 10/s (25 %)  undecided 0/s  without the store 0/s");
        assert_eq!(lines[2], "p50 5 µs  p95 9 µs  p99 9 µs  store p99 –  tracked keys 12.3k");
        let line = |start: &str| lines.iter().find(|line| line.starts_with(start)).expect(start).clone();
        assert!(
            line("payments").contains("shadow           4    would deny 25 %    50 %"),
            "{}",
            line("payments")
        );
        assert!(line("t / \\u001b[2Jx").ends_with("1.25      4.50"), "{lines:#?}");
        assert!(lines.iter().any(|line| line.trim() == "none within the last seconds"), "{lines:#?}");
    }

    #[test]
    fn extreme_counts_do_not_overflow() {
        let most = u64::MAX;
        let now = overview(&format!(
            r#"{{"at":{most},"requests":{{"allowed":{most},"denied":{most},"undecided":{most},"degraded":{most}}},"trackedKeys":{most},
            "latency":{{"boundsMicros":[{most}],"decisions":[{most},{most}],"charges":[{most},{most}]}},
            "remaining":{{"boundsMillionths":[{most}]}},
            "rules":[{{"name":"r","allowed":{most},"denied":{most},"shadowDenied":{most},"remaining":[{most},{most}]}}]}}"#
        ));
        let lines = drawn(&overview("{}"), &now, 80, 24);
        assert!(lines.iter().any(|line| line.starts_with("r ")), "{lines:#?}");
        assert_eq!(rates::decided(&now.requests), most);
    }

    #[test]
    fn the_frame_fits_every_terminal_size() {
        let (before, now) = (overview(BEFORE), overview(NOW));
        for (width, height) in [(200, 60), (80, 24), (40, 10), (10, 3), (1, 1), (0, 0)] {
            let lines = drawn(&before, &now, width, height);
            assert!(lines.len() <= height, "{width}x{height}");
            let widest = lines.iter().map(|line| unicode_width::UnicodeWidthStr::width(line.as_str())).max();
            assert!(widest.unwrap_or(0) <= width, "{width}x{height}: {lines:#?}");
        }
    }

    #[test]
    fn colours_are_optional() {
        let line = StyledLine(vec![(Tone::Bad, "down".to_owned()), (Tone::Plain, " x".to_owned())]);
        assert_eq!(line.paint(80, true), "\u{1b}[31mdown\u{1b}[0m x");
        assert_eq!(line.paint(80, false), "down x");
        assert_eq!(line.paint(3, true), "\u{1b}[31mdo…\u{1b}[0m", "escape sequences do not count for the width");
    }
}
