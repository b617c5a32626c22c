//! An undone charge, as for unused permits: it never leaves more room than there would be without the charge.

use crate::lua_parity::draw::{CALENDAR, Draw, cost, limits};
use crate::redis_server::{Server, on_every_server};
use crate::support::passed;
use sluicegate::Identity;
use sluicegate::core::decision::ChargeMode;
use sluicegate::core::{
    Align, Cost, FixedWindow, Micros, Quota, Rate, SlidingCounter, SlidingWindow, Timestamp, TokenBucket, Verdict,
};
use sluicegate::identity::DEFAULT_TENANT;
use sluicegate::store::redis::testing::SingleConnection;
use sluicegate::store::redis::{KeyEncoder, RedisStore};
use sluicegate::store::{Charge, Key, KeySpace, Store, Subject};
use sluicegate_testkit::conformance::{DEADLINE, START};

/// Limits of one subject, with a clock of their own.
pub(crate) struct Limited {
    pub(crate) store: RedisStore<SingleConnection>,
    space: KeySpace,
    pub(crate) quotas: Vec<Quota>,
}

impl Limited {
    /// The same subject in another database is an independent twin.
    pub(crate) async fn new(server: &Server, database: usize, quota: Quota) -> Self {
        Self::of_several(server, database, vec![quota]).await
    }

    pub(crate) async fn of_several(server: &Server, database: usize, quotas: Vec<Quota>) -> Self {
        let mut connection = server.connect().await;
        redis::cmd("SELECT").arg(database).exec_async(&mut connection).await.unwrap();
        redis::cmd("FLUSHDB").exec_async(&mut connection).await.unwrap();
        let store = RedisStore::over_connection(connection, KeyEncoder::default(), false).with_caller_clock();
        Self { store, space: KeySpace::new("rule"), quotas }
    }

    pub(crate) fn of(&self, cost: u32) -> [Charge<'_>; 1] {
        let identity = Some(Identity::Named("alice"));
        let subject = Subject { tenant: Some(DEFAULT_TENANT), identity, address: None };
        let key = Key { space: &self.space, subject };
        [Charge {
            key,
            quotas: &self.quotas,
            cost: Cost::new(cost),
            mode: ChargeMode::Enforced,
            lease: None,
            usage: Cost::ZERO,
        }]
    }

    pub(crate) async fn charge(&self, cost: u32, now: Timestamp) -> bool {
        passed(&self.store.charge(&self.of(cost), now, DEADLINE).await.unwrap())
    }

    async fn undo(&self, cost: u32, charged_at: Timestamp, now: Timestamp) {
        self.store.undo(&self.of(cost), charged_at, now, DEADLINE).await.unwrap();
    }

    pub(crate) async fn reserve(&self, cost: u32, now: Timestamp) -> bool {
        passed(&self.store.reserve(&self.of(cost), now, DEADLINE).await.unwrap())
    }

    pub(crate) async fn release(&self, cost: u32, reserved_at: Timestamp, now: Timestamp) {
        self.store.release(&self.of(cost), reserved_at, now, DEADLINE).await.unwrap();
    }

    async fn peek(&self, now: Timestamp) -> Verdict {
        self.store.peek(&self.of(1), now, DEADLINE).await.unwrap().verdicts[0]
    }

    pub(crate) async fn remaining(&self, now: Timestamp) -> u64 {
        self.peek(now).await.remaining
    }
}

pub(crate) fn after(micros: u64) -> Timestamp {
    START.plus(Micros::from_micros(micros))
}

pub(crate) fn bucket(capacity: u64, token_micros: u64) -> Quota {
    TokenBucket::new(capacity, Rate::new(1, Micros::from_micros(token_micros)).unwrap()).unwrap().into()
}

const SECOND: u64 = 1_000_000;

/// The first start of a one-second window at or after the start of the test.
fn boundary() -> u64 {
    SECOND - START.as_micros() % SECOND
}

#[test]
fn an_undo_of_a_bucket_subtracts_the_refill_since() {
    on_every_server(async |server| {
        let limited = Limited::new(server, 0, bucket(1, 20_000)).await;
        assert!(limited.charge(1, START).await);
        assert!(limited.charge(1, after(20_000)).await);
        limited.undo(1, START, after(21_000)).await;
        assert!(!limited.charge(1, after(21_300)).await, "time had given it back already");
        assert!(limited.charge(1, after(40_000)).await);

        let limited = Limited::new(server, 0, bucket(2, 20_000)).await;
        assert!(limited.charge(1, START).await);
        assert!(limited.charge(1, after(5_000)).await);
        limited.undo(1, START, after(15_000)).await;
        assert!(!limited.charge(2, after(24_999)).await, "the second one lasts until then");
        assert!(limited.charge(2, after(40_000)).await);
    });
}

#[test]
fn an_undo_leaves_the_charges_of_another_window() {
    on_every_server(async |server| {
        let window = FixedWindow::new(1, Micros::from_secs(1), Align::Epoch).unwrap();
        let limited = Limited::new(server, 0, window.into()).await;
        let (before, next) = (after(boundary() - 1), after(boundary()));
        assert!(limited.charge(1, before).await);
        assert!(limited.charge(1, next).await);
        limited.undo(1, before, next).await;
        assert!(!limited.charge(1, next).await, "two where the limit is one");
        limited.undo(1, next, next).await;
        assert!(limited.charge(1, next).await, "the window of the charge goes on");
    });
}

#[test]
fn an_undo_of_a_counter_affects_the_window_of_the_charge() {
    on_every_server(async |server| {
        let counter = SlidingCounter::new(10, Micros::from_secs(1)).unwrap();
        let limited = Limited::new(server, 0, counter.into()).await;
        let (before, next) = (after(boundary() - 1), after(boundary()));
        assert!(limited.charge(4, before).await);
        assert!(limited.charge(3, next).await);
        limited.undo(4, before, next).await;
        assert_eq!(limited.remaining(next).await, 7, "all of the window before is free, nothing of this one");
        assert_eq!(limited.remaining(after(boundary() + SECOND)).await, 7);
        let later = after(boundary() + 2 * SECOND);
        assert!(limited.charge(10, later).await);
        limited.undo(4, before, later).await;
        assert_eq!(limited.remaining(later).await, 0, "the window of the charge counts no more");
    });
}

#[test]
fn an_undo_of_a_log_leaves_later_charges() {
    on_every_server(async |server| {
        let limited = Limited::new(server, 0, SlidingWindow::new(3, Micros::from_secs(1)).unwrap().into()).await;
        assert!(limited.charge(1, START).await);
        assert!(limited.charge(1, after(100)).await);
        assert!(limited.charge(1, after(900_000)).await);
        limited.undo(1, after(100), after(950_000)).await;
        let remaining = async |at| limited.remaining(after(at)).await;
        let seen = [remaining(950_000).await, remaining(SECOND).await, remaining(1_899_999).await];
        assert_eq!(seen, [1, 2, 2], "the newest stays for all of its window");
        assert_eq!(remaining(1_900_000).await, 3);
        limited.undo(1, START, after(SECOND)).await;
        assert_eq!(remaining(SECOND).await, 2, "units that have left the window are not given back");
    });
}

/// A client that was never charged earns no credits.
#[test]
fn an_undo_leaves_a_new_client_without_history() {
    on_every_server(async |server| {
        let rate = Rate::new(1, Micros::from_secs(1)).unwrap();
        let credits = TokenBucket::with_credits(2, rate, 5, Micros::from_secs(3_600)).unwrap();
        let limited = Limited::new(server, 0, credits.into()).await;
        assert!(limited.charge(1, START).await);
        limited.undo(1, START, after(1_000)).await;
        assert_eq!(limited.remaining(after(100 * SECOND)).await, 2);
        // A client with a history that is charged again continues to earn.
        assert!(limited.charge(1, START).await);
        assert!(limited.charge(1, after(1)).await);
        limited.undo(1, after(1), after(2)).await;
        assert_eq!(limited.remaining(after(100 * SECOND)).await, 7);
    });
}

#[test]
fn an_undo_does_nothing_after_a_step_back_or_for_unreadable_values() {
    on_every_server(async |server| {
        let limited = Limited::new(server, 0, bucket(2, SECOND)).await;
        assert!(limited.charge(2, after(10)).await);
        limited.undo(1, after(10), after(9)).await;
        assert_eq!(limited.remaining(after(10)).await, 0);

        let mut connection = server.connect().await;
        redis::cmd("SET")
            .arg("sg:1:{default:alice}:rule")
            .arg("nonsense")
            .exec_async(&mut connection)
            .await
            .unwrap();
        limited.undo(1, after(10), after(10)).await;
        assert_eq!(limited.remaining(after(10)).await, 0);
        assert_eq!(limited.store.damaged_values(), 1);
    });
}

/// A limit and its twin, which receives all charges but the undone ones.
struct Twins<'d> {
    draw: &'d mut Draw,
    limited: Limited,
    twin: Limited,
    now: Timestamp,
    /// Charges that may still be undone, with their instants.
    reserved: Vec<(u32, Timestamp)>,
    /// How many undos left more room than before.
    freed: u32,
}

impl Twins<'_> {
    async fn step(&mut self) {
        let quota = self.limited.quotas[0].clone();
        let window = quota.window().as_micros();
        let passed = match self.draw.below(8) {
            0..3 => 0,
            3 => 1,
            4 => self.draw.below(window / quota.limit().max(1) + 2),
            5 => window - self.draw.below(2),
            _ => self.draw.below(window / 4 + 2),
        };
        self.now = Timestamp::now(self.now.as_micros() + passed);
        let cost = cost(self.draw, &quota);
        match self.draw.below(4) {
            0 => self.reserve(cost).await,
            1 => self.undo().await,
            2 => self.reserve_and_undo(cost).await,
            _ => self.charge(cost).await,
        }
    }

    /// A charge of another client is made to both.
    async fn charge(&mut self, cost: u32) {
        if self.limited.charge(cost, self.now).await {
            assert!(self.twin.charge(cost, self.now).await, "{}", self.story());
        }
    }

    async fn reserve(&mut self, cost: u32) {
        if self.limited.charge(cost, self.now).await {
            self.reserved.push((cost, self.now));
        }
    }

    async fn undo(&mut self) {
        if self.reserved.is_empty() {
            return;
        }
        let index = self.draw.below(self.reserved.len() as u64) as usize;
        let (cost, charged_at) = self.reserved.swap_remove(index);
        let before = self.limited.remaining(self.now).await;
        self.limited.undo(cost, charged_at, self.now).await;
        let freed = self.limited.remaining(self.now).await;
        assert!(freed >= before, "{}", self.story());
        self.freed += u32::from(freed > before);
        for at in self.instants() {
            let (here, there) = (self.limited.remaining(at).await, self.twin.remaining(at).await);
            assert!(here <= there, "{here} of {there} at {at:?}: {}", self.story());
        }
    }

    /// Undone at once, without other charges in between: no trace is left.
    async fn reserve_and_undo(&mut self, cost: u32) {
        let instants = self.instants();
        let before = self.seen_at(instants).await;
        if self.limited.charge(cost, self.now).await {
            self.limited.undo(cost, self.now, self.now).await;
            assert_eq!(self.seen_at(instants).await, before, "{}", self.story());
        }
    }

    async fn seen_at(&self, instants: [Timestamp; 5]) -> Vec<Verdict> {
        let mut seen = Vec::new();
        for at in instants {
            seen.push(self.limited.peek(at).await);
        }
        seen
    }

    fn instants(&mut self) -> [Timestamp; 5] {
        let window = self.limited.quotas[0].window().as_micros();
        let (now, far) = (self.now.as_micros(), self.draw.below(2 * window));
        let (near, next) = (self.draw.below(window / 8 + 2), (now / window + 1) * window);
        [now, now + 1, now + near, next, now + far].map(Timestamp::now)
    }

    fn story(&self) -> String {
        format!("{:?} at {:?}, reserved {:?}", self.limited.quotas, self.now, self.reserved)
    }
}

/// Only clients with a history earn credits, and an undone charge may extend the history.
pub(crate) fn has_credits(quota: &Quota) -> bool {
    matches!(quota, Quota::TokenBucket(bucket) if bucket.credits() > 0)
}

async fn no_more_room_than_the_twin(server: &Server, algorithm: usize) {
    let mut draw = Draw(7 + algorithm as u64);
    let mut freed = 0;
    for _ in 0..40 {
        let quota = limits(&mut draw, algorithm, 1).remove(0);
        if has_credits(&quota) {
            continue;
        }
        let (limited, twin) = (Limited::new(server, 0, quota.clone()).await, Limited::new(server, 1, quota).await);
        let mut twins = Twins { draw: &mut draw, limited, twin, now: START, reserved: Vec::new(), freed: 0 };
        for _ in 0..60 {
            twins.step().await;
        }
        freed += twins.freed;
    }
    assert!(freed > 20, "only {freed} undos gave anything back");
}

#[test]
fn undone_charges_leave_buckets_no_more_room_than_a_twin_has() {
    on_every_server(async |server| no_more_room_than_the_twin(server, 0).await);
}

#[test]
fn undone_charges_leave_sliding_windows_no_more_room_than_a_twin_has() {
    on_every_server(async |server| no_more_room_than_the_twin(server, 1).await);
}

#[test]
fn undone_charges_leave_sliding_counters_no_more_room_than_a_twin_has() {
    on_every_server(async |server| no_more_room_than_the_twin(server, 2).await);
}

#[test]
fn undone_charges_leave_fixed_windows_no_more_room_than_a_twin_has() {
    on_every_server(async |server| no_more_room_than_the_twin(server, 3).await);
}

#[test]
fn undone_charges_leave_windows_of_calendars_no_more_room_than_a_twin_has() {
    on_every_server(async |server| no_more_room_than_the_twin(server, CALENDAR).await);
}
