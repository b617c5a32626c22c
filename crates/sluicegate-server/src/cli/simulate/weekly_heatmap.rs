//! Requests and denials by weekday and hour, in UTC: counters and heatmap.

use maud::{Markup, html};

use super::chart::{TextAnchor, axis_label, picture, rect, shade, titled};
use super::report::grouped;
use super::tally::RequestCount;

/// Hours of a week.
const HOURS: usize = 7 * 24;
const HOUR_MICROS: u64 = 3_600_000_000;
/// The first of January 1970 was a Thursday: day 3 of a week that begins with Monday as day 0.
const EPOCH_DAY: u64 = 3;

const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
/// The size of a cell and the position of the first one, in tenths.
const CELL: [i64; 2] = [270, 230];
const LEFT: i64 = 560;
const TOP: i64 = 240;

/// Counts by weekday and hour.
#[derive(Clone, Debug)]
pub(super) struct WeeklyHeatmap([RequestCount; HOURS]);

impl Default for WeeklyHeatmap {
    fn default() -> Self {
        Self([RequestCount::default(); HOURS])
    }
}

impl WeeklyHeatmap {
    #[inline]
    pub(super) fn add(&mut self, at_micros: u64, is_allowed: bool) {
        let hour = at_micros / HOUR_MICROS + EPOCH_DAY * 24;
        self.0[(hour % HOURS as u64) as usize].add(is_allowed);
    }

    /// The counts of one hour. Day 0 is Monday.
    fn at(&self, day: usize, hour: usize) -> RequestCount {
        self.0[(day * 24 + hour) % HOURS]
    }
}

/// The heatmap for the report.
pub(super) fn section(heatmap: &WeeklyHeatmap) -> Markup {
    let requests_most = heatmap.0.iter().map(|count| count.total()).max().unwrap_or_default();
    let denied_most = heatmap.0.iter().map(|count| count.denied).max().unwrap_or_default();
    let content = html! {
        @for hour in (0..24).step_by(3) {
            (axis_label(TextAnchor::Middle, [LEFT + CELL[0] * hour + CELL[0] / 2, TOP - 80], &format!("{hour:02}")))
        }
        @for (day, name) in (0..).zip(DAYS) { (axis_label(TextAnchor::End, [LEFT - 80, TOP + CELL[1] * day + 150], name)) }
        @for day in 0..7 { @for hour in 0..24 {
            (cell(day, hour, heatmap.at(day, hour), [requests_most, denied_most]))
        } }
    };
    let (width, height) = (LEFT + 24 * CELL[0] + 40, TOP + 7 * CELL[1] + 20);
    html! {
        section {
            h2 { "Requests by weekday and hour" }
            (picture(width, height, "Requests and denials by hour and weekday", &content))
            p.soft { "A stronger colour means more requests. Red cells show denied requests." }
        }
    }
}

fn cell(day: usize, hour: usize, count: RequestCount, [requests_most, denied_most]: [u64; 2]) -> Markup {
    let area = [LEFT + CELL[0] * hour as i64, TOP + CELL[1] * day as i64, CELL[0] - 20, CELL[1] - 20];
    let (total, denied) = (grouped(count.total()), grouped(count.denied));
    let title = format!("{} {hour:02}:00: {total} requests, {denied} denied", DAYS[day]);
    let content = html! {
        (rect("empty", area))
        (shade("ok", area, opacity(count.total(), requests_most, 70)))
        (shade("no", area, opacity(count.denied, denied_most, 99)))
    };
    titled(&title, &content)
}

/// The opacity of a cell in hundredths: zero for a count of zero, else from 12, which is just visible, up to `top`.
fn opacity(count: u64, most: u64, top: u64) -> u64 {
    if count == 0 { 0 } else { 12 + (u128::from(count) * u128::from(top - 12) / u128::from(most.max(1))) as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_is_counted_on_its_weekday() {
        let mut heatmap = WeeklyHeatmap::default();
        // Tuesday, 14 November 2023, 22:13:20 UTC.
        heatmap.add(1_700_000_000_000_000, false);
        assert_eq!(heatmap.at(1, 22), RequestCount { allowed: 0, denied: 1 });
        assert_eq!(heatmap.0.iter().map(|count| count.total()).sum::<u64>(), 1);
    }
}
