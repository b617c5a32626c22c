//! Loom models of the denial cache, for every interleaving of threads: inserts against invalidations, and concurrent
//! charges.

use super::insert::CallStart;
use super::invalidation::InvalidationClock;
use super::order::Execution;
use super::table::{Observation, ObservationTable, ObservedLimit};
use super::{CacheMoment, DenialCache, EXCHANGE_AGE_MAX};
use crate::store::key::Digest;
use crate::store::{Charge, Key, KeySpace, Subject};
use loom::sync::{Arc, Mutex};
use loom::thread;
use sluicegate_core::decision::ChargeMode;
use sluicegate_core::{Cost, Micros, Quota, Rate, State, Timestamp, TokenBucket};
use smallvec::SmallVec;

const NOW: Timestamp = Timestamp::now(1_705_312_800_000_000);
/// All calls are sent at one local time and answered at the other, so only the server orders them.
const START: CacheMoment = CacheMoment { local: 1, generation: 0 };
const END: CacheMoment = CacheMoment { local: 3, generation: 0 };
/// The partition of the only key.
const PARTITION: u16 = 1;

fn cache() -> Arc<DenialCache> {
    Arc::new(DenialCache::of(ObservationTable::new(1), InvalidationClock::new(2)))
}

fn hourly() -> Quota {
    TokenBucket::new(3, Rate::new(1, Micros::from_secs(3_600)).unwrap()).unwrap().into()
}

fn with_charge<T>(act: impl FnOnce(&[Charge<'_>]) -> T) -> T {
    let (space, quotas) = (KeySpace::new("rule"), [hourly()]);
    let key = Key { space: &space, subject: Subject::default() };
    act(&[Charge {
        key,
        quotas: &quotas,
        cost: Cost::new(3),
        mode: ChargeMode::Enforced,
        lease: None,
        usage: Cost::ZERO,
    }])
}

/// The remaining quota, if the cache denies the whole cost.
fn left(cache: &DenialCache, moment: CacheMoment) -> Option<u64> {
    with_charge(|charges| cache.lookup(charges, moment).map(|reply| reply.verdicts[0].remaining))
}

fn key() -> Digest {
    with_charge(|charges| charges[0].key.digest())
}

/// The state after this many charges of one unit.
fn charged(units: u32) -> Option<State> {
    hourly().charge(None, Cost::new(units), NOW)
}

/// The execution of the charge with this number.
fn charge(number: u32) -> Execution {
    let now = NOW.plus(Micros::from_micros(10 * u64::from(number)));
    Execution { now, sent_at: START.local, received_at: END.local }
}

/// A denial between this charge and the next.
fn denial(charges: u32) -> Execution {
    let now = charge(charges).now.plus(Micros::from_micros(5));
    Execution { now, ..charge(charges) }
}

fn observation(call_start: CallStart, execution: Execution, charges: u32) -> Observation {
    let limit = ObservedLimit { state: charged(charges), at: NOW, denied: None };
    Observation {
        key: key(),
        quotas: super::digest_of(&[hourly()]),
        execution,
        ends: u64::MAX,
        generation: 0,
        since: call_start.since,
        partition: PARTITION,
        is_renewed: false,
        limits: SmallVec::from_iter([limit]),
    }
}

/// Inserts the result of a denial, if it is valid.
fn deny(cache: &DenialCache, call_start: CallStart, charges: u32) {
    let observation = observation(call_start, denial(charges), charges);
    if cache.is_valid(&observation) {
        cache.table.keep(observation, 0, false, |old| cache.is_valid(old));
    }
}

#[test]
fn loom_a_denial_from_before_a_refund_is_never_valid_after_it() {
    loom::model(|| {
        let (cache, has_room) = (cache(), Arc::new(Mutex::new(false)));
        let ask = || {
            let (cache, has_room) = (Arc::clone(&cache), Arc::clone(&has_room));
            thread::spawn(move || {
                let call_start = cache.call_start(START);
                let is_denied = !*has_room.lock().unwrap();
                if is_denied {
                    deny(&cache, call_start, 1);
                }
            })
        };
        let threads = [ask(), ask()];
        *has_room.lock().unwrap() = true;
        cache.invalidate(PARTITION);
        // A lookup from here on comes after the reply to the refund.
        assert_eq!(left(&cache, END), None);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(left(&cache, END), None);
    });
}

#[test]
fn loom_a_refund_of_another_subject_invalidates_nothing() {
    loom::model(|| {
        let cache = cache();
        let asker = {
            let cache = Arc::clone(&cache);
            thread::spawn(move || {
                let call_start = cache.call_start(START);
                deny(&cache, call_start, 1);
            })
        };
        cache.invalidate(0);
        asker.join().unwrap();
        assert_eq!(left(&cache, END), Some(2));
    });
}

#[test]
fn loom_an_exchange_revives_only_valid_observations() {
    loom::model(|| {
        let cache = cache();
        deny(&cache, cache.call_start(START), 3);
        let later = CacheMoment { local: END.local + EXCHANGE_AGE_MAX + 1, generation: 0 };
        assert_eq!(left(&cache, later), None, "nothing was heard for too long");
        let reader = {
            let cache = Arc::clone(&cache);
            thread::spawn(move || {
                cache.invalidate(PARTITION);
                cache.record_exchange(later.local);
            })
        };
        assert_eq!(left(&cache, later), None);
        reader.join().unwrap();
        assert_eq!(left(&cache, later), None);
    });
}

/// An answered charge is part of every later denial, whichever reply comes first.
#[test]
fn loom_a_cached_denial_contains_every_answered_charge() {
    loom::model(|| {
        let cache = cache();
        // The number of charges on the server.
        let server = Arc::new(Mutex::new(0_u32));
        let charger = |cache: &Arc<DenialCache>| {
            let (cache, server) = (Arc::clone(cache), Arc::clone(&server));
            thread::spawn(move || {
                let call_start = cache.call_start(START);
                let charges = {
                    let mut charges = server.lock().unwrap();
                    *charges += 1;
                    *charges
                };
                let after = cache.table.holds(key()).then(|| observation(call_start, charge(charges), charges));
                cache.table.charged(key(), &charge(charges), 0, after);
                // The caller is answered.
                let remaining = left(&cache, END);
                assert!(
                    remaining.is_none_or(|left| left <= u64::from(3 - charges)),
                    "{remaining:?} after {charges}"
                );
            })
        };
        let asker = {
            let (cache, server) = (Arc::clone(&cache), Arc::clone(&server));
            thread::spawn(move || {
                let call_start = cache.call_start(START);
                let charges = *server.lock().unwrap();
                deny(&cache, call_start, charges);
            })
        };
        let chargers = [charger(&cache), charger(&cache)];
        asker.join().unwrap();
        for thread in chargers {
            thread.join().unwrap();
        }
        assert!(left(&cache, END).is_none_or(|cached_wait| cached_wait == 1), "both were answered");
    });
}
