//! Usage that has already happened: every store charges it in full, alone and beside other requests.

use crate::support::{block_on, hourly};
use sluicegate::clock::SystemClock;
use sluicegate::core::{Align, Cost, DEBT_LIMITS_MAX, FixedWindow, Micros, Quota, SlidingCounter, SlidingWindow};
use sluicegate::pattern::Pattern;
use sluicegate::rules::{Limits, Mode, OnStoreFailure, Per, Rule, RuleSet, Selector, Unmatched};
use sluicegate::store::Store;
use sluicegate::{Decision, Limiter, MemoryStore, Request};
use std::time::Duration;

/// Longer than any call takes, and the longest deadline of a rule.
const PATIENCE: Duration = Duration::from_secs(10);
const YEAR: Micros = Micros::from_secs(365 * 86_400);
/// The limit of tokens; that of requests is 3.
const TOKENS: u64 = 10;

/// None of these refills a whole unit within the test.
fn limits(limit: u64) -> [(&'static str, Quota); 4] {
    [
        ("bucket", hourly(limit)),
        ("fixed", FixedWindow::new(limit, YEAR, Align::Epoch).unwrap().into()),
        ("log", SlidingWindow::new(limit, YEAR).unwrap().into()),
        ("counter", SlidingCounter::new(limit, YEAR).unwrap().into()),
    ]
}

fn rule(name: &str, resource: &str, per: Per, quota: Quota) -> Rule {
    let mut rule = Rule::new(name, Limits::all(name, [(None, quota)]));
    rule.selector = Selector { resource: Some(Pattern::new(resource)), ..Selector::default() };
    (rule.per, rule.deadline, rule.on_store_failure) = (per, PATIENCE, OnStoreFailure::Closed);
    rule
}

/// Tokens of an identity, requests of its tenant, and tokens again in shadow mode. On a Cluster, identity and tenant
/// are in different slots.
fn rules(algorithm: &str, quota: Quota) -> RuleSet {
    let named = |kind: &str| format!("{kind}-{algorithm}");
    let shadow = Rule { mode: Mode::Shadow, ..rule(&named("trial"), "tokens", Per::TENANT, quota.clone()) };
    let rules = vec![
        rule(&named("tokens"), "tokens", Per::IDENTIFIER, quota),
        rule(&named("requests"), "requests", Per::TENANT, hourly(3)),
        shadow,
    ];
    RuleSet::new(rules, Vec::new(), Unmatched::Deny).unwrap()
}

fn tokens(cost: u32) -> Request<'static> {
    Request::new("tokens", "alice").cost(Cost::new(cost))
}

/// Whether the first limit allows, its remaining units and its debt.
fn first(decision: &Decision) -> (bool, u64, u64) {
    let verdict = decision.limits().next().unwrap().verdict;
    assert!(!decision.is_degraded());
    (verdict.outcome.is_allowed(), verdict.remaining, verdict.debt)
}

async fn usage_is_charged_in_full<S: Store>(store: S) {
    let limiter = Limiter::new(rules("none", hourly(1)), store, SystemClock::new());
    let mut cut_off = 0;
    for (algorithm, quota) in limits(TOKENS) {
        limiter.replace_rules(rules(algorithm, quota));
        let rules = limiter.rules();
        let request = Request::new("requests", "alice");
        let both = async |usage: u32| {
            limiter.check_all(&rules, &[request, tokens(usage).charged_always()]).await.unwrap()
        };
        // 6 of 10 tokens and 2 of 3 requests are left.
        let fits = both(4).await;
        assert!(fits.is_allowed(), "{algorithm}");
        assert_eq!(fits.each().iter().map(first).collect::<Vec<_>>(), [(true, 2, 0), (true, 6, 0)], "{algorithm}");
        // A report that does not fit denies the whole, charges no request, and is charged itself.
        let does_not_fit = both(25).await;
        assert!(!does_not_fit.is_allowed() && !does_not_fit.each()[1].is_allowed(), "{algorithm}");
        let each: Vec<_> = does_not_fit.each().iter().map(first).collect();
        assert_eq!(each, [(true, 2, 0), (false, 0, 19)], "{algorithm}");
        let trial = does_not_fit.each()[1].limits().nth(1).unwrap().verdict;
        assert_eq!((trial.remaining, trial.debt), (0, 19), "{algorithm}: a shadow rule counts it, too");
        // In debt, nothing is admitted, and a report of a request that the limit of requests denies is still charged.
        assert_eq!(first(&limiter.check(&tokens(1)).await.unwrap()), (false, 0, 19), "{algorithm}");
        assert_eq!(first(&limiter.report(&tokens(1)).await.unwrap()), (false, 0, 20), "{algorithm}");
        let too_many = [request, request, request, tokens(2).charged_always()];
        let too_many = limiter.check_all(&rules, &too_many).await.unwrap();
        assert_eq!(first(&too_many.each()[3]), (false, 0, 22), "{algorithm}");
        assert_eq!(first(&limiter.peek(&request).await.unwrap()), (true, 2, 0), "{algorithm}");
        // A refund pays the debt first.
        assert_eq!(first(&limiter.refund(&tokens(23)).await.unwrap()).1, 1, "{algorithm}");
        // On one state, both costs count, and only the report is charged.
        let same = limiter.check_all(&rules, &[tokens(1), tokens(1).charged_always()]).await.unwrap();
        assert!(!same.is_allowed(), "{algorithm}");
        assert_eq!(first(&limiter.peek(&tokens(1)).await.unwrap()), (false, 0, 0), "{algorithm}");
        // The bound, on the own rule and on the one in shadow mode.
        assert_eq!(first(&limiter.report(&tokens(u32::MAX)).await.unwrap()).2, DEBT_LIMITS_MAX * TOKENS);
        let uncharged = limiter.store().uncharged_usage().debt - cut_off;
        let most = 2 * (u64::from(u32::MAX) - DEBT_LIMITS_MAX * TOKENS);
        assert!((most - 30..=most + 30).contains(&uncharged), "{algorithm}: {uncharged} of {most}");
        cut_off += uncharged;
        // A reset forgets it.
        assert_eq!(first(&limiter.reset(&tokens(1)).await.unwrap()), (true, TOKENS, 0), "{algorithm}");
    }
}

#[test]
fn the_embedded_store_charges_usage_in_full() {
    block_on(usage_is_charged_in_full(MemoryStore::default()));
}

#[cfg(feature = "redis")]
mod redis {
    use super::*;
    use futures_util::future::join_all;
    use sluicegate::store::redis::{KeyEncoder, RedisStore};
    use sluicegate_testkit::redis_cluster::RedisCluster;
    use sluicegate_testkit::redis_server::RedisServer;
    use tokio::time::{Instant, sleep};

    fn run(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
    }

    async fn store(url: &str) -> RedisStore {
        let store = RedisStore::start(&url.parse().unwrap(), KeyEncoder::default()).unwrap();
        store.ready(PATIENCE).await.unwrap();
        store
    }

    #[test]
    fn redis_charges_usage_in_full() {
        let server = RedisServer::start();
        run(async { usage_is_charged_in_full(store(&server.url()).await).await });
    }

    #[test]
    fn a_cluster_charges_usage_in_full_across_slots() {
        let cluster = RedisCluster::start();
        run(async { usage_is_charged_in_full(store(&cluster.url()).await).await });
    }

    /// Reports share calls with checks, and none of them takes the place of another.
    #[test]
    fn concurrent_reports_are_all_charged_once() {
        let server = RedisServer::start();
        run(async {
            let limiter =
                Limiter::new(rules("bucket", hourly(1_000)), store(&server.url()).await, SystemClock::new());
            let limiter = &limiter;
            let asked = (0..600_u32).map(|number| async move {
                let request = Request { resource: "tokens", ..tokens(1) };
                match number % 3 {
                    0 => limiter.report(&request).await.map(|_| true),
                    1 => limiter.check(&request.charged_always()).await.map(|_| true),
                    _ => limiter.check(&request).await.map(|decision| decision.is_allowed()),
                }
            });
            let charged = join_all(asked).await.into_iter().filter(|charged| *charged.as_ref().unwrap()).count();
            assert_eq!(charged, 600);
            assert_eq!(first(&limiter.peek(&tokens(1)).await.unwrap()), (true, 400, 0));
        });
    }

    /// A cached denial shows the debt that this server has reported since.
    #[test]
    fn cached_denials_show_later_reports() {
        let server = RedisServer::start();
        run(async {
            let limiter =
                Limiter::new(rules("bucket", hourly(TOKENS)), store(&server.url()).await, SystemClock::new());
            assert_eq!(first(&limiter.report(&tokens(10)).await.unwrap()), (false, 0, 0));
            for debt in (0..50).step_by(5) {
                for _ in 0..3 {
                    assert_eq!(first(&limiter.check(&tokens(1)).await.unwrap()), (false, 0, debt));
                }
                assert_eq!(first(&limiter.report(&tokens(5)).await.unwrap()).2, debt + 5);
            }
            assert!(limiter.store().denied_from_cache() > 0);
        });
    }

    /// What is reported in an outage is charged after it, or counted: under rules that fail open, under those in shadow
    /// mode, and under rules that fail closed as part of a check. A report alone under the latter is an error.
    #[test]
    fn usage_of_an_outage_is_charged_later_or_counted() {
        let server = RedisServer::start();
        run(async {
            let patient = |name| Rule {
                deadline: Duration::from_millis(200),
                ..rule(name, name, Per::IDENTIFIER, hourly(TOKENS))
            };
            let open = Rule { on_store_failure: OnStoreFailure::Open, ..patient("tokens") };
            let trial = Rule { mode: Mode::Shadow, ..patient("trial") };
            let rules = vec![open, patient("closed"), trial];
            let rules = RuleSet::new(rules, Vec::new(), Unmatched::Deny).unwrap();
            let limiter = Limiter::new(rules, store(&server.url()).await, SystemClock::new());
            let of = |resource, cost| Request::new(resource, "alice").cost(Cost::new(cost));
            server.kill();
            let started = Instant::now();
            while !limiter.peek(&tokens(1)).await.unwrap().is_degraded() {
                assert!(started.elapsed() < PATIENCE);
            }
            assert!(limiter.report(&tokens(7)).await.unwrap().is_degraded());
            assert!(limiter.report(&of("trial", 6)).await.unwrap().is_degraded());
            limiter.report(&of("closed", 1)).await.unwrap_err();
            let (rules, usage) = (limiter.rules(), of("closed", 5).charged_always());
            limiter.check_all(&rules, &[usage, of("tokens", 1)]).await.unwrap_err();
            limiter.check(&of("closed", 4).charged_always()).await.unwrap_err();
            server.restart_empty();
            let used = async |resource| {
                let decision = limiter.peek(&of(resource, 1)).await.ok().filter(|each| !each.is_degraded())?;
                let left = decision.limits().next()?.verdict.remaining;
                Some(TOKENS - left)
            };
            loop {
                let uncharged = limiter.store().uncharged_usage();
                let lost = uncharged.store + uncharged.unknown;
                let charged = [used("tokens").await, used("trial").await, used("closed").await];
                if let [Some(open), Some(trial), Some(closed)] = charged
                    && open + trial + closed + lost == 7 + 6 + 9
                {
                    assert!(open <= 7 && trial <= 6 && closed <= 9);
                    break;
                }
                assert!(started.elapsed() < 3 * PATIENCE, "{charged:?} charged, {uncharged:?}");
                sleep(Duration::from_millis(20)).await;
            }
        });
    }
}
