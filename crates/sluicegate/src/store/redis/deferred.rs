//! Charges of requests that this instance admitted by its own share while the server could not keep up. They are charged
//! to the server as soon as possible.
//!
//! A deferred charge is one key, one limit set and one cost, with the number of admissions: a flood from one identity is
//! one deferred charge. It is charged even if it does not fit, because its requests have already passed. So the limits
//! are exact again when all deferred charges are settled.
//!
//! A call may have charged after its waiter gave up. If that waiter's request is admitted nonetheless, its error carries
//! a [`Fate`] that reports how the call ended, and nothing is deferred if the call did charge.
//!
//! There are at most [`DEFERRED_MAX`] deferred charges, and one that cannot be settled for [`DEFERRED_FOR_MAX`] is
//! written off. That admits at most one more share of the limit.
//!
//! Usage that was reported while the server did not answer is deferred in the same way, whatever the reason. What is
//! written off of it is counted.

pub(crate) mod settle;

use super::protocol::planned_charge::PlannedCharge;
use crate::store::key::Digest;
use crate::store::{Fate, LateOutcome, UnchargedUsage};
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The most deferred charges, and the most charges of unknown fate.
const DEFERRED_MAX: usize = 65_536;
/// How long a deferred charge is kept.
const DEFERRED_FOR_MAX: Duration = Duration::from_secs(10);
/// How long an unknown fate is awaited.
const FATE_TIMEOUT: Duration = Duration::from_millis(1_200);

/// The digest of a decision over one key, and its charge.
type Planned = (Digest, Arc<PlannedCharge>);

/// All deferred charges of a store.
#[derive(Debug, Default)]
pub(crate) struct DeferredCharges {
    backlog: Mutex<Backlog>,
    added: Notify,
    /// The units of usage that were written off, and those that may or may not have been charged.
    written_off: AtomicU64,
    unknown: AtomicU64,
}

#[derive(Debug, Default)]
struct Backlog {
    owed: HashMap<Digest, DeferredCharge, RandomState>,
    uncertain: Vec<UncertainCharge>,
    /// Whether charges have been taken out to be settled.
    is_settling: bool,
}

/// Admissions that are not charged to one key yet.
#[derive(Debug)]
struct DeferredCharge {
    charge: Arc<PlannedCharge>,
    times: u32,
    since: Instant,
}

/// Charges that may have been made.
#[derive(Debug)]
struct UncertainCharge {
    fate: Fate,
    charges: SmallVec<[Planned; 1]>,
    since: Instant,
}

impl DeferredCharges {
    fn add(&self, fate: Option<Fate>, charges: SmallVec<[Planned; 1]>) {
        let since = Instant::now();
        let mut backlog = self.backlog.lock();
        match fate {
            Some(fate) if backlog.uncertain.len() < DEFERRED_MAX => {
                backlog.uncertain.push(UncertainCharge { fate, charges, since });
            }
            // A charge that may have been made is not made again.
            Some(_) => charges.iter().for_each(|(_, charge)| self.count_unknown(charge, 1)),
            None => charges.into_iter().for_each(|planned| self.owe(&mut backlog, planned, 1, since)),
        }
        drop(backlog);
        self.added.notify_one();
    }

    fn is_empty(&self) -> bool {
        let backlog = self.backlog.lock();
        backlog.owed.is_empty() && backlog.uncertain.is_empty() && !backlog.is_settling
    }

    /// Takes out the charges that can be settled now.
    fn take(&self, now: Instant) -> Vec<(Digest, DeferredCharge)> {
        let mut backlog = self.backlog.lock();
        backlog.is_settling = true;
        let uncertain = std::mem::take(&mut backlog.uncertain);
        for mut each in uncertain {
            match each.fate.look() {
                None if now.duration_since(each.since) < FATE_TIMEOUT => backlog.uncertain.push(each),
                Some(LateOutcome::Charged) => {}
                Some(LateOutcome::Denied) => {
                    let rest = each.charges.iter().filter_map(|(_, charge)| charge.without_usage());
                    rest.map(planned_of).for_each(|planned| self.owe(&mut backlog, planned, 1, each.since));
                }
                // A call of unknown fate after this time does not charge any more.
                None | Some(LateOutcome::Failed) => {
                    let charges = each.charges.into_iter();
                    charges.for_each(|planned| self.owe(&mut backlog, planned, 1, each.since));
                }
            }
        }
        let is_current = |owed: &DeferredCharge| now.duration_since(owed.since) < DEFERRED_FOR_MAX;
        let (current, old): (Vec<_>, Vec<_>) = backlog.owed.drain().partition(|(_, owed)| is_current(owed));
        old.iter().for_each(|(_, owed)| count(&self.written_off, &owed.charge, owed.times));
        current
    }

    fn owe(&self, backlog: &mut Backlog, (digest, charge): Planned, times: u32, since: Instant) {
        if let Err(charge) = backlog.owe(digest, charge, times, since) {
            count(&self.written_off, &charge, times);
        }
    }

    /// Counts the usage of so many charges that may have been made, and are not made again.
    fn count_unknown(&self, charge: &PlannedCharge, times: u32) {
        count(&self.unknown, charge, times);
    }

    /// The usage that was not charged.
    pub(crate) fn uncharged_usage(&self) -> UnchargedUsage {
        let [store, unknown] = [&self.written_off, &self.unknown].map(|units| units.load(Ordering::Relaxed));
        UnchargedUsage { debt: 0, store, unknown }
    }

    /// Puts charges back that could not be settled.
    fn put_back(&self, deferred: Vec<(Digest, DeferredCharge)>) {
        let mut backlog = self.backlog.lock();
        for (digest, DeferredCharge { charge, times, since }) in deferred {
            self.owe(&mut backlog, (digest, charge), times, since);
        }
    }

    fn settled(&self) {
        self.backlog.lock().is_settling = false;
    }
}

impl Backlog {
    /// Adds a charge, or returns it if there is no room.
    fn owe(
        &mut self,
        digest: Digest,
        charge: Arc<PlannedCharge>,
        times: u32,
        since: Instant,
    ) -> Result<(), Arc<PlannedCharge>> {
        if let Some(owed) = self.owed.get_mut(&digest) {
            owed.times = owed.times.saturating_add(times);
        } else if self.owed.len() < DEFERRED_MAX {
            self.owed.insert(digest, DeferredCharge { charge, times, since });
        } else {
            return Err(charge);
        }
        Ok(())
    }
}

fn planned_of(charge: PlannedCharge) -> Planned {
    (charge.single_digest(), Arc::new(charge))
}

/// Adds the usage of so many charges.
fn count(units: &AtomicU64, charge: &PlannedCharge, times: u32) {
    units.fetch_add(charge.usage.units().saturating_mul(times.into()), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::protocol::key::KeyEncoder;
    use crate::store::{Charge, Key, KeySpace, Subject};
    use sluicegate_core::decision::ChargeMode;
    use sluicegate_core::{Align, Cost, FixedWindow, Micros, Quota};

    #[test]
    fn deferred_charges_are_bounded() {
        let (quotas, space) = (
            [Quota::from(FixedWindow::new(6, Micros::from_secs(60), Align::Epoch).unwrap())],
            KeySpace::new("rule"),
        );
        let key = Key { space: &space, subject: Subject::default() };
        let charge = Charge {
            key,
            quotas: &quotas,
            cost: Cost::ONE,
            mode: ChargeMode::Enforced,
            lease: None,
            usage: Cost::ZERO,
        };
        let planned = Arc::new(PlannedCharge::new(&KeyEncoder::default(), &charge));
        let (mut backlog, now) = (Backlog::default(), Instant::now());
        for number in 0..=DEFERRED_MAX as u64 {
            let is_owed = backlog.owe(Digest(number, number), Arc::clone(&planned), 1, now).is_ok();
            assert_eq!(is_owed, number < DEFERRED_MAX as u64);
            backlog.owe(Digest(0, 0), Arc::clone(&planned), 1, now).unwrap();
        }
        assert_eq!(
            (backlog.owed.len(), backlog.owed[&Digest(0, 0)].times),
            (DEFERRED_MAX, DEFERRED_MAX as u32 + 2)
        );
    }
}
