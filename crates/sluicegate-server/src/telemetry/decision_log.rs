//! The decision log: who was denied by which rule, one line per decision, as far as it is asked for.
//!
//! A share of the denied, of those that a shadow rule would have denied, and of the allowed is written down. However
//! many there are, at most [`LINES_PER_SECOND_MAX`] lines are written within a second, so that a flood of denials does
//! not become a flood of lines, and no request waits until a line is written; how many were left out is counted, and the
//! next line says it. A line has no path, no
//! header field and no credential, and of an identity as much as [`Shown`] tells.

mod bound;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate::core::{Cost, Micros, Outcome, Quota, Timestamp};
use sluicegate::identity::DEFAULT_TENANT;
use sluicegate::observe::{Decided, Headline, LimitOutcome, Undecided};
use sluicegate::store::ErrorClass;
use sluicegate::{Decision, Identity, LimitReport, Request};

use super::identities::{self, Shown};
use super::lines::LINES;
use crate::config::log::DecisionShares;
use crate::config::share::Share;
use bound::Bound;

/// What the lines' target is called, for filters such as `info,decisions=off`.
pub(super) const TARGET: &str = "decisions";

/// The most lines within a second. One line has some 400 bytes, so that a day of nothing but denials is some 3.5 GB at the
/// very most, which is what a rotating log is made for.
const LINES_PER_SECOND_MAX: u64 = 100;

/// The most rules that one line names besides the one that speaks for the decision.
const OTHERS_MAX: usize = 8;

/// Writes decisions down.
#[derive(Debug)]
pub(crate) struct DecisionLog {
    shares: DecisionShares,
    shown: Arc<Shown>,
    bound: Bound,
    left_out: AtomicU64,
    left_out_total: AtomicU64,
}

/// What a line says.
struct Line<'a> {
    outcome: &'static str,
    /// The rule that speaks for the decision; none if no rule was for the request.
    rule: Option<&'a str>,
    others: Option<String>,
    algorithm: Option<&'static str>,
    limit: Option<u64>,
    remaining: Option<u64>,
    retry_after_ms: Option<u64>,
    error: Option<ErrorClass>,
    who: Who<'a>,
}

/// Who asked for what.
struct Who<'a> {
    tenant: &'a str,
    /// What was asked for, unless it is a path: that may hold anything.
    resource: Option<&'a str>,
    identity: Option<Identity<'a>>,
    tier: Option<&'a str>,
    cost: Option<u32>,
}

impl DecisionLog {
    /// Writes these shares down, with identities in this form.
    pub(crate) fn new(shares: DecisionShares, shown: &Arc<Shown>) -> Self {
        let (bound, shown) = (Bound::new(LINES_PER_SECOND_MAX), Arc::clone(shown));
        Self { shares, shown, bound, left_out: AtomicU64::new(0), left_out_total: AtomicU64::new(0) }
    }

    /// A request was decided.
    pub(super) fn decided(&self, decided: &Decided<'_>) {
        let Decided { request, decision, asked_at, .. } = decided;
        let headline = Headline::of(decision);
        let share = match headline.outcome {
            LimitOutcome::Denied | LimitOutcome::FallbackDenied | LimitOutcome::FailedClosed => self.shares.denied,
            LimitOutcome::ShadowDenied => self.shares.shadow_denied,
            LimitOutcome::Allowed | LimitOutcome::FailedOpen | LimitOutcome::FallbackAllowed => {
                self.shares.allowed
            }
        };
        self.write(share, *asked_at, || line_of(request, decision, &headline));
    }

    /// A request was refused undecided.
    pub(super) fn undecided(&self, undecided: &Undecided<'_>) {
        let Undecided { request, error, now, .. } = undecided;
        self.write(self.shares.denied, *now, || Line {
            rule: undecided.outcomes().next().map(|refused| refused.rule),
            error: Some(error.class),
            ..Line::new(LimitOutcome::FailedClosed.name(), Who::of(request))
        });
    }

    /// A request with a limit of its own, under this name, was decided.
    pub(super) fn brought(&self, name: &str, key: &str, quota: &Quota, outcome: LimitOutcome, now: Timestamp) {
        let share = if outcome == LimitOutcome::Allowed { self.shares.allowed } else { self.shares.denied };
        let identity = Some(Identity::Named(key));
        let who = Who { tenant: DEFAULT_TENANT, resource: None, identity, tier: None, cost: None };
        self.write(share, now, || Line {
            rule: Some(name),
            algorithm: Some(quota.algorithm()),
            limit: Some(quota.limit()),
            ..Line::new(outcome.name(), who)
        });
    }

    /// How many decisions were to be written down and were not, since the start.
    pub(crate) fn left_out_total(&self) -> u64 {
        self.left_out_total.load(Ordering::Relaxed)
    }

    /// Tells of what was left out after the last line, if anything was.
    pub(crate) fn tell_left_out(&self) {
        if !LINES.has_room() {
            return;
        }
        let left_out = self.left_out.swap(0, Ordering::Relaxed);
        if left_out > 0 {
            tracing::info!(target: TARGET, left_out, "decisions were left out of the log");
        }
    }

    fn write<'a>(&self, share: Share, now: Timestamp, line: impl FnOnce() -> Line<'a>) {
        if !share.takes_one() {
            return;
        }
        if !self.bound.admits(now) || !LINES.has_room() {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            self.left_out_total.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let Line { outcome, rule, others, algorithm, limit, remaining, retry_after_ms, error, who } = line();
        let Who { tenant, resource, identity, tier, cost } = who;
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
            identity = identity.map(|identity| self.shown.of(identity)),
            identity_kind = identity.map(identities::kind),
            tier,
            cost,
            left_out = Some(left_out).filter(|left_out| *left_out > 0),
            "decision"
        );
    }
}

impl<'a> Who<'a> {
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

impl<'a> Line<'a> {
    fn new(outcome: &'static str, who: Who<'a>) -> Self {
        let (rule, others, algorithm, error) = (None, None, None, None);
        Self { outcome, rule, others, algorithm, limit: None, remaining: None, retry_after_ms: None, error, who }
    }
}

/// What a line says of a decision.
fn line_of<'a>(request: &Request<'a>, decision: &'a Decision, headline: &Headline<'a>) -> Line<'a> {
    let line = Line::new(headline.outcome.name(), Who::of(request));
    let Some(limit) = &headline.limit else { return line };
    let others = others(decision, limit);
    let line = Line { rule: Some(limit.rule), others, ..line };
    line.with(limit.quota, limit.verdict.remaining, limit.verdict.outcome)
}

impl Line<'_> {
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

/// The other rules in the same mode that said no as well, each once.
fn others(decision: &Decision, speaker: &LimitReport<'_>) -> Option<String> {
    let says_no = |limit: &LimitReport<'_>| limit.mode == speaker.mode && !limit.verdict.outcome.is_allowed();
    let mut named: Vec<&str> = Vec::new();
    for limit in decision.limits().filter(|limit| says_no(limit) && limit.rule != speaker.rule) {
        if !named.contains(&limit.rule) && named.len() < OTHERS_MAX {
            named.push(limit.rule);
        }
    }
    (!named.is_empty()).then(|| named.join(", "))
}
