//! The shared store on a real server: the conformance suite, and the properties of this store alone.

use crate::conformance::{operation, runner_config};
use crate::redis_server::{Server, on_every_server};
use crate::support::{hourly, passed, unit};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use redis::aio::MultiplexedConnection;
use sluicegate::core::decision::ChargeMode;
use sluicegate::core::{
    Align, Cost, FixedWindow, Micros, Outcome, Quota, Rate, SlidingCounter, SlidingWindow, Timestamp, TokenBucket,
};
use sluicegate::store::redis::testing::SingleConnection;
use sluicegate::store::redis::{KeyEncoder, RedisStore};
use sluicegate::store::{Charge, Key, KeySpace, Reply, Store, Subject};
use sluicegate_testkit::conformance::{DEADLINE, START, agrees_with_reference, behaves};

type TestStore = RedisStore<SingleConnection>;

const MINUTE: Micros = Micros::from_secs(60);

async fn flush(connection: &MultiplexedConnection) {
    redis::cmd("FLUSHALL").exec_async(&mut connection.clone()).await.unwrap();
}

/// An empty store by the caller's clock.
async fn fresh(connection: &MultiplexedConnection, apart: bool) -> TestStore {
    flush(connection).await;
    RedisStore::over_connection(connection.clone(), KeyEncoder::default(), apart).with_caller_clock()
}

async fn get(connection: &MultiplexedConnection, key: &str) -> Option<Vec<u8>> {
    redis::cmd("GET").arg(key).query_async(&mut connection.clone()).await.unwrap()
}

async fn run(connection: &MultiplexedConnection, command: &str, arguments: &[&[u8]]) {
    redis::cmd(command).arg(arguments).exec_async(&mut connection.clone()).await.unwrap();
}

fn every_algorithm() -> Vec<Quota> {
    let rate = Rate::new(7, MINUTE).unwrap();
    vec![
        hourly(5),
        TokenBucket::new(5, rate).unwrap().into(),
        TokenBucket::with_credits(5, rate, 3, Micros::from_secs(3_600)).unwrap().into(),
        SlidingWindow::new(5, MINUTE).unwrap().into(),
        SlidingCounter::new(5, MINUTE).unwrap().into(),
        FixedWindow::new(5, MINUTE, Align::Epoch).unwrap().into(),
        FixedWindow::new(5, MINUTE, Align::Key).unwrap().into(),
    ]
}

fn costing<'a>(charge: Charge<'a>, cost: u32) -> Charge<'a> {
    Charge { cost: Cost::new(cost), ..charge }
}

#[test]
fn the_redis_store_passes_the_conformance_suite() {
    on_every_server(async |server| {
        let connection = server.connect().await;
        behaves(async || fresh(&connection, false).await).await;
        behaves(async || fresh(&connection, true).await).await;
    });
}

#[test]
fn the_redis_store_agrees_with_the_reference_on_random_operations() {
    for program in crate::redis_server::SERVERS {
        let server = Server::start(program);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let connection = runtime.block_on(server.connect());
        let sequences = prop::collection::vec(operation(), 1..100);
        TestRunner::new(runner_config(60))
            .run(&sequences, |operations| {
                runtime.block_on(async {
                    let store = fresh(&connection, false).await;
                    agrees_with_reference(&store, &operations).await;
                });
                Ok(())
            })
            .unwrap();
    }
}

/// Values that no script writes.
fn garbage() -> Vec<Vec<u8>> {
    let mut values: Vec<Vec<u8>> = [
        "",
        "1",
        "a",
        "x",
        "17053128001234562",
        "-17053128001234561",
        " 17053128001234561",
        "0x11",
        "1.7053128e+151",
        "inf1",
        "nan1",
        "90071992547409921",
        "999999999999999991",
        "99999999999999999999999991",
        "a;",
        "b01,0,1,0;",
        "ab01,0,1,0",
        "ab01,0,1;",
        "ab01,0,1,0,0;",
        "ab01,0,0,0;",
        "ab0,0,1,0;",
        "ab01,,1,0;",
        "ab01,0,1,;",
        "ab09007199254740992,0,1,0;",
        "ab01,0,9007199254740992,0;",
        "ab09007199254740991,0,1,1;",
        "ab01,0,1,0;ab01,0,1,0;",
        "ab01,0,1,0;b01,0,1,0;",
        "af01,-2,0;",
        "af01,2;",
        "af01,2,0",
        "af0 1,2,0;",
        "af01e3,2,0;",
        "ac01,2,3;",
        "ac01,2,3,4,5;",
        "al00,0,1:;",
        "al01,0,1:;",
        "al01,0,1:0123456789ab;",
        "al01,0,1:0123456789abc",
        "al09999999999999999999,0,1:x;",
        "al01,281474976710656,1:0123456789abc;",
        "al02,0,1:0123456789abc;",
        "bb01,0,1,0;",
        "az01,0,1,0;",
        "b",
        "{}",
        "null",
    ]
    .iter()
    .map(|text| text.as_bytes().to_vec())
    .collect();
    // A log with a sum of zero, and one with an entry beyond the largest time.
    values.push([b"al01,5,60000000:".as_slice(), &[0, 6, 1, 1, 1, 1, 1], &[0, 0, 0, 0, 0, 5], b";"].concat());
    values.push([b"al01,0,60000000:".as_slice(), &[255; 7], &[0, 0, 0, 0, 0, 5], b";"].concat());
    values.push([b"al01,0,60000000:".as_slice(), &[0, 6, 1, 1, 1, 1, 1], &[9, 0, 0, 0, 0, 5], b";"].concat());
    values
}

/// A value of one algorithm must not open a limit of another, so every limit meets every value. A limit that is not
/// in the value may start fresh.
#[test]
fn an_unreadable_value_counts_as_exhausted_and_affects_no_other_key() {
    on_every_server(async |server| {
        let connection = server.connect().await;
        let store = fresh(&connection, false).await;
        let (space, other) = (KeySpace::new("damaged"), KeySpace::new("other"));
        let key = b"sg:1:{default:x}:damaged".as_slice();
        let letters = ["b", "b", "b", "l", "c", "f", "f"];
        for (quota, letter) in every_algorithm().into_iter().zip(letters) {
            let quotas = [quota];
            for value in garbage() {
                let speaks_of_another =
                    value.first() == Some(&b'a') && value.get(1..3) != Some(&[letter.as_bytes()[0], b'0']);
                if speaks_of_another && value.ends_with(b";") {
                    continue;
                }
                let story = format!("{} {}", quotas[0].algorithm(), value.escape_ascii());
                flush(&connection).await;
                run(&connection, "SET", &[key, &value]).await;
                drained_and_written(&store, &connection, &space, &other, &quotas, &story).await;
            }
            for (command, arguments) in [
                ("HSET", vec![key, b"a", b"1"]),
                ("RPUSH", vec![key, b"1"]),
                ("ZADD", vec![key, b"1", b"a"]),
                ("SADD", vec![key, b"1"]),
            ] {
                flush(&connection).await;
                run(&connection, command, &arguments).await;
                drained_and_written(&store, &connection, &space, &other, &quotas, command).await;
            }
        }
    });
}

async fn drained_and_written(
    store: &TestStore,
    connection: &MultiplexedConnection,
    space: &KeySpace,
    other: &KeySpace,
    quotas: &[Quota],
    story: &str,
) {
    let before = store.damaged_values();
    let watched = Charge { mode: ChargeMode::Shadow(0), ..unit(space, "x", quotas) };
    let looked = store.peek(&[unit(space, "x", quotas)], START, DEADLINE).await.unwrap();
    assert_eq!(looked.verdicts[0].remaining, 0, "{story}");
    let reply = store.charge(&[watched, unit(other, "x", quotas)], START, DEADLINE).await.unwrap();
    assert!(matches!(reply.verdicts[0].outcome, Outcome::Denied { .. }), "{story}: {reply:?}");
    assert_eq!((reply.verdicts[1].outcome, reply.verdicts[1].remaining), (Outcome::Allowed, 4), "{story}");
    assert_eq!(store.damaged_values(), before + 2, "{story}");
    let repaired = get(connection, "sg:1:{default:x}:damaged").await;
    let again = store.charge(&[unit(space, "x", quotas)], START, DEADLINE).await.unwrap();
    assert_eq!(again.verdicts[0], reply.verdicts[0], "{story}");
    assert_eq!(store.damaged_values(), before + 2, "{story}: it was repaired");
    assert_eq!(get(connection, "sg:1:{default:x}:damaged").await, repaired, "{story}: and is not written again");
    let Outcome::Denied { retry_after } = reply.verdicts[0].outcome else { panic!("{story}") };
    let later = store.charge(&[unit(space, "x", quotas)], START.plus(retry_after), DEADLINE).await.unwrap();
    assert!(passed(&later), "{story}: the request passes after its wait");
}

#[test]
fn random_bytes_never_open_a_limit() {
    on_every_server(async |server| {
        let connection = server.connect().await;
        let store = fresh(&connection, false).await;
        let space = KeySpace::new("damaged");
        let mut draw = crate::lua_parity::draw::Draw(7);
        for quota in every_algorithm() {
            let quotas = [quota];
            for _ in 0..300 {
                let length = draw.below(40);
                let value: Vec<u8> = (0..length).map(|_| draw.next() as u8).collect();
                run(&connection, "SET", &[b"sg:1:{default:x}:damaged", &value]).await;
                let reply = store.charge(&[unit(&space, "x", &quotas)], START, DEADLINE).await.unwrap();
                assert!(!passed(&reply), "{}", value.escape_ascii());
            }
        }
    });
}

#[test]
fn a_denial_and_a_peek_write_nothing() {
    on_every_server(async |server| {
        let connection = server.connect().await;
        let store = RedisStore::over_connection(server.connect().await, KeyEncoder::default(), false);
        let space = KeySpace::new("denied");
        let key = "sg:1:{default:x}:denied";
        let state = async || -> (Vec<u8>, i64) {
            let mut pipeline = redis::pipe();
            pipeline.cmd("DUMP").arg(key).cmd("PEXPIRETIME").arg(key);
            pipeline.query_async(&mut connection.clone()).await.unwrap()
        };
        for quota in every_algorithm() {
            flush(&connection).await;
            let quotas = [quota.clone(), hourly(9)];
            assert!(passed(
                &store.charge(&[costing(unit(&space, "x", &quotas), 5)], START, DEADLINE).await.unwrap()
            ));
            let before = state().await;
            for cost in [5, 6, 0] {
                let charges = [costing(unit(&space, "x", &quotas), cost)];
                let reply = store.charge(&charges, START, DEADLINE).await.unwrap();
                assert_eq!(passed(&reply), cost == 0);
                store.peek(&charges, START, DEADLINE).await.unwrap();
                assert_eq!(state().await, before, "{quota:?}");
            }
            let stranger = [unit(&space, "y", &quotas)];
            store.peek(&stranger, START, DEADLINE).await.unwrap();
            store.refund(&stranger, START, DEADLINE).await.unwrap();
            store.charge(&[costing(stranger[0], 0)], START, DEADLINE).await.unwrap();
            assert_eq!(get(&connection, "sg:1:{default:y}:denied").await, None);
        }
    });
}

/// Rows 32 and 43: if a counter is written before its expiry, a lost caller leaves it forever. If tokens and time
/// are two keys, losing one gives a full bucket. Here one key holds the whole state and always has an expiry. The
/// parity tests compare the expiry with the core's; this test uses the server's own clock.
#[test]
fn values_expire_a_second_after_they_matter_by_the_servers_clock() {
    on_every_server(async |server| {
        let connection = server.connect().await;
        let store = RedisStore::over_connection(server.connect().await, KeyEncoder::default(), false);
        let space = KeySpace::new("expiry");
        for quota in every_algorithm() {
            let quotas = [quota];
            flush(&connection).await;
            let reply = store.charge(&[unit(&space, "x", &quotas)], START, DEADLINE).await.unwrap();
            let expires_at: u64 = redis::cmd("PEXPIRETIME")
                .arg("sg:1:{default:x}:expiry")
                .query_async(&mut connection.clone())
                .await
                .unwrap();
            let keys: u64 = redis::cmd("DBSIZE").query_async(&mut connection.clone()).await.unwrap();
            assert_eq!(keys, 1, "{quotas:?}");
            let matters = match &quotas[0] {
                Quota::TokenBucket(bucket) if bucket.credits() > 0 => Micros::from_secs(3_600),
                _ => reply.verdicts[0].reset_after,
            };
            let promised = matters.ceil_millis() + 1_000;
            let written_at = reply.now.as_micros() / 1_000;
            let lives = expires_at - written_at;
            // A moment passes between reading the clock and writing.
            assert!((promised..promised + 500).contains(&lives), "{quotas:?}: {lives} ms instead of {promised}");
        }
    });
}

#[test]
fn decisions_of_one_call_see_each_other() {
    on_every_server(async |server| {
        let connection = server.connect().await;
        for quota in every_algorithm() {
            let store = fresh(&connection, false).await;
            let (own, shared) = (KeySpace::new("own"), KeySpace::new("shared"));
            let (roomy, tight) = ([hourly(100)], [quota]);
            let request = |who| vec![unit(&own, who, &roomy), costing(unit(&shared, "all", &tight), 2)];
            let requests =
                [request("a"), request("b"), request("c"), vec![unit(&shared, "all", &tight)], request("a")];
            let replies = store.charge_batch(&requests, START, DEADLINE).await.unwrap();
            let outcomes: Vec<bool> = replies.iter().map(passed).collect();
            assert_eq!(outcomes, [true, true, false, true, false], "{tight:?}");
            let left: Vec<u64> = replies.iter().map(|reply| reply.verdicts.last().unwrap().remaining).collect();
            assert_eq!(left, [3, 1, 1, 0, 0]);
            assert_eq!(replies[2].verdicts[0].remaining, 100, "the denied request was not charged");
            assert_eq!(replies[4].verdicts[0].remaining, 99);
            // The written state agrees.
            let after = store
                .peek(&[unit(&own, "c", &roomy), unit(&shared, "all", &tight)], START, DEADLINE)
                .await
                .unwrap();
            assert_eq!([after.verdicts[0].remaining, after.verdicts[1].remaining], [100, 0]);
        }
    });
}

#[test]
fn a_denied_cross_slot_request_leaves_nothing_charged() {
    on_every_server(async |server| {
        let connection = server.connect().await;
        let store = fresh(&connection, true).await;
        let spaces =
            [KeySpace::new("user"), KeySpace::new("tenant"), KeySpace::new("all"), KeySpace::new("trial")];
        let (roomy, tight) = ([hourly(10)], [hourly(1)]);
        let user = unit(&spaces[0], "alice", &roomy);
        let tenant = Subject { identity: None, ..user.key.subject };
        let tenant = Charge { key: Key { space: &spaces[1], subject: tenant }, ..user };
        let all = Charge { key: Key { space: &spaces[2], subject: Subject::default() }, quotas: &tight, ..user };
        let trial = Charge { mode: ChargeMode::Shadow(1), ..unit(&spaces[3], "alice", &tight) };
        // In the request and its verdicts the widest subject comes first, in the calls the narrowest.
        let charges = [all, trial, tenant, user];
        let remaining =
            |reply: &Reply| -> Vec<u64> { reply.verdicts.iter().map(|verdict| verdict.remaining).collect() };
        let first = store.charge(&charges, START, DEADLINE).await.unwrap();
        assert_eq!(remaining(&first), [0, 0, 9, 9]);
        let denied = store.charge(&charges, START, DEADLINE).await.unwrap();
        assert_eq!(remaining(&denied), [0, 0, 9, 9], "as they were, though two had been charged for a moment");
        assert_eq!(store.peek(&charges, START, DEADLINE).await.unwrap().verdicts, denied.verdicts);
        store.reset(&[all], START, DEADLINE).await.unwrap();
        let third = store.charge(&charges, START, DEADLINE).await.unwrap();
        assert_eq!(remaining(&third), [0, 0, 8, 8], "the shadow limit denies, and that changes nothing");
        assert!(!third.verdicts[1].outcome.is_allowed());
        let back = store.refund(&charges, START, DEADLINE).await.unwrap();
        assert_eq!(remaining(&back), [1, 1, 9, 9]);
    });
}

/// Servers without contact must agree on the start of a key's windows.
#[test]
fn the_phase_of_a_window_is_the_same_in_every_store() {
    on_every_server(async |server| {
        let quotas = [FixedWindow::new(10, MINUTE, Align::Key).unwrap().into()];
        let space = KeySpace::new("shifted");
        let mut ends = std::collections::BTreeSet::new();
        for identifier in ["a", "b", "c", "d"] {
            let charges = [unit(&space, identifier, &quotas)];
            let one = fresh(&server.connect().await, false).await;
            let first = one.charge(&charges, START, DEADLINE).await.unwrap();
            let other = RedisStore::over_connection(server.connect().await, KeyEncoder::default(), false)
                .with_caller_clock();
            let second = other.charge(&charges, START, DEADLINE).await.unwrap();
            assert_eq!((first.verdicts[0].remaining, second.verdicts[0].remaining), (9, 8));
            assert_eq!(first.verdicts[0].reset_after, second.verdicts[0].reset_after);
            ends.insert(first.verdicts[0].reset_after);
        }
        assert!(ends.len() > 1, "keys pick different phases");
    });
}

#[test]
fn a_log_of_ten_thousand_entries_is_searched_by_bisection() {
    on_every_server(async |server| {
        let connection = server.connect().await;
        let store = fresh(&connection, false).await;
        let quotas = [SlidingWindow::new(10_000, MINUTE).unwrap().into()];
        let space = KeySpace::new("long");
        let at = |index: u64| START.plus(Micros::from_millis(index));
        for index in 0..10_000 {
            let reply = store.charge(&[unit(&space, "x", &quotas)], at(index), DEADLINE).await.unwrap();
            assert_eq!(reply.verdicts[0].remaining, 9_999 - index);
        }
        let value = get(&connection, "sg:1:{default:x}:long").await.unwrap();
        assert!(value.len() < 131_000, "{} bytes", value.len());
        let denied =
            store.charge(&[costing(unit(&space, "x", &quotas), 5_000)], at(10_000), DEADLINE).await.unwrap();
        let retry_after = Micros::from_millis(60_000 - 10_000 + 4_999);
        assert_eq!(denied.verdicts[0].outcome, Outcome::Denied { retry_after });
        let half = store.charge(&[unit(&space, "x", &quotas)], at(65_000), DEADLINE).await.unwrap();
        assert_eq!(half.verdicts[0].remaining, 5_000);
        assert!(get(&connection, "sg:1:{default:x}:long").await.unwrap().len() < 66_000);
    });
}

/// The sums of a log that never empties wrap around at 2⁴⁸.
#[test]
fn the_sums_of_a_log_may_wrap_around() {
    on_every_server(async |server| {
        let connection = server.connect().await;
        let store = fresh(&connection, false).await;
        let space = KeySpace::new("sums");
        let quotas = [SlidingWindow::new(10, MINUTE).unwrap().into()];
        let time = |timestamp: Timestamp| timestamp.as_micros().to_be_bytes()[1..].to_vec();
        let sum = |sum: u64| sum.to_be_bytes()[2..].to_vec();
        let last = (1_u64 << 48) - 1;
        let entries = [time(START), sum(last), time(START.plus(Micros::from_secs(1))), sum(2)].concat();
        let value = [format!("al02,{},60000000:", last - 3).into_bytes(), entries, b";".to_vec()].concat();
        run(&connection, "SET", &[b"sg:1:{default:x}:sums", &value]).await;
        let charges = |cost| [costing(unit(&space, "x", &quotas), cost)];
        let now = START.plus(Micros::from_secs(2));
        let reply = store.charge(&charges(3), now, DEADLINE).await.unwrap();
        assert_eq!(reply.verdicts[0].remaining, 1, "three, three and three of ten");
        let denied = store.charge(&charges(5), now, DEADLINE).await.unwrap();
        assert_eq!(denied.verdicts[0].outcome, Outcome::Denied { retry_after: Micros::from_secs(59) });
        let later = store.charge(&charges(1), START.plus(MINUTE), DEADLINE).await.unwrap();
        assert_eq!(later.verdicts[0].remaining, 3);
        let back = store.refund(&charges(5), START.plus(MINUTE), DEADLINE).await.unwrap();
        assert_eq!(back.verdicts[0].remaining, 8);
        assert_eq!(store.damaged_values(), 0);
    });
}

#[test]
fn most_values_are_small() {
    on_every_server(async |server| {
        let connection = server.connect().await;
        let store = fresh(&connection, false).await;
        let space = KeySpace::new("api");
        store.charge(&[unit(&space, "user-12345678", &[hourly(100)])], START, DEADLINE).await.unwrap();
        let key = b"sg:1:{default:user-12345678}:api".as_slice();
        let hash = b"sg:1:{default:user-12345678}:apj".as_slice();
        run(&connection, "HSET", &[hash, b"tokens", b"99.53333333333333", b"ts", b"1705312800.123456"]).await;
        run(&connection, "PEXPIRE", &[hash, b"60000"]).await;
        let bytes = async |key: &[u8]| -> u64 {
            redis::cmd("MEMORY").arg("USAGE").arg(key).query_async(&mut connection.clone()).await.unwrap()
        };
        let (own, two_fields) = (bytes(key).await, bytes(hash).await);
        assert!(own * 100 <= two_fields * 65, "{own} bytes, two numbers in a hash take {two_fields}");
    });
}
