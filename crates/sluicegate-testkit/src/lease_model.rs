//! Leases in small: a few instances, one store, everything that can go wrong between them, in every order.
//!
//! The pots are the real ones and the store's bucket is the core's. Around them everything happens that happens to a
//! fleet: calls that are lost, late, or carried out twice, answers that come late or never, instances that stop, crash or
//! sleep over the end of a grant (an instance that does nothing while time passes has slept), permits on their way back,
//! a store that forgets its last writes or everything, a change of the limit that instances hear of one by one. Time goes
//! on for ever: states that differ only by the time it is are one.
//!
//! Watched over is, after every step:
//! - the promise: whatever passes, through all instances together and in any interval, is within the limit and what
//!   the terms state beyond it. One number says so for all intervals, see [`crate::model::monitor`];
//! - that no permit is made up, used twice, given back twice or forgotten by a pot.
//!
//! A request that waits for its call counts as passed when the store charges it, whether or not it ever hears of it.

mod act;
#[cfg(test)]
mod tests;
mod world;

pub use act::Action;
pub use world::World;

use crate::explore::{Explored, Model, explore};
use sluicegate::core::{Micros, Quota, Rate, TokenBucket};
use sluicegate::store::LeaseMode;
use std::ops::Deref;

/// One tick of the model's clock.
pub const TICK: Micros = Micros::from_millis(1);

/// What is to be explored.
#[derive(Clone, Debug)]
pub struct Setting {
    /// How many instances there are.
    pub instances: usize,
    /// B, as the rule says it.
    pub capacity: u64,
    /// r: so many tokens in so many ticks, each of which lasts whole microseconds.
    pub refill: (u64, u64),
    /// What may happen to exactness.
    pub mode: LeaseMode,
    /// How many ticks a grant counts, the one in which the call is sent among them. With less than two nothing would
    /// ever wait.
    pub ttl: u64,
    /// b: how many permits an instance may hold.
    pub held: u32,
    /// How many ticks a call may take to the store.
    pub deadline: u64,
    /// How many calls, answers and returns may be on their way at a time; a pot that gives back two grants may add one.
    pub in_flight: usize,
    /// How often the store may forget something.
    pub failovers: u8,
    /// The capacity to which the limit changes at some time, if it does.
    pub changes_to: Option<u64>,
    /// What is done wrong, to see that it is found.
    pub flaw: Option<Flaw>,
}

/// Ways to do it wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Permits are spent up to a lifetime after their end.
    SpendsAfterTheEnd,
    /// The lifetime counts from the answer instead of from the call.
    CountsFromTheAnswer,
    /// What is given back may arrive twice.
    GivesBackTwice,
    /// Strict terms, but the whole limit.
    ChargesTheWholeLimit,
    /// What is given back is refunded whole, however long ago it was charged.
    RefundsInstead,
}

impl Setting {
    /// Three instances that hold up to two of four tokens.
    #[must_use]
    pub fn bounded() -> Self {
        Self {
            instances: 3,
            capacity: 4,
            refill: (1, 1),
            mode: LeaseMode::Bounded,
            ttl: 2,
            held: 2,
            deadline: 1,
            in_flight: 3,
            failovers: 0,
            changes_to: None,
            flaw: None,
        }
    }

    /// Settings that are explored whole in minutes to hours, for `cargo xtask explore`.
    #[must_use]
    pub fn large() -> Vec<Self> {
        let mut settings = Vec::new();
        for setting in [Self::bounded(), Self::strict()] {
            let pair = Self { instances: 2, in_flight: 2, ..setting.clone() };
            settings.extend([
                Self { in_flight: 3, deadline: 2, ttl: 3, capacity: setting.capacity + 1, ..pair.clone() },
                Self { failovers: 1, ..pair.clone() },
                Self { failovers: 2, in_flight: 1, ..pair.clone() },
                Self { changes_to: Some(setting.capacity - 1), ..pair.clone() },
                Self { refill: (1, 3), ..pair },
                Self { in_flight: 2, ..setting },
            ]);
        }
        settings
    }

    /// The same on strict terms, with as much capacity as these take.
    #[must_use]
    pub fn strict() -> Self {
        Self { mode: LeaseMode::Strict, capacity: 6, ..Self::bounded() }
    }

    /// Tries everything.
    ///
    /// # Errors
    /// How it comes that a promise is broken, or that there are more than `most` states.
    pub fn explore(&self, most: usize) -> Result<Explored, String> {
        explore(&Prepared::new(self), most)
    }

    fn bucket(&self, capacity: u64) -> TokenBucket {
        let (amount, ticks) = self.refill;
        let period = Micros::from_micros(ticks * TICK.as_micros());
        match Rate::new(amount, period).and_then(|rate| TokenBucket::new(capacity, rate)) {
            Ok(bucket) => bucket,
            Err(error) => panic!("a setting that is none: {error}"),
        }
    }

    /// What everybody charges by, before the change of the limit or after it.
    fn quota(&self, is_changed: bool) -> Quota {
        let whole = Quota::from(self.bucket(self.changes_to.filter(|_| is_changed).unwrap_or(self.capacity)));
        match self.mode {
            LeaseMode::Strict if self.flaw != Some(Flaw::ChargesTheWholeLimit) => {
                whole.prepaid(self.lifetime()).unwrap_or_else(|| panic!("no capacity is left"))
            }
            LeaseMode::Strict | LeaseMode::Bounded => whole,
        }
    }

    fn lifetime(&self) -> Micros {
        Micros::from_micros(self.ttl * TICK.as_micros())
    }

    /// What may pass beyond capacity and rate.
    fn extra(&self) -> u64 {
        match self.mode {
            LeaseMode::Strict => 0,
            LeaseMode::Bounded => {
                let all_held = u64::from(self.held) * self.instances as u64;
                self.bucket(self.capacity).refilled_within(self.lifetime()).min(all_held)
            }
        }
    }
}

/// A setting, and what follows from it.
#[derive(Clone, Debug)]
struct Prepared {
    setting: Setting,
    quotas: [Quota; 2],
    extra: u64,
}

impl Deref for Prepared {
    type Target = Setting;

    fn deref(&self) -> &Setting {
        &self.setting
    }
}

impl Prepared {
    fn new(setting: &Setting) -> Self {
        let quotas = [false, true].map(|is_changed| setting.quota(is_changed));
        Self { setting: setting.clone(), quotas, extra: setting.extra() }
    }

    fn quota(&self, is_changed: bool) -> &Quota {
        &self.quotas[usize::from(is_changed)]
    }

    /// How many ticks so many permits last, rounded up.
    fn lasting(&self, permits: u32) -> u64 {
        let (amount, ticks) = self.refill;
        (u64::from(permits) * ticks).div_ceil(amount)
    }

    /// The most that may pass beyond the rate, in any interval, after so many failovers.
    fn promise(&self, failovers: u8) -> u64 {
        let changed = self.changes_to.unwrap_or(0);
        self.capacity + self.extra + u64::from(failovers) * self.capacity.max(changed) + changed
    }
}

impl Model for Prepared {
    type State = World;
    type Action = Action;

    fn start(&self) -> World {
        World::new(self.instances)
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        act::possible(self, world, actions);
    }

    fn step(&self, world: &World, action: Action) -> Result<World, String> {
        let mut next = world.clone();
        next.act(self, action)?;
        next.check(self)?;
        Ok(next)
    }

    fn key(&self, world: &World, key: &mut Vec<u8>) {
        world.key(self, key);
    }
}
