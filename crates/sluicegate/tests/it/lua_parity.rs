//! The script is a second implementation of the core. Random operations run through both, at chosen instants, and
//! must agree in every verdict, every stored byte and every expiry.

pub(crate) mod draw;
mod model;
mod value;

use crate::redis_server::{Server, on_every_server};
use draw::{CALENDAR, Draw, WHOLE, cost, damage, later, limits, times, usage};
use futures_util::future::join_all;
use model::{Model, Value, name};
use redis::aio::MultiplexedConnection;
use sluicegate::core::decision::{ChargeMode, is_allowed};
use sluicegate::core::{Cost, Micros, Quota, SlidingWindow, Timestamp};
use sluicegate::identity::DEFAULT_TENANT;
use sluicegate::store::redis::testing::SingleConnection;
use sluicegate::store::redis::{KeyEncoder, RedisStore};
use sluicegate::store::{Charge, Key, KeySpace, Store, Subject, Verdicts};
use sluicegate::{Identity, store::Reply};
use sluicegate_testkit::conformance::{DEADLINE, OperationKind, START};
use std::num::NonZeroU32;
use std::pin::Pin;
use value::decoded;

/// The start of expiries under the caller's clock.
const EXPIRY_MILLIS: u64 = 7_258_118_400_000;
/// How many operations are in flight at once.
const BATCH: usize = 250;

/// One call.
struct Step<'a> {
    /// Damage by another client before the call.
    damage: Option<redis::Pipeline>,
    kind: OperationKind,
    /// Its decisions with their repetitions. Only charges are repeated or batched.
    decisions: Vec<(NonZeroU32, Vec<Charge<'a>>)>,
    now: Timestamp,
    /// The expected verdicts of each decision, for each repetition.
    verdicts: Vec<Vec<Verdicts>>,
    /// The expected values of all keys afterwards, unless unreadable.
    values: Vec<(String, Option<Value>)>,
}

type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

async fn answer(store: &RedisStore<SingleConnection>, step: &Step<'_>) -> Vec<Vec<Reply>> {
    let (times, charges) = &step.decisions[0];
    let is_alone = step.decisions.len() == 1 && times.get() == 1;
    let once = |reply| vec![vec![reply]];
    let replies = match step.kind {
        OperationKind::Charge if is_alone => store.charge(charges, step.now, DEADLINE).await.map(once),
        OperationKind::Charge => {
            store.charge_repeated(&step.decisions, step.now, DEADLINE).await.map(|replies| counted(step, replies))
        }
        OperationKind::Peek => store.peek(charges, step.now, DEADLINE).await.map(once),
        OperationKind::Refund => store.refund(charges, step.now, DEADLINE).await.map(once),
        OperationKind::Report => store.report(charges, step.now, DEADLINE).await.map(once),
        OperationKind::Reset => store.reset(charges, step.now, DEADLINE).await.map(once),
    };
    replies.unwrap_or_else(|error| panic!("{error}: {:?} {:?} at {:?}", step.kind, step.decisions, step.now))
}

/// The replies, after a check of the count of admissions.
fn counted(step: &Step<'_>, replies: Vec<(u32, Vec<Reply>)>) -> Vec<Vec<Reply>> {
    let of_decision = |((admitted, replies), (_, charges)): ((u32, Vec<Reply>), &(_, Vec<Charge<'_>>))| {
        let modes = || charges.iter().flat_map(|charge| charge.quotas.iter().map(|_| charge.mode));
        let votes =
            |reply: &Reply| modes().zip(reply.verdicts.iter().map(|verdict| verdict.outcome)).collect::<Vec<_>>();
        assert_eq!(replies.iter().filter(|reply| is_allowed(votes(reply))).count() as u32, admitted);
        replies
    };
    replies.into_iter().zip(&step.decisions).map(of_decision).collect()
}

async fn stored(
    mut connection: MultiplexedConnection,
    keys: &[(String, Option<Value>)],
) -> Vec<(Option<Vec<u8>>, i64)> {
    if keys.is_empty() {
        return Vec::new();
    }
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

/// Sends a batch over one connection, in order and without waiting, and compares everything.
async fn compare(store: &RedisStore<SingleConnection>, connection: &MultiplexedConnection, steps: &[Step<'_>]) {
    enum Seen {
        Nothing,
        Replies(Vec<Vec<Reply>>),
        Values(Vec<(Option<Vec<u8>>, i64)>),
    }
    let pending = steps.iter().flat_map(|step| -> [Pending<'_, Seen>; 3] {
        [
            Box::pin(async {
                if let Some(damage) = &step.damage {
                    damage.exec_async(&mut connection.clone()).await.unwrap();
                }
                Seen::Nothing
            }),
            Box::pin(async { Seen::Replies(answer(store, step).await) }),
            Box::pin(async { Seen::Values(stored(connection.clone(), &step.values).await) }),
        ]
    });
    // Each call is sent when it is first polled: in order, as long as none has to yield.
    let seen = tokio::task::unconstrained(join_all(pending)).await;
    for (step, seen) in steps.iter().zip(seen.chunks(3)) {
        let [_, Seen::Replies(replies), Seen::Values(values)] = seen else { panic!("three for each") };
        let verdicts =
            |replies: &Vec<Reply>| replies.iter().map(|reply| reply.verdicts.clone()).collect::<Vec<_>>();
        let verdicts: Vec<Vec<Verdicts>> = replies.iter().map(verdicts).collect();
        assert_eq!(verdicts, step.verdicts, "{}", story(step));
        assert!(replies.iter().flatten().all(|reply| reply.now == step.now));
        for ((key, expected), (actual, expires_at)) in step.values.iter().zip(values) {
            let actual = actual.as_ref().map(|value| Value {
                states: decoded(value),
                expiry_millis: (*expires_at as u64).wrapping_sub(EXPIRY_MILLIS),
            });
            assert_eq!(actual.as_ref(), expected.as_ref(), "{key} after {}", story(step));
        }
    }
}

fn story(step: &Step<'_>) -> String {
    let charge = |charge: &Charge<'_>| {
        format!("{} {:?} {:?} {:?} {:?}", name(charge), charge.cost, charge.usage, charge.mode, charge.quotas)
    };
    let charges = |(times, charges): &(_, Vec<Charge<'_>>)| {
        format!("{times} times {:#?}", charges.iter().map(charge).collect::<Vec<_>>())
    };
    let decisions: Vec<String> = step.decisions.iter().map(charges).collect();
    format!("{:?} {} at {:?}", step.kind, decisions.join(", "), step.now)
}

fn charge<'a>(
    space: &'a KeySpace,
    identifier: &'a str,
    quotas: &'a [Quota],
    cost: u32,
    mode: ChargeMode,
) -> Charge<'a> {
    let identity = Some(Identity::Named(identifier));
    let subject = Subject { tenant: Some(DEFAULT_TENANT), identity, address: None };
    Charge { key: Key { space, subject }, quotas, cost: Cost::new(cost), mode, lease: None, usage: Cost::ZERO }
}

/// The limits of several rules: mostly of one algorithm, if one is given.
fn rules(draw: &mut Draw, algorithm: Option<usize>) -> Vec<Vec<Quota>> {
    let one = |draw: &mut Draw| {
        let algorithm = algorithm.unwrap_or_else(|| *draw.of(&[0, 1, 2, CALENDAR, CALENDAR]));
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
    let store = RedisStore::over_connection(connection.clone(), KeyEncoder::default(), false).with_caller_clock();
    let mut draw = Draw(seed);
    let spaces = [KeySpace::new("one"), KeySpace::new("two")];
    // The server must know the script, or the first calls would be sent twice and out of order.
    let warming = limits(&mut draw, 0, 1);
    store.peek(&[charge(&spaces[0], "alice", &warming, 1, ChargeMode::Enforced)], START, DEADLINE).await.unwrap();
    let mut damage_met = 0;
    for _ in 0..operations / 2_500 {
        redis::cmd("FLUSHALL").exec_async(&mut connection.clone()).await.unwrap();
        let rules = rules(&mut draw, algorithm);
        let start = *draw.of(&[START, START, START, Timestamp::now(0), Timestamp::NOW_MAX]);
        let usual: Vec<usize> = (0..8).map(|_| draw.below(24) as usize).collect();
        let mut world = World {
            draw: &mut draw,
            model: Model::default(),
            spaces: &spaces,
            rules: &rules,
            usual,
            clocks: [start; IDENTIFIERS.len()],
            last: None,
            is_simple: false,
        };
        for _ in 0..2_500 / BATCH {
            let steps: Vec<Step<'_>> = (0..BATCH).map(|_| world.step()).collect();
            compare(&store, &connection, &steps).await;
        }
        damage_met += world.model.damage_met;
    }
    assert_eq!(store.damaged_values(), damage_met);
    assert!(damage_met > operations as u64 / 100, "{damage_met}");
}

/// The source of random operations.
struct World<'w, 'a> {
    draw: &'w mut Draw,
    model: Model,
    spaces: &'a [KeySpace],
    rules: &'a [Vec<Quota>],
    /// The usual rule index of each identity under each space.
    usual: Vec<usize>,
    clocks: [Timestamp; IDENTIFIERS.len()],
    /// The last identity and its verdicts.
    last: Option<(usize, Verdicts)>,
    /// Whether the next decisions have one enforced charge each, which is the case of the fast path and the batch
    /// path.
    is_simple: bool,
}

impl<'a> World<'_, 'a> {
    fn step(&mut self) -> Step<'a> {
        let who = self.draw.below(IDENTIFIERS.len() as u64) as usize;
        self.is_simple = self.draw.once_in(2);
        let kind = match self.draw.below(16) {
            0 => OperationKind::Peek,
            1 => OperationKind::Refund,
            2 if self.draw.once_in(4) => OperationKind::Reset,
            3 => OperationKind::Report,
            _ => OperationKind::Charge,
        };
        let mut decisions = vec![(NonZeroU32::MIN, self.charges(who))];
        let quota = &decisions[0].1[0].quotas[0];
        let verdict = self.last.as_ref().filter(|(before, _)| *before == who).map(|(_, verdicts)| &verdicts[0]);
        let now = later(self.draw, self.clocks[who], quota, verdict);
        self.clocks[who] = now;
        if matches!(kind, OperationKind::Charge) {
            decisions[0].0 = times(self.draw);
            if self.draw.once_in(4) {
                for _ in 0..1 + self.draw.below(6) {
                    let who = self.draw.below(IDENTIFIERS.len() as u64) as usize;
                    self.clocks[who] = now;
                    decisions.push((times(self.draw), self.charges(who)));
                }
            }
            if let [(NonZeroU32::MIN, charges)] = &mut *decisions
                && self.draw.once_in(6)
            {
                charges.iter_mut().for_each(|charge| charge.usage = usage(self.draw, charge.cost));
            }
        }
        let damage = self.draw.once_in(40).then(|| {
            let key = name(&self.draw.of(&decisions).1[0]);
            self.model.damage(key.clone());
            damage(self.draw, &key)
        });
        let verdicts = self.model.call(kind, &decisions, now);
        let values = self.values(&decisions);
        self.last = verdicts[0].last().map(|verdicts| (who, verdicts.clone()));
        Step { damage, kind, decisions, now, verdicts, values }
    }

    /// The charges of one identity.
    fn charges(&mut self, who: usize) -> Vec<Charge<'a>> {
        let count = if !self.is_simple && self.draw.once_in(4) { 2 } else { 1 };
        (0..count).map(|space| self.charge(who, space)).collect()
    }

    fn charge(&mut self, who: usize, space: usize) -> Charge<'a> {
        let changed = self.draw.once_in(12);
        let index =
            if changed { self.draw.below(self.rules.len() as u64) as usize } else { self.usual[who * 2 + space] };
        let quotas = &self.rules[index];
        let cost = cost(self.draw, &quotas[0]);
        let mode = if self.draw.once_in(5) {
            ChargeMode::Shadow(self.draw.below(2) as u16)
        } else {
            ChargeMode::Enforced
        };
        charge(&self.spaces[space], IDENTIFIERS[who], quotas, cost, mode)
    }

    /// The expected values of the keys, unless unreadable.
    fn values(&self, decisions: &[(NonZeroU32, Vec<Charge<'a>>)]) -> Vec<(String, Option<Value>)> {
        let charges = decisions.iter().flat_map(|(_, charges)| charges);
        let mut keys: Vec<String> = charges.map(name).filter(|key| !self.model.damaged.contains(key)).collect();
        keys.sort();
        keys.dedup();
        let value = |key: String| {
            let value = self.model.keys.get(&key).cloned();
            (key, value)
        };
        keys.into_iter().map(value).collect()
    }
}

const OPERATIONS: usize = 50_000;

/// Several calls have no atomic write to compare. But while rules do not change and time only advances, a released
/// charge leaves no trace in the verdicts.
async fn agrees_apart(server: &Server, seed: u64, operations: usize) {
    let connection = server.connect().await;
    let store = RedisStore::over_connection(connection.clone(), KeyEncoder::default(), true).with_caller_clock();
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
                    let mode =
                        if draw.once_in(4) { ChargeMode::Shadow(index as u16) } else { ChargeMode::Enforced };
                    let cost = cost(&mut draw, &rules[index][0]);
                    charge(&spaces[index], IDENTIFIERS[index], &rules[index], cost, mode)
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
fn cross_slot_requests_agree_while_rules_and_clock_are_steady() {
    on_every_server(async |server| agrees_apart(server, 6, 4_000).await);
}

/// Random operations rarely meet one instant twice, and a log that is pulled back merges the charges of that
/// instant.
#[test]
fn a_log_pulled_back_to_a_known_instant_merges_it() {
    on_every_server(async |server| {
        let connection = server.connect().await;
        let store =
            RedisStore::over_connection(connection.clone(), KeyEncoder::default(), false).with_caller_clock();
        let space = KeySpace::new("log");
        let log = |seconds| [SlidingWindow::new(10, Micros::from_secs(seconds)).unwrap().into()];
        let (hour, minute) = (log(3_600), log(60));
        store.peek(&[charge(&space, "alice", &hour, 1, ChargeMode::Enforced)], START, DEADLINE).await.unwrap();
        let mut model = Model::default();
        // With a window of a minute, a state that is ten minutes ahead is invalid.
        for (quotas, seconds) in
            [(&hour, 0), (&hour, 30), (&hour, 600), (&hour, 601), (&minute, 30), (&minute, 31)]
        {
            let now = START.plus(Micros::from_secs(seconds));
            let charges = vec![charge(&space, "alice", quotas, 1, ChargeMode::Enforced)];
            let verdicts = vec![vec![model.run(OperationKind::Charge, &charges, now)]];
            let values = vec![(name(&charges[0]), model.keys.get(&name(&charges[0])).cloned())];
            let decisions = vec![(NonZeroU32::MIN, charges)];
            let step = Step { damage: None, kind: OperationKind::Charge, decisions, now, verdicts, values };
            compare(&store, &connection, &[step]).await;
        }
    });
}

#[test]
fn token_buckets_agree_to_the_last_bit() {
    on_every_server(async |server| agrees(server, 1, Some(0), OPERATIONS).await);
}

#[test]
fn token_buckets_in_whole_microseconds_agree_to_the_last_bit() {
    on_every_server(async |server| agrees(server, 7, Some(WHOLE), OPERATIONS).await);
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
fn windows_of_calendars_agree_to_the_last_bit() {
    on_every_server(async |server| agrees(server, 8, Some(CALENDAR), OPERATIONS).await);
}

#[test]
fn limits_of_all_kinds_together_agree_to_the_last_bit() {
    on_every_server(async |server| agrees(server, 5, None, OPERATIONS).await);
}
