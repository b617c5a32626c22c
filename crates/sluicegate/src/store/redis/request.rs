//! A request on its way: one call if its keys share one, several in order if they do not.

use super::arguments::{Message, Operation};
use super::call::{Call, Repeat, Script, Word};
use super::deliver::Deliver;
use super::denials::Question;
use super::error::Trouble;
use super::reply::{Finding, Findings, all_fit, verdicts};
use super::reserve::Part;
use super::{RedisStore, Whose, script};
use crate::store::{Charge, Reply, StoreError};
use sluicegate_core::Timestamp;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

/// Charges, and by when they are to be decided.
pub(super) struct Request<'r, 'a, D> {
    pub(super) store: &'r RedisStore<D>,
    pub(super) charges: &'r [Charge<'a>],
    pub(super) now: Timestamp,
    pub(super) deadline: Instant,
    /// What a denial is remembered with.
    pub(super) question: Option<Question>,
}

impl<'r, 'a, D: Deliver> Request<'r, 'a, D> {
    pub(super) fn new(
        store: &'r RedisStore<D>,
        charges: &'r [Charge<'a>],
        now: Timestamp,
        deadline: Duration,
    ) -> Self {
        Self { store, charges, now, deadline: Instant::now() + deadline, question: None }
    }

    pub(super) async fn act(&self, operation: Operation) -> Result<Reply, StoreError> {
        let giving_back = self.giving_back(operation);
        let result = self.perform(operation).await;
        if result.is_ok()
            && let Some(giving_back) = giving_back
        {
            giving_back.finish();
        }
        result
    }

    async fn perform(&self, operation: Operation) -> Result<Reply, StoreError> {
        if self.charges.iter().all(|charge| charge.quotas.is_empty()) {
            return Ok(Reply { now: self.now, verdicts: Default::default() });
        }
        if self.charges.len() > 1 {
            let parts = self.parts();
            if parts.len() > 1 {
                return self.act_apart(operation, parts).await;
            }
        }
        let mut message = Message::new(&self.store.encoder);
        message.add(operation, self.charges);
        let Findings { now, decisions, .. } = match self.say(message).await {
            Err(trouble) if trouble.is_of_company() => {
                let all = (0..self.charges.len()).collect();
                return self.act_apart(operation, self.by_key(all)).await;
            }
            said => said?,
        };
        for (operation, findings) in &decisions {
            if *operation == Operation::Charge && !all_fit(findings) {
                self.remember(now, findings.iter().map(Finding::seen));
            }
        }
        let verdicts = decisions.iter().flat_map(|(operation, findings)| verdicts(*operation, findings));
        Ok(Reply { now, verdicts: verdicts.collect() })
    }

    async fn act_apart(&self, operation: Operation, parts: Vec<Part>) -> Result<Reply, StoreError> {
        match operation {
            Operation::Charge => self.reserve(parts).await,
            other => self.ask_each(other, parts).await,
        }
    }

    /// One call, and what it found.
    pub(super) async fn say<'m>(&self, mut message: Message<'m>) -> Result<Findings<'m>, Trouble> {
        let script = self.script(&mut message);
        let gives_back = message.decisions.iter().any(|(operation, _)| *operation == Operation::Refund);
        let repeat = if gives_back { Repeat::Never } else { Repeat::Allowed };
        let call = Call { script, keys: &message.keys, arguments: &message.arguments, repeat };
        let answer = self.store.delivery.call(&call, self.deadline).await?;
        let findings = Findings::read(&answer, &message)?;
        self.store.damaged.fetch_add(findings.damaged, Ordering::Relaxed);
        Ok(findings)
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
