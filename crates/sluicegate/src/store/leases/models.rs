//! Loom models of leases, for every interleaving of threads: spending against sweeping, closing and the reply to a
//! call.

use super::{CallResult, Generation, Grant, LeaseTable, PermitRequest, Uptime};
use loom::sync::Arc;
use loom::thread;
use sluicegate_core::{Micros, Timestamp};

const GENERATION: Generation = Generation(1);
const TTL: Micros = Micros::from_millis(100);
const REQUEST: PermitRequest = PermitRequest { ttl: TTL, most: 2, instances: 1 };
const KEYS: [(u64, u64); 1] = [(1, 1)];
const START: Uptime = Uptime::after(Micros::ZERO);

type Table = LeaseTable<u8, ()>;

fn grant(permits: u32) -> CallResult<()> {
    let (charged_at, ends) = (Timestamp::now(7), START.plus(TTL));
    let grant = Grant { permits, charged_at, ends, generation: GENERATION, state: () };
    CallResult { grant: Some(grant), remaining: 1_000, is_denied: false }
}

fn spend(table: &Table, now: Uptime) -> u64 {
    table.spend(&0, now, GENERATION, |_| ()).is_some().into()
}

/// A table with one hot decision that has requested two permits.
fn request() -> Arc<Table> {
    let table = Table::new(1);
    table.request(&0, &REQUEST, &KEYS, START, GENERATION);
    table.record(&0, CallResult { grant: None, ..grant(0) }, START);
    (0..60).for_each(|_| assert_eq!(spend(&table, START), 0));
    assert_eq!(table.request(&0, &REQUEST, &KEYS, START, GENERATION).0, 2);
    Arc::new(table)
}

fn in_thread<T: 'static>(table: &Arc<Table>, act: impl FnOnce(&Table) -> T + 'static) -> thread::JoinHandle<T> {
    let table = Arc::clone(table);
    thread::spawn(move || act(&table))
}

/// No permit is used twice, made up or forgotten.
fn assert_sums(table: &Table, spent: u64, returned: u64) {
    let (tally, held) = table.tally();
    assert!(tally.is_balanced(held), "{tally:?} {held}");
    assert_eq!((tally.spent, tally.returned), (spent, returned));
    assert!(spent + returned + held <= 2);
}

fn count(returns: &[super::PermitReturn<()>]) -> u64 {
    returns.iter().map(|back| u64::from(back.permits)).sum()
}

#[test]
fn loom_two_requests_spend_the_permits_of_a_reply_at_most_once() {
    loom::model(|| {
        let table = request();
        let other = in_thread(&table, |table| spend(table, START));
        let answer = in_thread(&table, |table| table.record(&0, grant(2), START));
        let spent = spend(&table, START) + other.join().unwrap();
        answer.join().unwrap();
        assert_sums(&table, spent, 0);
        assert_eq!(table.tally().1, 2 - spent);
    });
}

#[test]
fn loom_a_permit_is_spent_or_swept_and_never_both() {
    loom::model(|| {
        let table = request();
        table.record(&0, grant(2), START);
        let over = START.plus(TTL);
        let sweeper = in_thread(&table, move |table| count(&table.sweep(over, |_| GENERATION)));
        // It read the clock before the expiry, and runs before or after the sweep.
        let other = in_thread(&table, |table| spend(table, START));
        let spent = spend(&table, START) + other.join().unwrap();
        assert_sums(&table, spent, sweeper.join().unwrap());
        assert_eq!(table.tally().1, 0);
    });
}

#[test]
fn loom_permits_that_arrive_after_close_are_lost() {
    loom::model(|| {
        let table = request();
        let answer = in_thread(&table, |table| table.record(&0, grant(2), START));
        let closer = in_thread(&table, |table| count(&table.close(|_| GENERATION)));
        let spent = spend(&table, START);
        answer.join().unwrap();
        assert_sums(&table, spent, closer.join().unwrap());
        assert_eq!(table.tally().1, 0);
    });
}

#[test]
fn loom_two_decisions_never_hold_the_same_key() {
    loom::model(|| {
        let table = Table::new(2);
        let other = (1..=u8::MAX).find(|other| table.shard_index(other) != table.shard_index(&0)).unwrap();
        for id in [0, other] {
            table.request(&id, &REQUEST, &KEYS, START, GENERATION);
            table.record(&id, CallResult { grant: None, ..grant(0) }, START);
            (0..60).for_each(|_| assert_eq!(table.spend(&id, START, GENERATION, |_| ()), None));
        }
        let table = Arc::new(table);
        let others = in_thread(&table, move |table| table.request(&other, &REQUEST, &KEYS, START, GENERATION).0);
        let sweeper = in_thread(&table, |table| drop(table.sweep(START, |_| GENERATION)));
        let own = table.request(&0, &REQUEST, &KEYS, START, GENERATION).0;
        let others = others.join().unwrap();
        sweeper.join().unwrap();
        assert_eq!((own.min(others), own.max(others)), (0, 2));
    });
}
