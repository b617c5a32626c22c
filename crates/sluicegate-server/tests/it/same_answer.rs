//! Gateway, forward-auth, middleware, demo application and API give the same response to the same request.
//!
//! Each front door has a store of its own and gets every request once, in lockstep, so all stores have the same state at each
//! request. Requests are random: methods, paths in many spellings, valid and invalid credentials, real and forged
//! addresses. Status, rate-limit fields, challenge and problem document must be equal. Only times may differ, by at
//! most the time between the requests to them. The test prints the seed; `SLUICEGATE_SAME_ANSWER_SEED` repeats a
//! run.

mod front_doors;
mod requests;
mod shown;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fastrand::Rng;
use serde_json::Value;

pub(crate) use self::front_doors::serve;
use self::front_doors::{FrontDoors, check};
use self::requests::TestRequest;
use self::shown::{Shown, assert_same};
use crate::client::Answer;

/// The number of requests, enough to exhaust every limit below for some client.
const REQUESTS: usize = 400;

/// Windows are days, and buckets refill once a day, so no limit recovers during the test.
const RULES: &str = "
tiers: [free, pro]
rules:
  - name: guesses
    match: { credential: unverified }
    per: ip
    limits: [{ algorithm: token_bucket, capacity: 6, refill: 1/d }]
  - name: client
    per: ip
    limits: [{ algorithm: sliding_window, limit: 60, window: 1d }]
  - name: writes
    match: { path: /api/**, method: [POST, DELETE] }
    limits:
      - { algorithm: token_bucket, capacity: 4, refill: 1/d, name: few }
      - { algorithm: fixed_window, limit: 9, window: 3650d }
    tiers: { pro: [{ algorithm: token_bucket, capacity: 7, refill: 1/d }] }
    overrides:
      - { identifier: alice, limits: [{ algorithm: sliding_window, limit: 5, window: 7d }] }
      - { identifier: 'vip-*', limits: unlimited }
  - name: items
    match: { path: /api/*/items, method: GET }
    per: [tenant, identifier]
    limits: [{ algorithm: token_bucket, capacity: 12, refill: 1/d, credits: 3 }]
  - name: shop
    match: { tenant: shop }
    per: tenant
    limits: [{ algorithm: sliding_window, limit: 70, window: 1d }]
  - name: export
    match: { resource: api.export }
    cost: 3
    limits: [{ algorithm: token_bucket, capacity: 10, refill: 1/d }]
  - name: never
    match: { path: /never }
    cost: 5
    limits: [{ algorithm: token_bucket, capacity: 2, refill: 1/d }]
  - name: watched
    match: { path: /api/** }
    mode: shadow
    limits: [{ algorithm: fixed_window, limit: 1, window: 3650d }]
";

/// Rules without path or address, which therefore apply to checks, too.
const RULES_OF_RESOURCES: &str = "
tiers: [free, pro]
unmatched: deny
rules:
  - name: items
    match: { resource: 'api.*.items' }
    limits:
      - { algorithm: token_bucket, capacity: 4, refill: 1/d }
      - { algorithm: sliding_window, limit: 50, window: 1d }
    tiers: { pro: [{ algorithm: token_bucket, capacity: 7, refill: 1/d }] }
    overrides:
      - { identifier: alice, limits: [{ algorithm: fixed_window, limit: 5, window: 3650d }] }
      - { identifier: 'vip-*', limits: unlimited }
  - name: export
    match: { resource: api.export }
    per: tenant
    cost: 3
    limits: [{ algorithm: token_bucket, capacity: 20, refill: 1/d }]
  - name: ping
    match: { tenant: shop, resource: api.ping }
    per: global
    limits: [{ algorithm: sliding_window, limit: 8, window: 1d }]
  - name: about
    match: { resource: about }
    cost: 5
    limits: [{ algorithm: token_bucket, capacity: 2, refill: 1/d }]
";

/// The longest time so far for one request through all doors. States and waits may differ by as much.
#[derive(Default)]
struct Gap(Duration);

impl Gap {
    fn of<T>(&mut self, round: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let answers = round();
        self.0 = self.0.max(started.elapsed());
        answers
    }

    /// The tolerance in seconds. The instants of charge and read may each differ by one round, and seconds are
    /// rounded.
    fn seconds(&self) -> u64 {
        2 * self.0.as_secs() + 3
    }
}

#[expect(clippy::print_stdout, reason = "a failure shows it")]
fn rng() -> Rng {
    let given = std::env::var("SLUICEGATE_SAME_ANSWER_SEED").ok();
    let seed = given.map_or_else(|| fastrand::u64(..), |seed| seed.parse().expect("a number"));
    println!("SLUICEGATE_SAME_ANSWER_SEED={seed}");
    Rng::with_seed(seed)
}

#[test]
fn gateway_forward_auth_and_middleware_answer_alike() {
    let (doors, mut rng, mut gap) = (FrontDoors::start("same-answer", RULES), rng(), Gap::default());
    let (mut statuses, mut passed) = (BTreeMap::new(), 0);
    for count in 0..REQUESTS {
        let request = TestRequest::random(&mut rng);
        let [gateway, auth, middleware] =
            gap.of(|| [doors.gateway(&request), doors.forward_auth(&request), doors.middleware(&request)]);
        if gateway.status == 200 {
            assert_eq!(gateway.body, middleware.body, "{request:?}");
        }
        let shown = [&gateway, &auth, &middleware].map(|answer| Shown::of(answer, &request));
        assert_same(&shown[0], &shown[1], gap.seconds(), &format!("forward-auth, request {count}: {request:?}"));
        assert_same(&shown[0], &shown[2], gap.seconds(), &format!("middleware, request {count}: {request:?}"));
        *statuses.entry(gateway.status).or_insert(0) += 1;
        passed += usize::from(gateway.status == 200);
        assert_eq!(doors.upstream_requests(), passed, "{request:?}");
    }
    println!("{statuses:?}");
    for status in [200, 400, 401, 429] {
        assert!(statuses.get(&status).is_some_and(|count| *count >= 5), "{status} hardly came: {statuses:?}");
    }
}

#[test]
fn the_demo_application_answers_as_the_gateway() {
    let (doors, mut rng, mut gap) = (FrontDoors::start("same-demo", RULES), rng(), Gap::default());
    let demo = doors.demo("same-demo-own", RULES);
    for count in 0..REQUESTS / 2 {
        let request = TestRequest {
            path: "/api/ping",
            method: rng.choice(&["GET", "HEAD"]).expect("two"),
            ..TestRequest::random(&mut rng)
        };
        let [gateway, demo] = gap.of(|| [doors.gateway(&request), request.send(demo.address("gateway"))]);
        let shown = [&gateway, &demo].map(|answer| Shown::of(answer, &request));
        assert_same(&shown[0], &shown[1], gap.seconds(), &format!("demo, request {count}: {request:?}"));
    }
}

#[test]
fn a_check_decides_as_the_gateway_does_by_rules_of_resources() {
    let (doors, mut rng, mut gap) = (FrontDoors::start("same-check", RULES_OF_RESOURCES), rng(), Gap::default());
    let api = doors.demo("same-check-own", RULES_OF_RESOURCES);
    let mut statuses = BTreeMap::new();
    for count in 0..REQUESTS {
        let request = TestRequest::random(&mut rng);
        let Some(body) = request.as_check() else { continue };
        let [gateway, auth, middleware, checked] = gap.of(|| {
            let checked = check(api.address("api"), &body);
            [doors.gateway(&request), doors.forward_auth(&request), doors.middleware(&request), checked]
        });
        let shown = [&gateway, &auth, &middleware].map(|answer| Shown::of(answer, &request));
        assert_same(&shown[0], &shown[1], gap.seconds(), &format!("forward-auth, request {count}: {request:?}"));
        assert_same(&shown[0], &shown[2], gap.seconds(), &format!("middleware, request {count}: {request:?}"));
        let limits = [&gateway, &checked].map(Shown::limits_of);
        assert_same(&limits[0], &limits[1], gap.seconds(), &format!("check, request {count}: {request:?}"));
        json_has_the_numbers_of_the_header_fields(&checked);
        *statuses.entry(gateway.status).or_insert(0) += 1;
    }
    println!("{statuses:?}");
    for status in [200, 429] {
        assert!(statuses.get(&status).is_some_and(|count| *count >= 5), "{status} hardly came: {statuses:?}");
    }
}

#[track_caller]
fn json_has_the_numbers_of_the_header_fields(checked: &Answer) {
    let json = checked.json();
    assert_eq!(json["allowed"], checked.status == 200, "{checked:?}");
    for (member, field) in [("limit", "x-ratelimit-limit"), ("remaining", "x-ratelimit-remaining")] {
        let value =
            checked.header(field).map_or(Value::Null, |text| serde_json::from_str(text).expect("a number"));
        assert_eq!(json[member], value, "{checked:?}");
    }
}
