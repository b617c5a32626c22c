//! The record of all requests, and its checks.

use super::fleet::{CAPACITY, INSTANCES, REFILL_PER_SECOND};
use sluicegate::rules::OnStoreFailure;
use sluicegate::store::ErrorClass;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

/// The rules are named after their policies.
pub(super) const POLICIES: [OnStoreFailure; 3] =
    [OnStoreFailure::Open, OnStoreFailure::Closed, OnStoreFailure::Local];

/// The time that a busy machine may add to the deadline of nearly all answers, and of every answer. The promise is 5
/// ms on an idle machine; the measured times are printed.
const SLACK: Duration = Duration::from_millis(250);
const SLACK_AT_WORST: Duration = Duration::from_secs(1);

/// One request and its answer, by the time since the load began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub(super) policy: OnStoreFailure,
    pub(super) instance: usize,
    pub(super) identity: usize,
    pub(super) sent: Duration,
    pub(super) answered: Duration,
    pub(super) outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// By the store.
    Allowed,
    /// By the store.
    Denied,
    /// By policy.
    Degraded { allowed: bool, class: ErrorClass },
    /// By policy, without a decision.
    Refused { class: ErrorClass },
}

impl Outcome {
    /// The error of the store, if there was one.
    pub(super) fn class(self) -> Option<ErrorClass> {
        match self {
            Self::Allowed | Self::Denied => None,
            Self::Degraded { class, .. } | Self::Refused { class } => Some(class),
        }
    }
}

/// All requests of a load.
pub(super) struct Record {
    pub(super) answers: Vec<Answer>,
    pub(super) deadline: Duration,
}

/// The outage during the load.
#[derive(Clone, Debug)]
pub(super) struct Outage {
    /// The errors that the store may report; none without an outage.
    pub(super) classes: Vec<ErrorClass>,
    /// When the store admitted nothing, by the time since the load began.
    pub(super) dark: Option<Range<Duration>>,
    /// How often state may have been lost.
    pub(super) losses: u64,
    /// How long two primaries may have decided concurrently.
    pub(super) split: Duration,
}

impl Outage {
    /// No outage: no request may be affected.
    pub(super) fn none() -> Self {
        Self { classes: Vec::new(), dark: None, losses: 0, split: Duration::ZERO }
    }
}

impl Record {
    /// Runs all checks.
    pub(super) fn check(&self, outage: &Outage) {
        self.check_in_time();
        self.check_classes(outage);
        self.check_policies();
        if let Some(dark) = &outage.dark {
            self.check_dark(dark);
        }
        let by_store = |answer: &Answer| answer.outcome == Outcome::Allowed;
        let extra = outage.losses * CAPACITY * 1_000_000 + REFILL_PER_SECOND * micros(outage.split);
        self.check_limits(by_store, extra, "by the store");
        let by_share = |answer: &Answer| {
            answer.policy == OnStoreFailure::Local
                && matches!(answer.outcome, Outcome::Degraded { allowed: true, .. })
        };
        self.check_limits(by_share, u64::from(INSTANCES - 1) * 1_000_000, "by shares");
    }

    /// Prints latencies and answers.
    #[allow(clippy::print_stderr, reason = "numbers to be read where the test is run")]
    pub(super) fn print(&self, name: &str) {
        let (latencies, mut counts) = (self.latencies(), BTreeMap::new());
        for answer in &self.answers {
            *counts.entry(format!("{} {}", answer.policy.name(), words(answer.outcome))).or_insert(0) += 1;
        }
        let [p50, p99, p999, worst] = [500, 990, 999, 1_000].map(|mille| percentile(&latencies, mille));
        let of = latencies.len();
        eprintln!("{name}: {of} answers, p50 {p50:?}, p99 {p99:?}, p99.9 {p999:?}, slowest {worst:?}; {counts:?}");
    }

    fn latencies(&self) -> Vec<Duration> {
        let mut latencies: Vec<Duration> = self.answers.iter().map(|each| each.answered - each.sent).collect();
        latencies.sort_unstable();
        latencies
    }

    fn check_in_time(&self) {
        let latencies = self.latencies();
        let (nearly_all, worst) = (percentile(&latencies, 999), percentile(&latencies, 1_000));
        assert!(nearly_all <= self.deadline + SLACK, "p99.9 is {nearly_all:?}");
        assert!(worst <= self.deadline + SLACK_AT_WORST, "the slowest took {worst:?}");
    }

    fn check_classes(&self, outage: &Outage) {
        for answer in &self.answers {
            // Requests just before the event may have waited while others were still answered.
            let is_expected = |class: ErrorClass| {
                outage.classes.contains(&class) || class.is_overload() && !outage.classes.is_empty()
            };
            let expected = answer.outcome.class().is_none_or(is_expected);
            assert!(expected, "{answer:?}, but the store only fails with {:?}", outage.classes);
        }
    }

    /// A rule always follows its policy; an error of the request itself refuses it.
    fn check_policies(&self) {
        for answer in &self.answers {
            let fits = match (answer.policy, answer.outcome) {
                (_, Outcome::Allowed | Outcome::Denied) => true,
                (_, Outcome::Degraded { class, .. }) if class.is_overload() => true,
                (_, Outcome::Refused { class }) if class.is_about_the_request() => true,
                (OnStoreFailure::Open, Outcome::Degraded { allowed, class }) => {
                    allowed && !class.is_about_the_request()
                }
                (OnStoreFailure::Local, Outcome::Degraded { class, .. }) => !class.is_about_the_request(),
                (OnStoreFailure::Closed, Outcome::Refused { .. }) => true,
                _ => false,
            };
            assert!(fits, "{answer:?}");
        }
    }

    /// An unusable store admits nothing, and rules that may do without it still admit.
    fn check_dark(&self, dark: &Range<Duration>) {
        let within = |answer: &&Answer| answer.sent >= dark.start && answer.answered <= dark.end;
        let answers: Vec<&Answer> = self.answers.iter().filter(within).collect();
        for answer in &answers {
            assert_ne!(answer.outcome, Outcome::Allowed, "{answer:?} in {dark:?}");
        }
        for policy in POLICIES {
            let undecided = answers.iter().filter(|each| each.policy == policy && each.outcome.class().is_some());
            assert!(undecided.count() > 0, "no answer of {} without the store", policy.name());
        }
    }

    /// In no interval does more pass than the limit plus `extra` millionths of a unit.
    fn check_limits(&self, is_meant: impl Fn(&Answer) -> bool, extra: u64, whose: &str) {
        let mut admitted: BTreeMap<(&str, usize), Vec<Answer>> = BTreeMap::new();
        for answer in self.answers.iter().filter(|answer| is_meant(answer)) {
            admitted.entry((answer.policy.name(), answer.identity)).or_default().push(*answer);
        }
        for (key, mut admitted) in admitted {
            admitted.sort_by_key(|each| each.answered);
            for start in admitted.iter().map(|each| each.sent) {
                let within = admitted.iter().filter(|each| each.sent >= start);
                for (index, last) in within.enumerate() {
                    let (count, length) = (index as u64 + 1, micros(last.answered - start));
                    let allowed = CAPACITY * 1_000_000 + REFILL_PER_SECOND * length + extra;
                    assert!(count * 1_000_000 <= allowed, "{key:?} {whose}: {count} in {length} µs");
                }
            }
        }
    }
}

fn percentile(sorted: &[Duration], mille: usize) -> Duration {
    let place = (sorted.len() * mille).div_ceil(1_000).saturating_sub(1);
    sorted.get(place).copied().unwrap_or_default()
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap()
}

fn words(outcome: Outcome) -> String {
    match outcome {
        Outcome::Allowed => "allowed".to_owned(),
        Outcome::Denied => "denied".to_owned(),
        Outcome::Degraded { allowed: true, class } => format!("{} allowed", class.name()),
        Outcome::Degraded { allowed: false, class } => format!("{} denied", class.name()),
        Outcome::Refused { class } => format!("{} refused", class.name()),
    }
}
