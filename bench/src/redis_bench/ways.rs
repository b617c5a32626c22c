//! The contenders of `redis`. All use the same keys and one bucket so large that all requests are allowed.
//!
//! The raw contenders show the limit of the server; the others use the interfaces of real programs.

use super::load::{self, Caller, Driven};
use super::raw;
use super::workloads::Workload;
use crate::cores;
use redis::Cmd;
use sluicegate::clock::SystemClock;
use sluicegate::core::decision::ChargeMode;
use sluicegate::core::{Cost, Micros, Quota, Rate, TokenBucket};
use sluicegate::identity::DEFAULT_TENANT;
use sluicegate::pattern::Pattern;
use sluicegate::rules::{DEADLINES, Limits, Rule, RuleSet, Unmatched};
use sluicegate::store::redis::{KeyEncoder, RedisStore};
use sluicegate::store::{Charge, ErrorClass, Key, KeySpace, Store, Subject};
use sluicegate::{Identity, Limiter, Request};
use sluicegate_testkit::redis_server::RedisServer;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::runtime::Runtime;

/// An empty script by the raw client: the cost of any script.
pub(crate) const EMPTY: &str = "empty script, raw";
/// A hash of tokens and time by the raw client: the usual implementation.
pub(crate) const HASH: &str = "hash bucket, raw";
/// One arrival time in a string, by the raw client.
pub(crate) const GCRA: &str = "plain GCRA, raw";
/// Sluicegate's script by the raw client, with the store's arguments: the upper bound for the store.
pub(crate) const OUR_SCRIPT: &str = "our script, raw";
/// A hash of tokens and time, by the client library that Sluicegate uses.
pub(crate) const HASH_CLIENT: &str = "hash bucket, client";
/// Sluicegate's store.
pub(crate) const STORE: &str = "our store";
/// Sluicegate's limiter with one rule on this store.
pub(crate) const LIMITER: &str = "our limiter";

/// All contenders, in the order of the table.
pub(crate) const NAMES: [&str; 7] = [EMPTY, HASH, GCRA, OUR_SCRIPT, HASH_CLIENT, STORE, LIMITER];

/// The contenders for a denied identity.
pub(crate) const NAMES_DENIED: [&str; 4] = [HASH, HASH_CLIENT, STORE, LIMITER];

const RULE: &str = "bench";
/// The rule of the denied identity: one unit per this many seconds.
const RULE_DENIED: &str = "bench-denied";
const PERIOD_DENIED_SECS: u64 = 3_600;
/// The resource under each rule.
const RESOURCE: &str = "orders.read";
const RESOURCE_DENIED: &str = "orders.write";
/// One unit per this many seconds, with a burst of the same number.
const PERIOD_SECS: u64 = 10;
const CAPACITY: u64 = 30_000_000;
/// The server's setting on the reference machine.
const THREADS: usize = 2;
const HOUR_MICROS: u64 = 3_600_000_000;

/// The state of all contenders.
pub(crate) struct Ways {
    pub(crate) runtime: Runtime,
    pub(crate) callers: Arc<Callers>,
    address: SocketAddr,
    requests: Vec<(&'static str, Vec<Vec<u8>>)>,
    /// The hash bucket's request for the denied identity.
    denied: Vec<Vec<u8>>,
}

/// The contenders that are not raw.
pub(crate) struct Callers {
    pub(super) limiter: Limiter<RedisStore, SystemClock>,
    open: Limit,
    used_up: Limit,
    client: redis::aio::MultiplexedConnection,
    hash_script: HashScript,
    /// Created before the clock starts; a server has them from the request.
    names: Vec<String>,
    keys: Vec<String>,
}

/// The charges of the store without a limiter.
struct Limit {
    space: KeySpace,
    quotas: [Quota; 1],
}

/// The call of the hash bucket.
struct HashScript {
    hash: String,
    now_millis: u64,
}

impl Ways {
    /// Connects, and loads all scripts.
    pub(crate) fn start(server: &RedisServer) -> Result<Self, String> {
        let runtime = client_runtime()?;
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
            (HASH, packed(|key| callers.hash_call(key))),
            (GCRA, packed(|key| call(&gcra, key, &[&cost, "0", "1", &full, "0", &ours.deadline, "1000"]))),
            (OUR_SCRIPT, packed(|key| ours.call(key))),
        ];
        let denied = vec![callers.hash_script.denied_call(&key_denied()).get_packed_command()];
        Ok(Self { runtime, callers, address: server.address(), requests, denied })
    }

    /// Runs one contender for the given time.
    pub(crate) fn drive(&self, way: &'static str, workload: Workload, lasts: Duration) -> Result<Driven, String> {
        match self.requests.iter().find(|(name, _)| *name == way) {
            Some(_) if workload.is_denied() => raw::drive(self.address, &self.denied, workload, lasts),
            Some((_, requests)) => raw::drive(self.address, requests, workload, lasts),
            None => load::drive(&self.runtime, &self.callers, way, workload, lasts),
        }
    }

    /// Exhausts the limit of the identity that is to be denied.
    pub(crate) fn use_up(&self, way: &'static str) -> Result<(), String> {
        let way = if way == HASH { HASH_CLIENT } else { way };
        self.runtime.block_on(self.callers.decide(way, 0, true)).map(|_| ())
    }
}

/// A runtime whose threads avoid the server's core.
pub(crate) fn client_runtime() -> Result<Runtime, String> {
    let started = AtomicUsize::new(0);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .on_thread_start(move || cores::pin_client(started.fetch_add(1, Ordering::Relaxed)))
        .enable_all()
        .build();
    runtime.map_err(|error| error.to_string())
}

impl Callers {
    async fn connect(server: &RedisServer, hash_script: HashScript) -> Result<Self, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let open = Limit::new(RULE, CAPACITY, PERIOD_SECS)?;
        let used_up = Limit::new(RULE_DENIED, 1, PERIOD_DENIED_SECS)?;
        let options = server.url().parse().map_err(|error| text(&error))?;
        let store = RedisStore::start(&options, KeyEncoder::default()).map_err(|error| text(&error))?;
        store.ready(*DEADLINES.end()).await.map_err(|error| text(&error))?;
        let rules = vec![open.rule(RESOURCE), used_up.rule(RESOURCE_DENIED)];
        let rules = RuleSet::new(rules, Vec::new(), Unmatched::Deny).map_err(|error| text(&error))?;
        let client = redis::Client::open(server.url()).map_err(|error| text(&error))?;
        let client = client.get_multiplexed_async_connection().await.map_err(|error| text(&error))?;
        let limiter = Limiter::new(rules, store, SystemClock::new());
        let names = (0..load::IDENTITIES_MAX).map(name).collect();
        let keys = (0..load::IDENTITIES_MAX).map(key).collect();
        Ok(Self { limiter, open, used_up, client, hash_script, names, keys })
    }

    /// Charges these limits of this name in the store, under the rule that never denies.
    pub(super) async fn charge(&self, name: &str, quotas: &[Quota]) -> Result<(), String> {
        match self.charged(&self.open.space, name, quotas).await? {
            Some(true) => Ok(()),
            other => Err(format!("{name}: allowed was {other:?}")),
        }
    }

    /// The decision; `None` if too many requests are queued.
    async fn charged(&self, space: &KeySpace, name: &str, quotas: &[Quota]) -> Result<Option<bool>, String> {
        let identity = Some(Identity::Named(name));
        let subject = Subject { tenant: Some(DEFAULT_TENANT), identity, address: None };
        let charge = Charge {
            key: Key { space, subject },
            quotas,
            cost: Cost::ONE,
            usage: Cost::ZERO,
            mode: ChargeMode::Enforced,
            lease: None,
        };
        let now = sluicegate::clock::Clock::now(self.limiter.clock());
        let reply = self.limiter.store().charge(&[charge], now, *DEADLINES.end()).await;
        match reply {
            Ok(reply) => Ok(Some(reply.verdicts.iter().all(|verdict| verdict.outcome.is_allowed()))),
            Err(error) if error.class == ErrorClass::Overloaded => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    /// The hash bucket's script over this key.
    pub(super) fn hash_call(&self, key: &str) -> Cmd {
        self.hash_script.call(key, CAPACITY, PERIOD_SECS)
    }

    /// The decision of this contender for the identity; `None` if too many requests are queued.
    async fn decide(&self, way: &'static str, index: usize, is_denied: bool) -> Result<Option<bool>, String> {
        let (limit, resource) = match is_denied {
            true => (&self.used_up, RESOURCE_DENIED),
            false => (&self.open, RESOURCE),
        };
        let name = self.names[index].as_str();
        if way == STORE {
            return self.charged(&limit.space, name, &limit.quotas).await;
        }
        if way == LIMITER {
            let decision = self.limiter.check(&Request::new(resource, name)).await;
            let decision = decision.map_err(|error| error.to_string())?;
            return Ok((!decision.is_degraded()).then(|| decision.is_allowed()));
        }
        let call = match is_denied {
            true => self.hash_script.denied_call(&key_denied()),
            false => self.hash_call(&self.keys[index]),
        };
        let reply = call.query_async(&mut self.client.clone()).await;
        let (allowed, _): (u8, u64) = reply.map_err(|error| error.to_string())?;
        Ok(Some(allowed == 1))
    }
}

impl Caller for Callers {
    async fn ask(&self, way: &'static str, index: usize, workload: Workload) -> Result<bool, String> {
        let Some(is_allowed) = self.decide(way, index, workload.is_denied()).await? else { return Ok(false) };
        let is_expected = is_allowed != workload.is_denied();
        is_expected.then_some(true).ok_or_else(|| format!("{way}: allowed was {is_allowed}"))
    }
}

impl Limit {
    /// A burst of this many, and one more per this many seconds.
    fn new(rule: &str, capacity: u64, seconds: u64) -> Result<Self, String> {
        let bucket = Rate::new(1, Micros::from_secs(seconds)).and_then(|rate| TokenBucket::new(capacity, rate));
        let quota = Quota::from(bucket.map_err(|error| error.to_string())?);
        Ok(Self { space: KeySpace::new(rule), quotas: [quota] })
    }

    /// The rule with this limit for this resource.
    fn rule(&self, resource: &str) -> Rule {
        let name = self.space.name();
        let mut rule = Rule::new(name, Limits::all(name, [(None, self.quotas[0].clone())]));
        rule.deadline = *DEADLINES.end();
        rule.selector.resource = Some(Pattern::new(resource));
        rule
    }
}

impl HashScript {
    fn call(&self, key: &str, capacity: u64, seconds: u64) -> Cmd {
        let rate = 1.0 / seconds as f64;
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.hash).arg(1).arg(key).arg(capacity).arg(rate).arg(1).arg(self.now_millis);
        command
    }

    fn denied_call(&self, key: &str) -> Cmd {
        self.call(key, 1, PERIOD_DENIED_SECS)
    }
}

/// The name of an identity.
pub(super) fn name(index: usize) -> String {
    format!("user-{index:019}")
}

/// Its key in the store.
pub(super) fn key(index: usize) -> String {
    format!("sg:1:{{{DEFAULT_TENANT}:{}}}:{RULE}", name(index))
}

/// The key of the denied identity.
fn key_denied() -> String {
    format!("sg:1:{{{DEFAULT_TENANT}:{}}}:hash-denied", name(0))
}

fn packed(command: impl Fn(&str) -> Cmd) -> Vec<Vec<u8>> {
    (0..load::IDENTITIES_MAX).map(|index| command(&key(index)).get_packed_command()).collect()
}

fn call(hash: &str, key: &str, arguments: &[&str]) -> Cmd {
    let mut command = redis::cmd("EVALSHA");
    command.arg(hash).arg(1).arg(key).arg(arguments);
    command
}

/// The store's command for one charge.
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

/// Records the store's command, so that the raw client sends exactly the same; only its deadline is an hour away.
fn said_by_the_store(server: &RedisServer, runtime: &Runtime, callers: &Arc<Callers>) -> Result<Said, String> {
    let text = |error: redis::RedisError| error.to_string();
    let mut monitor = server.connection().map_err(text)?;
    monitor.send_packed_command(&redis::cmd("MONITOR").get_packed_command()).map_err(text)?;
    monitor.recv_response().map_err(text)?;
    runtime.block_on(callers.charge(&name(0), &callers.open.quotas))?;
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
