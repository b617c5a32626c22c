//! Several instances of the Redis store in one process, each with its own connections.

use crate::redis_bench::load::Caller;
use crate::redis_bench::workloads::Workload;
use sluicegate::Identity;
use sluicegate::clock::{Clock, SystemClock};
use sluicegate::core::decision::ChargeMode;
use sluicegate::core::{Cost, Micros, Quota, Rate, TokenBucket};
use sluicegate::identity::DEFAULT_TENANT;
use sluicegate::rules::DEADLINES;
use sluicegate::store::redis::{KeyEncoder, RedisStore};
use sluicegate::store::{Charge, Key, KeySpace, Store, Subject};
use sluicegate_testkit::redis_server::RedisServer;
use std::cell::Cell;
use std::sync::Arc;
use tokio::task::JoinSet;

/// The number of tasks that create keys.
const WRITERS: usize = 256;

/// The instances and their load.
pub(super) struct Fleet {
    stores: Vec<RedisStore>,
    clock: SystemClock,
    space: KeySpace,
    quotas: [Quota; 1],
    names: Vec<String>,
}

thread_local! {
    /// The next instance on this thread.
    static TURN: Cell<usize> = const { Cell::new(0) };
}

impl Fleet {
    /// The given number of instances on this server, for the given number of identities.
    pub(super) async fn start(server: &RedisServer, instances: usize, identities: usize) -> Result<Self, String> {
        let bucket = Rate::new(1, Micros::from_secs(10)).and_then(|rate| TokenBucket::new(30_000_000, rate));
        let quota = Quota::from(bucket.map_err(|error| error.to_string())?);
        let options = server.url().parse().map_err(|error| format!("{error}"))?;
        let mut stores = Vec::new();
        for _ in 0..instances {
            let store = RedisStore::start(&options, KeyEncoder::default()).map_err(|error| error.to_string())?;
            store.ready(*DEADLINES.end()).await.map_err(|error| error.to_string())?;
            stores.push(store);
        }
        let names = (0..identities).map(|index| format!("user-{index:019}")).collect();
        Ok(Self { stores, clock: SystemClock::new(), space: KeySpace::new("growth"), quotas: [quota], names })
    }

    async fn charge(&self, index: usize) -> Result<(), String> {
        let turn = TURN.with(|turn| turn.replace(turn.get().wrapping_add(1)));
        let store = &self.stores[turn % self.stores.len()];
        let identity = Some(Identity::Named(&self.names[index]));
        let subject = Subject { tenant: Some(DEFAULT_TENANT), identity, address: None };
        let key = Key { space: &self.space, subject };
        let charge = Charge {
            key,
            quotas: &self.quotas,
            cost: Cost::ONE,
            mode: ChargeMode::Enforced,
            lease: None,
            usage: Cost::ZERO,
        };
        let reply = store.charge(&[charge], self.clock.now(), *DEADLINES.end()).await;
        let reply = reply.map_err(|error| error.to_string())?;
        let is_allowed = reply.verdicts.iter().all(|verdict| verdict.outcome.is_allowed());
        is_allowed.then_some(()).ok_or_else(|| format!("{} was denied", self.names[index]))
    }
}

impl Caller for Fleet {
    async fn ask(&self, _: &'static str, index: usize, _: Workload) -> Result<bool, String> {
        self.charge(index).await.map(|()| true)
    }
}

/// Charges every identity once, so that all keys exist.
pub(super) async fn fill(fleet: &Arc<Fleet>) -> Result<(), String> {
    let mut tasks = JoinSet::new();
    for writer in 0..WRITERS {
        let fleet = Arc::clone(fleet);
        tasks.spawn(async move {
            for index in (writer..fleet.names.len()).step_by(WRITERS) {
                fleet.charge(index).await?;
            }
            Ok::<(), String>(())
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.map_err(|error| error.to_string())??;
    }
    Ok(())
}
