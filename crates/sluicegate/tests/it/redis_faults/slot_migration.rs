//! A Cluster slot in the middle of its migration: calls with several of its keys are rejected, and every limit holds
//! all the same.

use super::{PATIENCE, run};
use crate::support::hourly;
use sluicegate::clock::SystemClock;
use sluicegate::rules::{Limits, OnStoreFailure, Per, Rule, RuleSet, Unmatched};
use sluicegate::store::redis::{KeyEncoder, RedisStore};
use sluicegate::{Limiter, Request};
use sluicegate_testkit::redis_cluster::{Options, RedisCluster};
use std::time::Duration;

/// The admissions of an identity within an hour, by the tighter of its two rules.
const CAPACITY: usize = 3;
const TENANT: &str = "moving";

struct Setting {
    cluster: RedisCluster,
    limiter: Limiter<RedisStore>,
}

impl Setting {
    async fn start(rules: RuleSet) -> Self {
        let cluster = RedisCluster::with(&Options::default().size(3, 0));
        let store = RedisStore::start(&cluster.url().parse().unwrap(), KeyEncoder::default()).unwrap();
        store.ready(PATIENCE).await.unwrap();
        Self { cluster, limiter: Limiter::new(rules, store, SystemClock::new()) }
    }

    /// Starts to migrate the slot of a name with these of its keys. Returns the receiver.
    fn begin_to_move(&self, name: &str, rules: &[&str]) -> usize {
        let slot = self.cluster.slot_of(&key(name, "wide"));
        let receiver = (self.cluster.primary_of(slot) + 1) % 3;
        self.cluster.begin_to_move(slot, receiver);
        rules.iter().for_each(|rule| self.cluster.send_key(&key(name, rule), receiver));
        assert!(self.is_refused(name, receiver));
        receiver
    }

    /// Whether a call over both keys of an identity is rejected now.
    fn is_refused(&self, name: &str, receiver: usize) -> bool {
        let mut receiver = self.cluster.nodes()[receiver].connection().unwrap();
        let keys = [key(name, "narrow"), key(name, "wide")];
        redis::cmd("ASKING").exec(&mut receiver).unwrap();
        let refused = redis::cmd("MGET").arg(&keys).query::<redis::Value>(&mut receiver).unwrap_err();
        refused.code() == Some("TRYAGAIN")
    }

    /// How many of several requests pass. The store must decide all of them.
    async fn passed(&self, name: &str, requests: usize) -> usize {
        let mut passed = 0;
        for _ in 0..requests {
            let decision = self.limiter.check(&Request::new("any", name).tenant(TENANT)).await.unwrap();
            assert!(!decision.is_degraded(), "{name}");
            passed += usize::from(decision.is_allowed());
        }
        passed
    }
}

fn key(name: &str, rule: &str) -> String {
    format!("sg:1:{{{TENANT}:{name}}}:{rule}")
}

fn rule(name: &str, per: Per, capacity: usize) -> Rule {
    Rule {
        per,
        deadline: Duration::from_secs(5),
        on_store_failure: OnStoreFailure::Open,
        ..Rule::new(name, Limits::all(name, [(None, hourly(capacity as u64))]))
    }
}

fn rules(rules: Vec<Rule>) -> RuleSet {
    RuleSet::new(rules, Vec::new(), Unmatched::Deny).unwrap()
}

/// The admissions before, during and after the migration: for names whose keys both stay, whose first key has moved,
/// and without keys.
async fn holds(rules: RuleSet) {
    let setting = Setting::start(rules).await;
    let [used, split, stays, fresh] = ["used", "split", "stays", "fresh"];
    assert_eq!(setting.passed(used, CAPACITY + 1).await, CAPACITY);
    assert_eq!(setting.passed(split, 1).await, 1);
    assert_eq!(setting.passed(stays, 1).await, 1);

    let sent: [(&str, &[&str]); 4] = [(used, &["wide"]), (split, &["narrow"]), (stays, &[]), (fresh, &[])];
    let moves = sent.map(|(name, rules)| (name, setting.begin_to_move(name, rules)));
    assert_eq!(setting.passed(used, 5).await, 0, "denied stays denied");
    assert_eq!(setting.passed(split, 5).await, CAPACITY - 1);
    assert_eq!(setting.passed(stays, 1).await, 1);
    assert_eq!(setting.passed(fresh, 5).await, CAPACITY, "newcomers get their limit");

    for (name, receiver) in moves {
        setting.cluster.move_slot(setting.cluster.slot_of(&key(name, "wide")), receiver);
    }
    for name in [used, split, fresh] {
        assert_eq!(setting.passed(name, 3).await, 0, "{name} has had all");
    }
    assert_eq!(setting.passed(stays, 5).await, CAPACITY - 2);
}

#[test]
fn limits_of_one_subject_hold_while_their_slot_migrates() {
    let wide_then_narrow =
        vec![rule("wide", Per::IDENTIFIER, 2 * CAPACITY), rule("narrow", Per::IDENTIFIER, CAPACITY)];
    run(holds(rules(wide_then_narrow)));
}

/// The request spans slots, and the reservation in the migrating slot is released key by key.
#[test]
fn limits_of_several_subjects_hold_while_one_slot_migrates() {
    let with_everybody = vec![
        rule("narrow", Per::IDENTIFIER, CAPACITY),
        rule("wide", Per::IDENTIFIER, 2 * CAPACITY),
        rule("all", Per::GLOBAL, 3 * CAPACITY + 3),
    ];
    run(holds(rules(with_everybody)));
}

#[test]
fn a_denial_by_the_shared_limit_is_released_while_a_slot_migrates() {
    run(async {
        let few = vec![
            rule("narrow", Per::IDENTIFIER, CAPACITY),
            rule("wide", Per::IDENTIFIER, CAPACITY),
            rule("all", Per::GLOBAL, 1),
        ];
        let setting = Setting::start(rules(few)).await;
        let name = "fresh";
        setting.begin_to_move(name, &[]);
        assert_eq!(setting.passed(name, 3 * CAPACITY).await, 1);
        let denied = setting.limiter.check(&Request::new("any", name).tenant(TENANT)).await.unwrap();
        let tightest = denied.tightest().unwrap();
        assert_eq!(tightest.rule, "all", "an identity's own limits have been given back");
    });
}
