//! Lease terms, replies from permits, and permits that are given back to a real server.

use super::*;
use crate::identity::Identity;
use crate::store::Lease;
use crate::store::redis::RedisStore;
use crate::store::redis::client::servers::Servers;
use crate::store::redis::client::transport::Transport;
use crate::store::redis::lease::grant::{PaidCharges, give_back};
use crate::store::redis::protocol::key::KeyEncoder;
use crate::store::redis::protocol::replay::SeededState;
use crate::store::redis::protocol::scripts;
use crate::store::redis::testing::SingleConnection;
use crate::store::{Health, Key, KeySpace, LeaseMode, Store, Subject};
use sluicegate_core::decision::ChargeMode;
use sluicegate_core::{Cost, Quota, State};
use sluicegate_core::{Rate, SlidingWindow, TokenBucket};
use sluicegate_testkit::fault_proxy::{FaultProxy, Mode};
use sluicegate_testkit::poll;
use sluicegate_testkit::redis_server::RedisServer;
use std::time::Duration;

/// Longer than any step of the test takes.
const PATIENCE: Duration = Duration::from_secs(20);
const NOW: Timestamp = Timestamp::now(1_705_312_800_000_000);

fn bucket(capacity: u64, period: Micros) -> Quota {
    TokenBucket::new(capacity, Rate::new(1, period).unwrap()).unwrap().into()
}

fn hourly(capacity: u64) -> Quota {
    bucket(capacity, Micros::from_secs(3_600))
}

fn lease(millis: u64) -> Option<Lease> {
    Some(Lease { ttl: Micros::from_millis(millis), mode: LeaseMode::Strict })
}

fn charge<'a>(space: &'a KeySpace, quotas: &'a [Quota], cost: u32, lease: Option<Lease>) -> Charge<'a> {
    let subject = Subject { identity: Some(Identity::Named("alice")), ..Subject::default() };
    let key = Key { space, subject };
    Charge { key, quotas, cost: Cost::new(cost), mode: ChargeMode::Enforced, lease, usage: Cost::ZERO }
}

fn at(micros: u64) -> Uptime {
    Uptime::after(Micros::from_micros(micros))
}

#[test]
fn the_strictest_terms_of_all_enforced_charges_apply() {
    let spaces = ["a", "b", "c"].map(KeySpace::new);
    let (wide, narrow) = ([hourly(1_000), hourly(160)], [hourly(80)]);
    let one = charge(&spaces[0], &wide, 1, lease(100));
    let other = charge(&spaces[1], &narrow, 2, lease(50));
    let found = |charges: &[Charge<'_>]| {
        LeaseTerms::of(charges).map(|terms| (terms.ttl.as_micros() / 1_000, terms.most, terms.keys.len()))
    };
    assert_eq!(found(&[one]), Some((100, 20, 1)));
    assert_eq!(found(&[one, other]), Some((50, 5, 2)));
    assert_eq!(found(&[one, Charge { lease: None, ..other }]), None);
    let shadow = Charge { lease: None, mode: ChargeMode::Shadow(1), ..other };
    assert_eq!(found(&[one, shadow]), Some((100, 20, 1)), "shadow rules need no lease");
    assert_eq!(found(&[shadow]), None, "nothing decides");
    assert_eq!(found(&[one, Charge { lease: None, cost: Cost::ZERO, ..other }]), Some((100, 20, 1)));
    assert_eq!(found(&[Charge { cost: Cost::new(20), ..one }]), Some((100, 1, 1)));
    assert_eq!(found(&[Charge { cost: Cost::new(21), ..one }]), None, "one permit would be more than may be held");
    let log = [Quota::from(SlidingWindow::new(100, Micros::from_secs(1)).unwrap())];
    assert_eq!(found(&[Charge { quotas: &log, ..one }]), None);
    let largest = [hourly(80_000)];
    assert_eq!(found(&[Charge { quotas: &largest, ..one }]), Some((100, 10_000, 1)));
}

/// A grant for these charges, with the states that the script found.
fn grant(charges: &[Charge<'_>], permits: u32, states: &[Option<State>]) -> Grant<GrantState> {
    let found = |state: &Option<State>| SeededState { state: state.clone(), seed: 0 };
    let paid = Arc::new(PaidCharges::of(&KeyEncoder::default(), charges));
    let state = GrantState { received: at(1_000), states: states.iter().map(found).collect(), paid };
    Grant { permits, charged_at: NOW, ends: at(101_000), generation: Generation(1), state }
}

#[test]
fn a_permit_answers_as_the_store_would_have() {
    let spaces = ["a", "b"].map(KeySpace::new);
    let (quotas, tight) = ([bucket(10, Micros::from_millis(10))], [hourly(2)]);
    let watched = Charge { mode: ChargeMode::Shadow(1), ..charge(&spaces[1], &tight, 1, None) };
    let charges = [charge(&spaces[0], &quotas, 1, lease(100)), watched];
    let before = [quotas[0].charge(None, Cost::new(4), NOW), tight[0].charge(None, Cost::ONE, NOW)];
    let mut grant = grant(&charges, 3, &before);
    let first = reply(&mut grant, &charges, at(1_000));
    assert_eq!(first.now, NOW);
    assert_eq!(first.verdicts.iter().map(|verdict| verdict.remaining).collect::<Vec<_>>(), [5, 0]);
    // Ten milliseconds later a token has refilled, and the shadow limit would deny.
    let second = reply(&mut grant, &charges, at(11_000));
    assert_eq!(second.now, NOW.plus(Micros::from_millis(10)));
    assert_eq!(second.verdicts.iter().map(|verdict| verdict.remaining).collect::<Vec<_>>(), [5, 0]);
    let allowed: Vec<bool> = second.verdicts.iter().map(|verdict| verdict.outcome.is_allowed()).collect();
    assert_eq!(allowed, [true, false]);
}

async fn connected(server: &RedisServer) -> RedisStore<SingleConnection> {
    let client = redis::Client::open(server.url()).expect("a URL");
    let connection = client.get_multiplexed_async_connection().await.expect("a connection");
    RedisStore::over_connection(connection, KeyEncoder::default(), false)
}

#[tokio::test]
async fn permits_that_are_given_back_can_be_charged_again() {
    let server = RedisServer::start();
    let store = connected(&server).await;
    let spaces = ["a", "b"].map(KeySpace::new);
    let (both, one) = ([hourly(100), hourly(50)], [hourly(30)]);
    let of = |cost| [charge(&spaces[0], &both, cost, lease(100)), charge(&spaces[1], &one, cost, lease(100))];
    // Ten permits of two units, of which three were spent.
    let charged = store.charge(&of(20), NOW, PATIENCE).await.expect("an answer");
    let held = grant(&of(2), 7, &[]).state;
    let back = PermitReturn { permits: 7, charged_at: charged.now, generation: Generation(0), state: held };
    give_back(&store.shared.transport, None, [back], at(1_000))
        .expect("something to give back")
        .await
        .expect("an end");
    let reply = store.peek(&of(1), NOW, PATIENCE).await.expect("an answer");
    assert_eq!(reply.verdicts.iter().map(|verdict| verdict.remaining).collect::<Vec<_>>(), [94, 44, 24]);
}

#[tokio::test]
async fn refilled_permits_are_not_given_back() {
    let server = RedisServer::start();
    let store = connected(&server).await;
    let space = KeySpace::new("a");
    let quotas = [bucket(100, Micros::from_millis(1))];
    let charges = [charge(&space, &quotas, 1, lease(100))];
    let state = || grant(&charges, 1, &[]).state;
    let back = |permits| PermitReturn { permits, charged_at: NOW, generation: Generation(0), state: state() };
    assert!(give_back(&store.shared.transport, None, [back(5)], at(6_000)).is_none());
    assert!(give_back(&store.shared.transport, None, [back(5)], at(5_999)).is_some());
    assert!(give_back(&store.shared.transport, None, [], at(0)).is_none());
}

/// Permits that wait for a connection must not be given back over a new one, because they would be taken from
/// charges of the new generation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_are_not_given_back_in_another_generation() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.address());
    let store = RedisStore::start(&proxy.url().parse().expect("a URL"), KeyEncoder::default()).expect("options");
    store.ready(PATIENCE).await.expect("a server");
    let (space, quotas) = (KeySpace::new("a"), [hourly(100)]);
    let charges = |cost| [charge(&space, &quotas, cost, None)];
    let charged = store.charge(&charges(20), NOW, PATIENCE).await.expect("an answer");
    let transport = &store.shared.transport;
    let generation = Generation(Transport::generation(transport));
    proxy.set(Mode::Cut);
    poll::until_true("the connection is lost", PATIENCE, || store.health() != Health::Up);
    let held = grant(&charges(2), 7, &[]).state;
    let back = PermitReturn { permits: 7, charged_at: charged.now, generation, state: held };
    let pending_refund = give_back(transport, None, [back], at(1_000)).expect("something to give back");
    proxy.set(Mode::Pass);
    pending_refund.await.expect("an end");
    let reply = store.peek(&charges(1), NOW, PATIENCE).await.expect("an answer");
    assert_eq!(reply.verdicts[0].remaining, 80);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_connection_starts_a_generation() {
    let server = RedisServer::start();
    let options = server.url().parse().expect("a URL");
    let servers =
        Arc::new(Servers::start(&options, &[&scripts::CHARGE], "ours:").expect("options that make sense"));
    servers.ready(PATIENCE).await.expect("a server");
    let first = Transport::generation(&servers);
    assert_eq!(Transport::generation(&servers), first);
    server.restart_empty();
    poll::until_true("it is connected again", PATIENCE, || Transport::generation(&servers) != first);
}
