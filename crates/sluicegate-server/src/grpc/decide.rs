//! The decision about a request: all its descriptors are one decision, charged together or not at all. Only usage reports are
//! always charged, because what they report has already happened.
//!
//! Descriptors with 0 hits are checked first, because one that is over its limit keeps the others from being charged. Then usage
//! and the other hits are charged in one call of the store. Limits in shadow mode follow, and only if the request is allowed:
//! it will be served, so they are charged in full. Refunds come last, and only if the rest is allowed, because they cannot be
//! undone.
//!
//! Descriptors in `quota_mode` deny only if all of them are exhausted. A single one is an ordinary limit. With several, a peek
//! comes first: if none has room, the request is denied; otherwise the first with room is enforced and the others run in shadow
//! mode. A race between peek and charge can only deny.

use std::borrow::Cow;
use std::sync::Arc;

use sluicegate::clock::Clock as _;
use sluicegate::limiter::Decisions;
use sluicegate::response::ResponseClass;
use sluicegate::rules::{LIMITS_PER_RULE_MAX, RuleSet};
use sluicegate::{CheckError, Decision, Request};

use super::call_options::CallOptions;
use super::call_rules::CallRules;
use super::descriptor::{self, ResolvedDescriptor};
use super::messages::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use super::parsed_request::{self, Hits, InvalidRequest};
use super::status;
use crate::engine::Engine;

/// The most limits that the descriptors of a request have together, as in a batch of checks.
const CALL_LIMITS_MAX: usize = 20_000;

/// The error of a request without a decision: its row of the [response table](ResponseClass), and its message for clients.
#[derive(Debug)]
pub(crate) struct RateLimitError {
    pub(super) class: ResponseClass,
    pub(super) message: Cow<'static, str>,
}

impl RateLimitError {
    /// The error of a refund without the right to it.
    pub(super) fn forbidden_refund() -> Self {
        Self {
            class: ResponseClass::Forbidden,
            message: "refunds need the admin token; send it as `authorization: Bearer …`".into(),
        }
    }
}

impl From<InvalidRequest> for RateLimitError {
    fn from(invalid: InvalidRequest) -> Self {
        Self { class: ResponseClass::Malformed, message: invalid.to_string().into() }
    }
}

impl From<CheckError> for RateLimitError {
    fn from(error: CheckError) -> Self {
        let (class, message) = ResponseClass::of_error(&error);
        // Envoy has its own name for the field.
        Self { class, message: message.replace("`cost`", "`hits_addend`").into() }
    }
}

/// The response to `message`, with or without the right to refunds.
pub(crate) async fn respond<F: Future<Output = bool>>(
    engine: &Engine,
    message: &RateLimitRequest,
    options: CallOptions,
    may_change: impl FnOnce() -> F,
) -> Result<RateLimitResponse, RateLimitError> {
    let asked = parsed_request::parse(message, options.charging)?;
    if asked.iter().any(|each| matches!(each.hits, Hits::Refund(_))) && !may_change().await {
        return Err(RateLimitError::forbidden_refund());
    }
    let rules = engine.limiter().rules();
    let lines = descriptor::resolve(&rules, &message.domain, &asked).await;
    bound_limits(engine, &rules, &lines).await?;
    let deciding = Deciding { engine, rules: &rules, lines: &lines };
    Ok(status::response(&deciding.decide().await?, &lines, options, engine))
}

/// Rejects a request whose descriptors have too many limits together, before anything is charged. A configuration of Envoy has one
/// limit for each.
async fn bound_limits(
    engine: &Engine,
    rules: &RuleSet,
    lines: &[ResolvedDescriptor<'_>],
) -> Result<(), InvalidRequest> {
    let limits_max = rules.rules().len().saturating_mul(LIMITS_PER_RULE_MAX);
    if rules.envoy().is_some() || limits_max.saturating_mul(lines.len()) <= CALL_LIMITS_MAX {
        return Ok(());
    }
    let (now, mut limits) = (engine.limiter().clock().time_of_day(), 0_usize);
    for line in lines {
        line.take_turn(rules).await;
        let matched = line.request(None).and_then(|request| rules.charges(&request, now).ok());
        let of_line = matched.map_or(0, |matched| matched.charges.iter().map(|charge| charge.quotas.len()).sum());
        limits = limits.saturating_add(of_line);
    }
    if limits <= CALL_LIMITS_MAX {
        return Ok(());
    }
    Err(InvalidRequest(format!(
        "`descriptors` have {limits} limits together: send fewer at once, with at most {CALL_LIMITS_MAX} limits, or use fewer \
         rules that match the same descriptors"
    )))
}

/// The decisions of a request.
#[derive(Debug)]
pub(super) struct CallDecisions {
    /// Whether all descriptors are allowed.
    pub(super) is_allowed: bool,
    /// The decision of each descriptor, in order; `None` without limits.
    pub(super) each: Vec<Option<Decision>>,
    /// The descriptors in shadow mode, because another in `quota_mode` has room; indexes beyond its end are enforced.
    pub(super) in_shadow_mode: Vec<bool>,
    /// The decision for the overall response.
    pub(super) joint: Option<Decision>,
}

struct Deciding<'a> {
    engine: &'a Engine,
    rules: &'a Arc<RuleSet>,
    lines: &'a [ResolvedDescriptor<'a>],
}

/// An operation on the hits of some descriptors.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Check,
    Report,
    Charge,
    /// A charge under a limit in shadow mode.
    Watch,
    Refund,
}

impl Operation {
    fn of(line: &ResolvedDescriptor<'_>, is_watched_quota: bool) -> Self {
        match line.hits() {
            Hits::Check => Self::Check,
            Hits::Report(_) => Self::Report,
            Hits::Charge(_) if line.is_shadow || is_watched_quota => Self::Watch,
            Hits::Charge(_) => Self::Charge,
            Hits::Refund(_) => Self::Refund,
        }
    }
}

impl Deciding<'_> {
    async fn decide(&self) -> Result<CallDecisions, RateLimitError> {
        let QuotaModes { have_room: is_allowed, in_shadow_mode } = self.quotas().await?;
        let terms = CallRules::new(self.rules, self.lines, &in_shadow_mode);
        let each = vec![None; self.lines.len()];
        let mut decided = CallDecisions { is_allowed, each, in_shadow_mode, joint: None };
        self.act(&[Operation::Check], &terms, &mut decided).await?;
        if decided.is_allowed {
            self.act(&[Operation::Report, Operation::Charge], &terms, &mut decided).await?;
        } else {
            self.act(&[Operation::Report], &terms, &mut decided).await?;
            self.act(&[Operation::Charge], &terms, &mut decided).await?;
        }
        self.act(&[Operation::Watch], &terms, &mut decided).await?;
        self.act(&[Operation::Refund], &terms, &mut decided).await?;
        Ok(decided)
    }

    /// Runs `acts` in one call on the descriptors that need them. Only reports change anything once a descriptor is over its
    /// limit.
    async fn act(
        &self,
        acts: &[Operation],
        terms: &CallRules,
        decided: &mut CallDecisions,
    ) -> Result<(), CheckError> {
        let in_shadow_mode = decided.in_shadow_mode.iter().copied().chain(std::iter::repeat(false));
        let lines = self.lines.iter().zip(in_shadow_mode).enumerate();
        let wanting = lines.filter(|(_, (line, is_watched))| acts.contains(&Operation::of(line, *is_watched)));
        let (places, mut requests): (Vec<usize>, Vec<Request<'_>>) =
            wanting.filter_map(|(place, (line, _))| Some((place, line.request(terms.place_of(place))?))).unzip();
        let (Some(act), false) = (acts.first(), places.is_empty()) else { return Ok(()) };
        if *act == Operation::Watch {
            requests.iter_mut().for_each(|request| *request = request.charged_always());
        }
        let limiter = self.engine.limiter();
        let decisions = match act {
            Operation::Report => limiter.check_all(&terms.rules, &requests).await?,
            Operation::Charge | Operation::Watch if decided.is_allowed => {
                limiter.check_all(&terms.rules, &requests).await?
            }
            Operation::Refund if decided.is_allowed => limiter.refund_all(&terms.rules, &requests).await?,
            _ => limiter.peek_all(&terms.rules, &requests).await?,
        };
        decided.is_allowed &= match act {
            Operation::Check => self.have_room(&places, &decisions),
            Operation::Report | Operation::Charge => decisions.is_allowed(),
            // Neither a limit in shadow mode nor a refund can deny.
            Operation::Watch | Operation::Refund => true,
        };
        let is_refund = *act == Operation::Refund;
        decided.take(&places, if is_refund { decisions.into_allowed() } else { decisions });
        Ok(())
    }

    /// Whether the descriptors at `places`, of 0 hits, are within their limits.
    fn have_room(&self, places: &[usize], decisions: &Decisions) -> bool {
        let mut lines = places.iter().map(|place| &self.lines[*place]).zip(decisions.each());
        lines.all(|(line, decision)| line.has_room(decision))
    }

    /// The state of the descriptors in `quota_mode`, if there are several.
    async fn quotas(&self) -> Result<QuotaModes, CheckError> {
        let is_quota = |line: &ResolvedDescriptor<'_>| line.is_quota && !matches!(line.hits(), Hits::Refund(_));
        let places: Vec<usize> = (0..self.lines.len()).filter(|place| is_quota(&self.lines[*place])).collect();
        let requests: Vec<Request<'_>> =
            places.iter().filter_map(|place| self.lines[*place].request(None)).collect();
        let none_in_shadow_mode = Vec::new();
        if places.len() < 2 {
            return Ok(QuotaModes { have_room: true, in_shadow_mode: none_in_shadow_mode });
        }
        if requests.len() < places.len() {
            // One without a limit always has room.
            return Ok(QuotaModes { have_room: true, in_shadow_mode: self.lines.iter().map(is_quota).collect() });
        }
        let peeked = self.engine.limiter().peek_all(self.rules, &requests).await?;
        let mut lines = places.iter().map(|place| &self.lines[*place]).zip(peeked.each());
        let Some((first, _)) = lines.find(|(line, decision)| line.has_room(decision)) else {
            return Ok(QuotaModes { have_room: false, in_shadow_mode: none_in_shadow_mode });
        };
        let watches = |line: &ResolvedDescriptor<'_>| is_quota(line) && !line.is_same_state(first);
        Ok(QuotaModes { have_room: true, in_shadow_mode: self.lines.iter().map(watches).collect() })
    }
}

/// The state of several descriptors in `quota_mode`.
struct QuotaModes {
    /// Whether any of them has room.
    have_room: bool,
    /// Those in shadow mode; indexes beyond its end are enforced.
    in_shadow_mode: Vec<bool>,
}

impl CallDecisions {
    fn take(&mut self, places: &[usize], decisions: Decisions) {
        let (joint, each) = decisions.into_parts();
        // The first denial decides, otherwise the first.
        if self.joint.as_ref().is_none_or(|before| before.is_allowed() && !joint.is_allowed()) {
            self.joint = Some(joint);
        }
        for (place, decision) in places.iter().zip(each) {
            self.each[*place] = Some(decision);
        }
    }
}
