//! Permit pools, one event at a time and in any order.

use super::*;
use proptest::prelude::*;

const FIRST: Generation = Generation(1);
const SECOND: Generation = Generation(2);

fn at(micros: u64) -> Uptime {
    Uptime::after(Micros::from_micros(micros))
}

fn grant(permits: u32, ends: u64) -> Grant<()> {
    Grant { permits, charged_at: Timestamp::now(7), ends: at(ends), generation: FIRST, state: () }
}

fn holding(permits: u32, ends: u64) -> PermitPool<()> {
    let mut pool = PermitPool::default();
    assert_eq!(pool.request(permits), permits);
    pool.grant(grant(permits, ends));
    pool
}

fn spends(pool: &mut PermitPool<()>, now: u64, generation: Generation) -> bool {
    pool.spend(at(now), generation, |_| ()).is_some()
}

#[test]
fn a_permit_is_spent_once_and_before_it_expires() {
    let mut pool = holding(2, 100);
    assert!(spends(&mut pool, 99, FIRST));
    assert!(!spends(&mut pool, 100, FIRST), "its time is over, whatever it was doing until now");
    assert!(spends(&mut pool, 99, FIRST));
    assert!(!spends(&mut pool, 99, FIRST));
    assert_eq!(pool.tally(), PermitTally { granted: 2, spent: 2, returned: 0, lost: 0 });
    assert!(pool.is_idle());
}

#[test]
fn expired_permits_are_returned_once() {
    let mut pool = holding(3, 100);
    assert!(spends(&mut pool, 0, FIRST));
    assert!(pool.expire(at(99), FIRST).is_empty());
    let returns = pool.expire(at(100), FIRST);
    assert_eq!(
        returns[..],
        [PermitReturn { permits: 2, charged_at: Timestamp::now(7), generation: FIRST, state: () }]
    );
    assert!(pool.expire(at(100), FIRST).is_empty() && pool.drain(FIRST).is_empty());
    assert!(!spends(&mut pool, 0, FIRST), "permits to give back are not spent");
    assert_eq!(pool.tally(), PermitTally { granted: 3, spent: 1, returned: 2, lost: 0 });
}

#[test]
fn all_permits_are_returned_by_drain() {
    let mut pool = holding(3, 100);
    assert_eq!(pool.request(5), 2);
    pool.grant(grant(2, 150));
    let permits: Vec<u32> = pool.drain(FIRST).iter().map(|back| back.permits).collect();
    assert_eq!(permits, [3, 2]);
    assert!(pool.is_idle());
}

#[test]
fn permits_of_another_generation_are_neither_spent_nor_returned() {
    let mut pool = holding(2, 100);
    assert!(!spends(&mut pool, 0, SECOND));
    assert!(pool.expire(at(0), SECOND).is_empty());
    assert_eq!(pool.tally(), PermitTally { granted: 2, spent: 0, returned: 0, lost: 2 });
    let mut pool = holding(2, 100);
    assert!(pool.drain(SECOND).is_empty());
    assert_eq!(pool.tally().lost, 2);
}

#[test]
fn requests_fill_the_pool_and_only_one_call_requests_at_a_time() {
    let mut pool = holding(3, 100);
    assert_eq!(pool.request(3), 0);
    assert_eq!(pool.request(8), 5);
    assert_eq!(pool.request(9), 0, "a call is under way");
    pool.call_failed();
    assert_eq!(pool.request(8), 5);
    pool.grant(grant(4, 90));
    assert_eq!(pool.request(99), 0, "two grants are here");
    let ends: Vec<u64> = pool.grants().iter().map(|grant| grant.ends.as_micros()).collect();
    assert_eq!(ends, [90, 100], "the grant that expires first is spent first");
}

#[test]
fn unrequested_permits_are_lost() {
    let mut pool = holding(1, 100);
    pool.grant(grant(4, 100));
    assert_eq!((pool.held(), pool.tally().lost), (1, 4));
    assert_eq!(pool.request(3), 2);
    pool.grant(grant(5, 100));
    assert_eq!((pool.held(), pool.tally().lost), (3, 7));
}

proptest! {
    /// In any order of events: no permit is made up or forgotten, none is spent after its expiry, and the pool
    /// never exceeds its size.
    #[test]
    fn permits_are_conserved(steps in prop::collection::vec((0..7_u8, 0..9_u32, 0..60_u64), 1..200)) {
        let (mut pool, mut now, mut generation, mut back) = (PermitPool::default(), 0, 0, 0);
        for (step, count, length) in steps {
            let current = Generation(generation);
            match step {
                0 => {
                    pool.request(count);
                }
                1 => pool.grant(Grant { generation: current, ..grant(count, now + length) }),
                2 => pool.call_failed(),
                3 => {
                    let ends = pool.spend(at(now), current, |grant| grant.ends);
                    prop_assert!(ends.is_none_or(|ends| at(now) < ends));
                }
                4 => back += pool.expire(at(now), current).iter().map(|each| u64::from(each.permits)).sum::<u64>(),
                5 if count == 0 => generation += 1,
                5 => now += length,
                _ if count == 0 => {
                    back += pool.drain(current).iter().map(|each| u64::from(each.permits)).sum::<u64>();
                }
                _ => {}
            }
            prop_assert!(pool.tally().is_balanced(pool.held().into()), "{:?}", pool);
            prop_assert_eq!(pool.tally().returned, back);
            prop_assert!(pool.held() <= 8 && pool.grants().len() <= GRANTS_MAX);
            prop_assert!(pool.grants().iter().all(|grant| grant.permits > 0));
        }
    }
}
