//! The table: who has a place, who has the keys, and that nothing is forgotten.

use super::*;
use sluicegate_core::{Micros, Timestamp};

const GENERATION: Generation = Generation(1);
const ASKING: Asking = Asking { ttl: Micros::from_millis(100), most: 4, instances: 1 };

type Table = Leases<&'static str, &'static str>;

fn at(micros: u64) -> Moment {
    Moment::after(Micros::from_micros(micros))
}

fn ask(table: &Table, id: &'static str, key: u64, now: u64) -> u32 {
    let (asked, returns) = table.ask(&id, &ASKING, &[(key, key)], at(now), GENERATION);
    assert!(returns.is_empty());
    asked
}

fn answer(table: &Table, id: &'static str, permits: u32, now: u64) {
    let ends = at(now).plus(ASKING.ttl);
    let grant = Grant { permits, charged_at: Timestamp::now(now), ends, generation: GENERATION, state: id };
    let grant = (permits > 0).then_some(grant);
    table.answered(&id, Answered { grant, remaining: 1_000, is_denied: false }, at(now));
}

fn spend(table: &Table, id: &'static str, now: u64) -> bool {
    table.spend(id, at(now), GENERATION, |_| ()).is_some()
}

/// Makes a decision hot that ends up with permits or without.
fn heat(table: &Table, id: &'static str, key: u64) -> u32 {
    assert_eq!(ask(table, id, key, 0), 0, "nobody knows it yet");
    answer(table, id, 0, 0);
    (0..100).for_each(|_| assert!(!spend(table, id, 0)));
    let asked = ask(table, id, key, 0);
    answer(table, id, asked, 0);
    asked
}

fn permits(returns: &[Return<&str>]) -> u32 {
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
fn one_key_is_held_by_one_pot() {
    let table = Table::default();
    assert_eq!(heat(&table, "a", 1), 4);
    assert_eq!(heat(&table, "b", 1), 0, "the same key at another cost");
    assert_eq!(heat(&table, "c", 2), 4);
    let over = ASKING.ttl.as_micros();
    assert_eq!(permits(&table.sweep(at(over), |_| GENERATION)), 8);
    assert_eq!(ask(&table, "b", 1, over), 4, "it is free again");
    assert_balanced(&table);
}

#[test]
fn what_has_ended_comes_back_by_sweeping_or_by_asking_but_once() {
    let table = Table::default();
    heat(&table, "a", 1);
    heat(&table, "c", 2);
    let over = at(ASKING.ttl.as_micros());
    let (_, returns) = table.ask(&"a", &ASKING, &[(1, 1)], over, GENERATION);
    assert_eq!(returns.iter().map(|back| (back.state, back.permits)).collect::<Vec<_>>(), [("a", 4)]);
    let returns = table.sweep(over, |_| GENERATION);
    assert_eq!(returns.iter().map(|back| (back.state, back.permits)).collect::<Vec<_>>(), [("c", 4)]);
    assert!(table.sweep(over, |_| GENERATION).is_empty());
    assert_balanced(&table);
}

#[test]
fn what_nobody_asks_for_is_forgotten_and_its_tally_is_not() {
    let table = Table::default();
    heat(&table, "a", 1);
    assert!(spend(&table, "a", 10));
    assert_eq!(table.decisions(), 1);
    assert_eq!(permits(&table.sweep(at(5_000_000), |_| GENERATION)), 3);
    assert_eq!(table.decisions(), 0);
    assert_eq!(table.tally(), (Tally { granted: 4, spent: 1, returned: 3, lost: 0 }, 0));
}

#[test]
fn a_full_table_leaves_newcomers_without_permits() {
    let table = Table::new(1);
    heat(&table, "a", 1);
    assert_eq!(ask(&table, "b", 2, 0), 0);
    assert_eq!(table.decisions(), 1);
    // Nobody asks for it any more, and what it held has been given back.
    let later = 5_000_000;
    assert_eq!(permits(&table.sweep(at(later), |_| GENERATION)), 4);
    assert_eq!(ask(&table, "b", 2, later), 0);
    assert_eq!(table.decisions(), 1);
    assert_eq!(ask(&table, "c", 3, 2 * later), 0, "b has gone cold and makes room");
    assert!(!spend(&table, "b", 2 * later));
    answer(&table, "b", 0, 2 * later);
    assert_eq!(table.decisions(), 1);
    assert_balanced(&table);
}

#[test]
fn nothing_is_held_after_the_end() {
    let table = Table::default();
    heat(&table, "a", 1);
    assert_eq!((0..100).filter(|_| spend(&table, "a", 0)).count(), 4);
    assert_eq!(heat(&table, "c", 2), 4);
    assert_eq!(ask(&table, "a", 1, 0), 4);
    assert_eq!(permits(&table.close(|_| GENERATION)), 4);
    answer(&table, "a", 4, 0);
    assert_eq!(ask(&table, "a", 1, 0), 0);
    assert!(!spend(&table, "a", 0) && !spend(&table, "c", 0));
    assert_eq!(table.tally(), (Tally { granted: 12, spent: 4, returned: 4, lost: 4 }, 0));
}

#[test]
fn a_call_that_is_not_answered_leaves_room_for_the_next() {
    let table = Table::default();
    heat(&table, "a", 1);
    (0..4).for_each(|_| assert!(spend(&table, "a", 0)));
    assert_eq!(ask(&table, "a", 1, 0), 4);
    assert_eq!(ask(&table, "a", 1, 0), 0);
    table.unanswered(&"a");
    assert_eq!(ask(&table, "a", 1, 0), 4);
}

#[test]
fn what_is_charged_to_keys_that_are_reset_is_lost_also_if_it_is_still_on_its_way() {
    let table = Table::default();
    assert_eq!((heat(&table, "a", 1), heat(&table, "b", 2)), (4, 4));
    assert!(spend(&table, "a", 10));
    table.lose(&[(7, 7), (1, 1)]);
    assert!(!spend(&table, "a", 10));
    assert!(spend(&table, "b", 10), "its keys are others");
    assert_eq!(ask(&table, "a", 1, 10), 4);
    table.lose(&[(1, 1)]);
    answer(&table, "a", 4, 10);
    assert!(!spend(&table, "a", 20), "nobody knows whether it was charged before the reset");
    assert_eq!(ask(&table, "a", 1, 20), 4, "the next is asked for after it");
    answer(&table, "a", 4, 20);
    assert!(spend(&table, "a", 20));
    assert_balanced(&table);
    assert_eq!(permits(&table.close(|_| GENERATION)), 3 + 3);
}
