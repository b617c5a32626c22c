//! Where the store asks whether somebody is denied, and says what it has found.

use super::{Denials, GivingBack, Moment, Question, Seen, slot_of};
use crate::store::redis::arguments::Operation;
use crate::store::redis::deliver::Deliver;
use crate::store::redis::request::Request;
use crate::store::redis::{Shared, Whose};
use crate::store::{Charge, Key, Reply};
use sluicegate_core::Timestamp;
use tokio::time::Instant;

impl<D> Shared<D> {
    /// The denial, if it needs no asking; otherwise what the answer may be remembered with. `asked` is an instant just
    /// before.
    pub(in crate::store::redis) fn denied(
        &self,
        charges: &[Charge<'_>],
        now: Timestamp,
        asked: Instant,
    ) -> Result<Reply, Option<Question>>
    where
        D: Deliver,
    {
        let Some(denials) = &self.denials else { return Err(None) };
        denials.look(charges, self.moment(denials, now, asked)).map_err(Some)
    }

    /// What it is at this instant, which is `now` for the caller, by the clock that counts.
    fn moment(&self, denials: &Denials, now: Timestamp, instant: Instant) -> Moment
    where
        D: Deliver,
    {
        let local = match self.clock {
            Whose::Servers => denials.local(instant),
            Whose::Callers => now.as_micros().saturating_mul(1_000),
        };
        Moment { local, era: self.delivery.era() }
    }

    fn slot(&self, key: &Key<'_>) -> u16 {
        slot_of(&self.encoder.encode(key))
    }
}

impl<D: Deliver> Request<'_, '_, D> {
    /// Remembers a denial, which was just answered: all limits as they were seen at the server's `now`.
    pub(in crate::store::redis) fn remember(&self, now: Timestamp, seen: impl IntoIterator<Item = Seen>) {
        if let (Some(denials), Some(question)) = (&self.store.denials, self.question) {
            let moment = self.store.moment(denials, self.now, Instant::now());
            denials.remember(question, self.charges, now, moment, seen, |key| self.store.slot(key));
        }
    }

    /// To be held while this operation is under way, if it gives something back.
    pub(in crate::store::redis) fn giving_back(&self, operation: Operation) -> Option<GivingBack> {
        let denials = self.store.denials.as_ref().filter(|_| operation.gives_back())?;
        let slots = self.charges.iter().map(|charge| self.store.slot(&charge.key));
        Some(GivingBack::new(denials, slots, self.deadline))
    }
}
