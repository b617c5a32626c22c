//! The parts that a request has charged before all of its limits have agreed. A reservation that is not kept is
//! released.
//!
//! The release runs in a task of its own with a timeout of its own, and the task owns its data. So a request that is
//! abandoned half-way, at its deadline or because its client disconnected, releases its parts as well. Each part is
//! released at most once, because an undo that is sent twice would mint units. A release that cannot be delivered in
//! time is lost, which denies too much for a while.
//!
//! A release may run in a later window than its charge, or after refill has restored the units. So it is not a refund:
//! the script receives the instant of the charge and restores the state that the limit would have without it.

use crate::store::redis::client::call::Resend;
use crate::store::redis::client::transport::Transport;
use crate::store::redis::protocol::arguments::{Operation, ScriptInput};
use crate::store::redis::protocol::planned_charge::PlannedCharge;
use crate::store::redis::protocol::reply::ParsedReply;
use crate::store::redis::request::{Part, Request};
use crate::store::redis::shared::SharedStore;
use crate::store::redis::undo::{UNDO_TIMEOUT, UndoCall};
use futures_util::future::join_all;
use sluicegate_core::Timestamp;
use std::slice::from_ref;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// The charged parts of a request.
pub(crate) struct Reservation<'q, 'r, 'a, T: Transport> {
    request: &'q Request<'r, 'a, T>,
    parts: Vec<(Part, Timestamp)>,
}

/// The release of one part of a request that another part has denied. The denial cache needs the state after the
/// release. Without it, each further request would charge and release this part again.
struct ObservedUndo {
    undo: UndoCall,
    charged_at: Timestamp,
    /// The charge that the undo takes back; none if there are several to the same key.
    charge: Option<PlannedCharge>,
}

impl<'q, 'r, 'a, T: Transport> Reservation<'q, 'r, 'a, T> {
    /// Nothing is charged yet.
    pub(crate) fn new(request: &'q Request<'r, 'a, T>) -> Self {
        Self { request, parts: Vec::new() }
    }

    /// These charges were made, at this instant of their server's clock.
    pub(crate) fn add(&mut self, part: Part, charged_at: Timestamp) {
        self.parts.push((part, charged_at));
    }

    /// All limits have agreed: nothing is released.
    pub(crate) fn keep(mut self) {
        self.parts.clear();
    }

    /// Releases all parts. The returned task ends when that is done; it does not have to be awaited.
    pub(crate) fn release(mut self) -> Option<JoinHandle<()>> {
        self.start_release()
    }

    fn start_release(&mut self) -> Option<JoinHandle<()>> {
        if self.parts.is_empty() {
            return None;
        }
        let undos = |(part, charged_at)| undos(self.request, part, charged_at);
        let undos: Vec<ObservedUndo> = self.parts.drain(..).flat_map(undos).collect();
        let (store, deadline) = (Arc::clone(self.request.store), Instant::now() + UNDO_TIMEOUT);
        // A runtime ends before the futures of its tasks are dropped. Without one, nothing can be sent.
        let runtime = Handle::try_current().ok()?;
        Some(runtime.spawn(async move {
            join_all(undos.iter().map(|undo| undo.send(&store, deadline))).await;
        }))
    }
}

impl<T: Transport> Drop for Reservation<'_, '_, '_, T> {
    fn drop(&mut self) {
        drop(self.start_release());
    }
}

/// One call for each key, because Redis rejects a call with several keys while their slot migrates.
fn undos<T: Transport>(request: &Request<'_, '_, T>, part: Part, charged_at: Timestamp) -> Vec<ObservedUndo> {
    let encoder = &request.store.encoder;
    let undo = |part: Part| {
        let mut input = ScriptInput::new(encoder, charged_at);
        input.add(Operation::Release(charged_at), part.iter().map(|index| &request.charges[*index]));
        let script = request.script(&mut input);
        let (keys, arguments) = (input.keys.into_vec(), input.arguments.into_vec());
        let charge = match part[..] {
            [index] => Some(PlannedCharge::new(encoder, &request.charges[index])),
            _ => None,
        };
        ObservedUndo { undo: UndoCall { script, keys, arguments, resend: Resend::Never }, charged_at, charge }
    };
    request.parts_by_key(part).into_iter().map(undo).collect()
}

impl ObservedUndo {
    /// Sends the undo once, and stores the resulting state in the denial cache.
    async fn send<T: Transport>(&self, store: &SharedStore<T>, deadline: Instant) {
        let (Some(cache), Some(charge)) = (&store.denial_cache, &self.charge) else {
            return self.undo.send(&store.transport, store.denial_cache.as_ref(), deadline).await;
        };
        let moment = || store.cache_moment(cache, self.charged_at, Instant::now());
        let call_start = cache.call_start(moment());
        let Some((answer, Some(pending_refund))) =
            self.undo.deliver(&store.transport, Some(cache), deadline).await
        else {
            return;
        };
        let mut input = ScriptInput::new(&store.encoder, self.charged_at).cacheable();
        input.undo_planned(self.charged_at, from_ref(charge));
        // The state is stored only if no other state was given back at the same time.
        if let (Some(call_start), Ok(parsed)) =
            (pending_refund.confirm_if_sole(call_start), ParsedReply::read(&answer, &input))
        {
            cache.observe(call_start, &input, &parsed, moment());
        }
    }
}
