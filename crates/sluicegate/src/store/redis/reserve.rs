//! One request over keys that no single call can reach: on a Cluster, subjects live in different slots.
//!
//! Nothing can make several calls atomic, so they are made in order and taken back when one denies:
//! 1. The enforced limits are charged part by part, the narrowest subject first: it is the most likely to deny. So who
//!    is admitted has been charged everywhere, and no limit ever admits more than it should.
//! 2. At the first denial, at an error, or when the caller goes away, what was charged is given back: `reserved` sees to
//!    that. What is lost on the way back, or given back already by time, stays charged; that denies too much for a while,
//!    and never too little.
//! 3. Limits of shadow rules are only looked at until the request has passed, and charged then. Those of the last
//!    part are decided together with it.
//!
//! While a slot moves, a call with several of its keys is refused, and each of them alone has a server that answers. So a
//! part that is refused for this is taken apart, key by key, and the same is done with what comes of it.
//!
//! The verdicts of a denied request say what they would have said had it been one call: limits that were charged and
//! given back are shown as they were before. The instants of the parts differ by the time between the calls.

use super::arguments::Operation;
use super::deliver::Deliver;
use super::denials::Seen;
use super::error::Trouble;
use super::reply::{Decided, Finding, Findings, Found, all_fit, uncharged, verdicts};
use super::request::Request;
use super::reserved::Reserved;
use crate::store::{Charge, Reply, StoreError, Verdicts};
use futures_util::future::{OptionFuture, join, join_all, try_join_all};
use sluicegate_core::Timestamp;
use sluicegate_core::decision::Group;
use std::collections::VecDeque;
use tokio::time::timeout_at;

/// Charges that share a call, by their place in the request.
pub(super) type Part = Vec<usize>;

/// What was found of some charges.
struct Asked<'a> {
    part: Part,
    operation: Operation,
    now: Timestamp,
    findings: Found<'a>,
}

impl<'r, D: Deliver> Request<'r, '_, D> {
    /// The charges in parts that share a call, the narrowest subjects first.
    pub(super) fn parts(&self) -> Vec<Part> {
        let way_of = |key: &[u8]| self.store.delivery.way_of(key);
        self.grouped((0..self.charges.len()).collect(), |one, other| way_of(one) == way_of(other))
    }

    /// A part for every key, the narrowest subjects first.
    pub(super) fn by_key(&self, part: Part) -> Vec<Part> {
        self.grouped(part, |one, other| one == other)
    }

    fn grouped(&self, charges: Part, go_together: impl Fn(&[u8], &[u8]) -> bool) -> Vec<Part> {
        let mut parts: Vec<(Vec<u8>, Part)> = Vec::new();
        for index in charges {
            let key = self.store.encoder.encode(&self.charges[index].key);
            match parts.iter_mut().find(|(first, _)| go_together(first, &key)) {
                Some((_, part)) => part.push(index),
                None => parts.push((key, vec![index])),
            }
        }
        parts.sort_by_key(|(_, part)| part.iter().map(|index| width(&self.charges[*index])).min());
        parts.into_iter().map(|(_, part)| part).collect()
    }

    /// Asks all parts at once, where each may have its own way.
    pub(super) async fn ask_each(&self, operation: Operation, parts: Vec<Part>) -> Result<Reply, StoreError> {
        let asked = try_join_all(parts.into_iter().map(|part| self.ask_anyhow(operation, part))).await?;
        let asked = asked.iter().flatten();
        Ok(self.reply(asked.map(|asked| (asked, verdicts(asked.operation, &asked.findings)))))
    }

    /// Charges all parts in order, or none.
    pub(super) async fn reserve(&self, parts: Vec<Part>) -> Result<Reply, StoreError> {
        let decides = |part: &Part| part.iter().any(|index| self.is_enforced(*index));
        let (deciding, mut watching): (Vec<Part>, Vec<Part>) = parts.into_iter().partition(decides);
        let mut deciding = VecDeque::from(deciding);
        let mut asked: Vec<Asked<'r>> = Vec::new();
        let mut reserved = Reserved::new(self);
        while let Some(part) = deciding.pop_front() {
            let answered = match self.reserve_part(&part, deciding.is_empty()).await {
                Err(trouble) if trouble.is_of_company() && self.by_key(part.clone()).len() > 1 => {
                    let (first, more): (Vec<Part>, Vec<Part>) = self.by_key(part).into_iter().partition(decides);
                    first.into_iter().rev().for_each(|part| deciding.push_front(part));
                    watching.extend(more);
                    continue;
                }
                answered => answered?,
            };
            if !answered.iter().all(|asked| all_fit(&asked.findings)) {
                let rest = deciding.into_iter().chain(watching).collect();
                return Ok(self.deny(reserved, asked, answered, rest).await);
            }
            let charged = answered.iter().filter(|asked| asked.operation == Operation::Charge);
            charged.for_each(|asked| reserved.add(asked.part.clone(), asked.now));
            asked.extend(answered);
        }
        reserved.keep();
        let looked_at = |asked: &Asked<'_>| asked.operation == Operation::Peek;
        watching.extend(asked.extract_if(.., |asked| looked_at(asked)).map(|asked| asked.part));
        Ok(self.pass(asked, watching).await)
    }

    /// Charges what decides in this part. What only watches is looked at, unless nothing else is left to decide.
    async fn reserve_part(&self, part: &Part, is_last: bool) -> Result<Vec<Asked<'r>>, Trouble> {
        if is_last {
            return Ok(vec![self.ask(Operation::Charge, part.clone()).await?]);
        }
        let (enforced, shadow): (Part, Part) = part.iter().partition(|index| self.is_enforced(**index));
        if shadow.is_empty() {
            return Ok(vec![self.ask(Operation::Charge, enforced).await?]);
        }
        self.ask_all(vec![(Operation::Charge, enforced), (Operation::Peek, shadow)]).await
    }

    /// Everything that decides has been charged: charges what watches. What cannot be reached changes nothing any more,
    /// and is shown as nobody has charged it.
    async fn pass(&self, mut asked: Vec<Asked<'r>>, watching: Vec<Part>) -> Reply {
        let charged = join_all(watching.into_iter().map(|part| self.ask_anyhow(Operation::Charge, part))).await;
        asked.extend(charged.into_iter().flatten().flatten());
        self.reply(asked.iter().map(|asked| (asked, verdicts(asked.operation, &asked.findings))))
    }

    /// `denied` says no: gives back what was charged before it, and looks at the rest. What cannot be reached does not
    /// make a denial any less of one, and is shown as nobody has charged it.
    async fn deny(
        &self,
        reserved: Reserved<'_, 'r, '_, D>,
        mut asked: Vec<Asked<'r>>,
        denied: Vec<Asked<'r>>,
        rest: Vec<Part>,
    ) -> Reply {
        // Whoever asks next should see it given back, if that takes no longer than this caller would wait anyway.
        let given_back = timeout_at(self.deadline, OptionFuture::from(reserved.give_back()));
        let looks = join_all(rest.into_iter().map(|part| self.ask_anyhow(Operation::Peek, part)));
        let (_, rest) = join(given_back, looks).await;
        asked.extend(denied);
        asked.extend(rest.into_iter().flatten().flatten());
        let reply = self.reply(asked.iter().map(|asked| (asked, uncharged(&asked.findings).collect())));
        self.remember_parts(reply.now, &asked);
        reply
    }

    /// Asks in one call, or in one for every key if the keys cannot share one now.
    async fn ask_anyhow(&self, operation: Operation, part: Part) -> Result<Vec<Asked<'r>>, Trouble> {
        match self.ask(operation, part.clone()).await {
            Err(trouble) if trouble.is_of_company() => {
                try_join_all(self.by_key(part).into_iter().map(|part| self.ask(operation, part))).await
            }
            asked => Ok(vec![asked?]),
        }
    }

    async fn ask(&self, operation: Operation, part: Part) -> Result<Asked<'r>, Trouble> {
        let mut asked = self.ask_all(vec![(operation, part)]).await?;
        // One was asked, one has answered.
        Ok(asked.remove(0))
    }

    async fn ask_all(&self, questions: Vec<(Operation, Part)>) -> Result<Vec<Asked<'r>>, Trouble> {
        let mut message = self.message();
        for (operation, part) in &questions {
            message.add(*operation, part.iter().map(|index| &self.charges[*index]));
        }
        let Findings { now, decisions, .. } = self.say(message).await?;
        let asked = |((operation, part), decided): (_, Decided<'r>)| Asked {
            part,
            operation,
            now,
            findings: decided.findings,
        };
        Ok(questions.into_iter().zip(decisions).map(asked).collect())
    }

    /// Remembers a denial, if all limits were seen.
    fn remember_parts(&self, now: Timestamp, answers: &[Asked<'r>]) {
        let mut of_charges: Vec<Vec<Seen>> = vec![Vec::new(); self.charges.len()];
        for asked in answers {
            let mut seen = asked.findings.iter().map(Finding::seen);
            for index in &asked.part {
                of_charges[*index] = seen.by_ref().take(self.charges[*index].quotas.len()).collect();
            }
        }
        let is_seen = |(charge, seen): (&Charge<'_>, &Vec<Seen>)| charge.quotas.len() == seen.len();
        if self.charges.iter().zip(&of_charges).all(is_seen) {
            self.remember(now, of_charges.into_iter().flatten());
        }
    }

    fn is_enforced(&self, index: usize) -> bool {
        self.charges[index].group == Group::Enforced
    }

    /// All verdicts, in the order of the charges.
    fn reply<'f>(&self, answers: impl Iterator<Item = (&'f Asked<'r>, Verdicts)>) -> Reply
    where
        'r: 'f,
    {
        let mut now = Timestamp::default();
        let mut of_charges: Vec<Option<Verdicts>> = vec![None; self.charges.len()];
        for (asked, verdicts) in answers {
            now = now.max(asked.now);
            let mut verdicts = verdicts.into_iter();
            for index in &asked.part {
                let count = self.charges[*index].quotas.len();
                of_charges[*index] = Some(verdicts.by_ref().take(count).collect());
            }
        }
        let unseen = |charge: &Charge<'_>| -> Verdicts {
            let verdict =
                |quota: &sluicegate_core::Quota| quota.verdict(quota.outcome(None, charge.cost, now), None, now);
            charge.quotas.iter().map(verdict).collect()
        };
        let of_charge = |(charge, verdicts): (_, Option<Verdicts>)| verdicts.unwrap_or_else(|| unseen(charge));
        Reply { now, verdicts: self.charges.iter().zip(of_charges).flat_map(of_charge).collect() }
    }
}

/// How many share a subject, roughly.
fn width(charge: &Charge<'_>) -> u8 {
    let subject = &charge.key.subject;
    match (subject.identity.is_some() || subject.address.is_some(), subject.tenant.is_some()) {
        (true, _) => 0,
        (false, true) => 1,
        (false, false) => 2,
    }
}
