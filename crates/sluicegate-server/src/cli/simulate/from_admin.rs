//! `sluicegate simulate --from-admin URL`: the same numbers and pictures for the last hour of a running server. Rules in shadow
//! mode appear beside enforced rules.
//!
//! A server counts by rule and in steps of time. It does not keep identities, except those that it currently denies most.

use std::fmt::Write as _;

use axum::http::StatusCode;
use maud::{Markup, html};
use serde::Serialize;
use sluicegate::rules::Mode;

use super::chart::Bar;
use super::clients::DENIED_MAX;
use super::report::{self, card, grouped, name};
use super::rules::{self, RuleSummary};
use super::summary::rfc_3339;
use super::tally::{RULES_DRAWN_MAX, RequestCount, RuleTally};
use super::timeline::{Timeline, format_time};
use crate::admin_api::{BusyIdentity, History, RulePoints, Thousandths, Top};
use crate::cli::Error;
use crate::cli::client::{Endpoint, FROM_ADMIN, detail};
use crate::cli::format::{excerpt, percent, terminal_safe};
use crate::secret::Secret;

const MINUTE_SECONDS: u64 = 60;
/// The longest plausible step of a history of one hour.
const STEP_SECONDS_MAX: u64 = 3_600;

/// An unusable response of the server.
#[derive(Debug, thiserror::Error)]
enum FromAdminError {
    #[error("the server answered {status}: {detail}{}", token_remedy(*status))]
    Status { status: StatusCode, detail: String },
    #[error(
        "the response of {url} is not a history: {reason}; is that the admin listener of a Sluicegate of this version?"
    )]
    InvalidResponse { url: String, reason: String },
}

fn token_remedy(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            "; set SLUICEGATE_ADMIN_TOKEN to a token with read access"
        }
        _ => "",
    }
}

/// An identity that the server currently denies.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CurrentlyDenied {
    tenant: String,
    identifier: String,
    denied_per_second: Thousandths,
    requests_per_second: Thousandths,
}

impl From<BusyIdentity> for CurrentlyDenied {
    fn from(identity: BusyIdentity) -> Self {
        let BusyIdentity { tenant, identifier, denied_per_second, requests_per_second, .. } = identity;
        Self { tenant, identifier, denied_per_second, requests_per_second }
    }
}

/// The result, as `--json` prints it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LastHourSummary {
    requests: u64,
    allowed: u64,
    denied: u64,
    /// Of the requests, those decided without the store.
    degraded: u64,
    from: Option<String>,
    to: Option<String>,
    rules: Vec<RuleSummary>,
    most_denied: Vec<CurrentlyDenied>,
}

/// The last hour of a server.
#[derive(Debug)]
pub(super) struct LastHour {
    /// The URL, safe for a terminal.
    url: String,
    pub(super) summary: LastHourSummary,
    requests: RequestCount,
    timeline: Timeline,
    rules: Vec<RuleTally>,
    step_seconds: u64,
    /// The start and the count of each step.
    steps: Vec<(u64, RequestCount)>,
}

/// Fetches the history of a server.
pub(super) fn fetch(url: &str, token: Option<&Secret>) -> Result<LastHour, Error> {
    let endpoint = Endpoint::parse(FROM_ADMIN, url)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let history: History = get(&endpoint, url, "/admin/v1/history?rules=all", token).await?;
        if !(1..=STEP_SECONDS_MAX).contains(&history.step_seconds) {
            let reason = format!("stepSeconds is {}", history.step_seconds);
            return Err(FromAdminError::InvalidResponse { url: excerpt(url), reason }.into());
        }
        if history.rules.is_none() {
            let reason = "rules is missing".to_owned();
            return Err(FromAdminError::InvalidResponse { url: excerpt(url), reason }.into());
        }
        let top = get(&endpoint, url, &format!("/admin/v1/top?limit={DENIED_MAX}"), token).await?;
        Ok(LastHour::new(excerpt(url), history, top))
    })
}

async fn get<T: serde::de::DeserializeOwned>(
    endpoint: &Endpoint,
    url: &str,
    path: &str,
    token: Option<&Secret>,
) -> Result<T, Error> {
    let (status, text) = endpoint.get(path, token).await?;
    if status != StatusCode::OK {
        return Err(FromAdminError::Status { status, detail: detail(&text) }.into());
    }
    let invalid = |error: serde_json::Error| FromAdminError::InvalidResponse {
        url: excerpt(url),
        reason: excerpt(&error.to_string()),
    };
    Ok(serde_json::from_str(&text).map_err(invalid)?)
}

impl LastHour {
    fn new(url: String, history: History, top: Top) -> Self {
        let History { until, step_seconds, points, rules } = history;
        let starts = StepStarts { until_millis: until.unwrap_or_default(), step_seconds };
        let steps: Vec<(u64, RequestCount)> =
            starts.zip(&points).map(|(at, [allowed, denied, ..])| (at, count(allowed, denied))).collect();
        let requests = steps.iter().fold(RequestCount::default(), |sum, (_, step)| sum.and(*step));
        let rules: Vec<RuleTally> = rules
            .unwrap_or_default()
            .into_iter()
            .enumerate()
            .map(|(index, rule)| tally(&starts, index, rule))
            .collect();
        let summary = LastHourSummary {
            requests: requests.total(),
            allowed: requests.allowed,
            denied: requests.denied,
            degraded: points.iter().map(|[.., degraded]| u64::from(*degraded)).sum(),
            from: steps.first().map(|(at, _)| rfc_3339(*at)),
            to: until.map(|until| rfc_3339(until.saturating_mul(1_000))),
            rules: rules.iter().map(RuleSummary::new).collect(),
            most_denied: top.most_denied.into_iter().map(CurrentlyDenied::from).collect(),
        };
        let timeline = starts.timeline(steps.iter().copied());
        Self { url, summary, requests, timeline, rules, step_seconds, steps }
    }

    /// The start and the steps of the minute with the most denied requests, the first of several; `None` if no request was
    /// denied.
    fn worst_minute(&self) -> Option<(u64, Vec<RequestCount>)> {
        let length = usize::try_from(MINUTE_SECONDS.div_ceil(self.step_seconds.max(1))).unwrap_or(1);
        let length = length.min(self.steps.len()).max(1);
        let denied = |steps: &[(u64, RequestCount)]| steps.iter().map(|(_, step)| step.denied).sum::<u64>();
        // `max_by_key` returns the last of several, so the order is reversed.
        let worst = self.steps.windows(length).rev().max_by_key(|steps| denied(steps))?;
        let start = worst.first()?.0;
        (denied(worst) > 0).then(|| (start, worst.iter().map(|(_, step)| *step).collect()))
    }

    /// The text for a terminal. Nothing from the server acts on the terminal.
    pub(super) fn text(&self) -> String {
        let (summary, mut text) = (&self.summary, String::new());
        let LastHourSummary { requests, allowed, denied, .. } = summary;
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(
            text,
            "{requests} requests, {allowed} allowed, {denied} denied ({})",
            percent(*denied, *requests)
        );
        match (&summary.from, &summary.to) {
            (Some(from), Some(to)) => _ = writeln!(text, "from {from} to {to}, as {} counted", self.url),
            _ => _ = writeln!(text, "{} has not run for {} s yet: try again later", self.url, self.step_seconds),
        }
        if summary.degraded > 0 {
            let _ = writeln!(text, "{} were decided without the store", summary.degraded);
        }
        rules::write_text(&mut text, &summary.rules);
        if !summary.most_denied.is_empty() {
            text.push_str("\nmost denied clients, now\n");
        }
        for client in &summary.most_denied {
            let (name, tenant) = (terminal_safe(&client.identifier), terminal_safe(&client.tenant));
            let [denied, requests] = [client.denied_per_second, client.requests_per_second].map(rate_text);
            let _ = writeln!(text, "  {denied:>12} denied/s of {requests:>12}/s  {tenant} {name}",);
        }
        text
    }

    /// The HTML report with the parts for which a server keeps numbers.
    pub(super) fn html(&self) -> String {
        let intro = html! {
            h1 { "What these limits did within the last hour" }
            p.soft {
                "The server at " (name(&self.url)) (report::time_range(&self.summary.from, &self.summary.to))
            }
        };
        let content = html! {
            section.cards {
                (report::request_cards(self.requests))
                (card(&grouped(self.summary.degraded), "decided without the store"))
            }
            (report::over_time(&self.timeline, &self.rules))
            (rules::section(&self.summary.rules, &[]))
            (most_denied_section(&self.summary.most_denied))
            section {
                h2 { "The worst minute" }
                @match self.worst_minute() {
                    None => p { "No request was denied in any minute." },
                    Some((start, steps)) => (self.worst_minute_chart(start, &steps)),
                }
            }
            section {
                h2 { "Data that a server does not keep" }
                p {
                    "A server counts by rule, not by identity. The denials of each client, the peak usage of limits and earlier \
                     hours are in its access log. Replay that log with sluicegate simulate --log."
                }
            }
        };
        report::page(&self.url, &intro, &content)
    }

    fn worst_minute_chart(&self, start_micros: u64, steps: &[RequestCount]) -> Markup {
        let intro = format!("From {}", format_time(start_micros, "%A %d %B %Y, %H:%M:%S"));
        let count = steps.iter().fold(RequestCount::default(), |sum, step| sum.and(*step));
        let seconds = |step: usize| step as u64 * self.step_seconds;
        let bars: Vec<Bar> = (0..)
            .zip(steps)
            .map(|(step, count)| Bar {
                title: format!("seconds {} to {}", seconds(step), seconds(step + 1)),
                count: *count,
            })
            .collect();
        let ticks: Vec<(usize, String)> =
            (0..bars.len()).map(|step| (step, format!("+{} s", seconds(step)))).collect();
        report::worst_minute(&intro, count, &bars, &ticks)
    }
}

fn most_denied_section(clients: &[CurrentlyDenied]) -> Markup {
    html! {
        section {
            h2 { "Most denied clients, now" }
            @if clients.is_empty() {
                p { "No client is being denied." }
            } @else {
                div.scroll {
                    table {
                        tr { th { "identity" } th { "tenant" } th { "denied per second" } th { "requests per second" } }
                        @for client in clients {
                            tr {
                                td.left { (name(&client.identifier)) }
                                td.left { (name(&client.tenant)) }
                                td { (rate_text(client.denied_per_second)) }
                                td { (rate_text(client.requests_per_second)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The start times of steps, derived from the end of the last one.
struct StepStarts {
    until_millis: u64,
    step_seconds: u64,
}

impl StepStarts {
    /// A timeline of steps. It cannot be finer than the server's steps.
    fn timeline(&self, steps: impl Iterator<Item = (u64, RequestCount)>) -> Timeline {
        let mut timeline = Timeline::default().widened(self.step_seconds.saturating_mul(1_000_000));
        steps.for_each(|(at, step)| timeline.add_all(at, step));
        timeline
    }

    /// Pairs each point with the start of its step.
    fn zip<'p, T: Copy>(&self, points: &'p [T]) -> impl Iterator<Item = (u64, T)> + 'p {
        let (until, step) = (self.until_millis.saturating_mul(1_000), self.step_seconds.saturating_mul(1_000_000));
        let first = until.saturating_sub(step.saturating_mul(points.len() as u64));
        (0..).zip(points).map(move |(index, point)| (first.saturating_add(step.saturating_mul(index)), *point))
    }
}

/// A rate with three decimal places.
fn rate_text(Thousandths(millis): Thousandths) -> String {
    format!("{}.{:03}", millis / 1_000, millis % 1_000)
}

fn count(allowed: u32, denied: u32) -> RequestCount {
    RequestCount { allowed: allowed.into(), denied: denied.into() }
}

/// The tally of a rule. As in a replay, a rule in shadow mode counts the requests that it would have denied as denied.
fn tally(starts: &StepStarts, index: usize, rule: RulePoints) -> RuleTally {
    let mode = [Mode::Enforce, Mode::Shadow, Mode::Off]
        .into_iter()
        .find(|mode| mode.name() == rule.mode)
        .unwrap_or(Mode::Enforce);
    let steps = || {
        let step =
            |[allowed, denied, shadow_denied, _]: [u32; 4]| count(allowed, denied).and(count(0, shadow_denied));
        starts.zip(&rule.points).map(move |(at, point)| (at, step(point)))
    };
    let total = steps().fold(RequestCount::default(), |sum, (_, step)| sum.and(step));
    let timeline = (index < RULES_DRAWN_MAX).then(|| starts.timeline(steps()));
    RuleTally { name: rule.name.into(), mode, count: total, timeline }
}

#[cfg(test)]
mod tests;
