//! The library on every store, in virtual time. Each case has a store of its own.

use super::answer::Scope;
use super::campaign::Campaign;
use super::draw::{Case, Options, START};
use super::full::Full;
use super::operation::TestRequest;
use super::run::{Disagreement, Tally};
use super::system::Library;
use super::together::Crowd;
use crate::redis_cluster::{self, RedisCluster};
use crate::redis_server::{self, Program, RedisServer};
use futures_util::future::join_all;
use redis::aio::MultiplexedConnection;
use sluicegate::MemoryStore;
use sluicegate::core::Timestamp;
use sluicegate::store::memory::MemoryOptions;
use sluicegate::store::redis::testing::SingleConnection;
use sluicegate::store::redis::{KeyEncoder, RedisStore};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The number of operations of a case: long enough for usage to build up, short enough for many different rules.
pub const OPERATIONS_PER_CASE: usize = 200;
/// The number of concurrent cases on a server, so that it stays busy while replies are in transit.
const CASES_AT_ONCE: u64 = 16;
/// The number of threads that send requests concurrently.
const THREADS: usize = 4;
/// The number of nodes of a Cluster.
const NODES: usize = 3;
/// A time limit longer than any call takes.
const PATIENCE: Duration = Duration::from_secs(20);
/// Keys of finished cases are flushed after this many groups of cases.
const GROUPS_BETWEEN_FLUSHES: u64 = 64;

/// The campaign for the embedded store: all features, compared completely.
#[must_use]
pub const fn on_memory(seed: u64) -> Campaign {
    Campaign { seed, options: Options::everything(OPERATIONS_PER_CASE), scope: Scope::Everything }
}

/// Runs cases on the embedded store until `goes_on` returns false.
///
/// # Errors
/// The smallest failing case found.
pub fn memory(campaign: &Campaign, goes_on: impl FnMut(Tally) -> bool) -> Result<Tally, Box<Disagreement>> {
    runtime().block_on(campaign.run(async |case| Library::new(memory_store(case.seed), &case.rules), goes_on))
}

/// Runs this many cases on the embedded store with concurrent requests from several threads.
///
/// # Errors
/// The wrong answers of the first failing case.
pub fn memory_together(seed: u64, cases: u64) -> Result<Tally, String> {
    let mut tally = Tally::default();
    for number in 0..cases {
        let crowd = Crowd::draw(seed.wrapping_add(number), true);
        let library = Library::new(memory_store(number), &crowd.case().rules);
        let at_once = async |requests: &[TestRequest], now| {
            library.limiter().clock().set(Timestamp::now(now));
            send_in_threads(&library, requests)
        };
        tally = tally.plus(runtime().block_on(crowd.run(&library, at_once))?);
    }
    Ok(tally)
}

/// Runs this many cases on full embedded stores.
///
/// # Errors
/// The wrong answers of the first failing case.
pub fn memory_full(seed: u64, cases: u64) -> Result<Tally, String> {
    let mut tally = Tally::default();
    for number in 0..cases {
        tally = tally.plus(runtime().block_on(Full::draw(seed.wrapping_add(number)).run())?);
    }
    Ok(tally)
}

fn send_in_threads(library: &Library<MemoryStore>, requests: &[TestRequest]) -> Vec<bool> {
    let share = requests.len().div_ceil(THREADS);
    std::thread::scope(|scope| {
        let send = |requests: &[TestRequest]| {
            runtime().block_on(join_all(requests.iter().map(|request| library.is_allowed(request))))
        };
        let threads: Vec<_> = requests.chunks(share).map(|requests| scope.spawn(move || send(requests))).collect();
        let answers =
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| panic!("a thread panicked")));
        answers.flatten().collect()
    })
}

/// Stores of several shapes: with one shard and many, and with different creation times, so that some states fit the
/// packed form and some do not.
fn memory_store(seed: u64) -> MemoryStore {
    let shards = [1, 2, 16][(seed % 3) as usize];
    let born = if seed.is_multiple_of(5) { Timestamp::NOW_MAX } else { Timestamp::now(START) };
    MemoryStore::new(MemoryOptions { max_keys: 1_000_000, shards }, born)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap_or_else(|error| panic!("{error}"))
}

/// A Redis deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// One server.
    Single,
    /// One server and a store with a denial cache.
    RememberingDenials,
    /// A Cluster of three nodes.
    Cluster,
}

/// Real servers, and a connection to one of them.
#[derive(Debug)]
pub struct Redis {
    layout: Layout,
    runtime: tokio::runtime::Runtime,
    connections: Vec<MultiplexedConnection>,
    prefixes: AtomicU64,
    _servers: Servers,
}

/// Redis servers that run as long as this value lives.
#[derive(Debug)]
enum Servers {
    One { _server: RedisServer },
    Three { _cluster: RedisCluster },
}

impl Redis {
    /// Starts servers.
    pub fn start(layout: Layout, program: Program) -> Self {
        let options = redis_server::Options::new(program);
        let runtime = runtime();
        let connect_all =
            |servers: &[RedisServer]| servers.iter().map(|one| runtime.block_on(connect(one))).collect();
        let (servers, connections) = match layout {
            Layout::Cluster => {
                let options = redis_cluster::Options::new(options).size(NODES, 0);
                let cluster = RedisCluster::with(&options);
                let connections = connect_all(cluster.nodes());
                (Servers::Three { _cluster: cluster }, connections)
            }
            Layout::Single | Layout::RememberingDenials => {
                let server = RedisServer::with(&options);
                let connections = connect_all(std::slice::from_ref(&server));
                (Servers::One { _server: server }, connections)
            }
        };
        Self { layout, runtime, connections, prefixes: AtomicU64::new(0), _servers: servers }
    }

    /// The campaign for these servers.
    ///
    /// - A store with a denial cache reports numbers of an earlier denied check. It also trusts a cached denial after
    ///   the clock has stepped back so far that the server pulls the usage back.
    /// - On a Cluster, a denied request reverts its charges in other slots. A client without history may then have
    ///   state, and other calls than on one server pull usage back into range. Shadow limits are charged slot by slot,
    ///   so for several requests with one decision the limits of one rule are not all or nothing. After a backward step
    ///   of the clock, nothing is reverted.
    ///   of the clock nothing is taken back.
    #[must_use]
    pub fn campaign(&self, seed: u64) -> Campaign {
        let everything = Options::everything(OPERATIONS_PER_CASE);
        let in_range = Options { repairs: false, ..everything };
        let (options, scope) = match self.layout {
            Layout::Single => (everything, Scope::Everything),
            Layout::RememberingDenials => (in_range, Scope::RememberedDenials),
            Layout::Cluster => {
                (Options { credits: false, steps_back: false, joint_shadow: false, ..in_range }, Scope::Everything)
            }
        };
        Campaign { seed, options, scope }
    }

    /// Runs cases until `goes_on` returns false.
    ///
    /// # Errors
    /// The smallest failing case found.
    pub fn run(
        &self,
        campaign: &Campaign,
        mut goes_on: impl FnMut(Tally) -> bool,
    ) -> Result<Tally, Box<Disagreement>> {
        self.runtime.block_on(async {
            let mut tally = Tally::default();
            for group in 0.. {
                let numbers = (0..CASES_AT_ONCE).map(|place| group * CASES_AT_ONCE + place);
                let cases = numbers.map(|number| campaign.run_case(number, async |case| self.library(case)));
                for done in join_all(cases).await {
                    tally = tally.plus(done?);
                }
                if group % GROUPS_BETWEEN_FLUSHES == GROUPS_BETWEEN_FLUSHES - 1 {
                    self.flush().await;
                }
                if !goes_on(tally) {
                    break;
                }
            }
            Ok(tally)
        })
    }

    /// Runs this many cases with concurrent requests.
    ///
    /// # Errors
    /// The wrong answers of the first failing case.
    pub fn run_together(&self, seed: u64, cases: u64) -> Result<Tally, String> {
        self.runtime.block_on(async {
            let mut tally = Tally::default();
            for number in 0..cases {
                let crowd = Crowd::draw(seed.wrapping_add(number), self.layout != Layout::Cluster);
                let library = self.library(crowd.case());
                let at_once = async |requests: &[TestRequest], now| {
                    library.limiter().clock().set(Timestamp::now(now));
                    join_all(requests.iter().map(|request| library.is_allowed(request))).await
                };
                let apart = async |requests: &[TestRequest], now| {
                    let (clock, last) = (library.limiter().clock(), now + requests.len() as u64);
                    join_all(requests.iter().zip(now..).map(async |(request, now)| {
                        clock.set(Timestamp::now(now));
                        let allowed = library.is_allowed(request).await;
                        clock.set(Timestamp::now(last));
                        allowed
                    }))
                    .await
                };
                let told = match self.layout {
                    Layout::Cluster => crowd.run_apart(&library, apart).await?,
                    Layout::Single | Layout::RememberingDenials => crowd.run(&library, at_once).await?,
                };
                tally = tally.plus(told);
            }
            self.flush().await;
            Ok(tally)
        })
    }

    /// A store with keys that no other case uses.
    fn library(&self, case: &Case) -> Library<RedisStore<SingleConnection>> {
        let prefix = format!("o{}", self.prefixes.fetch_add(1, Ordering::Relaxed));
        let encoder = KeyEncoder::new(&prefix).unwrap_or_else(|error| panic!("{error:?}"));
        let store = match self.layout {
            Layout::Cluster => RedisStore::over_cluster(self.connections.clone(), encoder),
            Layout::Single | Layout::RememberingDenials => {
                RedisStore::over_connection(self.connections[0].clone(), encoder, false)
            }
        };
        let store = store.with_caller_clock();
        let remembers = self.layout == Layout::RememberingDenials;
        Library::new(if remembers { store.with_denial_cache() } else { store }, &case.rules)
    }

    async fn flush(&self) {
        for connection in &self.connections {
            let flushed = redis::cmd("FLUSHALL").exec_async(&mut connection.clone()).await;
            flushed.unwrap_or_else(|error| panic!("{error}"));
        }
    }
}

async fn connect(server: &RedisServer) -> MultiplexedConnection {
    let connected = async {
        let config = redis::AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
        redis::Client::open(server.url())?.get_multiplexed_async_connection_with_config(&config).await
    };
    connected.await.unwrap_or_else(|error: redis::RedisError| panic!("{error}"))
}
