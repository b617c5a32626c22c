//! The permit pool of one decision.
//!
//! A pure state machine: instants are arguments, and `S` is the data that a store needs to use a grant or to give it
//! back. The pool never waits: the store reports before a call that it requests permits, and after it how the call
//! ended.
//!
//! The lifetime of a grant starts before its call was sent, so the grant expires here before any other party could
//! assume so. Expiry is checked with every permit that is spent, so a process that was suspended wakes up without
//! permits. A grant of a store that may have lost its data since belongs to another [`Generation`]. Its permits are
//! neither spent nor given back, because the charge may not exist there.

use sluicegate_core::{Micros, Timestamp};
use smallvec::SmallVec;

/// The most grants at a time: one that is being spent, and the next.
pub const GRANTS_MAX: usize = 2;

/// An instant on this process's monotonic clock, in microseconds since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uptime(u64);

impl Uptime {
    /// The instant this long after the start.
    #[must_use]
    pub const fn after(start: Micros) -> Self {
        Self(start.as_micros())
    }

    /// This instant plus `length`.
    #[must_use]
    pub const fn plus(self, length: Micros) -> Self {
        Self(self.0.saturating_add(length.as_micros()))
    }

    /// The time since `earlier`; zero if that is in the future.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Micros {
        Micros::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// Microseconds since the start.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }
}

/// The generation of a store's data. It changes when the data may be lost: after a restart, a failover, or a gap in
/// the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Generation(pub u64);

/// Permits from one call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Grant<S> {
    /// The number of permits left.
    pub permits: u32,
    /// The instant of the charge, on the store's clock.
    pub charged_at: Timestamp,
    /// The instant from which on they are worthless.
    pub ends: Uptime,
    /// The generation in which they are charged.
    pub generation: Generation,
    /// The data to use them and to give them back.
    pub state: S,
}

/// Permits to give back, at most once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[must_use = "permits that are not given back stay charged"]
pub struct PermitReturn<S> {
    /// The number of permits.
    pub permits: u32,
    /// The instant of the charge, on the store's clock.
    pub charged_at: Timestamp,
    /// The generation in which they are charged. In another one they must not be given back.
    pub generation: Generation,
    /// The data to give them back.
    pub state: S,
}

/// All permits of one pool to give back.
pub type PermitReturns<S> = SmallVec<[PermitReturn<S>; GRANTS_MAX]>;

/// The balance of permits. At any time granted = spent + held + returned + lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PermitTally {
    /// Charged beyond the waiters of the call.
    pub granted: u64,
    /// Used by a request.
    pub spent: u64,
    /// Handed over to be given back.
    pub returned: u64,
    /// Neither used nor given back.
    pub lost: u64,
}

impl PermitTally {
    /// The sum of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            granted: self.granted + other.granted,
            spent: self.spent + other.spent,
            returned: self.returned + other.returned,
            lost: self.lost + other.lost,
        }
    }

    /// Whether the balance holds with this many permits held.
    #[must_use]
    pub fn is_balanced(&self, held: u64) -> bool {
        self.granted == self.spent + held + self.returned + self.lost
    }
}

/// The permits of one decision.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PermitPool<S> {
    /// In order of expiry.
    grants: SmallVec<[Grant<S>; GRANTS_MAX]>,
    /// How many permits the call in flight has requested.
    requested: u32,
    tally: PermitTally,
}

impl<S> Default for PermitPool<S> {
    fn default() -> Self {
        Self { grants: SmallVec::new(), requested: 0, tally: PermitTally::default() }
    }
}

impl<S> PermitPool<S> {
    /// How many permits the pool holds, usable or not.
    #[must_use]
    pub fn held(&self) -> u32 {
        self.grants.iter().map(|grant| grant.permits).sum()
    }

    /// The grants, in order of expiry.
    #[must_use]
    pub fn grants(&self) -> &[Grant<S>] {
        &self.grants
    }

    /// How many permits the call in flight has requested.
    #[must_use]
    pub fn requested(&self) -> u32 {
        self.requested
    }

    /// The balance so far.
    #[must_use]
    pub fn tally(&self) -> PermitTally {
        self.tally
    }

    /// Whether the pool holds nothing and has requested nothing.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.grants.is_empty() && self.requested == 0
    }

    /// Requests permits for a call that is about to be sent, to fill the pool up to `size`. Returns how many the
    /// call may request beyond its waiters: none while another call has requested some, or while there are two
    /// grants.
    pub fn request(&mut self, size: u32) -> u32 {
        if self.requested > 0 || self.grants.len() >= GRANTS_MAX {
            return 0;
        }
        self.requested = size.saturating_sub(self.held());
        self.requested
    }

    /// Adds the requested permits. A surplus is lost: it may belong to a request that has gone away.
    pub fn grant(&mut self, grant: Grant<S>) {
        let kept = grant.permits.min(self.requested);
        self.requested = 0;
        self.tally.granted += u64::from(grant.permits);
        self.tally.lost += u64::from(grant.permits - kept);
        if kept == 0 {
            return;
        }
        let place = self.grants.iter().position(|other| other.ends > grant.ends).unwrap_or(self.grants.len());
        self.grants.insert(place, Grant { permits: kept, ..grant });
    }

    /// The requested permits will not come, whether or not they were charged.
    pub fn call_failed(&mut self) {
        self.requested = 0;
    }

    /// Drops all permits, and those that were requested, without giving them back.
    pub fn forfeit(&mut self) {
        self.tally.lost += u64::from(self.held());
        self.grants.clear();
        self.requested = 0;
    }

    /// Spends one permit that is still valid; `use_it` receives its grant afterwards.
    pub fn spend<T>(
        &mut self,
        now: Uptime,
        generation: Generation,
        use_it: impl FnOnce(&mut Grant<S>) -> T,
    ) -> Option<T> {
        let counts = |grant: &Grant<S>| now < grant.ends && grant.generation == generation;
        let index = self.grants.iter().position(counts)?;
        let grant = &mut self.grants[index];
        grant.permits -= 1;
        self.tally.spent += 1;
        let used = use_it(grant);
        if grant.permits == 0 {
            self.grants.remove(index);
        }
        Some(used)
    }

    /// Takes out expired grants, to be given back. Grants of another generation are lost.
    pub fn expire(&mut self, now: Uptime, generation: Generation) -> PermitReturns<S> {
        self.take_out(generation, |grant| grant.ends <= now || grant.generation != generation)
    }

    /// Takes out everything, to be given back, because no further requests will come.
    pub fn drain(&mut self, generation: Generation) -> PermitReturns<S> {
        self.take_out(generation, |_| true)
    }

    fn take_out(&mut self, generation: Generation, is_over: impl Fn(&Grant<S>) -> bool) -> PermitReturns<S> {
        let mut returns = PermitReturns::new();
        let mut index = 0;
        while index < self.grants.len() {
            if !is_over(&self.grants[index]) {
                index += 1;
                continue;
            }
            let Grant { permits, charged_at, generation: granted_in, state, .. } = self.grants.remove(index);
            if granted_in == generation {
                self.tally.returned += u64::from(permits);
                returns.push(PermitReturn { permits, charged_at, generation, state });
            } else {
                self.tally.lost += u64::from(permits);
            }
        }
        returns
    }
}

#[cfg(test)]
mod tests;
