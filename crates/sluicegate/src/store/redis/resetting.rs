//! A reset that is under way: what was charged ahead before it must not pass after it.
//!
//! A reset forgets all charges, those of the permits that are held here as well. Spent after it, they would pass beyond a
//! full limit; given back, they would be taken from what others were charged since. So they are lost: before the reset is
//! sent, and again when it has ended, together with what calls that are still on their way have asked for. If it
//! ends without an answer, the server may still do it until the deadline, and then they are lost once more.
//!
//! What other instances hold is not known here: as much may pass there beyond the limit, until its time is over.

use super::Shared;
use super::arguments::Operation;
use super::deliver::Deliver;
use super::request::Request;
use crate::store::leases::table::KeyDigest;
use smallvec::SmallVec;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until};

/// Loses what is held of its keys when it is dropped.
#[must_use = "it is to be held until the reset has ended"]
pub(super) struct Resetting<D: Deliver> {
    store: Arc<Shared<D>>,
    keys: SmallVec<[KeyDigest; 2]>,
    deadline: Instant,
    is_answered: bool,
}

impl<D: Deliver> Request<'_, '_, D> {
    /// To be held while this operation is under way, if it is a reset.
    pub(super) fn resetting(&self, operation: Operation) -> Option<Resetting<D>> {
        if operation != Operation::Reset {
            return None;
        }
        let digests = self.charges.iter().map(|charge| charge.key.digest());
        let keys: SmallVec<[KeyDigest; 2]> = digests.map(|digest| (digest.0, digest.1)).collect();
        self.store.leases.lose(&keys);
        Some(Resetting { store: Arc::clone(self.store), keys, deadline: self.deadline, is_answered: false })
    }
}

impl<D: Deliver> Resetting<D> {
    /// The server has answered: it is done.
    pub(super) fn finish(mut self) {
        self.is_answered = true;
    }
}

impl<D: Deliver> Drop for Resetting<D> {
    fn drop(&mut self) {
        self.store.leases.lose(&self.keys);
        if self.is_answered {
            return;
        }
        let (store, keys, deadline) = (Arc::clone(&self.store), self.keys.clone(), self.deadline);
        // Without a runtime nobody is left who could spend anything.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                sleep_until(deadline).await;
                store.leases.lose(&keys);
            });
        }
    }
}
