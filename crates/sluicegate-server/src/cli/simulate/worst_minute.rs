//! The minute with the most denied requests: counts per second, denied identities and denied paths.

use std::collections::HashMap;

use maud::{Markup, html};

use super::batch::LoggedRequest;
use super::chart::Bar;
use super::report::{self, grouped, name};
use super::tally::RequestCount;
use super::timeline::format_time;

const MINUTE_MICROS: u64 = 60_000_000;
/// The most identities, and the most paths, that are counted separately within a minute. Later ones count in the totals only.
const NAMES_MAX: usize = 4_096;
/// The number of identities and paths in the report.
const NAMES_SHOWN: usize = 10;

/// The current minute, and the worst one so far.
#[derive(Debug, Default)]
pub(super) struct WorstMinute {
    current: MinuteTally,
    worst: MinuteTally,
}

/// The counts of one minute.
#[derive(Clone, Debug, Default)]
pub(super) struct MinuteTally {
    /// The start, in minutes since 1970.
    number: u64,
    count: RequestCount,
    seconds: Vec<RequestCount>,
    denied_clients: HashMap<Box<str>, u64>,
    denied_paths: HashMap<Box<str>, u64>,
}

impl WorstMinute {
    /// Counts a request of the client called `name`. Times must not decrease.
    #[inline]
    pub(super) fn add(&mut self, logged: &LoggedRequest<'_>, is_allowed: bool, name: &str) {
        let number = logged.at_micros / MINUTE_MICROS;
        if number != self.current.number || self.current.seconds.is_empty() {
            self.start_minute(number);
        }
        let second = (logged.at_micros % MINUTE_MICROS / 1_000_000) as usize;
        self.current.count.add(is_allowed);
        self.current.seconds[second].add(is_allowed);
        if !is_allowed {
            increment(&mut self.current.denied_clients, name);
            increment(&mut self.current.denied_paths, logged.path);
        }
    }

    fn start_minute(&mut self, number: u64) {
        if self.current.count.denied > self.worst.count.denied {
            std::mem::swap(&mut self.current, &mut self.worst);
        }
        let MinuteTally { seconds, denied_clients, denied_paths, .. } = &mut self.current;
        seconds.clear();
        seconds.resize(60, RequestCount::default());
        denied_clients.clear();
        denied_paths.clear();
        self.current.count = RequestCount::default();
        self.current.number = number;
    }

    /// The minute with the most denied requests, the first of several; `None` if no request was denied.
    pub(super) fn worst(&self) -> Option<&MinuteTally> {
        let worst = if self.current.count.denied > self.worst.count.denied { &self.current } else { &self.worst };
        (worst.count.denied > 0).then_some(worst)
    }
}

fn increment(counts: &mut HashMap<Box<str>, u64>, name: &str) {
    if let Some(count) = counts.get_mut(name) {
        *count += 1;
    } else if counts.len() < NAMES_MAX {
        counts.insert(name.into(), 1);
    }
}

/// The names with the highest counts, in descending order; equal counts are in the order of their names.
fn highest(counts: &HashMap<Box<str>, u64>) -> Vec<(&str, u64)> {
    let mut all: Vec<(&str, u64)> = counts.iter().map(|(name, count)| (&**name, *count)).collect();
    all.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
    all.truncate(NAMES_SHOWN);
    all
}

/// The section of the report.
pub(super) fn section(minute: Option<&MinuteTally>) -> Markup {
    html! {
        section {
            h2 { "The worst minute" }
            @match minute {
                None => p { "No request was denied in any minute." },
                Some(minute) => {
                    (chart(minute))
                    div.columns {
                        (table("identity", &highest(&minute.denied_clients)))
                        (table("path", &highest(&minute.denied_paths)))
                    }
                }
            }
        }
    }
}

fn chart(minute: &MinuteTally) -> Markup {
    let bars: Vec<Bar> = (0..)
        .zip(&minute.seconds)
        .map(|(second, count)| Bar { title: format!("second {second}"), count: *count })
        .collect();
    let ticks: Vec<(usize, String)> =
        (0..60).step_by(10).map(|second| (second, format!(":{second:02}"))).collect();
    let start = format_time(minute.number * MINUTE_MICROS, "%A %d %B %Y, %H:%M");
    report::worst_minute(&start, minute.count, &bars, &ticks)
}

fn table(heading: &str, rows: &[(&str, u64)]) -> Markup {
    html! {
        div.scroll {
            table {
                tr { th { (heading) } th { "denied" } }
                @for (text, count) in rows {
                    tr {
                        // Clients that the tally does not know by name have an empty one.
                        td { (name(if text.is_empty() { "others" } else { text })) }
                        td { (grouped(*count)) }
                    }
                }
            }
        }
    }
}
