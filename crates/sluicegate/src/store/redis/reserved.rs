//! What a request has charged before all of its limits have agreed. Unless it is kept, it is given back.
//!
//! Giving back has a time of its own and a task of its own, which holds everything it needs. So it does not matter
//! whether the caller has any time left, waits, or is still there: a request that was given up half-way, at a deadline
//! or because its client went away, gives back what it had. Each part is given back at most once, because an undo that is
//! sent twice would mint units; one that cannot be delivered in its time is lost, which denies too much for a while.
//!
//! It is given back some time after it was charged, perhaps in another window, or when time has refilled it. So it is
//! not refunded but undone: the script is told when the charge was made and gives back what is left of it.

use super::arguments::{Message, Operation};
use super::call::{Call, Repeat, Script, Word};
use super::deliver::Deliver;
use super::denials::{Denials, GivingBack, slot_of};
use super::request::Request;
use super::reserve::Part;
use futures_util::future::join_all;
use sluicegate_core::Timestamp;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// How long giving back may take. Its caller has been answered or has its answer, so this costs nobody anything.
pub(super) const WITHIN: Duration = Duration::from_secs(1);

/// Parts that were charged.
pub(super) struct Reserved<'q, 'r, 'a, D: Deliver> {
    request: &'q Request<'r, 'a, D>,
    parts: Vec<(Part, Timestamp)>,
}

/// One call that undoes a charge, with all that it speaks of.
pub(super) struct Undo {
    pub(super) script: &'static Script,
    pub(super) keys: Vec<Vec<u8>>,
    pub(super) arguments: Vec<Word>,
    /// Whether it may be sent at all in another era: never twice.
    pub(super) repeat: Repeat,
}

impl<'q, 'r, 'a, D: Deliver> Reserved<'q, 'r, 'a, D> {
    /// Nothing yet.
    pub(super) fn new(request: &'q Request<'r, 'a, D>) -> Self {
        Self { request, parts: Vec::new() }
    }

    /// Remembers that these charges were made, at this instant of their server's clock.
    pub(super) fn add(&mut self, part: Part, charged_at: Timestamp) {
        self.parts.push((part, charged_at));
    }

    /// All limits have agreed: nothing is given back.
    pub(super) fn keep(mut self) {
        self.parts.clear();
    }

    /// Gives everything back. The task ends when that is done; nobody has to wait for it.
    pub(super) fn give_back(mut self) -> Option<JoinHandle<()>> {
        self.start_to_give_back()
    }

    fn start_to_give_back(&mut self) -> Option<JoinHandle<()>> {
        if self.parts.is_empty() {
            return None;
        }
        let undos = |(part, charged_at)| self.request.undos(part, charged_at);
        let undos: Vec<Undo> = self.parts.drain(..).flat_map(undos).collect();
        let (delivery, deadline) = (self.request.store.delivery.clone(), Instant::now() + WITHIN);
        let denials = self.request.store.denials.clone();
        // Without a runtime, which ends before its tasks' futures are dropped, nobody could send anything any more.
        let runtime = Handle::try_current().ok()?;
        Some(runtime.spawn(async move {
            join_all(undos.iter().map(|undo| undo.send(&delivery, denials.as_ref(), deadline))).await;
        }))
    }
}

impl<D: Deliver> Drop for Reserved<'_, '_, '_, D> {
    fn drop(&mut self) {
        drop(self.start_to_give_back());
    }
}

impl<D: Deliver> Request<'_, '_, D> {
    /// A call for every key, because one with several would be refused while their slot moves.
    fn undos(&self, part: Part, charged_at: Timestamp) -> Vec<Undo> {
        let undo = |part: Part| {
            let mut message = Message::new(&self.store.encoder, charged_at);
            message.add(Operation::Undo(charged_at), part.iter().map(|index| &self.charges[*index]));
            let script = self.script(&mut message);
            Undo {
                script,
                keys: message.keys.into_vec(),
                arguments: message.arguments.into_vec(),
                repeat: Repeat::Never,
            }
        };
        self.by_key(part).into_iter().map(undo).collect()
    }
}

impl Undo {
    /// Sends it, once.
    pub(super) async fn send(&self, delivery: &impl Deliver, denials: Option<&Arc<Denials>>, deadline: Instant) {
        let &Self { script, ref keys, ref arguments, repeat } = self;
        let call = Call { script, keys, arguments, repeat };
        let slots = keys.iter().map(|key| slot_of(key));
        let giving_back = denials.map(|denials| GivingBack::new(denials, slots, deadline));
        // Nothing can be done about one that fails, and its answer has been waited for long enough.
        if delivery.call(&call, deadline).await.is_ok()
            && let Some(giving_back) = giving_back
        {
            giving_back.finish();
        }
    }
}
