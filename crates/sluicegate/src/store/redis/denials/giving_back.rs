//! Something that is being given back: what was learnt before it is done must not be believed after it.
//!
//! Until its caller is answered, a refund may as well not have happened yet, and a denial is right. So it is when this
//! ends, however it ends, that denials are forgotten. If it ends without an answer, the server may still do it until the
//! deadline, and then they are forgotten once more.

use super::Denials;
use smallvec::SmallVec;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until};

/// Forgets when it is dropped.
#[derive(Debug)]
#[must_use = "dropped, it forgets"]
pub(in crate::store::redis) struct GivingBack {
    denials: Arc<Denials>,
    slots: SmallVec<[u16; 2]>,
    deadline: Instant,
    is_answered: bool,
}

impl GivingBack {
    /// Something will be given back in these slots, by this deadline or not at all.
    pub(in crate::store::redis) fn new(
        denials: &Arc<Denials>,
        slots: impl IntoIterator<Item = u16>,
        deadline: Instant,
    ) -> Self {
        let slots = slots.into_iter().collect();
        Self { denials: Arc::clone(denials), slots, deadline, is_answered: false }
    }

    /// The server has answered: it is done.
    pub(in crate::store::redis) fn finish(mut self) {
        self.is_answered = true;
    }
}

impl Drop for GivingBack {
    fn drop(&mut self) {
        self.denials.given_back(&self.slots);
        if self.is_answered {
            return;
        }
        let (denials, slots, deadline) = (Arc::clone(&self.denials), self.slots.clone(), self.deadline);
        // Without a runtime nobody is left who could be denied.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                sleep_until(deadline).await;
                denials.given_back(&slots);
            });
        }
    }
}

impl Denials {
    /// Something was given back in these slots: forgets what was known, and lets the others know.
    fn given_back(&self, slots: &[u16]) {
        for slot in slots {
            self.forget(*slot);
            self.unsent.add(*slot);
        }
    }
}
