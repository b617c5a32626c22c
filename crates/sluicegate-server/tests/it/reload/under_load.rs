//! A thousand reloads under load: every request gets a response and counts once under its rule's name. Admissions stay
//! within the limits before and after each change, and over the whole test.

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
/// The least number of responses between two reloads.
const BETWEEN: u64 = 10;

/// One version of the file: the rule that all requests share, which refills in a second, among irrelevant rules.
struct Side {
    /// The capacity of the shared rule, and its refill per second.
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

/// An allowed request: the instants before and after it, in microseconds since the start.
type Passed = (u64, u64);

/// The shared state of all clients.
#[derive(Default)]
struct Seen {
    answered: AtomicU64,
    is_over: AtomicBool,
}

impl Seen {
    /// Sends requests until the test is over and returns the allowed ones. Every request must be allowed or denied.
    fn send(&self, api: SocketAddr, began: Instant) -> Vec<Passed> {
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

/// Reloads both versions in turn, and returns the intervals in which each was certainly in force.
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
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(|| seen.send(api, began))).collect();
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
    // Both versions refill in a second, so a change of versions never shortens a refill.
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

/// The largest number of admissions in this time. It includes one more, because the store's clock may run slightly
/// faster than the test's.
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
