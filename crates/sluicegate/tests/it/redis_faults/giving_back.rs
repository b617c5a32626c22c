//! Limits in several slots of a Cluster, one of whose servers stands still: what was reserved elsewhere is given back.

use super::{PATIENCE, run, until};
use crate::support::hourly;
use sluicegate::clock::SystemClock;
use sluicegate::rules::{Limits, OnStoreFailure, Per, Rule, RuleSet, Unmatched};
use sluicegate::store::ErrorClass;
use sluicegate::store::redis::{KeyEncoder, RedisStore};
use sluicegate::{CheckError, Limiter, Request};
use sluicegate_testkit::redis_cluster::{Options, RedisCluster};
use std::sync::Arc;
use std::time::Duration;

const CAPACITY: u64 = 10;
/// The rules, and how much each admits. An identity uses up its own limit first.
const RULES: [(&str, Per, u64); 3] =
    [("own", Per::IDENTIFIER, CAPACITY), ("tenant", Per::TENANT, 100), ("all", Per::GLOBAL, 1_000)];

/// More than the time from a charge until it is undone, in µs, which is not given back: a token lasts an hour.
const LEFT: u64 = 60_000_000;

struct Setting {
    cluster: RedisCluster,
    limiter: Arc<Limiter<RedisStore>>,
    /// The server of everybody's limit, which is reserved last.
    last: usize,
}

impl Setting {
    async fn start() -> Self {
        // Nobody takes over from a server that stands still.
        let cluster = RedisCluster::with(&Options::default().size(3, 0).full_coverage(false));
        let store = RedisStore::start(&cluster.url().parse().unwrap(), KeyEncoder::default()).unwrap();
        store.ready(PATIENCE).await.unwrap();
        let last = cluster.primary_of(cluster.slot_of("{~:~}"));
        let limiter = Arc::new(Limiter::new(rules(Duration::from_millis(500)), store, SystemClock::new()));
        Self { cluster, limiter, last }
    }

    /// A request whose own and whose tenant's limit are on servers that go on.
    fn names(&self) -> (String, String) {
        let is_elsewhere = |tag: String| self.cluster.primary_of(self.cluster.slot_of(&tag)) != self.last;
        let tenants = (0..).map(|number| format!("t{number}"));
        let tenant = tenants.into_iter().find(|tenant| is_elsewhere(format!("{{{tenant}:~}}"))).unwrap();
        let names = (0..).map(|number| format!("n{number}"));
        let name = names.into_iter().find(|name| is_elsewhere(format!("{{{tenant}:{name}}}"))).unwrap();
        (tenant, name)
    }

    /// When the limit is full, in µs.
    fn full_at(&self, tag: &str, rule: &str) -> u64 {
        let key = format!("sg:1:{{{tag}}}:{rule}");
        let node = &self.cluster.nodes()[self.cluster.primary_of(self.cluster.slot_of(&key))];
        let value: String = node.command(&["GET", &key]);
        value.strip_suffix('1').unwrap().parse().unwrap()
    }
}

fn rules(deadline: Duration) -> RuleSet {
    let rule = |(name, per, capacity)| Rule {
        per,
        deadline,
        on_store_failure: OnStoreFailure::Closed,
        ..Rule::new(name, Limits::all(name, [(None, hourly(capacity))]))
    };
    RuleSet::new(RULES.map(rule).into(), Vec::new(), Unmatched::Deny).unwrap()
}

fn class(result: Result<sluicegate::Decision, CheckError>) -> Option<ErrorClass> {
    match result {
        Err(CheckError::Store(error)) => Some(error.class),
        _ => None,
    }
}

#[test]
fn what_was_reserved_is_given_back_when_the_last_server_stands_still() {
    run(async {
        let setting = Setting::start().await;
        let (tenant, name) = setting.names();
        let request = Request::new("any", &name).tenant(&tenant);
        let (own, of_tenant) = (format!("{tenant}:{name}"), format!("{tenant}:~"));
        let values = || [setting.full_at(&own, "own"), setting.full_at(&of_tenant, "tenant")];
        assert!(setting.limiter.check(&request).await.unwrap().is_allowed());
        let before = values();
        let is_given_back =
            || values().iter().zip(before).all(|(now, before)| (before..before + LEFT).contains(now));

        setting.cluster.nodes()[setting.last].pause();
        assert_eq!(class(setting.limiter.check(&request).await), Some(ErrorClass::Timeout));
        until("what was reserved is given back", async || is_given_back()).await;

        // A caller who goes away half-way, as soon as the first limit is charged.
        let leaving = {
            let (limiter, tenant, name) = (Arc::clone(&setting.limiter), tenant.clone(), name.clone());
            tokio::spawn(async move { class(limiter.check(&Request::new("any", &name).tenant(&tenant)).await) })
        };
        until("the first limit is charged", async || values()[0] >= before[0] + 3_600_000_000).await;
        leaving.abort();
        assert!(leaving.await.is_err_and(|error| error.is_cancelled()), "it was answered before it could leave");
        until("what was reserved is given back", async || is_given_back()).await;
        setting.cluster.nodes()[setting.last].resume();
    });
}

/// Only the limit that denies matters for a denial.
#[test]
fn a_denial_is_one_whoever_else_stands_still() {
    run(async {
        let setting = Setting::start().await;
        let (tenant, name) = setting.names();
        let request = Request::new("any", &name).tenant(&tenant);
        for _ in 0..CAPACITY {
            assert!(setting.limiter.check(&request).await.unwrap().is_allowed());
        }
        setting.cluster.nodes()[setting.last].pause();
        let denied = setting.limiter.check(&request).await.unwrap();
        assert!(!denied.is_allowed() && !denied.is_degraded());
        assert_eq!(denied.tightest().unwrap().rule, "own");
        setting.cluster.nodes()[setting.last].resume();
    });
}
