//! The table: places, claims on keys, and a balance that loses no permit.

use super::*;
use sluicegate_core::{Micros, Timestamp};

const GENERATION: Generation = Generation(1);
const REQUEST: PermitRequest = PermitRequest { ttl: Micros::from_millis(100), most: 4, instances: 1 };

type Table = LeaseTable<&'static str, &'static str>;

fn at(micros: u64) -> Uptime {
    Uptime::after(Micros::from_micros(micros))
}

fn request(table: &Table, id: &'static str, key: u64, now: u64) -> u32 {
    let (requested, returns) = table.request(&id, &REQUEST, &[(key, key)], at(now), GENERATION);
    assert!(returns.is_empty());
    requested
}

fn answer(table: &Table, id: &'static str, permits: u32, now: u64) {
    let ends = at(now).plus(REQUEST.ttl);
    let grant = Grant { permits, charged_at: Timestamp::now(now), ends, generation: GENERATION, state: id };
    let grant = (permits > 0).then_some(grant);
    table.record(&id, CallResult { grant, remaining: 1_000, is_denied: false }, at(now));
}

fn spend(table: &Table, id: &'static str, now: u64) -> bool {
    table.spend(id, at(now), GENERATION, |_| ()).is_some()
}

/// Makes a decision hot, whether or not it gets permits.
fn heat(table: &Table, id: &'static str, key: u64) -> u32 {
    assert_eq!(request(table, id, key, 0), 0, "its demand is unknown");
    answer(table, id, 0, 0);
    (0..100).for_each(|_| assert!(!spend(table, id, 0)));
    let requested = request(table, id, key, 0);
    answer(table, id, requested, 0);
    requested
}

fn permits(returns: &[PermitReturn<&str>]) -> u32 {
    returns.iter().map(|back| back.permits).sum()
}

fn assert_balanced(table: &Table) {
    let (tally, held) = table.tally();
    assert!(tally.is_balanced(held), "{tally:?} {held}");
}

#[test]
fn a_hot_decision_holds_permits_and_spends_them() {
    let table = Table::default();
    assert_eq!(heat(&table, "a", 1), 4);
    assert_eq!((0..9).filter(|_| spend(&table, "a", 10)).count(), 4);
    assert_balanced(&table);
}

#[test]
fn one_key_is_held_by_one_pool() {
    let table = Table::default();
    assert_eq!(heat(&table, "a", 1), 4);
    assert_eq!(heat(&table, "b", 1), 0, "the same key at another cost");
    assert_eq!(heat(&table, "c", 2), 4);
    let over = REQUEST.ttl.as_micros();
    assert_eq!(permits(&table.sweep(at(over), |_| GENERATION)), 8);
    assert_eq!(request(&table, "b", 1, over), 4, "it is free again");
    assert_balanced(&table);
}

#[test]
fn expired_permits_are_returned_by_sweep_or_request_but_once() {
    let table = Table::default();
    heat(&table, "a", 1);
    heat(&table, "c", 2);
    let over = at(REQUEST.ttl.as_micros());
    let (_, returns) = table.request(&"a", &REQUEST, &[(1, 1)], over, GENERATION);
    assert_eq!(returns.iter().map(|back| (back.state, back.permits)).collect::<Vec<_>>(), [("a", 4)]);
    let returns = table.sweep(over, |_| GENERATION);
    assert_eq!(returns.iter().map(|back| (back.state, back.permits)).collect::<Vec<_>>(), [("c", 4)]);
    assert!(table.sweep(over, |_| GENERATION).is_empty());
    assert_balanced(&table);
}

#[test]
fn idle_decisions_are_dropped_and_their_balance_is_kept() {
    let table = Table::default();
    heat(&table, "a", 1);
    assert!(spend(&table, "a", 10));
    assert_eq!(table.decisions(), 1);
    assert_eq!(permits(&table.sweep(at(5_000_000), |_| GENERATION)), 3);
    assert_eq!(table.decisions(), 0);
    assert_eq!(table.tally(), (PermitTally { granted: 4, spent: 1, returned: 3, lost: 0 }, 0));
}

#[test]
fn a_full_table_leaves_newcomers_without_permits() {
    let table = Table::new(1);
    heat(&table, "a", 1);
    assert_eq!(request(&table, "b", 2, 0), 0);
    assert_eq!(table.decisions(), 1);
    // There is no demand any more, and its permits have been given back.
    let later = 5_000_000;
    assert_eq!(permits(&table.sweep(at(later), |_| GENERATION)), 4);
    assert_eq!(request(&table, "b", 2, later), 0);
    assert_eq!(table.decisions(), 1);
    assert_eq!(request(&table, "c", 3, 2 * later), 0, "b has gone cold and makes room");
    assert!(!spend(&table, "b", 2 * later));
    answer(&table, "b", 0, 2 * later);
    assert_eq!(table.decisions(), 1);
    assert_balanced(&table);
}

#[test]
fn nothing_is_held_after_close() {
    let table = Table::default();
    heat(&table, "a", 1);
    assert_eq!((0..100).filter(|_| spend(&table, "a", 0)).count(), 4);
    assert_eq!(heat(&table, "c", 2), 4);
    assert_eq!(request(&table, "a", 1, 0), 4);
    assert_eq!(permits(&table.close(|_| GENERATION)), 4);
    answer(&table, "a", 4, 0);
    assert_eq!(request(&table, "a", 1, 0), 0);
    assert!(!spend(&table, "a", 0) && !spend(&table, "c", 0));
    assert_eq!(table.tally(), (PermitTally { granted: 12, spent: 4, returned: 4, lost: 4 }, 0));
}

#[test]
fn a_failed_call_leaves_room_for_the_next_request() {
    let table = Table::default();
    heat(&table, "a", 1);
    (0..4).for_each(|_| assert!(spend(&table, "a", 0)));
    assert_eq!(request(&table, "a", 1, 0), 4);
    assert_eq!(request(&table, "a", 1, 0), 0);
    table.call_failed(&"a");
    assert_eq!(request(&table, "a", 1, 0), 4);
}

#[test]
fn permits_of_reset_keys_are_forfeited_including_those_in_flight() {
    let table = Table::default();
    assert_eq!((heat(&table, "a", 1), heat(&table, "b", 2)), (4, 4));
    assert!(spend(&table, "a", 10));
    table.forfeit(&[(7, 7), (1, 1)]);
    assert!(!spend(&table, "a", 10));
    assert!(spend(&table, "b", 10), "its keys are others");
    assert_eq!(request(&table, "a", 1, 10), 4);
    table.forfeit(&[(1, 1)]);
    answer(&table, "a", 4, 10);
    assert!(!spend(&table, "a", 20), "it may have been charged before the reset");
    assert_eq!(request(&table, "a", 1, 20), 4, "the next is asked for after it");
    answer(&table, "a", 4, 20);
    assert!(spend(&table, "a", 20));
    assert_balanced(&table);
    assert_eq!(permits(&table.close(|_| GENERATION)), 3 + 3);
}
