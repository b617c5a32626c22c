//! Calendar windows on Redis: the server's clock selects the window, however wrong the clock of the caller is.

use crate::redis_server::{Server, on_every_server};
use redis::aio::MultiplexedConnection;
use sluicegate::Identity;
use sluicegate::core::calendar::Run;
use sluicegate::core::decision::ChargeMode;
use sluicegate::core::{Calendar, Cost, FixedWindow, Micros, Outcome, Quota, Rate, Timestamp, TokenBucket};
use sluicegate::identity::DEFAULT_TENANT;
use sluicegate::store::redis::testing::SingleConnection;
use sluicegate::store::redis::{KeyEncoder, RedisStore};
use sluicegate::store::{Charge, Key, KeySpace, Reply, Store, Subject};
use sluicegate_testkit::conformance::{DEADLINE, START};
use std::num::NonZeroU32;
use std::sync::Arc;

const HOUR: Micros = Micros::from_secs(3_600);

/// The server's time.
async fn time(connection: &MultiplexedConnection) -> Timestamp {
    let (seconds, micros): (u64, u64) = redis::cmd("TIME").query_async(&mut connection.clone()).await.unwrap();
    Timestamp::from_micros(seconds * 1_000_000 + micros)
}

/// Hours, of which one began half an hour ago, so that no test lasts until its end.
async fn hours(connection: &MultiplexedConnection) -> Calendar {
    let now = time(connection).await.as_micros() / 1_000_000;
    let start = Timestamp::from_micros((now - 1_800) % 3_600 * 1_000_000);
    Calendar::new("hours", [Run { start, length: HOUR }]).unwrap()
}

struct World {
    connection: MultiplexedConnection,
    calendar: Arc<Calendar>,
    spaces: [KeySpace; 2],
    quotas: [Quota; 2],
}

impl World {
    /// A bucket and a calendar, both with room for `limit`.
    async fn new(server: &Server, limit: u64) -> Self {
        let connection = server.connect().await;
        let calendar = Arc::new(hours(&connection).await);
        let window = FixedWindow::on_calendar(limit, Arc::clone(&calendar)).unwrap().into();
        let bucket = TokenBucket::new(limit, Rate::new(1, HOUR).unwrap()).unwrap().into();
        let spaces = [KeySpace::new("one"), KeySpace::new("two")];
        Self { connection, calendar, spaces, quotas: [bucket, window] }
    }

    async fn store(&self, apart: bool) -> RedisStore<SingleConnection> {
        redis::cmd("FLUSHALL").exec_async(&mut self.connection.clone()).await.unwrap();
        RedisStore::over_connection(self.connection.clone(), KeyEncoder::default(), apart)
    }

    /// The same subject under two rules; on a Cluster, other subjects.
    fn charges(&self) -> [Charge<'_>; 2] {
        let charge = |index: usize, identifier: &'static str| {
            let identity = Some(Identity::Named(identifier));
            let subject = Subject { tenant: Some(DEFAULT_TENANT), identity, address: None };
            let key = Key { space: &self.spaces[index], subject };
            Charge {
                key,
                quotas: &self.quotas,
                cost: Cost::ONE,
                mode: ChargeMode::Enforced,
                lease: None,
                usage: Cost::ZERO,
            }
        };
        [charge(0, "alice"), charge(1, "bob")]
    }

    /// The remaining units of all limits.
    fn left(&self, reply: &Reply) -> Vec<u64> {
        for verdict in &reply.verdicts {
            if let Outcome::Denied { retry_after } = verdict.outcome {
                assert!(retry_after <= HOUR, "{reply:?}");
            }
        }
        reply.verdicts.iter().map(|verdict| verdict.remaining).collect()
    }
}

/// Caller clocks from 1970 to 2112: one that is right, some in a neighbouring window, where the boundaries in the
/// arguments suffice, and some further away, where they do not.
async fn clocks(connection: &MultiplexedConnection) -> Vec<Timestamp> {
    let now = time(connection).await;
    let off = |hours: i64| Timestamp::from_micros(now.as_micros().saturating_add_signed(hours * 3_600_000_000));
    let mut clocks: Vec<Timestamp> = (-3..=3).map(off).collect();
    clocks.extend([Timestamp::default(), START, Timestamp::NOW_MAX]);
    clocks
}

/// Row 39: if clients bring the time, the client whose clock is ahead gets everything and the others starve.
#[test]
fn the_clock_of_the_server_decides_for_any_clock_of_the_caller() {
    on_every_server(async |server| {
        let world = World::new(server, 3).await;
        let charges = world.charges();
        for apart in [false, true] {
            for now in clocks(&world.connection).await {
                let store = world.store(apart).await;
                let charge = async || store.charge(&charges, now, DEADLINE).await.unwrap();
                let first = charge().await;
                assert_eq!(world.left(&first), [2, 2, 2, 2], "{now:?}");
                let until_end = |reply: &Reply| world.calendar.after(reply.now).since(reply.now);
                // Sequential calls have different instants.
                if !apart {
                    assert_eq!(first.verdicts[1].reset_after, until_end(&first), "{now:?}");
                }
                assert_eq!(world.left(&charge().await), [1, 1, 1, 1]);
                let refunded = store.refund(&charges, now, DEADLINE).await.unwrap();
                assert_eq!(world.left(&refunded), [2, 2, 2, 2]);
                assert_eq!(world.left(&charge().await), [1, 1, 1, 1]);
                assert_eq!(world.left(&charge().await), [0, 0, 0, 0]);
                let denied = charge().await;
                if !apart {
                    let wait = until_end(&denied);
                    assert_eq!(denied.verdicts[1].outcome, Outcome::Denied { retry_after: wait });
                }
                assert!(!denied.verdicts[1].outcome.is_allowed());
                assert_eq!(world.left(&store.peek(&charges, now, DEADLINE).await.unwrap()), [0, 0, 0, 0]);
                assert_eq!(world.left(&store.reset(&charges, now, DEADLINE).await.unwrap()), [3, 3, 3, 3]);
            }
        }
    });
}

/// The first call of a store is coalesced, so that the correction affects several decisions.
#[test]
fn an_outdated_batch_is_repeated_as_a_whole() {
    on_every_server(async |server| {
        let world = World::new(server, 5).await;
        let [alice, bob] = world.charges();
        let requests = [(NonZeroU32::new(3).unwrap(), vec![alice]), (NonZeroU32::new(9).unwrap(), vec![bob])];
        for now in clocks(&world.connection).await {
            let store = world.store(false).await;
            let replies = store.charge_repeated(&requests, now, DEADLINE).await.unwrap();
            let admitted: Vec<u32> = replies.iter().map(|(admitted, _)| *admitted).collect();
            assert_eq!(admitted, [3, 5], "{now:?}");
        }
    });
}

#[test]
fn coalesced_calendar_charges_are_each_charged_once() {
    on_every_server(async |server| {
        let world = World::new(server, 20).await;
        let [charge, _] = world.charges();
        for now in clocks(&world.connection).await {
            let store = world.store(false).await;
            let sending = (0..30).map(|_| store.charge(std::slice::from_ref(&charge), now, DEADLINE));
            let replies = futures_util::future::join_all(sending).await;
            let is_allowed = |reply: &Reply| reply.verdicts.iter().all(|verdict| verdict.outcome.is_allowed());
            let allowed = replies.iter().filter(|reply| is_allowed(reply.as_ref().unwrap())).count();
            assert_eq!(allowed, 20, "{now:?}");
        }
    });
}

/// A charge that is released because another part of the request denies.
#[test]
fn a_released_charge_returns_to_its_calendar_window() {
    on_every_server(async |server| {
        let world = World::new(server, 2).await;
        let [alice, bob] = world.charges();
        for now in clocks(&world.connection).await {
            let store = world.store(true).await;
            let charge = async |charges: &[Charge<'_>]| store.charge(charges, now, DEADLINE).await.unwrap();
            charge(&[bob]).await;
            charge(&[bob]).await;
            let denied = charge(&[alice, bob]).await;
            assert!(denied.verdicts.iter().any(|verdict| !verdict.outcome.is_allowed()));
            // The release has a task of its own, so the test polls for its effect.
            loop {
                let left = store.peek(&[alice], now, DEADLINE).await.unwrap();
                if left.verdicts.iter().all(|verdict| verdict.remaining == 2) {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
    });
}

#[test]
fn a_calendar_counter_expires_a_second_after_its_window() {
    on_every_server(async |server| {
        let world = World::new(server, 3).await;
        let store = world.store(false).await;
        let [charge, _] = world.charges();
        let window = [Charge { quotas: &world.quotas[1..], ..charge }];
        let reply = store.charge(&window, START, DEADLINE).await.unwrap();
        let key = "sg:1:{default:alice}:one";
        let expires: u64 =
            redis::cmd("PEXPIRETIME").arg(key).query_async(&mut world.connection.clone()).await.unwrap();
        let end = world.calendar.after(reply.now).as_micros() / 1_000;
        // The server reads its clock again when it sets the expiry.
        assert!((end + 1_000..=end + 1_000 + 5_000).contains(&expires), "{expires} {end}");
        let value: String = redis::cmd("GET").arg(key).query_async(&mut world.connection.clone()).await.unwrap();
        assert_eq!(value, format!("af01,{},0;", end * 1_000));
    });
}
