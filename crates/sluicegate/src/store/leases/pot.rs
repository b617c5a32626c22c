//! The permits that are held for one decision.
//!
//! A pure state machine: instants are arguments, and what a grant needs to be used or given back travels with it as `S`.
//! A pot never waits for anything: whoever calls the store says before that it asks, and afterwards what came of it.
//!
//! The lifetime of a grant counts from before the call was sent, so it ends before anybody else could think so; and it is
//! checked whenever a permit is spent, so a process that slept wakes up with nothing. What was granted by a store that has
//! since lost its memory, or may have, is of another [`Generation`]: it is not spent, and not given back either, because
//! there it was perhaps never charged.

use sluicegate_core::{Micros, Timestamp};
use smallvec::SmallVec;

/// The most grants held at a time: one that is being spent, and the next.
pub const GRANTS_MAX: usize = 2;

/// An instant on this process' monotonic clock, in microseconds since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// The instant this long after the start.
    #[must_use]
    pub const fn after(start: Micros) -> Self {
        Self(start.as_micros())
    }

    /// This instant and `length` more.
    #[must_use]
    pub const fn plus(self, length: Micros) -> Self {
        Self(self.0.saturating_add(length.as_micros()))
    }

    /// How long ago `earlier` was; nothing if it has not been yet.
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

/// What a store remembers may be gone when this changes: it restarted, another took its place, or nobody can tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Generation(pub u64);

/// Permits that one call has paid for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Grant<S> {
    /// How many are left.
    pub permits: u32,
    /// When they were charged, on the store's clock.
    pub charged_at: Timestamp,
    /// From this instant on they are worthless.
    pub ends: Moment,
    /// Which memory of the store they are charged in.
    pub generation: Generation,
    /// What it takes to use them and to give them back.
    pub state: S,
}

/// Permits to give back: once, or never.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[must_use = "nobody else can give them back"]
pub struct Return<S> {
    /// How many.
    pub permits: u32,
    /// When they were charged, on the store's clock.
    pub charged_at: Timestamp,
    /// Which memory of the store they are charged in. In another one they must not be given back.
    pub generation: Generation,
    /// What it takes to give them back.
    pub state: S,
}

/// All permits to give back of one pot.
pub type Returns<S> = SmallVec<[Return<S>; GRANTS_MAX]>;

/// What became of permits. At any time granted = spent + held + returned + lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tally {
    /// Paid for beyond the requests that waited for the call.
    pub granted: u64,
    /// Used by a request.
    pub spent: u64,
    /// Handed over to be given back.
    pub returned: u64,
    /// Neither: nobody may use them any more.
    pub lost: u64,
}

impl Tally {
    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            granted: self.granted + other.granted,
            spent: self.spent + other.spent,
            returned: self.returned + other.returned,
            lost: self.lost + other.lost,
        }
    }

    /// True if no permit was made up or forgotten where so many are held.
    #[must_use]
    pub fn is_balanced(&self, held: u64) -> bool {
        self.granted == self.spent + held + self.returned + self.lost
    }
}

/// The permits of one decision.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pot<S> {
    /// In the order in which they end.
    grants: SmallVec<[Grant<S>; GRANTS_MAX]>,
    /// How many permits the call under way has asked for.
    asked: u32,
    tally: Tally,
}

impl<S> Default for Pot<S> {
    fn default() -> Self {
        Self { grants: SmallVec::new(), asked: 0, tally: Tally::default() }
    }
}

impl<S> Pot<S> {
    /// How many permits are here, be they of any use or not.
    #[must_use]
    pub fn held(&self) -> u32 {
        self.grants.iter().map(|grant| grant.permits).sum()
    }

    /// The grants, in the order in which they end.
    #[must_use]
    pub fn grants(&self) -> &[Grant<S>] {
        &self.grants
    }

    /// How many permits the call under way has asked for.
    #[must_use]
    pub fn asked(&self) -> u32 {
        self.asked
    }

    /// What became of all permits so far.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// True if nothing is held and nothing is to come.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.grants.is_empty() && self.asked == 0
    }

    /// A call is about to be sent, and this pot would like to hold `size`: says how many permits the call may ask for
    /// beyond those that wait for it. None while another call has asked for some, or a second grant is here.
    pub fn ask(&mut self, size: u32) -> u32 {
        if self.asked > 0 || self.grants.len() >= GRANTS_MAX {
            return 0;
        }
        self.asked = size.saturating_sub(self.held());
        self.asked
    }

    /// What was asked for has come. More than that is nobody's: it may have been for a request that has gone away.
    pub fn grant(&mut self, grant: Grant<S>) {
        let kept = grant.permits.min(self.asked);
        self.asked = 0;
        self.tally.granted += u64::from(grant.permits);
        self.tally.lost += u64::from(grant.permits - kept);
        if kept == 0 {
            return;
        }
        let place = self.grants.iter().position(|other| other.ends > grant.ends).unwrap_or(self.grants.len());
        self.grants.insert(place, Grant { permits: kept, ..grant });
    }

    /// What was asked for has not come and is not going to, whether or not it was paid for.
    pub fn unanswered(&mut self) {
        self.asked = 0;
    }

    /// What is here counts for nothing any more and is not given back either; nor is what has been asked for so far.
    pub fn lose(&mut self) {
        self.tally.lost += u64::from(self.held());
        self.grants.clear();
        self.asked = 0;
    }

    /// Spends one permit, if there is one that still counts; `use_it` sees its grant after that.
    pub fn spend<T>(
        &mut self,
        now: Moment,
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

    /// Takes out what has ended, to be given back, or lost if it is of another generation.
    pub fn expire(&mut self, now: Moment, generation: Generation) -> Returns<S> {
        self.take_out(generation, |grant| grant.ends <= now || grant.generation != generation)
    }

    /// Takes out everything, to be given back: nobody will come any more.
    pub fn drain(&mut self, generation: Generation) -> Returns<S> {
        self.take_out(generation, |_| true)
    }

    fn take_out(&mut self, generation: Generation, is_over: impl Fn(&Grant<S>) -> bool) -> Returns<S> {
        let mut returns = Returns::new();
        let mut index = 0;
        while index < self.grants.len() {
            if !is_over(&self.grants[index]) {
                index += 1;
                continue;
            }
            let Grant { permits, charged_at, generation: granted_in, state, .. } = self.grants.remove(index);
            if granted_in == generation {
                self.tally.returned += u64::from(permits);
                returns.push(Return { permits, charged_at, generation, state });
            } else {
                self.tally.lost += u64::from(permits);
            }
        }
        returns
    }
}

#[cfg(test)]
mod tests;
