//! The sliding window: a list of charges, each with its instant. A charge made at `at` counts while the clock is before
//! `at + window`.

use super::{Algorithm, DEBT, SECOND, usage};

/// The largest debt of a sliding window in units.
const DEBT_UNITS: u64 = 10_000;

/// A sliding window.
#[derive(Clone, Debug, PartialEq)]
pub struct SlidingWindow {
    /// Units within any window.
    pub limit: u64,
    /// The window.
    pub window: u64,
}

/// Instants and units, oldest first.
pub(in super::super) type Charges = Vec<(u64, u64)>;

impl SlidingWindow {
    fn used(&self, charges: &Charges, now: u64) -> u64 {
        charges.iter().filter(|(at, _)| now < at + self.window).map(|(_, units)| units).sum()
    }

    fn newest(charges: &Charges) -> u64 {
        charges.last().map_or(0, |(at, _)| *at)
    }

    /// The charges that count. Every write drops the others for good, even if the clock steps back.
    fn counting(&self, charges: &Charges, now: u64) -> Charges {
        charges.iter().filter(|(at, _)| now < at + self.window).copied().collect()
    }
}

impl Algorithm for SlidingWindow {
    usage!(SlidingWindow(Charges));

    fn limit(&self) -> u64 {
        self.limit
    }

    fn remaining(&self, charges: Option<&Charges>, now: u64) -> u64 {
        self.limit.saturating_sub(charges.map_or(0, |charges| self.used(charges, now)))
    }

    fn debt(&self, charges: Option<&Charges>, now: u64) -> u64 {
        charges.map_or(0, |charges| self.used(charges, now)).saturating_sub(self.limit)
    }

    fn fits(&self, charges: Option<&Charges>, cost: u64, now: u64) -> bool {
        charges.map_or(0, |charges| self.used(charges, now)) + cost <= self.limit
    }

    /// Units become free only when a charge leaves the window.
    fn fits_at(&self, charges: Option<&Charges>, cost: u64, now: u64) -> Option<u64> {
        let leaving = charges.into_iter().flatten().map(|(at, _)| at + self.window);
        leaving.filter(|at| *at > now).find(|at| self.fits(charges, cost, *at))
    }

    fn restored_at(&self, charges: Option<&Charges>, now: u64) -> u64 {
        charges.filter(|charges| !charges.is_empty()).map_or(now, |charges| Self::newest(charges) + self.window)
    }

    fn charged(&self, charges: Option<&Charges>, cost: u64, now: u64) -> Charges {
        let mut charges = charges.map(|charges| self.counting(charges, now)).unwrap_or_default();
        // After a backward step of the clock, a new charge is not dated before an existing one.
        charges.push((now.max(Self::newest(&charges)), cost));
        charges
    }

    fn reported(&self, charges: Option<&Charges>, cost: u64, now: u64) -> Charges {
        let used = charges.map_or(0, |charges| self.used(charges, now));
        match cost.min((self.limit + (DEBT * self.limit).min(DEBT_UNITS)).saturating_sub(used)) {
            0 => charges.cloned().unwrap_or_default(),
            cost => self.charged(charges, cost, now),
        }
    }

    /// Refunds the newest units first.
    fn refunded(&self, charges: &Charges, cost: u64, now: u64) -> Charges {
        let mut charges = self.counting(charges, now);
        let mut rest = cost;
        while let Some((_, units)) = charges.last_mut() {
            let returned = rest.min(*units);
            *units -= returned;
            rest -= returned;
            if *units > 0 {
                break;
            }
            charges.pop();
        }
        charges
    }

    fn repaired(&self, charges: &Charges, now: u64) -> Option<Charges> {
        let is_too_far = Self::newest(charges) > now + self.window.max(SECOND);
        is_too_far.then(|| charges.iter().map(|(at, units)| ((*at).min(now), *units)).collect())
    }

    fn matters_until(&self, charges: &Charges) -> u64 {
        if charges.is_empty() { 0 } else { Self::newest(charges) + self.window }
    }
}
