//! Decisions on their way to a server, those of many callers in one call.
//!
//! A flight is a task of its own, which holds all that it speaks of: it does not matter whether the callers wait, are
//! polled, or are still there. When it comes back it tells everybody, and goes again with those who have come meanwhile.
//!
//! What was charged for somebody who has gone is not lost if somebody else wants the same: whoever is next in line has it.
//! That is exact, since one is admitted for one that was charged. A denial is not passed on in this way: it speaks of an
//! instant at which the next in line may not have been there yet.

use super::arguments::Message;
use super::deliver::Deliver;
use super::denials::Seen;
use super::error::Trouble;
use super::plan::{Plan, digest};
use super::queue::{Batch, Boarded, Joined, Queue};
use super::reply::{Decided, Findings};
use super::request::Request;
use super::{Shared, script};
use crate::store::key::Digest;
use crate::store::{Charge, ErrorClass, Reply, StoreError};
use parking_lot::Mutex;
use sluicegate_core::Timestamp;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

/// Those who wait for a decision on one way, and what they wait for.
pub(super) type Waiting = Mutex<Queue<Arc<Plan>, Caller>>;

/// Somebody who waits.
#[derive(Debug)]
pub(super) struct Caller {
    answer: oneshot::Sender<Told>,
    deadline: Instant,
}

/// What a caller is told.
#[derive(Debug)]
enum Told {
    /// And if it is the first denial, what was seen of the limits then.
    Decided(Reply, Option<Vec<Seen>>),
    Failed(StoreError),
    /// The server would not decide this in company. Alone it may.
    GoAlone,
}

/// What the callers of a group are answered, in order.
struct Answers {
    /// How many of them admit.
    permits: usize,
    replies: VecDeque<Reply>,
    /// What the limits are after that, if there is no room left.
    denial: Option<Vec<Seen>>,
}

/// A call on its way, with those who wait for it.
struct Flight<D: Deliver> {
    store: Arc<Shared<D>>,
    way: usize,
    batch: Batch<Arc<Plan>, Caller>,
}

impl<D: Deliver> Request<'_, '_, D> {
    /// Charges in company of whoever else asks now. Nothing if it has to go alone.
    pub(super) async fn charge_in_company(&self) -> Result<Option<Reply>, StoreError> {
        let store = self.store;
        let way = store.way_of(self.charges);
        let (answer, told) = oneshot::channel();
        let caller = Caller { answer, deadline: self.deadline };
        let joined = store.waiting[way]
            .lock()
            .join(digest(self.charges), caller, || Arc::new(Plan::new(&store.encoder, self.charges)));
        match joined {
            Joined::Waits => _ = store.coalesced.fetch_add(1, Ordering::Relaxed),
            Joined::Goes(batch) => {
                tokio::spawn(Flight { store: Arc::clone(store), way, batch }.fly());
            }
            Joined::Full => {
                return Err(StoreError::new(
                    ErrorClass::Overloaded,
                    "too many requests wait for the store already",
                ));
            }
        }
        match timeout_at(self.deadline, told).await {
            Ok(Ok(Told::Decided(reply, seen))) => {
                if let Some(seen) = seen {
                    self.remember(reply.now, seen);
                }
                Ok(Some(reply))
            }
            Ok(Ok(Told::Failed(error))) => Err(error),
            Ok(Ok(Told::GoAlone)) => Ok(None),
            Ok(Err(_)) => Err(StoreError::new(ErrorClass::Connection, "the call was given up")),
            Err(_) => Err(StoreError::new(ErrorClass::Timeout, "no answer within the deadline")),
        }
    }
}

impl<D: Deliver> Shared<D> {
    /// Which way calls over these charges go.
    fn way_of(&self, charges: &[Charge<'_>]) -> usize {
        match charges {
            [first, ..] if self.waiting.len() > 1 => self.delivery.way_of(&self.encoder.encode(&first.key)),
            _ => 0,
        }
    }
}

impl<D: Deliver> Flight<D> {
    async fn fly(mut self) {
        while !self.batch.is_empty() {
            let answered = self.call().await;
            let batch = std::mem::take(&mut self.batch);
            let digests: Vec<Digest> = batch.iter().map(|group| group.digest).collect();
            match answered {
                Ok(replies) => self.tell_all(batch, replies),
                Err(trouble) => fail_all(batch, &trouble),
            }
            self.batch = self.end(&digests).unwrap_or_default();
        }
    }

    /// One call for everybody, and what each group is answered.
    async fn call(&self) -> Result<Vec<Answers>, Trouble> {
        let mut message = Message::new(&self.store.encoder);
        for Boarded { plan, waiters, .. } in &self.batch {
            message.add_planned(u32::try_from(waiters.len()).unwrap_or(u32::MAX), plan);
        }
        let deadlines = self.batch.iter().flat_map(|group| &group.waiters).map(|caller| caller.deadline);
        let deadline = deadlines.max().unwrap_or_else(Instant::now);
        let Findings { now, decisions, .. } = self.store.say(&script::CHARGE, &message, deadline).await?;
        Ok(decisions.into_iter().map(|decided| Answers::new(decided, now)).collect())
    }

    fn tell_all(&self, batch: Batch<Arc<Plan>, Caller>, answers: Vec<Answers>) {
        for (group, answers) in batch.into_iter().zip(answers) {
            let left = answers.tell(group.waiters);
            if left.permits == 0 {
                continue;
            }
            let in_line = self.store.waiting[self.way].lock().next_in_line(group.digest, left.permits);
            left.tell(in_line);
        }
    }

    /// Makes room for the next call, and returns it if somebody waits for one.
    fn end(&self, digests: &[Digest]) -> Option<Batch<Arc<Plan>, Caller>> {
        let now = Instant::now();
        let is_there = |caller: &Caller| !caller.answer.is_closed() && caller.deadline > now;
        self.store.waiting[self.way].lock().end(digests.iter().copied(), is_there)
    }
}

impl<D: Deliver> Drop for Flight<D> {
    /// Whatever ends a flight before it is back, those who wait for another one must not wait forever.
    fn drop(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        if batch.is_empty() {
            return;
        }
        let digests: Vec<Digest> = batch.iter().map(|group| group.digest).collect();
        if let Some(batch) = self.end(&digests)
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(Flight { store: Arc::clone(&self.store), way: self.way, batch }.fly());
        }
    }
}

impl Answers {
    fn new(decided: Decided<'_>, now: Timestamp) -> Self {
        let (permits, is_denial) = (decided.admitted as usize, decided.is_denial());
        let mut replay = decided.replay();
        let replies = replay.by_ref().map(|verdicts| Reply { now, verdicts }).collect();
        Self { permits, replies, denial: is_denial.then(|| replay.seen().collect()) }
    }

    /// Answers callers in order. What was meant for those who have gone is for the next ones; returns what is left.
    fn tell(mut self, callers: impl IntoIterator<Item = Caller>) -> Self {
        for caller in callers {
            let Some(reply) = self.replies.pop_front() else { break };
            // All denials of a call are of the same instant, so it is enough if one caller remembers it.
            let seen = if self.permits == 0 { self.denial.take() } else { None };
            match caller.answer.send(Told::Decided(reply, seen)) {
                Ok(()) => self.permits = self.permits.saturating_sub(1),
                Err(Told::Decided(unheard, seen)) => {
                    self.replies.push_front(unheard);
                    self.denial = self.denial.take().or(seen);
                }
                Err(_) => {}
            }
        }
        self
    }
}

fn fail_all(batch: Batch<Arc<Plan>, Caller>, trouble: &Trouble) {
    // What makes no sense may be the fault of one of them, and the others should not suffer for it. At worst they are
    // charged twice, which admits nobody.
    let alone = trouble.is_of_company() || batch.len() > 1 && trouble.class == ErrorClass::Protocol;
    for caller in batch.into_iter().flat_map(|group| group.waiters) {
        let told = if alone {
            Told::GoAlone
        } else {
            Told::Failed(StoreError::new(trouble.class, trouble.message.clone()))
        };
        // Nobody has to hear it.
        let _ = caller.answer.send(told);
    }
}
