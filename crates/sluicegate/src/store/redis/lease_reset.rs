//! Resets and leases: permits that were charged before a reset must not pass after it.
//!
//! A reset forgets all charges, including those of the permits that this instance holds. Spent after the reset, they
//! would pass beyond a full limit. Given back, they would be taken from charges that came after it. So they are
//! forfeited: before the reset is sent and again when it has ended, together with permits that calls in flight have
//! requested. If the reset ends without a reply, the server may still execute it until the deadline, and the permits are
//! forfeited once more then.
//!
//! Other instances do not learn of the reset. Their permits may pass beyond the limit until they expire.

use super::client::transport::Transport;
use super::protocol::arguments::Operation;
use super::request::Request;
use super::shared::SharedStore;
use crate::store::leases::table::KeyDigest;
use smallvec::SmallVec;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until};

/// Forfeits the permits of its keys when it is dropped.
#[must_use = "hold it until the reset has ended"]
pub(crate) struct PendingReset<T: Transport> {
    store: Arc<SharedStore<T>>,
    keys: SmallVec<[KeyDigest; 2]>,
    deadline: Instant,
    is_answered: bool,
}

impl<T: Transport> PendingReset<T> {
    /// The guard to hold while this operation is in flight; none unless it is a reset.
    pub(crate) fn start(request: &Request<'_, '_, T>, operation: Operation) -> Option<Self> {
        if operation != Operation::Reset {
            return None;
        }
        let digests = request.charges.iter().map(|charge| charge.key.digest());
        let keys: SmallVec<[KeyDigest; 2]> = digests.map(|digest| (digest.0, digest.1)).collect();
        request.store.leases.forfeit(&keys);
        Some(Self { store: Arc::clone(request.store), keys, deadline: request.deadline, is_answered: false })
    }

    /// The server has executed the reset.
    pub(crate) fn confirm(mut self) {
        self.is_answered = true;
    }
}

impl<T: Transport> Drop for PendingReset<T> {
    fn drop(&mut self) {
        self.store.leases.forfeit(&self.keys);
        if self.is_answered {
            return;
        }
        let (store, keys, deadline) = (Arc::clone(&self.store), self.keys.clone(), self.deadline);
        // Without a runtime there are no requests that could spend the permits.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                sleep_until(deadline).await;
                store.leases.forfeit(&keys);
            });
        }
    }
}
