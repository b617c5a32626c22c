//! A small model of leases: a few instances, one store, and all failures between them in every order.
//!
//! The permit pools are the real ones, and the store's bucket is the core's. The model adds the failures of a fleet:
//! - calls that are lost, late, or executed twice, and replies that arrive late or never;
//! - instances that stop, crash, or sleep past the end of a grant (an instance that does nothing while time passes has
//!   slept);
//! - permits in transit back to the store;
//! - a store that loses its last writes or everything;
//! - a change of the limit that reaches the instances one by one.
//!
//! Time is unbounded: states that differ only in the current time are the same state.
//!
//! After every step the model checks two invariants:
//! - The promise: in any interval, the requests that pass through all instances together are within the limit plus the
//!   excess that the lease terms state. One number covers all intervals, see [`crate::model::monitor`].
//! - No permit is invented, used twice, returned twice or lost by a pool.
//!
//! A request that waits for its call counts as passed when the store charges it, even if the reply never arrives.

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

/// The parameters of one exploration.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The number of instances.
    pub instances: usize,
    /// B: the capacity of the limit.
    pub capacity: u64,
    /// r: this many tokens per this many ticks. Each token takes a whole number of microseconds.
    pub refill: (u64, u64),
    /// The lease mode: how much the limit may be exceeded.
    pub mode: LeaseMode,
    /// The lifetime of a grant in ticks, including the tick in which the call is sent. With fewer than two, no
    /// permit would ever wait in a pool.
    pub ttl: u64,
    /// b: the maximum number of permits that an instance holds.
    pub held: u32,
    /// The maximum number of ticks that a call takes to reach the store.
    pub deadline: u64,
    /// The maximum number of calls, replies and returns in transit. A pool that returns two grants at once may exceed
    /// it by one.
    pub in_flight: usize,
    /// The maximum number of times that the store loses data.
    pub failovers: u8,
    /// The capacity to which the limit changes at some time, if any.
    pub changes_to: Option<u64>,
    /// An injected error, to verify that the exploration finds it.
    pub flaw: Option<Flaw>,
}

/// Deliberate errors in the lease protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Permits are spent up to one lifetime after they expire.
    SpendsAfterTheEnd,
    /// The lifetime is measured from the reply instead of from the call.
    CountsFromTheAnswer,
    /// A return of permits may arrive twice.
    GivesBackTwice,
    /// Strict terms that charge against the whole limit.
    ChargesTheWholeLimit,
    /// A return is refunded in full, regardless of the time since the charge.
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

    /// Settings that take minutes to hours to explore completely, for `cargo xtask explore`.
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

    /// The same setting under strict terms, with the capacity that these require.
    #[must_use]
    pub fn strict() -> Self {
        Self { mode: LeaseMode::Strict, capacity: 6, ..Self::bounded() }
    }

    /// Explores all states.
    ///
    /// # Errors
    /// The steps that break a promise, or a message that there are more than `most` states.
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

    /// The quota that all instances charge against, before or after the change of the limit.
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

    /// The number of requests that may pass beyond capacity and rate.
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

/// A setting with the values derived from it.
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

    /// The time in ticks, rounded up, in which the bucket refills this many permits.
    fn lasting(&self, permits: u32) -> u64 {
        let (amount, ticks) = self.refill;
        (u64::from(permits) * ticks).div_ceil(amount)
    }

    /// The maximum number of requests beyond the rate in any interval, after this many failovers.
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
