//! Models for loom, which runs them in every order that threads can take: spending against sweeping, closing and the
//! answer to a call.

use super::{Answered, Asking, Generation, Grant, Leases, Moment};
use loom::sync::Arc;
use loom::thread;
use sluicegate_core::{Micros, Timestamp};

const GENERATION: Generation = Generation(1);
const TTL: Micros = Micros::from_millis(100);
const ASKING: Asking = Asking { ttl: TTL, most: 2, instances: 1 };
const KEYS: [(u64, u64); 1] = [(1, 1)];
const START: Moment = Moment::after(Micros::ZERO);

type Table = Leases<u8, ()>;

fn grant(permits: u32) -> Answered<()> {
    let (charged_at, ends) = (Timestamp::now(7), START.plus(TTL));
    let grant = Grant { permits, charged_at, ends, generation: GENERATION, state: () };
    Answered { grant: Some(grant), remaining: 1_000, is_denied: false }
}

fn spend(table: &Table, now: Moment) -> u64 {
    table.spend(&0, now, GENERATION, |_| ()).is_some().into()
}

/// A table with one hot decision that has asked for two permits.
fn asking() -> Arc<Table> {
    let table = Table::new(1);
    table.ask(&0, &ASKING, &KEYS, START, GENERATION);
    table.answered(&0, Answered { grant: None, ..grant(0) }, START);
    (0..60).for_each(|_| assert_eq!(spend(&table, START), 0));
    assert_eq!(table.ask(&0, &ASKING, &KEYS, START, GENERATION).0, 2);
    Arc::new(table)
}

fn in_thread<T: 'static>(table: &Arc<Table>, act: impl FnOnce(&Table) -> T + 'static) -> thread::JoinHandle<T> {
    let table = Arc::clone(table);
    thread::spawn(move || act(&table))
}

/// No permit is used twice, nor made up, nor forgotten.
fn assert_sums(table: &Table, spent: u64, returned: u64) {
    let (tally, held) = table.tally();
    assert!(tally.is_balanced(held), "{tally:?} {held}");
    assert_eq!((tally.spent, tally.returned), (spent, returned));
    assert!(spent + returned + held <= 2);
}

fn count(returns: &[super::Return<()>]) -> u64 {
    returns.iter().map(|back| u64::from(back.permits)).sum()
}

#[test]
fn loom_two_requests_spend_what_an_answer_brings_at_most_once() {
    loom::model(|| {
        let table = asking();
        let other = in_thread(&table, |table| spend(table, START));
        let answer = in_thread(&table, |table| table.answered(&0, grant(2), START));
        let spent = spend(&table, START) + other.join().unwrap();
        answer.join().unwrap();
        assert_sums(&table, spent, 0);
        assert_eq!(table.tally().1, 2 - spent);
    });
}

#[test]
fn loom_a_permit_is_spent_or_swept_and_never_both() {
    loom::model(|| {
        let table = asking();
        table.answered(&0, grant(2), START);
        let over = START.plus(TTL);
        let sweeper = in_thread(&table, move |table| count(&table.sweep(over, |_| GENERATION)));
        // It read the clock before the end, and comes before or after the sweep.
        let other = in_thread(&table, |table| spend(table, START));
        let spent = spend(&table, START) + other.join().unwrap();
        assert_sums(&table, spent, sweeper.join().unwrap());
        assert_eq!(table.tally().1, 0);
    });
}

#[test]
fn loom_what_is_answered_after_the_end_is_lost() {
    loom::model(|| {
        let table = asking();
        let answer = in_thread(&table, |table| table.answered(&0, grant(2), START));
        let closer = in_thread(&table, |table| count(&table.close(|_| GENERATION)));
        let spent = spend(&table, START);
        answer.join().unwrap();
        assert_sums(&table, spent, closer.join().unwrap());
        assert_eq!(table.tally().1, 0);
    });
}

#[test]
fn loom_two_decisions_never_hold_one_key() {
    loom::model(|| {
        let table = Table::new(2);
        let other = (1..=u8::MAX).find(|other| table.shard_index(other) != table.shard_index(&0)).unwrap();
        for id in [0, other] {
            table.ask(&id, &ASKING, &KEYS, START, GENERATION);
            table.answered(&id, Answered { grant: None, ..grant(0) }, START);
            (0..60).for_each(|_| assert_eq!(table.spend(&id, START, GENERATION, |_| ()), None));
        }
        let table = Arc::new(table);
        let others = in_thread(&table, move |table| table.ask(&other, &ASKING, &KEYS, START, GENERATION).0);
        let sweeper = in_thread(&table, |table| drop(table.sweep(START, |_| GENERATION)));
        let own = table.ask(&0, &ASKING, &KEYS, START, GENERATION).0;
        let others = others.join().unwrap();
        sweeper.join().unwrap();
        assert_eq!((own.min(others), own.max(others)), (0, 2));
    });
}
