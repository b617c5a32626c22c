//! One picture of how things stand, as lines of text that fit a terminal. It only draws; it neither asks nor writes.

use super::look::{self, Look};
use super::words;

/// How the rest of a line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Title,
    Good,
    Bad,
    Quiet,
}

/// A line: parts with their tones, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line(pub(super) Vec<(Tone, String)>);

impl Line {
    fn one(tone: Tone, text: impl Into<String>) -> Self {
        Self(vec![(tone, text.into())])
    }

    /// What a terminal is sent for it, without the end of the line.
    pub(super) fn paint(&self, width: usize, is_coloured: bool) -> String {
        let mut rest = width;
        let mut painted = String::new();
        for (tone, text) in &self.0 {
            let (shown, used) = words::cut(text, rest);
            rest -= used;
            match tone.sequence().filter(|_| is_coloured) {
                Some(begin) => painted.extend([begin, &*shown, "\u{1b}[0m"]),
                None => painted.push_str(&shown),
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

/// What is drawn.
#[derive(Debug)]
pub(super) struct Scene<'a> {
    /// Where the server is.
    pub(super) place: &'a str,
    /// The newest.
    pub(super) now: &'a Look,
    /// The one before that.
    pub(super) before: &'a Look,
    /// The one of a minute ago, or the oldest there is; the newest itself means since the server started.
    pub(super) since: &'a Look,
    /// What is wrong with the connection.
    pub(super) trouble: Option<&'a str>,
    /// What stands at the end of the first line.
    pub(super) hint: &'a str,
}

/// The fewest rows that a list is worth.
const ROWS_MIN: usize = 2;
/// The lines above the lists.
const HEAD: usize = 4;

impl Scene<'_> {
    /// As many lines as there is place for.
    pub(super) fn lines(&self, width: usize, height: usize) -> Vec<Line> {
        let mut lines = vec![self.state(), self.outcomes(), self.times(), self.notice()];
        // Each list has a title and an empty line before it.
        let place = height.saturating_sub(HEAD).saturating_sub(6);
        let people = (place / 4).max(ROWS_MIN);
        let rules = place.saturating_sub(2 * people).max(ROWS_MIN);
        lines.extend(self.rules(width, rules));
        lines.extend(identities("DENIED MOST", &self.now.most_denied, width, people));
        lines.extend(identities("ASKS MOST", &self.now.heaviest, width, people));
        lines.truncate(height);
        lines
    }

    fn state(&self) -> Line {
        let Look { version, health, store, .. } = self.now;
        let is_up = store.state == "up";
        let tone = |is_good| if is_good { Tone::Good } else { Tone::Bad };
        let trouble = store.trouble.as_ref().map_or(String::new(), |trouble| format!(" ({trouble})"));
        Line(vec![
            (Tone::Title, format!("sluicegate {version} ")),
            (Tone::Plain, format!("{}  store ", self.place)),
            (tone(is_up), format!("{} {}{trouble}  ", store.kind, store.state)),
            (tone(health.status == "ready"), health.status.clone()),
            (Tone::Quiet, self.hint.to_owned()),
        ])
    }

    fn outcomes(&self) -> Line {
        let time = look::between(self.before, self.now);
        let (now, before) = (&self.now.requests, &self.before.requests);
        let added = |of: fn(&look::Requests) -> u64| of(now).saturating_sub(of(before));
        let rate = |added: u64| look::per_second(added, time).map_or("–".to_owned(), words::short);
        let (allowed, denied, undecided) =
            (added(|each| each.allowed), added(|each| each.denied), added(|each| each.undecided));
        let against = denied.saturating_add(undecided);
        let share = words::percent(against, against.saturating_add(allowed));
        let is_bad = |count: u64| if count > 0 { Tone::Bad } else { Tone::Plain };
        Line(vec![
            (Tone::Plain, format!("allowed {}/s  denied {}/s ({share})", rate(allowed), rate(denied))),
            (is_bad(undecided), format!("  undecided {}/s", rate(undecided))),
            (
                is_bad(added(|each| each.degraded)),
                format!("  without the store {}/s", rate(added(|each| each.degraded))),
            ),
        ])
    }

    fn times(&self) -> Line {
        let (now, since) = (&self.now.latency, &self.since.latency);
        let is_first = std::ptr::eq(self.since, self.now);
        let spread = |now: &[u64], since: &[u64]| look::added(if is_first { &[] } else { since }, now);
        let (decisions, charges) =
            (spread(&now.decisions, &since.decisions), spread(&now.charges, &since.charges));
        let of = |counts: &[u64], percent| words::duration(look::quantile(&now.bounds_micros, counts, percent));
        Line::one(
            Tone::Plain,
            format!(
                "p50 {}  p95 {}  p99 {}  store p99 {}  keys held {}",
                of(&decisions, 50),
                of(&decisions, 95),
                of(&decisions, 99),
                of(&charges, 99),
                words::count(self.now.tracked_keys)
            ),
        )
    }

    fn notice(&self) -> Line {
        match self.trouble {
            Some(trouble) => Line::one(Tone::Bad, trouble),
            None => Line::one(Tone::Plain, ""),
        }
    }

    fn rules(&self, width: usize, rows: usize) -> Vec<Line> {
        let names = name_width(width, 46);
        let row = |name: &str, mode: &str, rate: &str, denied: &str, left: &str| {
            format!(
                "{} {} {} {} {}",
                words::left(name, names),
                words::left(mode, 8),
                words::right(rate, 9),
                words::right(denied, 18),
                words::right(left, 7)
            )
        };
        let time = look::between(self.before, self.now);
        let rule = |rule: &look::Rule| {
            let former =
                self.before.rules.iter().find(|former| former.name == rule.name).map_or(0, look::Rule::all);
            let rate =
                look::per_second(rule.all().saturating_sub(former), time).map_or("–".to_owned(), words::short);
            let share = words::percent(rule.against(), rule.all());
            let is_shadow = rule.mode.as_deref() == Some("shadow");
            let denied = if is_shadow { format!("would have {share}") } else { share };
            let middle = look::quantile(&self.now.remaining.bounds_millionths, &rule.remaining, 50);
            let left = middle.map_or("–".to_owned(), |millionths| format!("{} %", millionths / 10_000));
            Line::one(
                Tone::Plain,
                row(&rule.name, rule.mode.as_deref().unwrap_or("brought"), &rate, &denied, &left),
            )
        };
        let shown = self.now.rules.iter().take(rows).map(rule);
        let count = self.now.rule_count;
        let title = row(&format!("RULE (of {count})"), "MODE", "PER S", "DENIED", "LEFT");
        listed(title, shown.collect(), "no rules: every request passes")
    }
}

fn identities(title: &str, list: &[look::Identity], width: usize, rows: usize) -> Vec<Line> {
    let names = name_width(width, 29);
    let row = |name: &str, kind: &str, denied: &str, asks: &str| {
        format!(
            "{} {} {} {}",
            words::left(name, names),
            words::left(kind, 8),
            words::right(denied, 9),
            words::right(asks, 9)
        )
    };
    let one = |identity: &look::Identity| {
        let look::Identity { tenant, identifier, kind, requests_per_second, denied_per_second } = identity;
        let name = if tenant == "default" { identifier.clone() } else { format!("{tenant} / {identifier}") };
        Line::one(
            Tone::Plain,
            row(&name, kind, &words::short(*denied_per_second), &words::short(*requests_per_second)),
        )
    };
    let shown = list.iter().take(rows).map(one).collect();
    listed(row(title, "KIND", "DENIED/S", "ASKS/S"), shown, "nobody within the last seconds")
}

/// A title, and what is below it.
fn listed(title: String, rows: Vec<Line>, empty: &str) -> Vec<Line> {
    let rows = if rows.is_empty() { vec![Line::one(Tone::Quiet, empty)] } else { rows };
    [Line::one(Tone::Plain, ""), Line::one(Tone::Title, title)].into_iter().chain(rows).collect()
}

/// How wide a name may be beside columns that take `others`.
fn name_width(width: usize, others: usize) -> usize {
    width.saturating_sub(others).clamp(8, 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(text: &str) -> Look {
        serde_json::from_str(text).expect("a look")
    }

    fn drawn(before: &Look, now: &Look, width: usize, height: usize) -> Vec<String> {
        let scene = Scene { place: "here:1", now, before, since: before, trouble: None, hint: "  q quits" };
        scene.lines(width, height).iter().map(|line| line.paint(width, false)).collect()
    }

    const BEFORE: &str = r#"{"at":1000,"requests":{"allowed":10}}"#;
    const NOW: &str = r#"{"at":2000,"version":"1","health":{"status":"ready"},"store":{"kind":"redis","state":"down","trouble":"connection"},
        "requests":{"allowed":40,"denied":10},"trackedKeys":12345,"ruleCount":1,
        "latency":{"boundsMicros":[10,20],"decisions":[100,0,0]},"remaining":{"boundsMillionths":[0,1000000]},
        "rules":[{"name":"payments","mode":"shadow","allowed":3,"shadowDenied":1,"remaining":[0,4]}],
        "mostDenied":[{"tenant":"t","identifier":"\u001b[2Jx","kind":"named","requestsPerSecond":4.5,"deniedPerSecond":1.250}]}"#;

    #[test]
    fn it_says_what_is_decided_how_fast_by_which_rules_and_for_whom() {
        let lines = drawn(&look(BEFORE), &look(NOW), 80, 24);
        assert_eq!(lines[0], "sluicegate 1 here:1  store redis down (connection)  ready  q quits");
        assert_eq!(lines[1], "allowed 30/s  denied 10/s (25 %)  undecided 0/s  without the store 0/s");
        assert_eq!(lines[2], "p50 5 µs  p95 9 µs  p99 9 µs  store p99 –  keys held 12.3k");
        let line = |start: &str| lines.iter().find(|line| line.starts_with(start)).expect(start).clone();
        assert!(
            line("payments").contains("shadow           4    would have 25 %    50 %"),
            "{}",
            line("payments")
        );
        assert!(line("t / \\u001b[2Jx").ends_with("1.25      4.50"), "{lines:#?}");
        assert!(lines.iter().any(|line| line.trim() == "nobody within the last seconds"), "{lines:#?}");
    }

    #[test]
    fn counts_that_no_server_can_have_are_drawn_all_the_same() {
        let most = u64::MAX;
        let now = look(&format!(
            r#"{{"at":{most},"requests":{{"allowed":{most},"denied":{most},"undecided":{most},"degraded":{most}}},"trackedKeys":{most},
            "latency":{{"boundsMicros":[{most}],"decisions":[{most},{most}],"charges":[{most},{most}]}},
            "remaining":{{"boundsMillionths":[{most}]}},
            "rules":[{{"name":"r","allowed":{most},"denied":{most},"shadowDenied":{most},"remaining":[{most},{most}]}}]}}"#
        ));
        let lines = drawn(&look("{}"), &now, 80, 24);
        assert!(lines.iter().any(|line| line.starts_with("r ")), "{lines:#?}");
        assert_eq!(now.requests.all(), most);
    }

    #[test]
    fn it_fits_every_terminal() {
        let (before, now) = (look(BEFORE), look(NOW));
        for (width, height) in [(200, 60), (80, 24), (40, 10), (10, 3), (1, 1), (0, 0)] {
            let lines = drawn(&before, &now, width, height);
            assert!(lines.len() <= height, "{width}x{height}");
            let widest = lines.iter().map(|line| unicode_width::UnicodeWidthStr::width(line.as_str())).max();
            assert!(widest.unwrap_or(0) <= width, "{width}x{height}: {lines:#?}");
        }
    }

    #[test]
    fn colours_are_there_if_they_are_wanted() {
        let line = Line(vec![(Tone::Bad, "down".to_owned()), (Tone::Plain, " x".to_owned())]);
        assert_eq!(line.paint(80, true), "\u{1b}[31mdown\u{1b}[0m x");
        assert_eq!(line.paint(80, false), "down x");
        assert_eq!(line.paint(3, true), "\u{1b}[31mdo…\u{1b}[0m", "cut by what is seen");
    }
}
