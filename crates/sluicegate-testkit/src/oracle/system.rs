//! The system under test, and the driver for the library: a [`Limiter`] on any store, in virtual time.

use super::answer::{Answer, LimitAnswer, Reply, Wait};
use super::operation::{Action, Ask};
use super::rules::Rules;
use sluicegate::clock::ManualClock;
use sluicegate::core::{Cost, Outcome, Timestamp};
use sluicegate::decision::{Decision, LimitReport, Retry};
use sluicegate::rules::file::Environment;
use sluicegate::rules::{Mode, RuleSet};
use sluicegate::store::Store;
use sluicegate::{Charging, Limiter, Request};
use std::net::{IpAddr, Ipv4Addr};

/// A system that should fulfil the contract.
#[expect(async_fn_in_trait, reason = "cases run on the thread that drew them")]
pub trait System {
    /// Replaces the rules.
    async fn reload(&mut self, rules: &Rules);

    /// Executes an operation at `now`, in microseconds since the epoch.
    async fn act(&mut self, action: Action, asks: &[Ask], now: u64) -> Reply;
}

/// The library on a store.
#[derive(Debug)]
pub struct Library<S> {
    limiter: Limiter<S, ManualClock>,
}

impl<S: Store> Library<S> {
    /// A limiter on `store` under `rules`.
    pub fn new(store: S, rules: &Rules) -> Self {
        Self { limiter: Limiter::new(read(rules), store, ManualClock::at(Timestamp::default())) }
    }

    /// Whether one request is allowed. For concurrent requests.
    pub async fn is_allowed(&self, ask: &Ask) -> bool {
        let decision = self.limiter.check(&request(ask)).await;
        answer(&decision.unwrap_or_else(|error| panic!("{ask:?}: {error}"))).allowed
    }

    /// The answer that a client would get now.
    pub async fn peek(&self, ask: &Ask) -> Reply {
        let decision = self.limiter.peek(&request(ask)).await;
        vec![answer(&decision.unwrap_or_else(|error| panic!("{ask:?}: {error}")))]
    }

    /// The limiter.
    pub fn limiter(&self) -> &Limiter<S, ManualClock> {
        &self.limiter
    }
}

impl<S: Store> Library<S> {
    /// Sweeps the embedded store before it decides, not only between decisions. Otherwise usage of a shadow rule that
    /// the store forgets during a decision would still count in the verdict but not in the remaining quota.
    fn sweep(&self, now: Timestamp) {
        if let Some(store) = self.limiter.store().in_process() {
            store.sweep_all(now);
        }
    }
}

fn read(rules: &Rules) -> RuleSet {
    let text = rules.to_yaml();
    RuleSet::from_yaml(&text, "oracle.yaml", &Environment::new())
        .unwrap_or_else(|problems| panic!("{problems}\n{text}"))
}

/// The request as the library receives it.
#[must_use]
pub fn request(ask: &Ask) -> Request<'static> {
    Request {
        tenant: ask.tenant,
        tier: ask.tier,
        cost: ask.cost.map(Cost::new),
        charging: if ask.is_report { Charging::Always } else { Charging::IfAllowed },
        address: ask.address.map(|last| IpAddr::V4(Ipv4Addr::new(192, 0, 2, last))),
        ..Request::new(ask.resource, ask.identifier)
    }
}

impl<S: Store> System for Library<S> {
    async fn reload(&mut self, rules: &Rules) {
        self.limiter.replace_rules(read(rules));
    }

    async fn act(&mut self, action: Action, asks: &[Ask], now: u64) -> Reply {
        self.limiter.clock().set(Timestamp::now(now));
        self.sweep(Timestamp::now(now));
        let requests: Vec<Request<'_>> = asks.iter().map(request).collect();
        if let [request] = requests.as_slice() {
            let decision = match action {
                Action::Check => self.limiter.check(request).await,
                Action::Peek => self.limiter.peek(request).await,
                Action::Refund => self.limiter.refund(request).await,
                Action::Report => self.limiter.report(request).await,
                Action::Reset => self.limiter.reset(request).await,
            };
            return vec![answer(&decision.unwrap_or_else(|error| panic!("{action:?} {asks:?}: {error}")))];
        }
        let rules = self.limiter.rules();
        let decisions = match action {
            Action::Check => self.limiter.check_all(&rules, &requests).await,
            Action::Refund => self.limiter.refund_all(&rules, &requests).await,
            Action::Peek | Action::Report | Action::Reset => self.limiter.peek_all(&rules, &requests).await,
        };
        let decisions = decisions.unwrap_or_else(|error| panic!("{action:?} {asks:?}: {error}"));
        [decisions.joint()].into_iter().chain(decisions.each()).map(answer).collect()
    }
}

fn answer(decision: &Decision) -> Answer {
    assert!(!decision.is_degraded(), "the store failed: {:?}", decision.degradation());
    let limit = |report: LimitReport<'_>| limit_answer(&report, decision.now());
    let wait = decision.retry().map(|retry| match retry {
        Retry::After(wait) => Wait::Micros(wait.as_micros()),
        Retry::Never => Wait::Never,
    });
    Answer {
        allowed: decision.is_allowed(),
        remaining: decision.remaining(),
        wait,
        tightest: decision.tightest().map(limit),
        limits: decision.limits().map(limit).collect(),
    }
}

fn limit_answer(report: &LimitReport<'_>, now: Timestamp) -> LimitAnswer {
    let verdict = report.verdict;
    LimitAnswer {
        rule: report.rule.to_owned(),
        algorithm: report.quota.algorithm(),
        shadow: report.mode == Mode::Shadow,
        limit: verdict.limit,
        wait: match verdict.outcome {
            Outcome::Allowed => None,
            Outcome::Denied { retry_after } => Some(Wait::Micros(retry_after.as_micros())),
            Outcome::NeverAdmissible => Some(Wait::Never),
        },
        remaining: verdict.remaining,
        debt: verdict.debt,
        restored_at: now.as_micros() + verdict.reset_after.as_micros(),
    }
}
