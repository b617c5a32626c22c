//! A list of charges, each with its instant. Those of the last window count: a charge made at `at` counts
//! while `now` is before `at + window`.

use super::{Exact, Memory, Rules, believed_ahead, whole, with_debt};

/// The largest debt of a log in units.
const DEBT_MAX: u64 = 10_000;

/// A sliding window.
#[derive(Clone, Debug, PartialEq)]
pub struct Log {
    /// Units within any window.
    pub limit: u64,
    /// The window in microseconds.
    pub window: u64,
}

/// (instant, units), in the order they were charged.
pub(crate) type Charges = Vec<(u64, u64)>;

impl Log {
    fn used(&self, charges: &Charges, now: u64) -> u64 {
        charges.iter().filter(|(at, _)| self.counts(*at, now)).map(|(_, units)| units).sum()
    }

    fn counts(&self, at: u64, now: u64) -> bool {
        now < at + self.window
    }

    /// Drops the charges that no longer count. Every write does this, and the charges stay dropped even if the clock
    /// steps back.
    fn forget(&self, charges: &mut Charges, now: u64) {
        charges.retain(|(at, _)| self.counts(*at, now));
    }
}

impl Rules for Log {
    type Memory = Charges;

    fn wrap(charges: Charges) -> Memory {
        Memory::Log(charges)
    }

    fn own(memory: &Memory) -> Option<&Charges> {
        match memory {
            Memory::Log(charges) => Some(charges),
            _ => None,
        }
    }

    fn free(&self, charges: Option<&Charges>, now: u64) -> Exact {
        whole(self.limit) - whole(charges.map_or(0, |charges| self.used(charges, now)))
    }

    /// Units become free only when a charge leaves the window, so it is enough to try these instants.
    fn free_at(&self, charges: Option<&Charges>, cost: u64, now: u64) -> Option<u64> {
        let leaving = charges.into_iter().flatten().map(|(at, _)| at + self.window);
        leaving.filter(|at| *at >= now && whole(cost) <= self.free(charges, *at)).min()
    }

    fn whole_at(&self, charges: Option<&Charges>, now: u64) -> u64 {
        charges.into_iter().flatten().map(|(at, _)| at + self.window).max().unwrap_or(now)
    }

    fn settled(&self, charges: Charges, now: u64) -> Charges {
        let furthest = now + believed_ahead(self.window);
        if charges.iter().all(|(at, _)| *at <= furthest) {
            return charges;
        }
        charges.into_iter().map(|(at, units)| (at.min(now), units)).collect()
    }

    fn taken(&self, charges: Option<Charges>, cost: u64, now: u64) -> Charges {
        let mut charges = charges.unwrap_or_default();
        self.forget(&mut charges, now);
        // A new charge is never dated before an existing one.
        let newest = charges.iter().map(|(at, _)| *at).max().unwrap_or(0);
        charges.push((now.max(newest), cost));
        charges
    }

    fn reported(&self, charges: Option<Charges>, cost: u64, now: u64) -> Option<Charges> {
        let used = charges.as_ref().map_or(0, |charges| self.used(charges, now));
        match cost.min(with_debt(self.limit).min(self.limit + DEBT_MAX).saturating_sub(used)) {
            0 => charges,
            cost => Some(self.taken(charges, cost, now)),
        }
    }

    fn given_back(&self, mut charges: Charges, cost: u64, now: u64) -> (Charges, Exact) {
        self.forget(&mut charges, now);
        let mut owed = cost;
        while let Some((at, units)) = charges.pop() {
            if units > owed {
                charges.push((at, units - owed));
                owed = 0;
                break;
            }
            owed -= units;
        }
        (charges, whole(cost - owed))
    }
}
