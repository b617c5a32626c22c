//! Two instances that share limits, and tasks that send requests continuously.

use super::record::{Answer, Outcome, POLICIES, Record};
use super::until;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use sluicegate::clock::SystemClock;
use sluicegate::core::{Micros, Quota, Rate, TokenBucket};
use sluicegate::pattern::Pattern;
use sluicegate::rules::{DEADLINE_DEFAULT, Limits, OnStoreFailure, Rule, RuleSet, Selector, Unmatched};
use sluicegate::store::memory::MemoryOptions;
use sluicegate::store::redis::{KeyEncoder, RedisStore};
use sluicegate::store::{ErrorClass, Health, Store as _};
use sluicegate::{CheckError, Decision, Instances, Limiter, Request};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

/// How many limiters share the store.
pub(super) const INSTANCES: u32 = 2;
/// The limits: a burst, and the refill per second.
pub(super) const CAPACITY: u64 = 20;
pub(super) const REFILL_PER_SECOND: u64 = 50;
/// The rule that [`Fleet::spend`] charges. It does not refill within a test.
pub(super) const LEDGER: &str = "ledger";
const LEDGER_CAPACITY: u64 = 10_000;
/// The pause of a task between two requests.
const PAUSE: Duration = Duration::from_millis(2);
const TASKS_PER_INSTANCE: usize = 3;
/// The time after which a request counts as stuck.
const STUCK: Duration = Duration::from_secs(20);

/// The deadline of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deadline {
    /// The default: a busy machine alone may exceed it.
    Usual,
    /// Only a failure exceeds it.
    Generous,
}

impl Deadline {
    pub(super) fn length(self) -> Duration {
        match self {
            Self::Usual => DEADLINE_DEFAULT,
            Self::Generous => Duration::from_secs(10),
        }
    }
}

/// Limiters that share limits through one store.
pub(super) struct Fleet {
    limiters: Vec<Arc<Limiter<RedisStore>>>,
    identities: Arc<[String]>,
    deadline: Deadline,
}

/// Continuous requests, until it is finished.
pub(super) struct Load {
    shared: Arc<Shared>,
    tasks: Vec<JoinHandle<()>>,
    deadline: Deadline,
}

struct Shared {
    started: Instant,
    is_over: AtomicBool,
    sent: AtomicU64,
    answers: Mutex<Vec<Answer>>,
}

impl Fleet {
    /// Instances that are connected to the servers at `url`.
    pub(super) async fn start(url: &str, deadline: Deadline, identities: &[String]) -> Self {
        let mut limiters = Vec::new();
        for _ in 0..INSTANCES {
            let store = RedisStore::start(&url.parse().unwrap(), KeyEncoder::default()).unwrap();
            store.ready(STUCK).await.unwrap();
            let instances = Instances::default();
            instances.set(INSTANCES);
            let limiter = Limiter::new(rules(deadline), store, SystemClock::new())
                .with_fallback(MemoryOptions::default(), instances);
            limiters.push(Arc::new(limiter));
        }
        Self { limiters, identities: identities.into(), deadline }
    }

    /// Starts the load.
    pub(super) fn load(&self) -> Load {
        let shared = Arc::new(Shared {
            started: Instant::now(),
            is_over: AtomicBool::new(false),
            sent: AtomicU64::new(0),
            answers: Mutex::default(),
        });
        let places = (0..self.limiters.len() * TASKS_PER_INSTANCE).map(|place| place % self.limiters.len());
        let tasks = places.map(|instance| {
            let (limiter, identities) = (Arc::clone(&self.limiters[instance]), Arc::clone(&self.identities));
            tokio::spawn(Arc::clone(&shared).send(instance, limiter, identities))
        });
        Load { tasks: tasks.collect(), shared, deadline: self.deadline }
    }

    /// Returns when the store decides every rule of every identity again, with the time that this took.
    pub(super) async fn until_whole(&self) -> Duration {
        until("answers from the store", async || self.is_whole().await).await
    }

    async fn is_whole(&self) -> bool {
        for limiter in &self.limiters {
            for identity in self.identities.iter() {
                for policy in POLICIES {
                    let result = check(limiter, policy.name(), identity).await;
                    if !result.is_ok_and(|decision| !decision.is_degraded()) {
                        return false;
                    }
                }
            }
        }
        true
    }

    /// Requests a unit of the ledger `times` times from every instance. Returns how many the store granted.
    pub(super) async fn spend(&self, identity: &str, times: usize) -> usize {
        let mut given = 0;
        for _ in 0..times {
            for limiter in &self.limiters {
                let result = check(limiter, LEDGER, identity).await;
                given += usize::from(result.is_ok_and(|decision| !decision.is_degraded()));
            }
        }
        given
    }

    /// The health of the store, as the first instance reports it.
    pub(super) fn health(&self) -> Health {
        self.limiters[0].store().health()
    }

    pub(super) fn limiter(&self) -> &Limiter<RedisStore> {
        &self.limiters[0]
    }
}

impl Load {
    /// Returns when every rule of every instance has been answered this many times more.
    pub(super) async fn until_asked(&self, times: usize) {
        self.until(|_| true, times).await;
    }

    /// Returns when every rule of every instance has had this many further answers of this kind.
    pub(super) async fn until(&self, is_meant: impl Fn(&Answer) -> bool, times: usize) {
        let since = self.now();
        until("answers", async || {
            let answers = self.shared.answers.lock().unwrap();
            let meant: Vec<&Answer> =
                answers.iter().filter(|answer| answer.sent >= since && is_meant(answer)).collect();
            POLICIES.iter().all(|policy| {
                let of = |instance| {
                    meant.iter().filter(|each| each.policy == *policy && each.instance == instance).count()
                };
                (0..INSTANCES as usize).all(|instance| of(instance) >= times)
            })
        })
        .await;
    }

    /// Whether an answer since then reports this error of the store.
    pub(super) fn has_seen(&self, class: ErrorClass, since: Duration) -> bool {
        let seen = |answer: &Answer| answer.sent >= since && answer.outcome.class() == Some(class);
        self.shared.answers.lock().unwrap().iter().any(seen)
    }

    /// The time since the load began.
    pub(super) fn now(&self) -> Duration {
        self.shared.started.elapsed()
    }

    /// Stops the load, and expects an answer to every request.
    pub(super) async fn finish(self) -> Record {
        self.shared.is_over.store(true, Ordering::Relaxed);
        for task in self.tasks {
            timeout(STUCK, task).await.expect("no request is stuck").expect("no panic");
        }
        let answers = std::mem::take(&mut *self.shared.answers.lock().unwrap());
        assert_eq!(answers.len() as u64, self.shared.sent.load(Ordering::Relaxed), "an answer each");
        Record { answers, deadline: self.deadline.length() }
    }
}

impl Shared {
    async fn send(self: Arc<Self>, instance: usize, limiter: Arc<Limiter<RedisStore>>, identities: Arc<[String]>) {
        while !self.is_over.load(Ordering::Relaxed) {
            for (identity, name) in identities.iter().enumerate() {
                for policy in POLICIES {
                    self.sent.fetch_add(1, Ordering::Relaxed);
                    let sent = self.started.elapsed();
                    let result = check(&limiter, policy.name(), name).await;
                    let (answered, outcome) = (self.started.elapsed(), outcome(&result));
                    let answer = Answer { policy, instance, identity, sent, answered, outcome };
                    self.answers.lock().unwrap().push(answer);
                    sleep(PAUSE).await;
                }
            }
        }
    }
}

/// Boxed, because the compiler rejects futures that are nested too deeply.
fn check<'a>(
    limiter: &'a Limiter<RedisStore>,
    resource: &'a str,
    identity: &'a str,
) -> BoxFuture<'a, Result<Decision, CheckError>> {
    async move { limiter.check(&Request::new(resource, identity)).await }.boxed()
}

fn outcome(result: &Result<Decision, CheckError>) -> Outcome {
    match result {
        Ok(decision) => match decision.degradation() {
            None if decision.is_allowed() => Outcome::Allowed,
            None => Outcome::Denied,
            Some(degradation) => {
                Outcome::Degraded { allowed: decision.is_allowed(), class: degradation.error.class }
            }
        },
        Err(CheckError::Store(error)) => Outcome::Refused { class: error.class },
        Err(error) => panic!("{error}"),
    }
}

/// A rule of each policy, and one that records all charges in its state.
fn rules(deadline: Deadline) -> RuleSet {
    let rate = Rate::new(REFILL_PER_SECOND, Micros::from_secs(1)).unwrap();
    let bucket = Quota::from(TokenBucket::new(CAPACITY, rate).unwrap());
    let hourly = Rate::new(1, Micros::from_secs(3_600)).unwrap();
    let ledger = Quota::from(TokenBucket::new(LEDGER_CAPACITY, hourly).unwrap());
    let rule = |name: &str, quota: Quota, policy: OnStoreFailure| {
        let mut rule = Rule::new(name, Limits::all(name, [(None, quota)]));
        rule.selector = Selector { resource: Some(Pattern::new(name)), ..Selector::default() };
        rule.on_store_failure = policy;
        rule.deadline = deadline.length();
        rule
    };
    let mut rules: Vec<Rule> =
        POLICIES.iter().map(|policy| rule(policy.name(), bucket.clone(), *policy)).collect();
    rules.push(rule(LEDGER, ledger, OnStoreFailure::Open));
    RuleSet::new(rules, Vec::new(), Unmatched::Deny).unwrap()
}
