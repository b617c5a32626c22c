//! The script is a second implementation of the core. Random operations go through both, at chosen instants, and must
//! agree in every verdict, every stored byte and every expiry.

pub(crate) mod draw;
mod model;
mod value;

use crate::redis_server::{Server, on_every_server};
use draw::{Draw, cost, later, limits};
use futures_util::future::join_all;
use model::{Model, Value, name};
use redis::aio::MultiplexedConnection;
use sluicegate::core::decision::Group;
use sluicegate::core::{Cost, Micros, Quota, SlidingWindow, Timestamp};
use sluicegate::identity::DEFAULT_TENANT;
use sluicegate::store::redis::{KeyEncoder, OneConnection, RedisStore};
use sluicegate::store::{Charge, Key, KeySpace, Store, Subject, Verdicts};
use sluicegate::{Identity, store::Reply};
use sluicegate_testkit::conformance::{DEADLINE, OperationKind, START};
use std::pin::Pin;
use value::decoded;

/// When the values of a caller's clock begin to expire.
const EXPIRY_MILLIS: u64 = 7_258_118_400_000;
/// How many operations are under way at once.
const BATCH: usize = 250;

struct Step<'a> {
    kind: OperationKind,
    charges: Vec<Charge<'a>>,
    now: Timestamp,
    verdicts: Verdicts,
    /// What must be under every key after it.
    values: Vec<(String, Option<Value>)>,
}

type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

async fn answer(store: &RedisStore<OneConnection>, step: &Step<'_>) -> Reply {
    let reply = match step.kind {
        OperationKind::Charge => store.charge(&step.charges, step.now, DEADLINE).await,
        OperationKind::Peek => store.peek(&step.charges, step.now, DEADLINE).await,
        OperationKind::Refund => store.refund(&step.charges, step.now, DEADLINE).await,
        OperationKind::Reset => store.reset(&step.charges, step.now, DEADLINE).await,
    };
    reply.unwrap_or_else(|error| panic!("{error}: {:?} {:?} at {:?}", step.kind, step.charges, step.now))
}

async fn stored(
    mut connection: MultiplexedConnection,
    keys: &[(String, Option<Value>)],
) -> Vec<(Option<Vec<u8>>, i64)> {
    let mut pipeline = redis::pipe();
    for (key, _) in keys {
        pipeline.cmd("GET").arg(key).cmd("PEXPIRETIME").arg(key);
    }
    let values: Vec<redis::Value> = pipeline.query_async(&mut connection).await.unwrap();
    let pair = |pair: &[redis::Value]| {
        (redis::from_redis_value(pair[0].clone()).unwrap(), redis::from_redis_value(pair[1].clone()).unwrap())
    };
    values.chunks(2).map(pair).collect()
}

/// Sends a batch down one connection, in order and without waiting, and compares everything.
async fn compare(store: &RedisStore<OneConnection>, connection: &MultiplexedConnection, steps: &[Step<'_>]) {
    enum Seen {
        Reply(Reply),
        Values(Vec<(Option<Vec<u8>>, i64)>),
    }
    let pending = steps.iter().flat_map(|step| -> [Pending<'_, Seen>; 2] {
        [
            Box::pin(async { Seen::Reply(answer(store, step).await) }),
            Box::pin(async { Seen::Values(stored(connection.clone(), &step.values).await) }),
        ]
    });
    // Each is sent when it is first polled, which is in their order as long as none has to wait for its turn.
    let seen = tokio::task::unconstrained(join_all(pending)).await;
    for (step, seen) in steps.iter().zip(seen.chunks(2)) {
        let charge = |charge: &Charge<'_>| format!("{:?} {:?} {:?}", charge.cost, charge.group, charge.quotas);
        let charges: Vec<String> = step.charges.iter().map(charge).collect();
        let story = || format!("{:?} {charges:#?} at {:?}", step.kind, step.now);
        let [Seen::Reply(reply), Seen::Values(values)] = seen else { panic!("two for each") };
        assert_eq!(reply.verdicts, step.verdicts, "{}", story());
        assert_eq!(reply.now, step.now);
        for ((key, expected), (actual, expires_at)) in step.values.iter().zip(values) {
            let actual = actual.as_ref().map(|value| Value {
                states: decoded(value),
                expiry_millis: (*expires_at as u64).wrapping_sub(EXPIRY_MILLIS),
            });
            assert_eq!(actual.as_ref(), expected.as_ref(), "{key} after {}", story());
        }
    }
}

fn charge<'a>(
    space: &'a KeySpace,
    identifier: &'a str,
    quotas: &'a [Quota],
    cost: u32,
    group: Group,
) -> Charge<'a> {
    let identity = Some(Identity::Named(identifier));
    let subject = Subject { tenant: Some(DEFAULT_TENANT), identity, address: None };
    Charge { key: Key { space, subject }, quotas, cost: Cost::new(cost), group, lease: None }
}

/// Lists of limits that rules may have: mostly of one algorithm, if one is given.
fn rules(draw: &mut Draw, algorithm: Option<usize>) -> Vec<Vec<Quota>> {
    let one = |draw: &mut Draw| {
        let algorithm = algorithm.unwrap_or_else(|| draw.below(4) as usize);
        limits(draw, algorithm, 1).remove(0)
    };
    (0..24)
        .map(|index| {
            let count = if algorithm.is_some() && index % 3 > 0 { 1 } else { 1 + draw.below(3) };
            (0..count).map(|_| one(draw)).collect()
        })
        .collect()
}

const IDENTIFIERS: [&str; 4] = ["alice", "bob", "carol", "dave"];

async fn agrees(server: &Server, seed: u64, algorithm: Option<usize>, operations: usize) {
    let connection = server.connect().await;
    let store = RedisStore::over(connection.clone(), KeyEncoder::default(), false).by_callers_clock();
    let mut draw = Draw(seed);
    let spaces = [KeySpace::new("one"), KeySpace::new("two")];
    // The server must know the script, or the first calls would have to be sent twice and come out of order.
    let warming = limits(&mut draw, 0, 1);
    store.peek(&[charge(&spaces[0], "alice", &warming, 1, Group::Enforced)], START, DEADLINE).await.unwrap();
    for _ in 0..operations / 2_500 {
        redis::cmd("FLUSHALL").exec_async(&mut connection.clone()).await.unwrap();
        let rules = rules(&mut draw, algorithm);
        let mut model = Model::default();
        let start = *draw.of(&[START, START, START, Timestamp::now(0), Timestamp::NOW_MAX]);
        let mut clocks = [start; IDENTIFIERS.len()];
        let usual: Vec<usize> = (0..8).map(|_| draw.below(24) as usize).collect();
        let mut last = None;
        for _ in 0..2_500 / BATCH {
            let mut steps = Vec::new();
            for _ in 0..BATCH {
                steps.push(step(&mut draw, &mut model, &spaces, &rules, &usual, &mut clocks, &mut last));
            }
            compare(&store, &connection, &steps).await;
        }
    }
    assert_eq!(store.damaged_values(), 0);
}

fn step<'a>(
    draw: &mut Draw,
    model: &mut Model,
    spaces: &'a [KeySpace],
    rules: &'a [Vec<Quota>],
    usual: &[usize],
    clocks: &mut [Timestamp],
    last: &mut Option<(usize, Verdicts)>,
) -> Step<'a> {
    let who = draw.below(IDENTIFIERS.len() as u64) as usize;
    let of_space = |draw: &mut Draw, space: usize| {
        let changed = draw.once_in(12);
        let index = if changed { draw.below(rules.len() as u64) as usize } else { usual[who * 2 + space] };
        let quotas = &rules[index];
        let cost = cost(draw, &quotas[0]);
        let group = if draw.once_in(5) { Group::Shadow(draw.below(2) as u16) } else { Group::Enforced };
        charge(&spaces[space], IDENTIFIERS[who], quotas, cost, group)
    };
    let mut charges = vec![of_space(draw, 0)];
    if draw.once_in(4) {
        charges.push(of_space(draw, 1));
    }
    let verdict = last.as_ref().filter(|(before, _)| *before == who).map(|(_, verdicts)| &verdicts[0]);
    clocks[who] = later(draw, clocks[who], &charges[0].quotas[0], verdict);
    let now = clocks[who];
    let kind = match draw.below(16) {
        0 => OperationKind::Peek,
        1 => OperationKind::Refund,
        2 if draw.once_in(4) => OperationKind::Reset,
        _ => OperationKind::Charge,
    };
    let verdicts = model.run(kind, &charges, now);
    *last = Some((who, verdicts.clone()));
    let value = |charge: &Charge<'_>| (name(charge), model.keys.get(&name(charge)).cloned());
    let values = charges.iter().map(value).collect();
    Step { kind, charges, now, verdicts, values }
}

const OPERATIONS: usize = 100_000;

/// Over several calls there is no atomic write to compare. But as long as no rule changes and time only goes on, a charge
/// that is taken back leaves no trace that a verdict could show.
async fn agrees_apart(server: &Server, seed: u64, operations: usize) {
    let connection = server.connect().await;
    let store = RedisStore::over(connection.clone(), KeyEncoder::default(), true).by_callers_clock();
    let mut draw = Draw(seed);
    let spaces = [KeySpace::new("one"), KeySpace::new("two"), KeySpace::new("three")];
    let (mut denied, mut passed) = (0, 0);
    for _ in 0..operations / 200 {
        redis::cmd("FLUSHALL").exec_async(&mut connection.clone()).await.unwrap();
        let has_credits = |quotas: &Vec<Quota>| {
            quotas.iter().any(|quota| matches!(quota, Quota::TokenBucket(bucket) if bucket.credits() > 0))
        };
        let rules: Vec<Vec<Quota>> =
            rules(&mut draw, None).into_iter().filter(|rule| !has_credits(rule)).collect();
        let (mut model, mut now) = (Model::default(), START);
        for _ in 0..200 {
            let charges: Vec<Charge<'_>> = (0..3)
                .map(|index| {
                    let group = if draw.once_in(4) { Group::Shadow(index as u16) } else { Group::Enforced };
                    let cost = cost(&mut draw, &rules[index][0]);
                    charge(&spaces[index], IDENTIFIERS[index], &rules[index], cost, group)
                })
                .collect();
            now = now.max(later(&mut draw, now, &rules[0][0], None));
            let expected = model.run(OperationKind::Charge, &charges, now);
            let reply = store.charge(&charges, now, DEADLINE).await.unwrap();
            assert_eq!(reply.verdicts, expected, "{charges:#?} at {now:?}");
            let is_denied = expected.iter().any(|verdict| !verdict.outcome.is_allowed());
            *(if is_denied { &mut denied } else { &mut passed }) += 1;
        }
    }
    assert!(denied > operations / 20 && passed > operations / 20, "{denied} denied, {passed} passed");
}

#[test]
fn requests_over_several_calls_agree_as_long_as_rules_and_clock_are_steady() {
    on_every_server(async |server| agrees_apart(server, 6, 4_000).await);
}

/// What is drawn seldom meets one instant twice, and a log that is pulled back merges what was charged at that instant.
#[test]
fn a_log_that_is_pulled_back_to_an_instant_it_knows_merges_it() {
    on_every_server(async |server| {
        let connection = server.connect().await;
        let store = RedisStore::over(connection.clone(), KeyEncoder::default(), false).by_callers_clock();
        let space = KeySpace::new("log");
        let log = |seconds| [SlidingWindow::new(10, Micros::from_secs(seconds)).unwrap().into()];
        let (hour, minute) = (log(3_600), log(60));
        store.peek(&[charge(&space, "alice", &hour, 1, Group::Enforced)], START, DEADLINE).await.unwrap();
        let mut model = Model::default();
        // Once the window is a minute, what is ten minutes ahead is no longer believed.
        for (quotas, seconds) in
            [(&hour, 0), (&hour, 30), (&hour, 600), (&hour, 601), (&minute, 30), (&minute, 31)]
        {
            let now = START.plus(Micros::from_secs(seconds));
            let charges = vec![charge(&space, "alice", quotas, 1, Group::Enforced)];
            let verdicts = model.run(OperationKind::Charge, &charges, now);
            let values = vec![(name(&charges[0]), model.keys.get(&name(&charges[0])).cloned())];
            let step = Step { kind: OperationKind::Charge, charges, now, verdicts, values };
            compare(&store, &connection, &[step]).await;
        }
    });
}

#[test]
fn token_buckets_agree_to_the_last_bit() {
    on_every_server(async |server| agrees(server, 1, Some(0), OPERATIONS).await);
}

#[test]
fn sliding_windows_agree_to_the_last_bit() {
    on_every_server(async |server| agrees(server, 2, Some(1), OPERATIONS).await);
}

#[test]
fn sliding_counters_agree_to_the_last_bit() {
    on_every_server(async |server| agrees(server, 3, Some(2), OPERATIONS).await);
}

#[test]
fn fixed_windows_agree_to_the_last_bit() {
    on_every_server(async |server| agrees(server, 4, Some(3), OPERATIONS).await);
}

#[test]
fn limits_of_all_kinds_together_agree_to_the_last_bit() {
    on_every_server(async |server| agrees(server, 5, None, OPERATIONS).await);
}
