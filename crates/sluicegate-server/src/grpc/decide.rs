//! From a question to decisions: all its descriptors are one decision, charged together or not at all.
//!
//! Looks come first, for one that finds no room keeps the others from being charged. Refunds come last, and only where
//! the rest may pass: they change things for good.
//!
//! Quotas deny only together. One alone is a limit like any other. Of several it is first seen which have room: if none
//! has, the request is denied, otherwise the first that has must still have it when all are charged, and the others only
//! watch. So nothing passes that finds no room in any of them, whatever happens between the two.

use std::sync::Arc;

use sluicegate::limiter::Decisions;
use sluicegate::rules::RuleSet;
use sluicegate::{CheckError, Decision, Request};

use super::lines::{self, Line};
use super::messages::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use super::question::{self, Hits, Malformed};
use super::status;
use super::terms::Terms;
use crate::app::App;

/// Why a question got no answer.
#[derive(Debug)]
pub(crate) enum Refused {
    /// It makes no sense.
    Malformed(Malformed),
    /// It asks for a change, and who asks may not make any.
    Forbidden,
    /// The store could not decide, and a rule is closed then.
    Undecided,
}

impl From<Malformed> for Refused {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

impl From<CheckError> for Refused {
    fn from(error: CheckError) -> Self {
        match error.field() {
            Some(_) => Self::Malformed(Malformed(error.to_string().replace("`cost`", "`hits_addend`"))),
            None => Self::Undecided,
        }
    }
}

/// The answer to `message` of somebody who may change things, or not.
pub(crate) async fn answer(
    app: &App,
    message: &RateLimitRequest,
    may_change: impl FnOnce() -> bool,
) -> Result<RateLimitResponse, Refused> {
    let asked = question::read(message)?;
    if asked.iter().any(|each| matches!(each.hits, Hits::Refund(_))) && !may_change() {
        return Err(Refused::Forbidden);
    }
    let rules = app.limiter().rules();
    let lines = lines::lines(&rules, &message.domain, &asked);
    let deciding = Deciding { app, rules: &rules, lines: &lines };
    Ok(status::response(&deciding.decide().await?, &lines, app))
}

/// What was decided.
#[derive(Debug)]
pub(super) struct Decided {
    /// Whether all may pass.
    pub(super) is_allowed: bool,
    /// What each descriptor's limits said, in their order; nothing where none had to.
    pub(super) each: Vec<Option<Decision>>,
    /// Which descriptors only watched, because another quota has room; those beyond its end did not.
    pub(super) watching: Vec<bool>,
    /// What speaks for all of them.
    pub(super) joint: Option<Decision>,
}

struct Deciding<'a> {
    app: &'a App,
    rules: &'a Arc<RuleSet>,
    lines: &'a [Line<'a>],
}

/// What is done with the hits of some descriptors.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Act {
    Look,
    Charge,
    Refund,
}

impl Act {
    fn of(hits: Hits) -> Self {
        match hits {
            Hits::Look => Self::Look,
            Hits::Charge(_) => Self::Charge,
            Hits::Refund(_) => Self::Refund,
        }
    }
}

impl Deciding<'_> {
    async fn decide(&self) -> Result<Decided, Refused> {
        let quotas = self.quotas().await?;
        let terms = Terms::new(self.rules, self.lines, &quotas.watching);
        let Quotas { have_room: is_allowed, watching } = quotas;
        let mut decided = Decided { is_allowed, each: vec![None; self.lines.len()], watching, joint: None };
        for act in [Act::Look, Act::Charge, Act::Refund] {
            self.act(act, &terms, &mut decided).await?;
        }
        Ok(decided)
    }

    /// Does what is to be done with the hits of those that want `act`, if all so far may pass.
    async fn act(&self, act: Act, terms: &Terms, decided: &mut Decided) -> Result<(), CheckError> {
        let wanting = self.lines.iter().enumerate().filter(|(_, line)| Act::of(line.hits()) == act);
        let (places, requests): (Vec<usize>, Vec<Request<'_>>) =
            wanting.filter_map(|(place, line)| Some((place, line.request(terms.place_of(place))?))).unzip();
        if places.is_empty() {
            return Ok(());
        }
        let limiter = self.app.limiter();
        let decisions = match act {
            Act::Charge if decided.is_allowed => limiter.check_all(&terms.rules, &requests).await?,
            Act::Refund if decided.is_allowed => limiter.refund_all(&terms.rules, &requests).await?,
            _ => limiter.peek_all(&terms.rules, &requests).await?,
        };
        // A refund asks for nothing that could be denied.
        decided.is_allowed &= act == Act::Refund || decisions.is_allowed();
        decided.take(&places, decisions);
        Ok(())
    }

    /// How the quotas stand, if there are several.
    async fn quotas(&self) -> Result<Quotas, CheckError> {
        let is_quota = |line: &Line<'_>| line.is_quota && Act::of(line.hits()) != Act::Refund;
        let places: Vec<usize> = (0..self.lines.len()).filter(|place| is_quota(&self.lines[*place])).collect();
        let requests: Vec<Request<'_>> =
            places.iter().filter_map(|place| self.lines[*place].request(None)).collect();
        let nobody_watches = Vec::new();
        if places.len() < 2 {
            return Ok(Quotas { have_room: true, watching: nobody_watches });
        }
        if requests.len() < places.len() {
            // One without a limit always has room.
            return Ok(Quotas { have_room: true, watching: self.lines.iter().map(is_quota).collect() });
        }
        let peeked = self.app.limiter().peek_all(self.rules, &requests).await?;
        let first = places.iter().zip(peeked.each()).find(|(_, decision)| decision.is_allowed());
        let Some(first) = first.map(|(place, _)| &self.lines[*place]) else {
            return Ok(Quotas { have_room: false, watching: nobody_watches });
        };
        let watches = |line: &Line<'_>| is_quota(line) && !line.is_same_state(first);
        Ok(Quotas { have_room: true, watching: self.lines.iter().map(watches).collect() })
    }
}

/// How several quotas stand.
struct Quotas {
    /// Whether any of them has room.
    have_room: bool,
    /// Which descriptors only watch; those beyond its end do not.
    watching: Vec<bool>,
}

impl Decided {
    fn take(&mut self, places: &[usize], decisions: Decisions) {
        let (joint, each) = decisions.into_parts();
        // The first that denies speaks, otherwise the first.
        if self.joint.as_ref().is_none_or(|before| before.is_allowed() && !joint.is_allowed()) {
            self.joint = Some(joint);
        }
        for (place, decision) in places.iter().zip(each) {
            self.each[*place] = Some(decision);
        }
    }
}
