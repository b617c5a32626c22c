//! The complete state of the model, and its invariants.

use super::{Prepared, TICK};
use sluicegate::core::algorithm::token_bucket::TokenBucketState;
use sluicegate::core::{Micros, State, Timestamp};
use sluicegate::store::leases::{Generation, PermitPool, PermitReturn, Uptime};

/// The time of the store's clock when the model's clock is at zero.
const EPOCH_MICROS: u64 = 1_000_000_000;
/// Two grants, a call, a reply and four returns in transit.
const INSTANCE_BYTES: usize = 4 + 2 * 4 + 5 + 5 + 1 + 4 * 4;

/// The complete state of the model.
#[derive(Clone, Debug)]
pub struct World {
    pub(super) tick: u64,
    pub(super) store: Option<State>,
    /// The state of the store after a failover.
    pub(super) replica: Option<State>,
    pub(super) failovers: u8,
    /// The requests that passed beyond the rate, in parts of a token: one part for every tick that a token takes.
    pub(super) level: u64,
    pub(super) instances: Vec<Instance>,
}

/// One instance, with its messages in transit.
#[derive(Clone, Debug, Default)]
pub(super) struct Instance {
    pub(super) pool: PermitPool<bool>,
    /// The generation of the store's memory, as this instance knows it.
    pub(super) generation: Generation,
    pub(super) is_changed: bool,
    pub(super) call: Option<Call>,
    pub(super) answer: Option<Answer>,
    pub(super) backs: Vec<Back>,
}

/// A call in transit to the store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) sent: u64,
    pub(super) callers: u32,
    pub(super) asked: u32,
    pub(super) is_repeated: bool,
}

/// A reply in transit to the instance.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub(super) sent: u64,
    pub(super) charged: u64,
    pub(super) left_over: u32,
    pub(super) generation: Generation,
}

/// Permits in transit back to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Back {
    pub(super) permits: u32,
    pub(super) charged: u64,
    /// Whether they were charged under the changed limit.
    pub(super) is_changed: bool,
    /// The number of times that the return can still arrive.
    pub(super) arrivals: u8,
}

impl World {
    pub(super) fn new(instances: usize) -> Self {
        let instances = vec![Instance::default(); instances];
        Self { tick: 0, store: None, replica: None, failovers: 0, level: 0, instances }
    }

    pub(super) fn generation(&self) -> Generation {
        Generation(self.failovers.into())
    }

    pub(super) fn now(&self) -> Uptime {
        moment(self.tick)
    }

    pub(super) fn store_now(&self) -> Timestamp {
        timestamp(self.tick)
    }

    /// The number of messages in transit.
    pub(super) fn in_flight(&self) -> usize {
        let of_instance = |instance: &Instance| {
            usize::from(instance.call.is_some()) + usize::from(instance.answer.is_some()) + instance.backs.len()
        };
        self.instances.iter().map(of_instance).sum()
    }

    /// Records that this many requests passed.
    pub(super) fn pass(&mut self, setting: &Prepared, requests: u32) -> Result<(), String> {
        let promise = setting.promise(self.failovers);
        let (_, ticks) = setting.refill;
        self.level += u64::from(requests) * ticks;
        if self.level > promise * ticks {
            return Err(format!(
                "{} of {ticks} parts passed beyond the rate, {promise} tokens are promised",
                self.level
            ));
        }
        Ok(())
    }

    /// Checks the invariants of every state.
    pub(super) fn check(&self, setting: &Prepared) -> Result<(), String> {
        for Instance { pool, .. } in &self.instances {
            if !pool.tally().is_balanced(pool.held().into()) {
                return Err(format!("permits do not add up: {pool:?}"));
            }
            if pool.held() + pool.requested() > setting.held {
                return Err(format!("a pot holds or asks for too much: {pool:?}"));
            }
        }
        Ok(())
    }

    /// Times are relative to now, and instances are sorted, because they are interchangeable.
    pub(super) fn key(&self, setting: &Prepared, key: &mut Vec<u8>) {
        // A replica that will never take over does not matter.
        let replica = self.replica.as_ref().filter(|_| self.failovers < setting.failovers);
        for state in [self.store.as_ref(), replica] {
            key.extend((self.full_in(state) as u32).to_le_bytes());
        }
        key.extend([self.failovers, small(self.level)]);
        let start = key.len();
        for instance in &self.instances {
            let end = key.len() + INSTANCE_BYTES;
            instance.key(self, setting, key);
            key.resize(end, 0);
        }
        key[start..].as_chunks_mut::<INSTANCE_BYTES>().0.sort_unstable();
    }

    /// The time in microseconds until a bucket is full.
    fn full_in(&self, state: Option<&State>) -> u64 {
        match state {
            Some(State::TokenBucket(TokenBucketState { tat_micros, .. })) => {
                tat_micros.saturating_sub(self.store_now().as_micros())
            }
            _ => 0,
        }
    }
}

impl Instance {
    /// Writes the identity of the instance, each part with its length: at most [`INSTANCE_BYTES`] bytes.
    fn key(&self, world: &World, setting: &Prepared, key: &mut Vec<u8>) {
        // Beyond this age, a return would make no difference, so the age is capped.
        let ago = |tick: u64| small((world.tick - tick).min(setting.lasting(setting.held)));
        let generations = |generation: Generation| small(world.generation().0 - generation.0);
        key.extend([self.pool.grants().len() as u8, self.pool.requested() as u8, self.is_changed.into()]);
        key.push(generations(self.generation));
        for grant in self.pool.grants() {
            // Expired grants are all alike, however long ago they expired.
            let left = grant.ends.since(world.now()).as_micros() / TICK.as_micros();
            let charged = (grant.charged_at.as_micros() - EPOCH_MICROS) / TICK.as_micros();
            key.extend([grant.permits as u8, small(left), ago(charged), generations(grant.generation)]);
        }
        match self.call {
            Some(call) => {
                key.extend([1, ago(call.sent), call.callers as u8, call.asked as u8, call.is_repeated.into()])
            }
            None => key.push(0),
        }
        match self.answer {
            Some(answer) => {
                key.extend([1, ago(answer.sent), ago(answer.charged), answer.left_over as u8]);
                key.push(generations(answer.generation));
            }
            None => key.push(0),
        }
        key.push(self.backs.len() as u8);
        for back in &self.backs {
            key.extend([back.permits as u8, ago(back.charged), back.is_changed.into(), back.arrivals]);
        }
    }

    /// Puts the permits that a pool returned in transit.
    pub(super) fn give_back(&mut self, returns: impl IntoIterator<Item = PermitReturn<bool>>, arrivals: u8) {
        for PermitReturn { permits, charged_at, state: is_changed, .. } in returns {
            let charged = (charged_at.as_micros() - EPOCH_MICROS) / TICK.as_micros();
            self.backs.push(Back { permits, charged, is_changed, arrivals });
        }
        // The order in which they left makes no difference.
        self.backs.sort_unstable();
    }

    /// Drops returns in transit that would make no difference, because the bucket has already refilled those tokens.
    pub(super) fn drop_useless(&mut self, setting: &Prepared, tick: u64) {
        self.backs.retain(|back| tick - back.charged < setting.lasting(back.permits));
    }
}

fn small(number: u64) -> u8 {
    u8::try_from(number).unwrap_or(u8::MAX)
}

pub(super) fn moment(tick: u64) -> Uptime {
    Uptime::after(Micros::from_micros(tick * TICK.as_micros()))
}

pub(super) fn timestamp(tick: u64) -> Timestamp {
    Timestamp::now(EPOCH_MICROS + tick * TICK.as_micros())
}
