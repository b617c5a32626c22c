//! Storms: several servers and one Redis under load, with random faults.
//!
//! One seed determines the limits, servers and faults of a run: servers are killed while they hold permits, or
//! suspended and resumed; Redis is suspended, or killed and restarted empty; clients refund units. Meanwhile the load
//! exceeds the limits. The test measures admissions from outside, as in `fleet`, and checks them against the promise
//! for every interval: the capacity, the refill, and the documented excess of each fault.
//!
//! Every test run includes a few dozen storms; `SLUICEGATE_STORMS=1000` runs more, and `SLUICEGATE_STORM_SEED` repeats
//! one.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sluicegate_testkit::redis_server::RedisServer;

use crate::client::Session;
use crate::server::{ConfigFile, Server, sluicegate};

/// The number of storms in every test run.
const RUNS: u64 = 24;
/// The duration of the load in one storm.
const LASTS: Duration = Duration::from_millis(1_200);
const CLIENTS_PER_SERVER: usize = 2;
const TOKEN: &str = "storm-token-of-tests";

/// The parameters of one storm.
#[derive(Debug)]
struct Storm {
    seed: u64,
    capacity: u64,
    refill_per_second: u64,
    cost: u64,
    lease: Option<Lease>,
    servers: usize,
    /// The time of each fault, and its kind.
    faults: Vec<(Duration, Fault)>,
}

#[derive(Clone, Copy, Debug)]
struct Lease {
    millis: u64,
    is_strict: bool,
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    /// A server is killed, and another takes its place.
    Kill(usize),
    /// A server is suspended.
    Stop(usize, Duration),
    /// Redis is suspended.
    PauseStore(Duration),
    /// Redis is killed and restarted without its data.
    LoseStore,
    /// A client refunds units through a server.
    Refund(usize, u64),
}

/// One admitted request: the instants just before it was sent and just after its response, in microseconds.
#[derive(Clone, Copy, Debug)]
struct Admitted {
    sent: u64,
    answered: u64,
}

/// Servers with addresses that stay the same after a replacement.
struct Fleet {
    config: ConfigFile,
    store_url: String,
    servers: Vec<Mutex<(Server, SocketAddr)>>,
    sent: AtomicU64,
}

#[test]
fn no_interval_exceeds_its_bound_under_any_fault() {
    let variable = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds: Vec<u64> = match variable("SLUICEGATE_STORM_SEED") {
        Some(seed) => vec![seed],
        None => {
            let first = fastrand::u64(..u64::MAX / 2);
            (first..first + variable("SLUICEGATE_STORMS").unwrap_or(RUNS)).collect()
        }
    };
    let mut admitted = 0;
    for (index, seed) in seeds.iter().enumerate() {
        let storm = Storm::draw(*seed);
        let (sent, passed) = storm.run();
        println!("run {} of {}: {sent} sent, {passed} passed: {storm:?}", index + 1, seeds.len());
        admitted += passed;
    }
    assert!(admitted > seeds.len() as u64, "hardly anything was admitted in {} runs", seeds.len());
}

impl Storm {
    fn draw(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let servers = random.usize(2..=4);
        let faults = (0..random.usize(0..=4)).map(|_| {
            let at = Duration::from_millis(random.u64(50..1_000));
            (at, Fault::draw(&mut random, servers))
        });
        let mut faults: Vec<_> = faults.collect();
        faults.sort_by_key(|(at, _)| *at);
        // Half of the storms have limits below the load, so most requests are denied. The others have high limits, so
        // servers charge many permits in advance.
        let (capacity, refill_per_second) = if random.bool() {
            (random.u64(40..=160), random.u64(20..=200))
        } else {
            (random.u64(100..=600), random.u64(200..=1_500))
        };
        // Strict leases leave at least half of the capacity.
        let longest = (capacity * 500 / refill_per_second - 1).clamp(1, 90);
        let lease = random.bool().then(|| Lease { millis: random.u64(1..=longest), is_strict: random.bool() });
        Self { seed, capacity, refill_per_second, cost: random.u64(1..=2), lease, servers, faults }
    }

    fn config(&self) -> String {
        let Self { capacity, refill_per_second, cost, .. } = self;
        let lease = self.lease.map_or_else(String::new, |Lease { millis, is_strict }| {
            let mode = if is_strict { "strict" } else { "bounded" };
            format!("lease: {{ ttl: {millis}ms, mode: {mode} }}, ")
        });
        format!(
            "rules: [ {{ name: storm, per: identifier, deadline: 10s, on_store_failure: closed, cost: {cost}, {lease}\
             limits: [ {{ algorithm: token_bucket, capacity: {capacity}, refill: {refill_per_second}/s }} ] }} ]"
        )
    }

    /// Runs the storm and returns the number of requested and of admitted units.
    fn run(&self) -> (u64, u64) {
        let redis = RedisServer::start();
        let config = ConfigFile::new(&format!("storm-{}", self.seed), self.config());
        let fleet = Fleet::start(config, redis.url(), self.servers);
        let end = micros() + LASTS.as_micros() as u64;
        let refunded = AtomicU64::new(0);
        let admitted: Vec<Admitted> = std::thread::scope(|scope| {
            let places = (0..self.servers).flat_map(|place| [place; CLIENTS_PER_SERVER]);
            let clients: Vec<_> = places
                .map(|place| (place, &fleet))
                .map(|(place, fleet)| scope.spawn(move || fleet.send(place, end)))
                .collect();
            self.rage(&fleet, &redis, &refunded);
            clients.into_iter().flat_map(|client| client.join().expect("a client")).collect()
        });
        self.check(&admitted, refunded.into_inner());
        let (sent, passed) = (fleet.sent.into_inner() * self.cost, admitted.len() as u64 * self.cost);
        let is_calm = self.faults.is_empty();
        assert!(!is_calm || 2 * passed > self.capacity.min(sent), "only {passed} units passed: {self:?}");
        (sent, passed)
    }

    /// Causes the faults at their times.
    fn rage(&self, fleet: &Fleet, redis: &RedisServer, refunded: &AtomicU64) {
        let start = micros();
        for (at, fault) in &self.faults {
            let due = start + at.as_micros() as u64;
            std::thread::sleep(Duration::from_micros(due.saturating_sub(micros())));
            match *fault {
                Fault::Kill(place) => fleet.replace(place),
                Fault::Stop(place, length) => fleet.stop(place, length),
                Fault::PauseStore(length) => {
                    redis.pause();
                    std::thread::sleep(length);
                    redis.resume();
                }
                Fault::LoseStore => redis.restart_empty(),
                // The outcome of a refund may be unknown, so it counts before the attempt.
                Fault::Refund(place, units) => {
                    refunded.fetch_add(units, Ordering::Relaxed);
                    fleet.refund(place, units);
                }
            }
        }
    }

    /// The units that an interval may admit beyond the refill: the capacity, once more for every loss of Redis' data,
    /// the refunds, and the excess of a bounded lease.
    fn burst(&self, refunded: u64) -> u64 {
        let lost = self.faults.iter().filter(|(_, fault)| matches!(fault, Fault::LoseStore)).count() as u64;
        let leased = match self.lease {
            Some(Lease { millis, is_strict: false }) => (self.refill_per_second * millis).div_ceil(1_000),
            _ => 0,
        };
        self.capacity * (1 + lost) + refunded + leased
    }

    /// Every interval from one sending to one response admits at most the burst and the refill.
    fn check(&self, admitted: &[Admitted], refunded: u64) {
        let burst = self.burst(refunded);
        let mut by_answer = admitted.to_vec();
        by_answer.sort_by_key(|each| each.answered);
        for start in admitted.iter().map(|each| each.sent) {
            let within = by_answer.iter().filter(|each| each.sent >= start);
            for (index, last) in within.enumerate() {
                let (length, units) = (last.answered - start, (index as u64 + 1) * self.cost);
                let promised = burst * 1_000_000 + length * self.refill_per_second;
                assert!(units * 1_000_000 <= promised, "{units} units in {length} µs, burst {burst}: {self:?}");
            }
        }
    }
}

impl Fault {
    fn draw(random: &mut fastrand::Rng, servers: usize) -> Self {
        let place = random.usize(..servers);
        match random.u8(0..10) {
            0..3 => Self::Kill(place),
            3..6 => Self::Stop(place, Duration::from_millis(random.u64(20..400))),
            6..7 => Self::PauseStore(Duration::from_millis(random.u64(5..100))),
            7..8 => Self::LoseStore,
            _ => Self::Refund(place, random.u64(1..=20)),
        }
    }
}

impl Fleet {
    fn start(config: ConfigFile, store_url: String, count: usize) -> Self {
        let servers = (0..count).map(|_| Mutex::new(launch(&config, &store_url))).collect();
        Self { config, store_url, servers, sent: AtomicU64::new(0) }
    }

    fn address(&self, place: usize) -> SocketAddr {
        self.servers[place].lock().expect("no panic").1
    }

    /// Kills a server and starts another in its place.
    fn replace(&self, place: usize) {
        self.servers[place].lock().expect("no panic").0.signal("KILL");
        let next = launch(&self.config, &self.store_url);
        *self.servers[place].lock().expect("no panic") = next;
    }

    fn stop(&self, place: usize, length: Duration) {
        self.servers[place].lock().expect("no panic").0.signal("STOP");
        std::thread::sleep(length);
        self.servers[place].lock().expect("no panic").0.signal("CONT");
    }

    fn refund(&self, place: usize, units: u64) {
        let body = format!(r#"{{"resource":"any","identifier":"alice","cost":{units}}}"#);
        let header = format!("authorization: Bearer {TOKEN}\r\n");
        // A dead server accepts no refund.
        let _ =
            Session::try_open(self.address(place)).and_then(|mut it| it.try_post("/v1/refund", &header, &body));
    }

    /// Sends requests without pause, and continues after the server has been replaced.
    fn send(&self, place: usize, end: u64) -> Vec<Admitted> {
        let mut admitted = Vec::new();
        let mut session = None;
        while micros() < end {
            let Some(open) = &mut session else {
                session = Session::try_open(self.address(place)).ok();
                continue;
            };
            self.sent.fetch_add(1, Ordering::Relaxed);
            let sent = micros();
            match open.try_post("/v1/check", "", r#"{"resource":"any","identifier":"alice"}"#) {
                Ok(answer) if answer.status == 200 => admitted.push(Admitted { sent, answered: micros() }),
                Ok(answer) => assert!(matches!(answer.status, 429 | 503), "{answer:?}"),
                Err(_) => session = None,
            }
        }
        admitted
    }
}

fn launch(config: &ConfigFile, store_url: &str) -> (Server, SocketAddr) {
    let listeners = ["--gateway", "off", "--api", "127.0.0.1:0", "--admin", "off"];
    let mut command = sluicegate(&[&listeners[..], &["--config", config.path(), "--store", store_url]].concat());
    command.env("SLUICEGATE_ADMIN_TOKEN", TOKEN);
    let server = Server::start_command(command);
    let address = server.address("api");
    (server, address)
}

fn micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    u64::try_from(since.as_micros()).expect("fits")
}
