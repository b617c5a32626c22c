//! `sluicegate simulate --from-admin URL`: the same numbers and pictures from what a running server counted within the last
//! hour, with the rules that only watch beside those that decide.
//!
//! A server counts by rule and in steps; it keeps no identity, but for those that it denies most at the moment.

mod words;

use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Number;
use sluicegate::rules::Mode;

use super::report;
use super::summary::{HIT_MAX, RuleSummary, time};
use super::tally::timeline::Timeline;
use super::tally::{Count, RULES_DRAWN_MAX, RuleTally};
use crate::cli::Error;
use crate::cli::client::{Endpoint, FROM_ADMIN, detail, shown};
use crate::secret::Secret;
pub(super) use words::text;

const MINUTE_SECONDS: u64 = 60;
/// Longer steps than this are no picture of an hour.
const STEP_SECONDS_MAX: u64 = 3_600;

/// Answers that cannot be used.
#[derive(Debug, thiserror::Error)]
enum LiveError {
    #[error("the server answered {status}: {detail}{}", token_remedy(*status))]
    Refused { status: StatusCode, detail: String },
    #[error(
        "the answer of {url} is no history: {reason}; is that the admin listener of a Sluicegate of this version?"
    )]
    Unintelligible { url: String, reason: String },
}

fn token_remedy(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            "; put a token that may read into SLUICEGATE_ADMIN_TOKEN"
        }
        _ => "",
    }
}

/// What the server answers: see `http/dashboard/history.rs`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct History {
    until: Option<u64>,
    step_seconds: u64,
    points: Vec<[u32; 4]>,
    rules: Vec<RulePoints>,
}

#[derive(Deserialize)]
struct RulePoints {
    name: Box<str>,
    mode: String,
    points: Vec<[u32; 4]>,
}

/// What the server answers: see `http/top.rs`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Top {
    most_denied: Vec<Denied>,
}

/// Somebody whom a server denies.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Denied {
    pub(super) tenant: String,
    pub(super) identifier: String,
    pub(super) denied_per_second: Number,
    pub(super) requests_per_second: Number,
}

/// Everything that is printed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LiveSummary {
    pub(super) requests: u64,
    pub(super) allowed: u64,
    pub(super) denied: u64,
    /// Of these, how many were decided without the store.
    pub(super) degraded: u64,
    pub(super) from: Option<String>,
    pub(super) to: Option<String>,
    pub(super) rules: Vec<RuleSummary>,
    pub(super) most_denied: Vec<Denied>,
}

/// The last hour of a server.
#[derive(Debug)]
pub(super) struct Live {
    /// Where it was asked for, fit to be shown.
    pub(super) url: String,
    pub(super) summary: LiveSummary,
    pub(super) requests: Count,
    pub(super) timeline: Timeline,
    pub(super) rules: Vec<RuleTally>,
    pub(super) step_seconds: u64,
    /// When each step began, and what it holds.
    steps: Vec<(u64, Count)>,
}

/// Asks the server, and returns what it did.
pub(super) fn fetch(url: &str, token: Option<&Secret>) -> Result<Live, Error> {
    let endpoint = Endpoint::parse(FROM_ADMIN, url)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let history: History = get(&endpoint, url, "/admin/v1/history?rules=all", token).await?;
        if !(1..=STEP_SECONDS_MAX).contains(&history.step_seconds) {
            let reason = format!("stepSeconds is {}", history.step_seconds);
            return Err(LiveError::Unintelligible { url: shown(url), reason }.into());
        }
        let top = get(&endpoint, url, &format!("/admin/v1/top?limit={HIT_MAX}"), token).await?;
        Ok(Live::new(shown(url), history, top))
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
        return Err(LiveError::Refused { status, detail: detail(&text) }.into());
    }
    let unintelligible = |error: serde_json::Error| LiveError::Unintelligible {
        url: shown(url),
        reason: shown(&error.to_string()),
    };
    Ok(serde_json::from_str(&text).map_err(unintelligible)?)
}

impl Live {
    fn new(url: String, history: History, top: Top) -> Self {
        let History { until, step_seconds, points, rules } = history;
        let begins = Begins { until_millis: until.unwrap_or_default(), step_seconds };
        let steps: Vec<(u64, Count)> =
            begins.of(&points).map(|(at, [allowed, denied, ..])| (at, count(allowed, denied))).collect();
        let requests = steps.iter().fold(Count::default(), |sum, (_, step)| sum.and(*step));
        let rules: Vec<RuleTally> =
            rules.into_iter().enumerate().map(|(place, rule)| tally(&begins, place, rule)).collect();
        let ends = (steps.first(), until);
        let summary = LiveSummary {
            requests: requests.total(),
            allowed: requests.allowed,
            denied: requests.denied,
            degraded: points.iter().map(|[.., degraded]| u64::from(*degraded)).sum(),
            from: ends.0.map(|(at, _)| time(*at)),
            to: ends.1.map(|until| time(until.saturating_mul(1_000))),
            rules: rules.iter().map(RuleSummary::new).collect(),
            most_denied: top.most_denied,
        };
        let timeline = begins.timeline(steps.iter().copied());
        Self { url, summary, requests, timeline, rules, step_seconds, steps }
    }

    /// The steps of the minute in which most was denied, the first of several, and when it began; nothing if nothing was.
    pub(super) fn worst_minute(&self) -> Option<(u64, Vec<Count>)> {
        let length = usize::try_from(MINUTE_SECONDS.div_ceil(self.step_seconds.max(1))).unwrap_or(1);
        let length = length.min(self.steps.len()).max(1);
        let denied = |steps: &[(u64, Count)]| steps.iter().map(|(_, step)| step.denied).sum::<u64>();
        // Of several, `max_by_key` takes the last.
        let worst = self.steps.windows(length).rev().max_by_key(|steps| denied(steps))?;
        let start = worst.first()?.0;
        (denied(worst) > 0).then(|| (start, worst.iter().map(|(_, step)| *step).collect()))
    }

    /// The report.
    pub(super) fn html(&self) -> String {
        report::live::html(self)
    }
}

/// When steps began.
struct Begins {
    until_millis: u64,
    step_seconds: u64,
}

impl Begins {
    /// A picture cannot have finer steps than the server.
    fn timeline(&self, steps: impl Iterator<Item = (u64, Count)>) -> Timeline {
        let mut timeline = Timeline::default().widened(self.step_seconds.saturating_mul(1_000_000));
        steps.for_each(|(at, step)| timeline.add_all(at, step));
        timeline
    }

    /// Each with the time at which it began.
    fn of<'p, T: Copy>(&self, points: &'p [T]) -> impl Iterator<Item = (u64, T)> + 'p {
        let (until, step) = (self.until_millis.saturating_mul(1_000), self.step_seconds.saturating_mul(1_000_000));
        let first = until.saturating_sub(step.saturating_mul(points.len() as u64));
        (0..).zip(points).map(move |(place, point)| (first.saturating_add(step.saturating_mul(place)), *point))
    }
}

fn count(allowed: u32, denied: u32) -> Count {
    Count { allowed: allowed.into(), denied: denied.into() }
}

/// What a rule said. One that only watches counts what it would have denied, as everywhere here.
fn tally(begins: &Begins, place: usize, rule: RulePoints) -> RuleTally {
    let mode = [Mode::Enforce, Mode::Shadow, Mode::Off]
        .into_iter()
        .find(|mode| mode.name() == rule.mode)
        .unwrap_or(Mode::Enforce);
    let steps = || {
        let step =
            |[allowed, denied, shadow_denied, _]: [u32; 4]| count(allowed, denied).and(count(0, shadow_denied));
        begins.of(&rule.points).map(move |(at, point)| (at, step(point)))
    };
    let said = steps().fold(Count::default(), |sum, (_, step)| sum.and(step));
    let timeline = (place < RULES_DRAWN_MAX).then(|| begins.timeline(steps()));
    RuleTally { name: rule.name, mode, said, timeline }
}

#[cfg(test)]
mod tests;
