//! A task that sends the decisions of many waiters in one script call, and distributes the results.
//!
//! The task owns its data, so it does not depend on whether its waiters are polled or still exist. After the reply it
//! serves all waiters, and then sends the next batch with the requests that have arrived meanwhile.
//!
//! The charge of a waiter that is gone is not lost: the next waiter of the same decision receives it. That is exact, since one
//! request is admitted for one charge. A denial is not passed on in this way, because it is only valid for its instant,
//! and the next waiter may have arrived later.

use super::plan::Plan;
use super::queue::{Batch, BatchEntry, JoinOutcome};
use super::waiter::{Waiter, WaiterResult};
use crate::store::key::Digest;
use crate::store::redis::client::call::LatePolicy;
use crate::store::redis::client::error::{CallError, Executed};
use crate::store::redis::client::transport::Transport;
use crate::store::redis::lease::{Leftover, SentAt};
use crate::store::redis::protocol::arguments::{Operation, ScriptInput};
use crate::store::redis::protocol::planned_charge::{decision_digest, unique_digest};
use crate::store::redis::protocol::replay::Replay;
use crate::store::redis::protocol::reply::{DecisionResult, ParsedReply};
use crate::store::redis::protocol::scripts;
use crate::store::redis::request::Request;
use crate::store::redis::shared::SharedStore;
use crate::store::{ErrorClass, Fate, Reply, StoreError};
use sluicegate_core::Timestamp;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout_at};

/// A call in flight, with the waiters that it serves.
struct CoalescedCall<T: Transport> {
    store: Arc<SharedStore<T>>,
    route: usize,
    batch: Batch<Arc<Plan>, Waiter>,
    /// The decisions of the batch. No other call may contain them until this one has ended.
    digests: Vec<Digest>,
}

/// The results for the waiters of one decision, in order.
struct WaiterResults<'a> {
    replay: Replay<'a>,
    now: Timestamp,
    /// How many of the next results are admissions.
    permits: usize,
}

/// A result and the waiter that it is for.
struct AddressedResult {
    waiter: Waiter,
    result: WaiterResult,
    is_permit: bool,
}

/// Charges in a call that is shared with concurrent requests. `None` if the request needs a call of its own.
pub(crate) async fn charge_coalesced<T: Transport>(
    request: &Request<'_, '_, T>,
    operation: Operation,
) -> Result<Option<Reply>, StoreError> {
    let store = request.store;
    let route = store.route_of(request.charges);
    let (answer, mut result) = oneshot::channel();
    let waiter = Waiter { answer, now: request.now, deadline: request.deadline, allowed: request.allowed };
    let _counted = store.waiter_count.enter();
    // Computed before the lock, because every request of the route needs the lock.
    let digest = match request.has_usage() {
        // Shares a call with other decisions, but no decision with other requests: the charge of a request that is gone
        // could not be passed on, because the usage of the next one has happened as well.
        true => unique_digest(),
        false => decision_digest(request.charges),
    };
    let plan = || Arc::new(Plan::new(&store.encoder, operation, request.charges));
    let joined = store.queues[route].lock().join(digest, || request.flow(), waiter, plan);
    match joined {
        JoinOutcome::Wait => _ = store.coalesced.fetch_add(1, Ordering::Relaxed),
        JoinOutcome::Send(batch) => {
            tokio::spawn(CoalescedCall::new(Arc::clone(store), route, batch).run());
        }
        JoinOutcome::Full => return Err(late_error(request, route, None)),
    }
    if let Ok(result) = timeout_at(request.deadline, &mut result).await {
        return result.map_or_else(|_| Err(dropped_error(request, route)), WaiterResult::read);
    }
    // The reply may have arrived and not been read yet, because the task that reads it has to be scheduled, too.
    yield_now().await;
    match result.try_recv() {
        Ok(result) => result.read(),
        Err(TryRecvError::Closed) => Err(dropped_error(request, route)),
        Err(TryRecvError::Empty) => Err(late_error(request, route, Some(result))),
    }
}

/// The error of a waiter that was dropped: no call was sent before its deadline, or its call was aborted.
fn dropped_error<T: Transport>(request: &Request<'_, '_, T>, route: usize) -> StoreError {
    if Instant::now() >= request.deadline {
        return late_error(request, route, None);
    }
    StoreError::new(ErrorClass::Connection, "the call was aborted")
}

/// The error at the deadline. Either the server is unresponsive, or it is overloaded and `result` may still arrive.
fn late_error<T: Transport>(
    request: &Request<'_, '_, T>,
    route: usize,
    result: Option<oneshot::Receiver<WaiterResult>>,
) -> StoreError {
    let Request { store, deadline, allowed, .. } = *request;
    let now = Instant::now();
    let since = deadline.min(now).checked_sub(allowed).unwrap_or(now);
    let fate = result.map(|result| Fate::new(WaiterResult::fate(result)));
    if store.transport.is_unresponsive(route, since, store.waiter_count.patience(allowed)) {
        // Only usage is charged later, so only there the fate matters.
        let fate = fate.filter(|_| request.has_usage());
        return StoreError { fate, ..StoreError::new(ErrorClass::Timeout, "no answer within the deadline") };
    }
    // Without a result to wait for, nothing was sent.
    let CallError { class, message, .. } = CallError::overloaded(Executed::No);
    StoreError { fate, ..StoreError::new(class, message) }
}

impl<T: Transport> CoalescedCall<T> {
    fn new(store: Arc<SharedStore<T>>, route: usize, batch: Batch<Arc<Plan>, Waiter>) -> Self {
        let digests = batch.iter().map(|entry| entry.digest).collect();
        Self { store, route, batch, digests }
    }

    async fn run(mut self) {
        let store = Arc::clone(&self.store);
        while !self.batch.is_empty() {
            let plans: Vec<Arc<Plan>> = self.batch.iter().map(|entry| Arc::clone(&entry.plan)).collect();
            let sent = store.leases.about_to_send(store.transport.generation());
            let result = self.call(&store, &plans, sent).await;
            let batch = std::mem::take(&mut self.batch);
            match result {
                Ok(ParsedReply { now, decisions, .. }) => {
                    batch
                        .into_iter()
                        .zip(decisions)
                        .for_each(|(entry, decided)| self.distribute(entry, decided, now, sent));
                }
                Err(error) => {
                    batch.iter().for_each(|entry| self.permits_failed(entry));
                    fail_all(batch, &error);
                }
            }
            self.batch = self.end();
            self.digests = self.batch.iter().map(|entry| entry.digest).collect();
        }
    }

    /// One call for all waiters of the batch, and for permits in advance.
    async fn call<'p>(
        &self,
        store: &'p SharedStore<T>,
        plans: &'p [Arc<Plan>],
        sent: SentAt,
    ) -> Result<ParsedReply<'p>, CallError> {
        let waiters = || self.batch.iter().flat_map(|entry| &entry.waiters);
        let now = waiters().map(|waiter| waiter.now).max().unwrap_or_default();
        let mut input = ScriptInput::new(&store.encoder, store.calendar_clock.estimate(now));
        for (entry, plan) in self.batch.iter().zip(plans) {
            let waiting = u32::try_from(entry.waiters.len()).unwrap_or(u32::MAX);
            let permits = self.request_permits(entry.digest, plan, sent);
            input.add_planned(plan.operation, waiting.saturating_add(permits), &plan.charges);
        }
        let deadline = waiters().map(|waiter| waiter.deadline).max().unwrap_or_else(Instant::now);
        let allowed = waiters().map(|waiter| waiter.allowed).max().unwrap_or_default();
        let late_policy = LatePolicy { waiter_count: Some(&store.waiter_count), keep_waiting: Some(allowed) };
        store.execute(&scripts::CHARGE, &mut input, deadline, late_policy).await
    }

    /// How many permits the call requests beyond those of its waiters.
    fn request_permits(&self, digest: Digest, plan: &Plan, sent: SentAt) -> u32 {
        let Some(lease) = &plan.lease else { return 0 };
        let (permits, expired) = self.store.leases.request_permits(digest, lease, sent);
        drop(self.store.give_back(expired));
        permits
    }

    /// The call got no reply, and so no permits.
    fn permits_failed(&self, entry: &BatchEntry<Arc<Plan>, Waiter>) {
        if entry.plan.lease.is_some() {
            self.store.leases.call_failed(entry.digest);
        }
    }

    /// Serves the waiters of one decision. Admissions that they do not need go to the next waiters, and then become
    /// permits. Permits are stored before any result is sent, because a waiter may send its next request at once.
    fn distribute(
        &self,
        entry: BatchEntry<Arc<Plan>, Waiter>,
        decided: DecisionResult<'_>,
        now: Timestamp,
        sent: SentAt,
    ) {
        let BatchEntry { digest, plan, waiters } = entry;
        if plan.has_usage() {
            let reply = || WaiterResult::Reply(Reply { now, verdicts: decided.verdicts() });
            // A waiter that is gone has been charged: its usage has happened.
            waiters.into_iter().for_each(|waiter| _ = waiter.answer.send(reply()));
            return;
        }
        let (permits, is_denied) = (decided.admitted as usize, decided.is_denial());
        let mut results = WaiterResults { replay: decided.replay(), now, permits };
        let mut addressed = results.of(waiters);
        if results.permits > 0 {
            let next_waiters = self.store.queues[self.route].lock().take_next(digest, results.permits);
            addressed.extend(results.of(next_waiters));
        }
        let WaiterResults { replay, permits, .. } = &results;
        if let Some(lease) = &plan.lease {
            let leftover = Leftover { replay, permits: *permits, is_denied };
            self.store.leases.store(digest, lease, sent, now, leftover);
        }
        self.send_results(digest, addressed);
    }

    /// Sends the results in order. The admission of a waiter that has just gone is for the next waiter without one.
    fn send_results(&self, digest: Digest, results: impl IntoIterator<Item = AddressedResult>) {
        let mut unclaimed: Vec<WaiterResult> = Vec::new();
        for AddressedResult { waiter, result, is_permit } in results {
            let passed_on = if is_permit { None } else { unclaimed.pop() };
            let is_permit = is_permit || passed_on.is_some();
            if let Err(result) = waiter.answer.send(passed_on.unwrap_or(result))
                && is_permit
            {
                unclaimed.push(result);
            }
        }
        unclaimed.into_iter().for_each(|result| self.pass_on(digest, result));
    }

    /// Sends an unclaimed admission to the next waiter of the decision.
    fn pass_on(&self, digest: Digest, mut unclaimed: WaiterResult) {
        loop {
            let next = self.store.queues[self.route].lock().take_next(digest, 1).pop();
            match next.map(|waiter| waiter.answer.send(unclaimed)) {
                Some(Err(again)) => unclaimed = again,
                Some(Ok(())) | None => return,
            }
        }
    }

    /// Marks this call as ended, and returns the next batch; empty if there are no waiters.
    fn end(&mut self) -> Batch<Arc<Plan>, Waiter> {
        let now = Instant::now();
        let is_there = |waiter: &Waiter| !waiter.answer.is_closed() && waiter.deadline > now;
        self.store.queues[self.route].lock().end(self.digests.drain(..), is_there).unwrap_or_default()
    }
}

impl<T: Transport> Drop for CoalescedCall<T> {
    /// Sends the next batch if this call is dropped before its end, so that no waiter waits forever.
    fn drop(&mut self) {
        if self.digests.is_empty() {
            return;
        }
        for entry in std::mem::take(&mut self.batch) {
            self.permits_failed(&entry);
        }
        let batch = self.end();
        if !batch.is_empty()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(CoalescedCall::new(Arc::clone(&self.store), self.route, batch).run());
        }
    }
}

impl WaiterResults<'_> {
    /// The results for these waiters, in order. Waiters that are gone are skipped, and the next waiter has their result.
    fn of(&mut self, waiters: Vec<Waiter>) -> SmallVec<[AddressedResult; 1]> {
        let mut results = SmallVec::new();
        for waiter in waiters.into_iter().filter(|waiter| !waiter.answer.is_closed()) {
            let is_permit = self.permits > 0;
            let Some(verdicts) = self.replay.next() else { break };
            self.permits = self.permits.saturating_sub(1);
            let result = WaiterResult::Reply(Reply { now: self.now, verdicts });
            results.push(AddressedResult { waiter, result, is_permit });
        }
        results
    }
}

fn fail_all(batch: Batch<Arc<Plan>, Waiter>, error: &CallError) {
    // One decision may have caused a protocol error, and the others should not fail with it. At worst a retry charges
    // twice, which admits no request beyond a limit.
    let alone = error.is_multi_key() || batch.len() > 1 && error.class == ErrorClass::Protocol;
    let may_have_charged = error.executed == Executed::Unknown;
    for BatchEntry { plan, waiters, .. } in batch {
        // Usage is not charged twice.
        let alone = alone && !(may_have_charged && plan.has_usage());
        for waiter in waiters {
            let failed = || {
                let error = StoreError::new(error.class, error.message.clone());
                WaiterResult::Error(StoreError { may_have_charged, ..error })
            };
            // The waiter may be gone.
            let _ = waiter.answer.send(if alone { WaiterResult::RetryAlone } else { failed() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::protocol::key::KeyEncoder;
    use crate::store::redis::shared::ClockSource;
    use crate::store::redis::testing::SingleConnection;
    use crate::store::{Charge, Key, KeySpace, Subject};
    use sluicegate_core::decision::ChargeMode;
    use sluicegate_core::{Cost, Micros, Quota, Rate, TokenBucket};
    use sluicegate_testkit::redis_server::RedisServer;
    use std::time::Duration;

    /// A call may end at any point, even while it distributes its results.
    #[tokio::test]
    async fn waiters_of_a_dropped_call_are_served_by_the_next_call() {
        let server = RedisServer::start();
        let client = redis::Client::open(server.url()).unwrap();
        let connection = client.get_multiplexed_async_connection().await.unwrap();
        let transport = SingleConnection::new(connection, false);
        let store = SharedStore::new(transport, KeyEncoder::default(), ClockSource::Server, None);
        let space = KeySpace::new("rule");
        let quotas: [Quota; 1] =
            [TokenBucket::new(10, Rate::new(1, Micros::from_secs(60)).unwrap()).unwrap().into()];
        let key = Key { space: &space, subject: Subject::default() };
        let charges = [Charge {
            key,
            quotas: &quotas,
            cost: Cost::ONE,
            mode: ChargeMode::Enforced,
            lease: None,
            usage: Cost::ZERO,
        }];
        let deadline = Instant::now() + Duration::from_secs(20);
        let join = || {
            let (answer, result) = oneshot::channel();
            let plan = || Arc::new(Plan::new(&store.encoder, Operation::Charge, &charges));
            let joined = store.queues[0].lock().join(
                decision_digest(&charges),
                || Digest(0, 0),
                Waiter { answer, now: Timestamp::default(), deadline, allowed: Duration::from_secs(20) },
                plan,
            );
            (joined, result)
        };
        let (JoinOutcome::Send(batch), first) = join() else { panic!("no call is in flight") };
        let (JoinOutcome::Wait, second) = join() else { panic!("a call is in flight") };
        let mut call = CoalescedCall::new(Arc::clone(&store), 0, batch);
        call.batch.clear();
        drop(call);
        assert!(first.await.is_err());
        assert!(matches!(second.await, Ok(WaiterResult::Reply(..))));
    }
}
