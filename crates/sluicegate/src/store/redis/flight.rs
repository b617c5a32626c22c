//! Decisions on their way to a server, those of many callers in one call.
//!
//! A flight is a task of its own, which holds all that it speaks of: it does not matter whether the callers wait, are
//! polled, or are still there. When it comes back it tells everybody, and goes again with those who have come meanwhile.
//!
//! What was charged for somebody who has gone is not lost if somebody else wants the same: whoever is next in line has it.
//! That is exact, since one is admitted for one that was charged. A denial is not passed on in this way: it speaks of an
//! instant at which the next in line may not have been there yet.

use super::ahead::{Left, Sent};
use super::arguments::Message;
use super::deliver::Deliver;
use super::denials::Seen;
use super::error::Trouble;
use super::plan::{Plan, digest};
use super::queue::{Batch, Boarded, Joined, Queue};
use super::replay::Replay;
use super::reply::{Decided, Findings};
use super::request::Request;
use super::{Shared, script};
use crate::store::key::Digest;
use crate::store::{Charge, ErrorClass, Reply, StoreError};
use parking_lot::Mutex;
use sluicegate_core::Timestamp;
use smallvec::SmallVec;
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
    /// When it was for the caller that it asked.
    now: Timestamp,
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
struct Answers<'a> {
    replay: Replay<'a>,
    now: Timestamp,
    /// How many more of them admit.
    permits: usize,
    is_remembered: bool,
}

/// What one of them is to be told.
struct Answer {
    caller: Caller,
    told: Told,
    is_permit: bool,
}

/// A call on its way, with those who wait for it.
struct Flight<D: Deliver> {
    store: Arc<Shared<D>>,
    way: usize,
    batch: Batch<Arc<Plan>, Caller>,
    /// The groups that nobody else may fly for until this is back.
    digests: Vec<Digest>,
}

impl<D: Deliver> Request<'_, '_, D> {
    /// Charges in company of whoever else asks now. Nothing if it has to go alone.
    pub(super) async fn charge_in_company(&self) -> Result<Option<Reply>, StoreError> {
        let store = self.store;
        let way = store.way_of(self.charges);
        let (answer, told) = oneshot::channel();
        let caller = Caller { answer, now: self.now, deadline: self.deadline };
        // Before the lock, which everybody who asks has to have.
        let digest = digest(self.charges);
        let plan = || Arc::new(Plan::new(&store.encoder, self.charges));
        let joined = store.waiting[way].lock().join(digest, caller, plan);
        match joined {
            Joined::Waits => _ = store.coalesced.fetch_add(1, Ordering::Relaxed),
            Joined::Goes(batch) => {
                tokio::spawn(Flight::new(Arc::clone(store), way, batch).fly());
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
    fn new(store: Arc<Shared<D>>, way: usize, batch: Batch<Arc<Plan>, Caller>) -> Self {
        let digests = batch.iter().map(|group| group.digest).collect();
        Self { store, way, batch, digests }
    }

    async fn fly(mut self) {
        let store = Arc::clone(&self.store);
        while !self.batch.is_empty() {
            let plans: Vec<Arc<Plan>> = self.batch.iter().map(|group| Arc::clone(&group.plan)).collect();
            let sent = store.about_to_send();
            let answered = self.call(&store, &plans, sent).await;
            let batch = std::mem::take(&mut self.batch);
            match answered {
                Ok(Findings { now, decisions, .. }) => {
                    batch
                        .into_iter()
                        .zip(decisions)
                        .for_each(|(group, decided)| self.land(group, decided, now, sent));
                }
                Err(trouble) => {
                    batch.iter().for_each(|group| store.not_answered(group.digest, &group.plan));
                    fail_all(batch, &trouble);
                }
            }
            self.batch = self.end();
            self.digests = self.batch.iter().map(|group| group.digest).collect();
        }
    }

    /// One call for everybody, and for some who may come.
    async fn call<'p>(
        &self,
        store: &'p Shared<D>,
        plans: &'p [Arc<Plan>],
        sent: Sent,
    ) -> Result<Findings<'p>, Trouble> {
        let callers = || self.batch.iter().flat_map(|group| &group.waiters);
        let now = callers().map(|caller| caller.now).max().unwrap_or_default();
        let mut message = Message::new(&store.encoder, store.dates.about(now));
        for (group, plan) in self.batch.iter().zip(plans) {
            let waiting = u32::try_from(group.waiters.len()).unwrap_or(u32::MAX);
            let ahead = store.ask_ahead(group.digest, plan, sent);
            message.add_planned(waiting.saturating_add(ahead), plan);
        }
        let deadline = callers().map(|caller| caller.deadline).max().unwrap_or_else(Instant::now);
        store.say(&script::CHARGE, &mut message, deadline).await
    }

    /// Tells a group what was decided. What nobody there needs any more is for the next in line, and then for those who
    /// may come: they find it before anybody is told, since whoever is told may ask again at once.
    fn land(&self, group: Boarded<Arc<Plan>, Caller>, decided: Decided<'_>, now: Timestamp, sent: Sent) {
        let Boarded { digest, plan, waiters } = group;
        let (permits, is_denied) = (decided.admitted as usize, decided.is_denial());
        let mut answers = Answers { replay: decided.replay(), now, permits, is_remembered: false };
        let mut told = answers.of(waiters);
        if answers.permits > 0 {
            let in_line = self.store.waiting[self.way].lock().next_in_line(digest, answers.permits);
            told.extend(answers.of(in_line));
        }
        let Answers { replay, permits, .. } = &answers;
        self.store.hold(digest, &plan, sent, now, Left { replay, permits: *permits, is_denied });
        self.tell(digest, told);
    }

    /// Tells callers in order. The permit of somebody who has gone just now is for the next of them who has none.
    fn tell(&self, digest: Digest, answers: impl IntoIterator<Item = Answer>) {
        let mut unheard: Vec<Told> = Vec::new();
        for Answer { caller, told, is_permit } in answers {
            let passed_on = if is_permit { None } else { unheard.pop() };
            let is_permit = is_permit || passed_on.is_some();
            if let Err(told) = caller.answer.send(passed_on.unwrap_or(told))
                && is_permit
            {
                unheard.push(told);
            }
        }
        unheard.into_iter().for_each(|told| self.pass_on(digest, told));
    }

    /// Tells the next in line what nobody has heard.
    fn pass_on(&self, digest: Digest, mut unheard: Told) {
        loop {
            let next = self.store.waiting[self.way].lock().next_in_line(digest, 1).pop();
            match next.map(|caller| caller.answer.send(unheard)) {
                Some(Err(again)) => unheard = again,
                Some(Ok(())) | None => return,
            }
        }
    }

    /// Makes room for the next call, and returns it; nothing if nobody waits for one.
    fn end(&mut self) -> Batch<Arc<Plan>, Caller> {
        let now = Instant::now();
        let is_there = |caller: &Caller| !caller.answer.is_closed() && caller.deadline > now;
        self.store.waiting[self.way].lock().end(self.digests.drain(..), is_there).unwrap_or_default()
    }
}

impl<D: Deliver> Drop for Flight<D> {
    /// Whatever ends a flight before it is back, those who wait for another one must not wait forever.
    fn drop(&mut self) {
        if self.digests.is_empty() {
            return;
        }
        for group in self.batch.drain(..) {
            self.store.not_answered(group.digest, &group.plan);
        }
        let batch = self.end();
        if !batch.is_empty()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(Flight::new(Arc::clone(&self.store), self.way, batch).fly());
        }
    }
}

impl Answers<'_> {
    /// What callers are answered, in order. Those who have gone are left out: what was meant for them is for the next.
    fn of(&mut self, callers: Vec<Caller>) -> SmallVec<[Answer; 1]> {
        let mut answers = SmallVec::new();
        for caller in callers.into_iter().filter(|caller| !caller.answer.is_closed()) {
            let is_permit = self.permits > 0;
            // All denials of a call are of the same instant, so it is enough if one caller remembers it.
            let seen = (!is_permit && !self.is_remembered).then(|| self.replay.seen().collect());
            self.is_remembered |= !is_permit;
            let Some(verdicts) = self.replay.next() else { break };
            self.permits = self.permits.saturating_sub(1);
            let told = Told::Decided(Reply { now: self.now, verdicts }, seen);
            answers.push(Answer { caller, told, is_permit });
        }
        answers
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::{KeyEncoder, OneConnection, Whose};
    use crate::store::{Key, KeySpace, Subject};
    use sluicegate_core::decision::Group;
    use sluicegate_core::{Cost, Micros, Quota, Rate, TokenBucket};
    use sluicegate_testkit::redis_server::RedisServer;
    use std::time::Duration;

    /// However a flight ends, even while it tells its callers.
    #[tokio::test]
    async fn who_waits_for_a_flight_that_broke_down_goes_with_another() {
        let server = RedisServer::start();
        let client = redis::Client::open(server.url()).unwrap();
        let connection = client.get_multiplexed_async_connection().await.unwrap();
        let delivery = OneConnection::new(connection, false);
        let store = Shared::new(delivery, KeyEncoder::default(), Whose::Servers, None);
        let space = KeySpace::new("rule");
        let quotas: [Quota; 1] =
            [TokenBucket::new(10, Rate::new(1, Micros::from_secs(60)).unwrap()).unwrap().into()];
        let key = Key { space: &space, subject: Subject::default() };
        let charges = [Charge { key, quotas: &quotas, cost: Cost::ONE, group: Group::Enforced, lease: None }];
        let deadline = Instant::now() + Duration::from_secs(20);
        let join = || {
            let (answer, told) = oneshot::channel();
            let plan = || Arc::new(Plan::new(&store.encoder, &charges));
            let joined = store.waiting[0].lock().join(
                digest(&charges),
                Caller { answer, now: Timestamp::default(), deadline },
                plan,
            );
            (joined, told)
        };
        let (Joined::Goes(batch), first) = join() else { panic!("nobody else flies") };
        let (Joined::Waits, second) = join() else { panic!("somebody flies already") };
        let mut flight = Flight::new(Arc::clone(&store), 0, batch);
        flight.batch.clear();
        drop(flight);
        assert!(first.await.is_err());
        assert!(matches!(second.await, Ok(Told::Decided(..))));
    }
}
