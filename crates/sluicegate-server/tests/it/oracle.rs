//! The front doors compared with the contract: random rules, clients and operations through the HTTP API, Envoy's
//! service, RESP, gateway and forward-auth of one server. All front doors share one state, and reloads happen in
//! between.
//!
//! The reference is the oracle of the test kit. Time is real. So each response must lie between the least and the most
//! that the contract allows from the instant before the request was sent to the instant after its response. `cargo
//! xtask oracle --door all` runs for a given duration, with other seeds.

mod front_doors;
mod play;
mod read;
mod scene;
mod throttle;

use std::time::{Duration, Instant};

use sluicegate_testkit::oracle::{Options, Scope};
use sluicegate_testkit::redis_cluster::RedisCluster;
use sluicegate_testkit::redis_server::RedisServer;

use self::front_doors::FrontDoor;
use self::play::{Play, Tally};
use self::scene::Scene;

/// The number of operations of a case.
const OPERATIONS: usize = 60;
/// The number of cases for each store.
const CASES: u64 = 60;

/// Rule changes do not cut back usage, because the result would depend on the exact instant. The operations also avoid
/// several requests in one decision where the charged shadow limits depend on the order of the requests.
fn options() -> Options {
    let everything = Options::everything(OPERATIONS);
    Options { repairs: false, steps_back: false, joint_shadow: false, real_time: true, ..everything }
}

/// The settings of a run from its environment: duration, seed and front doors.
struct Told {
    lasts: Option<Duration>,
    seed: u64,
    doors: Vec<FrontDoor>,
}

impl Told {
    fn read() -> Self {
        let variable = |name: &str| std::env::var(format!("SLUICEGATE_ORACLE_{name}")).ok();
        let number = |name: &str| variable(name).map(|text| text.parse::<u64>().expect("a number"));
        let door = variable("DOOR").filter(|door| door != "all");
        Self {
            lasts: number("SECONDS").map(Duration::from_secs),
            seed: number("SEED").unwrap_or(1),
            doors: door.map_or_else(|| FrontDoor::ALL.to_vec(), |door| FrontDoor::named(&door)),
        }
    }
}

/// The number of redis-cell commands for each store.
const THROTTLES: usize = 600;

#[expect(clippy::print_stdout, reason = "a campaign tells how far it came")]
fn hold(store: &str, options: Options, scope: Scope) {
    let told = Told::read();
    let mut scene = Scene::start(store);
    let (started, mut tally) = (Instant::now(), Tally::default());
    for number in 0.. {
        match told.lasts {
            Some(lasts) if started.elapsed() >= lasts => break,
            None if number == CASES => break,
            _ => {}
        }
        let play = Play::draw(&mut scene, told.seed.wrapping_add(number), &options, scope, &told.doors);
        tally.add(&play.run().unwrap_or_else(|wrong| panic!("{wrong}")));
        if number % CASES == 0 && told.doors.contains(&FrontDoor::Resp) {
            let remembered = scope == Scope::NoNumbersOfDeniedChecks;
            let throttled = throttle::play(&mut scene, told.seed.wrapping_add(number), THROTTLES, remembered);
            assert!(throttled.iter().all(|count| *count > THROTTLES / 10), "{throttled:?}");
        }
    }
    println!("{store}: {tally:?} in {:?}", started.elapsed());
    if told.lasts.is_none() {
        tally.assert_thorough(CASES as usize * OPERATIONS / 2);
    }
}

#[test]
fn front_doors_on_embedded_stores_keep_the_contract() {
    hold("memory", options(), Scope::Everything);
}

#[test]
fn front_doors_on_redis_keep_the_contract() {
    let redis = RedisServer::start();
    hold(&redis.url(), options(), Scope::NoNumbersOfDeniedChecks);
}

#[test]
fn front_doors_on_cluster_keep_the_contract() {
    let cluster = RedisCluster::start();
    hold(&cluster.url(), Options { credits: false, ..options() }, Scope::NoNumbersOfDeniedChecks);
}
