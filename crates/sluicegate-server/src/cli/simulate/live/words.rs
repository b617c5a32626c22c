//! The last hour of a server for a person at a terminal.

use std::fmt::Write as _;

use super::Live;
use crate::cli::simulate::words::{percent, rules, visible};

/// The whole text.
pub(in crate::cli::simulate) fn text(live: &Live) -> String {
    let (summary, mut text) = (&live.summary, String::new());
    let share = percent(summary.denied, summary.requests);
    // Writing to a string cannot fail, here and below.
    let _ = writeln!(
        text,
        "{} requests, {} allowed, {} denied ({share})",
        summary.requests, summary.allowed, summary.denied
    );
    match (&summary.from, &summary.to) {
        (Some(from), Some(to)) => _ = writeln!(text, "from {from} to {to}, as {} counted", live.url),
        _ => _ = writeln!(text, "{} has not run for {} s yet: ask again then", live.url, live.step_seconds),
    }
    if summary.degraded > 0 {
        let _ = writeln!(text, "{} were decided without the store", summary.degraded);
    }
    rules(&mut text, &summary.rules);
    if !summary.most_denied.is_empty() {
        text.push_str("\nwho is denied most, now\n");
    }
    for each in &summary.most_denied {
        let (name, tenant) = (visible(&each.identifier), visible(&each.tenant));
        // Numbers as the server wrote them cannot be padded.
        let [denied, requests] = [&each.denied_per_second, &each.requests_per_second].map(ToString::to_string);
        let _ = writeln!(text, "  {denied:>12} denied/s of {requests:>12}/s  {tenant} {name}",);
    }
    text
}
