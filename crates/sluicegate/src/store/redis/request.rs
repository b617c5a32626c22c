//! A request on its way: one call if its keys share one, several in order if they do not.

use super::arguments::{Message, Operation};
use super::call::{Script, Word};
use super::deliver::Deliver;
use super::denials::{GivingBack, Question};
use super::error::Trouble;
use super::reply::{Decided, Finding, Findings};
use super::reserve::Part;
use super::resetting::Resetting;
use super::{Shared, Whose, script};
use crate::store::key::Digest;
use crate::store::{Charge, Reply, StoreError};
use futures_util::future::BoxFuture;
use sluicegate_core::Timestamp;
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Charges, and by when they are to be decided.
pub(super) struct Request<'r, 'a, D> {
    pub(super) store: &'r Arc<Shared<D>>,
    pub(super) charges: &'r [Charge<'a>],
    pub(super) now: Timestamp,
    pub(super) deadline: Instant,
    /// What a denial is remembered with.
    pub(super) question: Option<Question>,
}

impl<'r, 'a, D: Deliver> Request<'r, 'a, D> {
    pub(super) fn new(
        store: &'r Arc<Shared<D>>,
        charges: &'r [Charge<'a>],
        now: Timestamp,
        deadline: Duration,
    ) -> Self {
        Self::until(store, charges, now, Instant::now() + deadline)
    }

    /// A request that is to be decided by then.
    pub(super) fn until(
        store: &'r Arc<Shared<D>>,
        charges: &'r [Charge<'a>],
        now: Timestamp,
        deadline: Instant,
    ) -> Self {
        Self { store, charges, now, deadline, question: None }
    }

    /// Charges, together with whoever else asks now where that is possible.
    pub(super) async fn charge(&self) -> Result<Reply, StoreError> {
        let goes_in_company = self.store.clock == Whose::Servers
            && self.has_limits()
            && (self.charges.len() == 1 || self.parts().len() == 1 && self.has_distinct_keys());
        if goes_in_company && let Some(reply) = self.charge_in_company().await? {
            return Ok(reply);
        }
        self.act(Operation::Charge).await
    }

    /// Whoever goes through the same decision several times looks at each limit by itself.
    fn has_distinct_keys(&self) -> bool {
        let mut digests: SmallVec<[Digest; 4]> = self.charges.iter().map(|charge| charge.key.digest()).collect();
        digests.sort_unstable();
        digests.windows(2).all(|pair| pair[0] != pair[1])
    }

    fn has_limits(&self) -> bool {
        self.charges.iter().any(|charge| !charge.quotas.is_empty())
    }

    /// Does this in calls of its own. In a box, because it is rare and large: whoever charges should not carry the room
    /// for it.
    pub(super) fn act(&self, operation: Operation) -> BoxFuture<'_, Result<Reply, StoreError>> {
        Box::pin(async move {
            let (giving_back, resetting) = (self.giving_back(operation), self.resetting(operation));
            let result = self.perform(operation).await;
            if result.is_ok() {
                giving_back.into_iter().for_each(GivingBack::finish);
                resetting.into_iter().for_each(Resetting::finish);
            }
            result
        })
    }

    async fn perform(&self, operation: Operation) -> Result<Reply, StoreError> {
        if !self.has_limits() {
            return Ok(Reply { now: self.now, verdicts: Default::default() });
        }
        if self.charges.len() > 1 {
            let parts = self.parts();
            if parts.len() > 1 {
                return self.act_apart(operation, parts).await;
            }
        }
        let mut message = self.message();
        message.add(operation, self.charges);
        let Findings { now, decisions, .. } = match self.say(message).await {
            Err(trouble) if trouble.is_of_company() => {
                let all = (0..self.charges.len()).collect();
                return self.act_apart(operation, self.by_key(all)).await;
            }
            said => said?,
        };
        for decided in decisions.iter().filter(|decided| decided.is_denial()) {
            self.remember(now, decided.findings.iter().map(Finding::seen));
        }
        Ok(Reply { now, verdicts: decisions.iter().flat_map(Decided::verdicts).collect() })
    }

    async fn act_apart(&self, operation: Operation, parts: Vec<Part>) -> Result<Reply, StoreError> {
        match operation {
            Operation::Charge => self.reserve(parts).await,
            other => self.ask_each(other, parts).await,
        }
    }

    /// A message for whose clock counts.
    pub(super) fn message(&self) -> Message<'r> {
        let about = match self.store.clock {
            Whose::Servers => self.store.dates.about(self.now),
            Whose::Callers => self.now,
        };
        Message::new(&self.store.encoder, about)
    }

    /// One call, and what it found.
    pub(super) async fn say<'m>(&self, mut message: Message<'m>) -> Result<Findings<'m>, Trouble> {
        let script = self.script(&mut message);
        self.store.say(script, &mut message, self.deadline).await
    }

    /// The script that reads the message, which is told the time if the caller's counts.
    pub(super) fn script(&self, message: &mut Message<'_>) -> &'static Script {
        match self.store.clock {
            Whose::Servers => &script::CHARGE,
            Whose::Callers => {
                message.arguments.push(Word::from_slice(self.now.as_micros().to_string().as_bytes()));
                &script::CHARGE_AT
            }
        }
    }
}
