//! A call that takes back a charge: unused permits of a lease, or the reservation of a denied request.
//!
//! An undo is sent at most once, because sending it twice would mint units. An undo that cannot be delivered within
//! [`UNDO_TIMEOUT`] is lost; its units stay charged, so the limits deny too much for a while and never too little.

use super::client::call::{Argument, Call, LatePolicy, Resend, Script, ScriptReply};
use super::client::transport::Transport;
use super::denial_cache::{DenialCache, PendingRefund, partition_of};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long an undo may take. No client waits for it.
pub(crate) const UNDO_TIMEOUT: Duration = Duration::from_secs(1);

/// One call that takes back a charge, with owned data.
pub(crate) struct UndoCall {
    pub(crate) script: &'static Script,
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) arguments: Vec<Argument>,
    /// Whether the call may be sent in a later generation. It is never sent twice.
    pub(crate) resend: Resend,
}

impl UndoCall {
    /// Sends the undo once, and invalidates the cached denials of its keys.
    pub(crate) async fn send(
        &self,
        transport: &impl Transport,
        denial_cache: Option<&Arc<DenialCache>>,
        deadline: Instant,
    ) {
        if let Some((_, Some(pending_refund))) = self.deliver(transport, denial_cache, deadline).await {
            pending_refund.confirm();
        }
    }

    /// Sends the undo once. Returns the reply, and the invalidation that the caller has to confirm.
    pub(crate) async fn deliver(
        &self,
        transport: &impl Transport,
        denial_cache: Option<&Arc<DenialCache>>,
        deadline: Instant,
    ) -> Option<(ScriptReply, Option<PendingRefund>)> {
        let &Self { script, ref keys, ref arguments, resend } = self;
        let call = Call { script, keys, arguments, resend, late_policy: LatePolicy::default() };
        let partitions = keys.iter().map(|key| partition_of(key));
        let pending_refund = denial_cache.map(|cache| PendingRefund::new(cache, partitions, deadline));
        // There is no remedy for an undo that fails: a second one might run twice.
        let answer = transport.call(&call, deadline).await.ok()?;
        Some((answer, pending_refund))
    }
}
