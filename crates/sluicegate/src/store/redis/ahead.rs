//! Charging ahead: when a permit answers, when a flight asks for some, and what becomes of those it brings.
//!
//! `leases.rs` says what a permit is worth here, `store/leases` holds them. What is given back goes through the same door
//! as every undo, so that denials that were remembered end.

use super::deliver::Deliver;
use super::leases::{Held, Terms, give_back, reply};
use super::plan::{Plan, digest};
use super::replay::Replay;
use super::{RedisStore, Shared};
use crate::store::key::Digest;
use crate::store::leases::{Answered, Asking, Generation, Grant, Moment, Return};
use crate::store::{Charge, Reply};
use sluicegate_core::{Micros, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// How often what has ended is given back. What waits for it longer than that is given back by time anyway, but for slow
/// limits.
const PAUSE: Duration = Duration::from_millis(50);

/// When a call was sent, and to whom.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    at: Moment,
    generation: Generation,
}

/// Gives back what has ended until it is dropped.
#[derive(Debug)]
pub(super) struct Sweeper(JoinHandle<()>);

impl Drop for Sweeper {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<D: Deliver> Shared<D> {
    fn uptime(&self) -> Moment {
        let micros = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        Moment::after(Micros::from_micros(micros))
    }

    fn generation(&self) -> Generation {
        Generation(self.delivery.era())
    }

    /// To be taken before a call is sent.
    pub(super) fn about_to_send(&self) -> Sent {
        Sent { at: self.uptime(), generation: self.generation() }
    }

    /// The answer, if it has been paid for.
    pub(super) fn spend(&self, charges: &[Charge<'_>]) -> Option<Reply> {
        if charges.iter().all(|charge| charge.lease.is_none()) {
            return None;
        }
        let now = self.uptime();
        self.leases.spend(&digest(charges), now, self.generation(), |grant| reply(grant, charges, now))
    }

    /// How many permits a call may ask for beyond the requests that wait for it.
    pub(super) fn ask_ahead(&self, id: Digest, plan: &Plan, sent: Sent) -> u32 {
        let Some((terms, _)) = &plan.ahead else { return 0 };
        let Terms { ttl, most, keys } = terms;
        let asking = Asking::new(*ttl, *most, &self.instances.lock());
        let (permits, ended) = self.leases.ask(&id, &asking, keys, sent.at, sent.generation);
        drop(self.give_back(ended));
        permits
    }

    /// A call was answered, and `permits` of what it has paid for are left: those who wait have theirs.
    pub(super) fn hold(&self, id: Digest, plan: &Plan, sent: Sent, charged_at: Timestamp, left: Left<'_, '_>) {
        let Some((terms, paid)) = &plan.ahead else { return };
        let Left { replay, permits, is_denied } = left;
        let (now, permits) = (self.uptime(), u32::try_from(permits).unwrap_or(u32::MAX));
        let remaining = replay.room().saturating_sub(permits.into());
        let grant = (permits > 0).then(|| Grant {
            permits,
            charged_at,
            ends: sent.at.plus(terms.ttl),
            generation: sent.generation,
            state: Held { received: now, states: replay.states().collect(), paid: Arc::clone(paid) },
        });
        self.leases.answered(&id, Answered { grant, remaining, is_denied }, now);
    }

    /// A call was not answered.
    pub(super) fn not_answered(&self, id: Digest, plan: &Plan) {
        if plan.ahead.is_some() {
            self.leases.unanswered(&id);
        }
    }

    fn give_back(&self, ended: impl IntoIterator<Item = Return<Held>>) -> Option<JoinHandle<()>> {
        give_back(&self.delivery, self.denials.as_ref(), ended, self.uptime())
    }

    /// How many tokens are held, by the name of the rule.
    pub(super) fn leased_tokens(&self) -> Vec<(Box<str>, u64)> {
        let mut tokens: BTreeMap<Box<str>, u64> = BTreeMap::new();
        self.leases.for_each(|grant| {
            for (rule, held) in grant.state.paid.tokens(grant.permits) {
                *tokens.entry(rule.into()).or_default() += held;
            }
        });
        tokens.into_iter().collect()
    }
}

/// What is left of a call's answer when all who waited have been told.
pub(super) struct Left<'r, 'a> {
    pub(super) replay: &'r Replay<'a>,
    pub(super) permits: usize,
    /// Whether not all that was asked for was admitted.
    pub(super) is_denied: bool,
}

impl Sweeper {
    /// Begins to sweep, on the current runtime.
    pub(super) fn start<D: Deliver>(shared: &Arc<Shared<D>>) -> Self {
        let shared = Arc::clone(shared);
        Self(tokio::spawn(async move {
            loop {
                sleep(PAUSE).await;
                let generation = shared.generation();
                drop(shared.give_back(shared.leases.sweep(shared.uptime(), |_| generation)));
            }
        }))
    }
}

impl RedisStore {
    /// Gives back all that was charged ahead, and charges nothing ahead any more: this instance ends. Returns when that is
    /// done.
    pub async fn close(&self) {
        let generation = self.shared.generation();
        let returns = self.shared.leases.close(|_| generation);
        if let Some(giving_back) = self.shared.give_back(returns) {
            // It ends by itself, in its own time.
            let _ = giving_back.await;
        }
    }
}
