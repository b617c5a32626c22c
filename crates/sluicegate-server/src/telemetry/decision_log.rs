//! The decision log: one line per decision with its rule and identity, for configured shares of the decisions.
//!
//! There is one share for denied requests, one for requests that a shadow rule would have denied, and one for allowed requests.
//! The log writes at most [`LINES_PER_SECOND_MAX`] lines per second, so a flood of denials does not become a flood of lines. No
//! request waits for the log. Omitted decisions are counted, and the next line contains the number. A line contains no path, no
//! header field and no credential. [`IdentityDisplay`] determines the form of the identity.

mod line_rate;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate::core::{Cost, Micros, Outcome, Quota, Timestamp};
use sluicegate::decision::{Headline, LimitOutcome};
use sluicegate::identity::DEFAULT_TENANT;
use sluicegate::observe::{DecisionEvent, FailClosedEvent};
use sluicegate::store::ErrorClass;
use sluicegate::{Decision, Identity, LimitReport, Request};

use super::async_writer::LOG;
use super::identities::{self, IdentityDisplay};
use crate::config::log::DecisionShares;
use crate::config::share::Share;
use line_rate::LineRate;

/// The target of the events, for filters such as `info,decisions=off`.
pub(super) const TARGET: &str = "decisions";

/// The most lines per second. A line has about 400 bytes, so a day has at most about 3.5 GB, which log rotation can handle.
const LINES_PER_SECOND_MAX: u64 = 100;

/// The most rules that one line names besides the headline rule.
const OTHERS_MAX: usize = 8;

/// Logs decisions.
#[derive(Debug)]
pub(crate) struct DecisionLog {
    shares: DecisionShares,
    display: Arc<IdentityDisplay>,
    rate: LineRate,
    /// Omitted decisions since the last line.
    left_out: AtomicU64,
    left_out_total: AtomicU64,
}

/// The fields of a line.
struct DecisionLine<'a> {
    outcome: &'static str,
    /// The headline rule; `None` if no rule matched.
    rule: Option<&'a str>,
    others: Option<String>,
    algorithm: Option<&'static str>,
    limit: Option<u64>,
    remaining: Option<u64>,
    retry_after_ms: Option<u64>,
    error: Option<ErrorClass>,
    request: RequestFields<'a>,
}

/// The fields of a request in a line.
struct RequestFields<'a> {
    tenant: &'a str,
    /// The resource, unless it is a path, because a path may contain secrets.
    resource: Option<&'a str>,
    identity: Option<Identity<'a>>,
    tier: Option<&'a str>,
    cost: Option<u32>,
}

impl DecisionLog {
    /// A log of these shares, with identities in this form.
    pub(crate) fn new(shares: DecisionShares, display: &Arc<IdentityDisplay>) -> Self {
        let (rate, display) = (LineRate::new(LINES_PER_SECOND_MAX), Arc::clone(display));
        Self { shares, display, rate, left_out: AtomicU64::new(0), left_out_total: AtomicU64::new(0) }
    }

    /// Logs a decision, if it belongs to a share.
    pub(super) fn decided(&self, decided: &DecisionEvent<'_>) {
        let DecisionEvent { request, decision, asked_at, .. } = decided;
        let headline = Headline::of(decision);
        let share = match headline.outcome {
            LimitOutcome::Denied
            | LimitOutcome::FallbackDenied
            | LimitOutcome::OverloadDenied
            | LimitOutcome::FailedClosed => self.shares.denied,
            LimitOutcome::ShadowDenied => self.shares.shadow_denied,
            LimitOutcome::Allowed
            | LimitOutcome::FailedOpen
            | LimitOutcome::FallbackAllowed
            | LimitOutcome::OverloadAllowed => self.shares.allowed,
        };
        self.write(share, *asked_at, || line_of(request, decision, &headline));
    }

    /// Logs a request that was denied because the store could not decide (fail closed).
    pub(super) fn undecided(&self, undecided: &FailClosedEvent<'_>) {
        let FailClosedEvent { request, error, now, .. } = undecided;
        self.write(self.shares.denied, *now, || DecisionLine {
            rule: undecided.outcomes().next().map(|outcome| outcome.rule),
            error: Some(error.class),
            ..DecisionLine::new(LimitOutcome::FailedClosed.name(), RequestFields::of(request))
        });
    }

    /// Logs a decision of an inline limit under this name.
    pub(super) fn inline(&self, name: &str, key: &str, quota: &Quota, outcome: LimitOutcome, now: Timestamp) {
        let share = match outcome {
            LimitOutcome::Allowed | LimitOutcome::OverloadAllowed => self.shares.allowed,
            _ => self.shares.denied,
        };
        let identity = Some(Identity::Named(key));
        let request = RequestFields { tenant: DEFAULT_TENANT, resource: None, identity, tier: None, cost: None };
        self.write(share, now, || DecisionLine {
            rule: Some(name),
            algorithm: Some(quota.algorithm()),
            limit: Some(quota.limit()),
            ..DecisionLine::new(outcome.name(), request)
        });
    }

    /// The number of omitted decisions since the start.
    pub(crate) fn left_out_total(&self) -> u64 {
        self.left_out_total.load(Ordering::Relaxed)
    }

    /// Logs the number of omitted decisions since the last line, if there are any.
    pub(crate) fn log_left_out(&self) {
        if !LOG.has_room() {
            return;
        }
        let left_out = self.left_out.swap(0, Ordering::Relaxed);
        if left_out > 0 {
            tracing::info!(target: TARGET, left_out, "decisions were omitted from the log");
        }
    }

    fn write<'a>(&self, share: Share, now: Timestamp, line: impl FnOnce() -> DecisionLine<'a>) {
        if !share.takes_one() {
            return;
        }
        if !self.rate.admits(now) || !LOG.has_room() {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            self.left_out_total.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let DecisionLine { outcome, rule, others, algorithm, limit, remaining, retry_after_ms, error, request } =
            line();
        let RequestFields { tenant, resource, identity, tier, cost } = request;
        let left_out = self.left_out.swap(0, Ordering::Relaxed);
        tracing::info!(
            target: TARGET,
            outcome,
            rule,
            others,
            algorithm,
            limit,
            remaining,
            retry_after_ms,
            store_error = error.map(ErrorClass::name),
            tenant,
            resource,
            identity = identity.map(|identity| self.display.text(identity)),
            identity_kind = identity.map(identities::kind),
            tier,
            cost,
            left_out = Some(left_out).filter(|left_out| *left_out > 0),
            "decision"
        );
    }
}

impl<'a> RequestFields<'a> {
    fn of(request: &Request<'a>) -> Self {
        Self {
            tenant: request.tenant,
            resource: Some(request.resource).filter(|_| request.target.is_none() && request.descriptor.is_none()),
            identity: Some(request.identity),
            tier: request.tier,
            cost: request.cost.map(Cost::get),
        }
    }
}

impl<'a> DecisionLine<'a> {
    fn new(outcome: &'static str, request: RequestFields<'a>) -> Self {
        let (rule, others, algorithm, error) = (None, None, None, None);
        Self {
            outcome,
            rule,
            others,
            algorithm,
            limit: None,
            remaining: None,
            retry_after_ms: None,
            error,
            request,
        }
    }
}

/// The line for a decision.
fn line_of<'a>(request: &Request<'a>, decision: &'a Decision, headline: &Headline<'a>) -> DecisionLine<'a> {
    let line = DecisionLine::new(headline.outcome.name(), RequestFields::of(request));
    let Some(limit) = &headline.limit else { return line };
    let others = others(decision, limit);
    let line = DecisionLine { rule: Some(limit.rule), others, ..line };
    line.with(limit.quota, limit.verdict.remaining, limit.verdict.outcome)
}

impl DecisionLine<'_> {
    fn with(self, quota: &Quota, remaining: u64, outcome: Outcome) -> Self {
        let wait = |wait: Micros| wait.as_micros().div_ceil(1_000);
        let retry_after_ms = match outcome {
            Outcome::Denied { retry_after } => Some(wait(retry_after)),
            Outcome::Allowed | Outcome::NeverAdmissible => None,
        };
        let (algorithm, limit) = (Some(quota.algorithm()), Some(quota.limit()));
        Self { algorithm, limit, remaining: Some(remaining), retry_after_ms, ..self }
    }
}

/// The other rules in the same mode that also deny, each once.
fn others(decision: &Decision, headline: &LimitReport<'_>) -> Option<String> {
    let denies = |limit: &LimitReport<'_>| limit.mode == headline.mode && !limit.verdict.outcome.is_allowed();
    let mut named: Vec<&str> = Vec::new();
    for limit in decision.limits().filter(|limit| denies(limit) && limit.rule != headline.rule) {
        if !named.contains(&limit.rule) && named.len() < OTHERS_MAX {
            named.push(limit.rule);
        }
    }
    (!named.is_empty()).then(|| named.join(", "))
}
