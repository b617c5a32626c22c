//! Limits in several slots of a Cluster with one stalled server: reservations on the other servers are released.

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
/// The rules and their limits. An identity exhausts its own limit first.
const RULES: [(&str, Per, u64); 3] =
    [("own", Per::IDENTIFIER, CAPACITY), ("tenant", Per::TENANT, 100), ("all", Per::GLOBAL, 1_000)];

/// More than the time from a charge to its undo, in µs, which an undo subtracts if it exceeds two seconds: a token
/// lasts an hour.
const LEFT: u64 = 60_000_000;

struct Setting {
    cluster: RedisCluster,
    limiter: Arc<Limiter<RedisStore>>,
    /// The server of the shared limit, which is reserved last.
    last: usize,
}

impl Setting {
    async fn start() -> Self {
        Self::start_with(Duration::from_millis(500)).await
    }

    async fn start_with(deadline: Duration) -> Self {
        // There are no replicas, so a stalled server is not replaced.
        let cluster = RedisCluster::with(&Options::default().size(3, 0).full_coverage(false));
        let store = RedisStore::start(&cluster.url().parse().unwrap(), KeyEncoder::default()).unwrap();
        store.ready(PATIENCE).await.unwrap();
        let last = cluster.primary_of(cluster.slot_of("{~:~}"));
        let limiter = Arc::new(Limiter::new(rules(deadline), store, SystemClock::new()));
        Self { cluster, limiter, last }
    }

    /// An identity and a tenant with limits on running servers.
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
        // While there are reservations, the value also has the recent charges.
        match value.strip_prefix("ab0") {
            Some(record) => record.split(',').next().unwrap().parse().unwrap(),
            None => value.strip_suffix('1').unwrap().parse().unwrap(),
        }
    }
}

fn rules(deadline: Duration) -> RuleSet {
    rules_of(&RULES, deadline)
}

fn rules_of(rules: &[(&str, Per, u64)], deadline: Duration) -> RuleSet {
    let rule = |&(name, per, capacity): &(&str, Per, u64)| Rule {
        per,
        deadline,
        on_store_failure: OnStoreFailure::Closed,
        ..Rule::new(name, Limits::all(name, [(None, hourly(capacity))]))
    };
    RuleSet::new(rules.iter().map(rule).collect(), Vec::new(), Unmatched::Deny).unwrap()
}

fn class(result: Result<sluicegate::Decision, CheckError>) -> Option<ErrorClass> {
    match result {
        Err(CheckError::Store(error)) => Some(error.class),
        _ => None,
    }
}

#[test]
fn a_reservation_is_released_when_the_last_server_stalls() {
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
        until("the reservation is released", async || is_given_back()).await;

        // A client that disconnects as soon as the first limit is charged.
        let leaving = {
            let (limiter, tenant, name) = (Arc::clone(&setting.limiter), tenant.clone(), name.clone());
            tokio::spawn(async move { class(limiter.check(&Request::new("any", &name).tenant(&tenant)).await) })
        };
        until("the first limit is charged", async || values()[0] >= before[0] + 3_600_000_000).await;
        leaving.abort();
        assert!(leaving.await.is_err_and(|error| error.is_cancelled()), "it was answered before it could leave");
        until("the reservation is released", async || is_given_back()).await;
        setting.cluster.nodes()[setting.last].resume();
    });
}

/// Only the limit that denies matters for a denial.
#[test]
fn a_denial_holds_while_other_servers_stall() {
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

/// A reservation counts for others until it is released: for no more than the costs of requests in flight, and no
/// longer.
#[test]
fn requests_are_denied_only_for_units_of_requests_in_flight() {
    const UNDER_WAY: u64 = 7;
    run(async {
        let setting = Setting::start_with(Duration::from_secs(1)).await;
        let (tenant, name) = setting.names();
        // The same limits, in a request without the shared limit.
        let store = RedisStore::start(&setting.cluster.url().parse().unwrap(), KeyEncoder::default()).unwrap();
        until("a part of the Cluster can be used", async || store.ready(PATIENCE).await.is_ok()).await;
        let other = Limiter::new(rules_of(&RULES[..2], Duration::from_secs(5)), store, SystemClock::new());
        let request = Request::new("any", &name).tenant(&tenant);
        let is_allowed = async || other.check(&request).await.unwrap().is_allowed();

        setting.cluster.nodes()[setting.last].pause();
        let waiting: Vec<_> = (0..UNDER_WAY)
            .map(|_| {
                let (limiter, tenant, name) = (Arc::clone(&setting.limiter), tenant.clone(), name.clone());
                tokio::spawn(
                    async move { class(limiter.check(&Request::new("any", &name).tenant(&tenant)).await) },
                )
            })
            .collect();
        let left = async || other.peek(&request).await.unwrap().remaining().unwrap();
        until("all have reserved", async || left().await == CAPACITY - UNDER_WAY).await;
        for admitted in UNDER_WAY..CAPACITY {
            assert!(is_allowed().await, "{admitted} of {CAPACITY} are taken");
        }
        assert!(!is_allowed().await, "all are taken");
        for denied in waiting {
            assert_eq!(denied.await.unwrap(), Some(ErrorClass::Timeout));
        }
        // The other instance has cached the denial, and learns of the release from the first one.
        until("others are admitted again", async || is_allowed().await).await;
        until("all is released", async || left().await == UNDER_WAY - 1).await;
        setting.cluster.nodes()[setting.last].resume();
    });
}
