//! A thousand reloads while requests come: each is answered, each is counted once under its rule's name, and no more pass
//! than the limits allow, on each side of every change and over all of them.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sluicegate_testkit::poll;
use sluicegate_testkit::redis_server::RedisServer;

use super::{AUTHORIZATION, Followed};
use crate::client::Session;
use crate::server::PATIENCE;

const RELOADS: usize = 1_000;
const CLIENTS: usize = 4;
/// How many requests are answered between two reloads, at least.
const BETWEEN: u64 = 10;

/// One version of the file: the rule that all requests share, which is full after a second, among others of no
/// consequence.
struct Side {
    /// What the shared rule allows at once, and in a second.
    capacity: u64,
    text: String,
}

impl Side {
    fn new(capacity: u64, lease: &str, before: &str, after: &str) -> Self {
        let wide = |name: &str| match name {
            "" => String::new(),
            name => format!(
                "  - {{ name: {name}, deadline: 10s, limits: [{{ algorithm: fixed_window, limit: 1000000, window: 365d }}] }}\n"
            ),
        };
        let shared = format!(
            "  - {{ name: shared, per: global, deadline: 10s, on_store_failure: closed{lease}, limits: [{{ algorithm: \
             token_bucket, capacity: {capacity}, refill: {capacity}/s }}] }}\n"
        );
        Self { capacity, text: format!("rules:\n{}{shared}{}", wide(before), wide(after)) }
    }
}

/// A request that passed: between these instants, in microseconds since the beginning.
type Passed = (u64, u64);

/// What all clients saw.
#[derive(Default)]
struct Seen {
    answered: AtomicU64,
    is_over: AtomicBool,
}

impl Seen {
    /// Asks until it is over, and returns what passed. Every request must be answered, one way or the other.
    fn ask(&self, api: SocketAddr, began: Instant) -> Vec<Passed> {
        let (mut session, mut passed) = (Session::open(api), Vec::new());
        while !self.is_over.load(Ordering::Relaxed) {
            let sent = micros(began.elapsed());
            let answer = session.post("/v1/check", r#"{"resource":"r","identifier":"i"}"#);
            match answer.status {
                200 => passed.push((sent, micros(began.elapsed()))),
                429 => {}
                _ => panic!("{answer:?}"),
            }
            self.answered.fetch_add(1, Ordering::Relaxed);
        }
        passed
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).expect("a short test")
}

/// Reloads one side after the other, and says from when to when each was in force, for certain.
fn reloads(followed: &Followed, sides: &[Side; 2], seen: &Seen, began: Instant) -> Vec<(u64, u64, usize)> {
    let mut admin = Session::open(followed.server.address("admin"));
    let mut in_force = Vec::new();
    for turn in 1..=RELOADS {
        followed.replace(&sides[turn % 2].text);
        let answer = admin.try_post("/admin/v1/reload", AUTHORIZATION, "").expect("an answer");
        assert_eq!(answer.status, 200, "{answer:?}");
        let (since, so_far) = (micros(began.elapsed()), seen.answered.load(Ordering::Relaxed));
        let is_enough = || seen.answered.load(Ordering::Relaxed) >= so_far + BETWEEN;
        poll::until_true("requests are answered", PATIENCE, is_enough);
        in_force.push((since, micros(began.elapsed()), turn % 2));
    }
    in_force
}

fn holds(store: &str, sides: [Side; 2]) {
    let followed = Followed::start_on(store, &sides[0].text);
    let (seen, began) = (Seen::default(), Instant::now());
    let api = followed.server.address("api");
    let (in_force, passed) = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(|| seen.ask(api, began))).collect();
        let in_force = reloads(&followed, &sides, &seen, began);
        seen.is_over.store(true, Ordering::Relaxed);
        let passed: Vec<Passed> = clients.into_iter().flat_map(|client| client.join().expect("answers")).collect();
        (in_force, passed)
    });

    let answered = seen.answered.load(Ordering::Relaxed);
    assert!(!passed.is_empty() && (passed.len() as u64) < answered, "{} of {answered}", passed.len());
    for (since, until, side) in in_force {
        let within = passed.iter().filter(|(sent, got)| *sent >= since && *got <= until).count() as u64;
        let capacity = sides[side].capacity;
        assert!(within <= bound(capacity, until - since), "{within} in {} µs of {capacity}", until - since);
    }
    // Both sides are full after a second, so a change of sides never makes anything full sooner.
    let (all, whole) = (passed.len() as u64, micros(began.elapsed()));
    let largest = sides.iter().map(|side| side.capacity).max().expect("two sides");
    assert!(all <= bound(largest, whole), "{all} in {whole} µs of {largest}");

    let outcome = |outcome: &str| {
        let series =
            format!(r#"sluicegate_decisions_total{{algorithm="token_bucket",outcome="{outcome}",rule="shared"}}"#);
        followed.metric(&series).and_then(|count| count.parse::<u64>().ok()).expect("the rule is always there")
    };
    assert_eq!((outcome("allowed"), outcome("denied")), (all, answered - all));
}

/// What may pass in so many microseconds; one more, because the store's clock may be a little faster than ours.
fn bound(capacity: u64, micros: u64) -> u64 {
    capacity + capacity * micros / 1_000_000 + 1
}

#[test]
fn a_thousand_reloads_of_the_embedded_store() {
    holds("memory", [Side::new(40, "", "first", ""), Side::new(10, "", "", "last")]);
}

#[test]
fn a_thousand_reloads_of_redis() {
    holds(&RedisServer::start().url(), [Side::new(40, "", "first", ""), Side::new(10, "", "", "last")]);
}

#[test]
fn a_thousand_reloads_while_requests_are_charged_ahead() {
    let lease = ", lease: { ttl: 100ms, mode: strict }";
    holds(&RedisServer::start().url(), [Side::new(400, lease, "", ""), Side::new(200, lease, "", "")]);
}
