//! The ways to a decision that are compared. All use the same keys and one bucket so large that everything is allowed.
//!
//! The raw ways show what the server can do; the others are what a program would call.

use super::load::{self, Caller};
use super::{Workload, pin_client, raw};
use redis::Cmd;
use sluicegate::clock::SystemClock;
use sluicegate::core::decision::Group;
use sluicegate::core::{Cost, Micros, Quota, Rate, TokenBucket};
use sluicegate::identity::DEFAULT_TENANT;
use sluicegate::rules::{DEADLINES, Limits, Rule, RuleSet, Unmatched};
use sluicegate::store::redis::{KeyEncoder, RedisStore};
use sluicegate::store::{Charge, Key, KeySpace, Store, Subject};
use sluicegate::{Identity, Limiter, Request};
use sluicegate_testkit::redis_server::RedisServer;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::runtime::Runtime;

/// A script that does nothing, by the bare client: what any script costs.
pub(super) const EMPTY: &str = "empty script, raw";
/// A hash of tokens and time by the bare client: what most people write.
pub(super) const HASH: &str = "hash bucket, raw";
/// One arrival time in a string, by the bare client.
pub(super) const GCRA: &str = "plain GCRA, raw";
/// Our script by the bare client, with the words that our store says: the most that our store can reach.
pub(super) const OUR_SCRIPT: &str = "our script, raw";
/// A hash of tokens and time, by the client library that we use ourselves.
pub(super) const HASH_CLIENT: &str = "hash bucket, client";
/// Our store.
pub(super) const STORE: &str = "our store";
/// Our limiter, with one rule, on our store.
pub(super) const LIMITER: &str = "our limiter";

/// All ways, in the order of the table.
pub(super) const NAMES: [&str; 7] = [EMPTY, HASH, GCRA, OUR_SCRIPT, HASH_CLIENT, STORE, LIMITER];

const RULE: &str = "bench";
/// One unit per so many seconds, and so many at once.
const PERIOD_SECS: u64 = 10;
const CAPACITY: u64 = 30_000_000;
/// As the server has on the machine that the numbers are read on.
const THREADS: usize = 2;
const HOUR_MICROS: u64 = 3_600_000_000;

/// Everything that is needed to go each way.
pub(super) struct Ways {
    pub(super) runtime: Runtime,
    pub(super) callers: Arc<Callers>,
    address: SocketAddr,
    requests: Vec<(&'static str, Vec<Vec<u8>>)>,
}

/// The ways that are not raw.
pub(super) struct Callers {
    pub(super) limiter: Limiter<RedisStore, SystemClock>,
    space: KeySpace,
    quotas: [Quota; 1],
    client: redis::aio::MultiplexedConnection,
    hash_script: HashScript,
    /// Made before the clock starts, as a server has them in the request.
    names: Vec<String>,
    keys: Vec<String>,
}

/// How the hash bucket is called.
struct HashScript {
    hash: String,
    now_millis: u64,
}

impl Ways {
    /// Connects, and makes the server know all scripts.
    pub(super) fn start(server: &RedisServer) -> Result<Self, String> {
        let started = AtomicUsize::new(0);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .on_thread_start(move || pin_client(started.fetch_add(1, Ordering::Relaxed)))
            .enable_all()
            .build()
            .map_err(|error| error.to_string())?;
        let load = |text: &str| server.command::<String>(&["SCRIPT", "LOAD", text]);
        let time: Vec<u64> = server.command(&["TIME"]);
        let hash = load(include_str!("lua/hash_bucket.lua"));
        let hash_script = HashScript { hash, now_millis: time.first().copied().unwrap_or_default() * 1_000 };
        let callers = Arc::new(runtime.block_on(Callers::connect(server, hash_script))?);
        let ours = said_by_the_store(server, &runtime, &callers)?;
        let (empty, gcra) = (load("return 1"), load(include_str!("lua/plain_gcra.lua")));
        let (cost, full) =
            ((PERIOD_SECS * 1_000_000).to_string(), (CAPACITY * PERIOD_SECS * 1_000_000).to_string());
        let requests = vec![
            (EMPTY, packed(|key| call(&empty, key, &[]))),
            (HASH, packed(|key| callers.hash_script.call(key))),
            (GCRA, packed(|key| call(&gcra, key, &[&cost, "0", "1", &full, "0", &ours.deadline, "1000"]))),
            (OUR_SCRIPT, packed(|key| ours.call(key))),
        ];
        Ok(Self { runtime, callers, address: server.address(), requests })
    }

    /// Goes one way for so long, and says how many decisions were made.
    pub(super) fn drive(&self, way: &'static str, workload: Workload, lasts: Duration) -> Result<u64, String> {
        match self.requests.iter().find(|(name, _)| *name == way) {
            Some((_, requests)) => {
                raw::drive(self.address, &requests[..workload.identities], workload.in_flight, lasts)
            }
            None => load::drive(&self.runtime, &self.callers, way, workload, lasts),
        }
    }
}

impl Callers {
    async fn connect(server: &RedisServer, hash_script: HashScript) -> Result<Self, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let rate = Rate::new(1, Micros::from_secs(PERIOD_SECS)).map_err(|error| text(&error))?;
        let quota = Quota::from(TokenBucket::new(CAPACITY, rate).map_err(|error| text(&error))?);
        let options = server.url().parse().map_err(|error| text(&error))?;
        let store = RedisStore::start(&options, KeyEncoder::default()).map_err(|error| text(&error))?;
        store.ready(*DEADLINES.end()).await.map_err(|error| text(&error))?;
        let mut rule = Rule::new(RULE, Limits::all(RULE, [(None, quota.clone())]));
        rule.deadline = *DEADLINES.end();
        let rules = RuleSet::new(vec![rule], Vec::new(), Unmatched::Allow).map_err(|error| text(&error))?;
        let client = redis::Client::open(server.url()).map_err(|error| text(&error))?;
        let client = client.get_multiplexed_async_connection().await.map_err(|error| text(&error))?;
        let limiter = Limiter::new(rules, store, SystemClock::new());
        let names = (0..load::IDENTITIES_MAX).map(name).collect();
        let keys = (0..load::IDENTITIES_MAX).map(key).collect();
        Ok(Self { limiter, space: KeySpace::new(RULE), quotas: [quota], client, hash_script, names, keys })
    }

    /// Charges these limits of this name in our store.
    pub(super) async fn charge(&self, name: &str, quotas: &[Quota]) -> Result<(), String> {
        let identity = Some(Identity::Named(name));
        let subject = Subject { tenant: Some(DEFAULT_TENANT), identity, address: None };
        let key = Key { space: &self.space, subject };
        let charge = Charge { key, quotas, cost: Cost::ONE, group: Group::Enforced, lease: None };
        let now = sluicegate::clock::Clock::now(self.limiter.clock());
        let reply = self.limiter.store().charge(&[charge], now, *DEADLINES.end()).await;
        let reply = reply.map_err(|error| error.to_string())?;
        let is_allowed = reply.verdicts.iter().all(|verdict| verdict.outcome.is_allowed());
        is_allowed.then_some(()).ok_or_else(|| format!("{name} was denied"))
    }

    /// The hash bucket's script over this key.
    pub(super) fn hash_call(&self, key: &str) -> Cmd {
        self.hash_script.call(key)
    }
}

impl Caller for Callers {
    async fn ask(&self, way: &'static str, index: usize) -> Result<(), String> {
        let name = self.names[index].as_str();
        if way == STORE {
            return self.charge(name, &self.quotas).await;
        }
        if way == LIMITER {
            let decision = self.limiter.check(&Request::new("orders.read", name)).await;
            let decision = decision.map_err(|error| error.to_string())?;
            let is_fine = decision.is_allowed() && !decision.is_degraded();
            return is_fine.then_some(()).ok_or_else(|| format!("{name} was denied or the store failed"));
        }
        let reply = self.hash_call(&self.keys[index]).query_async(&mut self.client.clone()).await;
        let (allowed, _): (u8, u64) = reply.map_err(|error| error.to_string())?;
        (allowed == 1).then_some(()).ok_or_else(|| format!("{name} was denied"))
    }
}

impl HashScript {
    fn call(&self, key: &str) -> Cmd {
        let rate = 1.0 / PERIOD_SECS as f64;
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.hash).arg(1).arg(key).arg(CAPACITY).arg(rate).arg(1).arg(self.now_millis);
        command
    }
}

/// The name of an identity.
pub(super) fn name(index: usize) -> String {
    format!("user-{index:019}")
}

/// The key that our store has for it.
pub(super) fn key(index: usize) -> String {
    format!("sg:1:{{{DEFAULT_TENANT}:{}}}:{RULE}", name(index))
}

fn packed(command: impl Fn(&str) -> Cmd) -> Vec<Vec<u8>> {
    (0..load::IDENTITIES_MAX).map(|index| command(&key(index)).get_packed_command()).collect()
}

fn call(hash: &str, key: &str, arguments: &[&str]) -> Cmd {
    let mut command = redis::cmd("EVALSHA");
    command.arg(hash).arg(1).arg(key).arg(arguments);
    command
}

/// What our store says to the server for one charge.
struct Said {
    hash: String,
    deadline: String,
    rest: Vec<String>,
}

impl Said {
    fn call(&self, key: &str) -> Cmd {
        let rest: Vec<&str> =
            [self.deadline.as_str()].into_iter().chain(self.rest.iter().map(String::as_str)).collect();
        call(&self.hash, key, &rest)
    }
}

/// Listens to what the store says, so that the bare client says the very same; only its deadline is in an hour.
fn said_by_the_store(server: &RedisServer, runtime: &Runtime, callers: &Arc<Callers>) -> Result<Said, String> {
    let text = |error: redis::RedisError| error.to_string();
    let mut monitor = server.connection().map_err(text)?;
    monitor.send_packed_command(&redis::cmd("MONITOR").get_packed_command()).map_err(text)?;
    monitor.recv_response().map_err(text)?;
    runtime.block_on(callers.charge(&name(0), &callers.quotas))?;
    loop {
        let line: String = redis::from_redis_value(monitor.recv_response().map_err(text)?)
            .map_err(|error| format!("MONITOR: {error}"))?;
        let words: Vec<String> = line.split('"').skip(1).step_by(2).map(str::to_owned).collect();
        if let [verb, hash, _, said_key, deadline, rest @ ..] = words.as_slice()
            && verb == "EVALSHA"
            && *said_key == key(0)
        {
            let deadline: u64 = deadline.parse().map_err(|_| format!("a deadline of {deadline:?}"))?;
            let deadline = (deadline + HOUR_MICROS).to_string();
            return Ok(Said { hash: hash.clone(), deadline, rest: rest.to_vec() });
        }
    }
}
