//! Whatever happens in whatever order: who is denied from here would have been denied by the server.
//!
//! The server is the core with a clock of its own; calls take time there and back. Others charge the same keys, refunds
//! and resets come in between, and sometimes overtake the answer to a charge. What the server says of a log is cut to
//! what the script would say.

use super::*;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use sluicegate_core::algorithm::sliding_window::{Entry as LogEntry, SlidingWindowState};
use sluicegate_core::calendar::Run;
use sluicegate_core::decision::{is_allowed, is_charged};
use sluicegate_core::{Calendar, SlidingCounter};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// What can happen. Times are in microseconds.
#[derive(Clone, Debug)]
enum Event {
    /// This instance asks. A refund may be sent after it and be answered before it.
    Charge {
        cost: u32,
        there: u64,
        back: u64,
        is_overtaken: bool,
    },
    /// Another instance is admitted or not.
    Elsewhere {
        cost: u32,
    },
    Refund {
        cost: u32,
        there: u64,
        back: u64,
    },
    Reset,
    Wait {
        micros: u64,
    },
}

fn event() -> impl Strategy<Value = Event> {
    let cost = || prop_oneof![4 => Just(1_u32), 3 => 0_u32..9];
    let way = || prop_oneof![Just(0_u64), 1_u64..50_000];
    let charge = (cost(), way(), way(), prop::bool::weighted(0.1));
    prop_oneof![
        8 => charge.prop_map(|(cost, there, back, is_overtaken)| Event::Charge { cost, there, back, is_overtaken }),
        2 => cost().prop_map(|cost| Event::Elsewhere { cost }),
        1 => (cost(), way(), way()).prop_map(|(cost, there, back)| Event::Refund { cost, there, back }),
        1 => Just(Event::Reset),
        2 => (0_u64..20_000).prop_map(|micros| Event::Wait { micros }),
        2 => (0_u64..1_500_000).prop_map(|micros| Event::Wait { micros }),
    ]
}

fn quota() -> impl Strategy<Value = Quota> {
    let rate = (1_u64..8, 300_u64..3_000)
        .prop_map(|(amount, millis)| Rate::new(amount, Micros::from_millis(millis)).unwrap());
    let (limit, window) = (|| 1_u64..7, || (100_u64..3_000).prop_map(Micros::from_millis));
    prop_oneof![
        (limit(), rate.clone()).prop_map(|(limit, rate)| TokenBucket::new(limit, rate).unwrap().into()),
        (limit(), rate, 1_u64..4, window()).prop_map(|(limit, rate, credits, ttl)| {
            TokenBucket::with_credits(limit, rate, credits, ttl).unwrap().into()
        }),
        (limit(), window()).prop_map(|(limit, window)| SlidingWindow::new(limit, window).unwrap().into()),
        (limit(), window()).prop_map(|(limit, window)| SlidingCounter::new(limit, window).unwrap().into()),
        (limit(), window(), any::<bool>()).prop_map(|(limit, window, by_key)| {
            let align = if by_key { Align::Key } else { Align::Epoch };
            FixedWindow::new(limit, window, align).unwrap().into()
        }),
        (limit(), prop::collection::vec(1_000_u64..3_000, 1..20)).prop_map(|(limit, lengths)| {
            let mut start = Timestamp::from_micros(NOW.as_micros() / 1_000 * 1_000);
            let run = |millis| {
                let run = Run { start, length: Micros::from_millis(millis) };
                start = start.plus(run.length);
                run
            };
            let calendar = Calendar::new("uneven", lengths.into_iter().map(run).collect::<Vec<_>>()).unwrap();
            FixedWindow::on_calendar(limit, Arc::new(calendar)).unwrap().into()
        }),
    ]
}

/// One subject under two rules, of which the second may only watch.
struct World {
    denials: Denials,
    charges: [Charge<'static>; 2],
    /// What the server holds for every limit.
    states: Vec<Option<State>>,
    local: Local,
    /// How often anything was charged.
    charged: u64,
    /// How often that was when a denial of this cost was last seen, and what its call took.
    seen: HashMap<u32, (u64, u64)>,
    from_here: u64,
}

const SEED: u64 = 77;

impl World {
    fn server_now(&self) -> Timestamp {
        NOW.plus(Micros::from_micros(self.local / 1_000))
    }

    fn pass(&mut self, micros: u64) {
        self.local += micros * 1_000 + 300;
    }

    fn costing(&self, cost: u32) -> [Charge<'static>; 2] {
        self.charges.map(|charge| Charge { cost: Cost::new(cost), ..charge })
    }

    fn seen(&self, charges: &[Charge<'_>]) -> Vec<Seen> {
        let now = self.server_now();
        let seen = |(state, (quota, cost)): (&Option<State>, (&Quota, Cost))| {
            let at = quota.aligned(now, SEED);
            Seen { state: told(quota, state.as_ref(), cost, at), at }
        };
        self.states.iter().zip(limits_of(charges).map(|(_, quota, cost)| (quota, cost))).map(seen).collect()
    }

    fn votes(&self, charges: &[Charge<'_>]) -> Vec<(Group, Outcome)> {
        let now = self.server_now();
        let limits = self.states.iter().zip(limits_of(charges));
        let vote = |(state, (group, quota, cost)): (&Option<State>, (Group, &Quota, Cost))| {
            (group, quota.outcome(state.as_ref(), cost, quota.aligned(now, SEED)))
        };
        limits.map(vote).collect()
    }

    fn decide(&mut self, charges: &[Charge<'_>]) -> bool {
        let (votes, now) = (self.votes(charges), self.server_now());
        for (state, (group, quota, cost)) in self.states.iter_mut().zip(limits_of(charges)) {
            if is_charged(votes.iter().copied(), group) {
                *state = quota.charge(state.take(), cost, quota.aligned(now, SEED));
            }
        }
        let is_allowed = is_allowed(votes);
        self.charged += u64::from(is_allowed);
        is_allowed
    }

    fn refund(&mut self, cost: u32) {
        let (charges, now) = (self.costing(cost), self.server_now());
        for (state, (_, quota, cost)) in self.states.iter_mut().zip(limits_of(&charges)) {
            *state = quota.refund(state.take(), cost, quota.aligned(now, SEED));
        }
    }

    /// A denial is of one cost where a log is among the limits, and of any elsewhere.
    fn cost_that_counts(&self, cost: u32) -> u32 {
        let has_log = limits_of(&self.charges).any(|(_, quota, _)| matches!(quota, Quota::SlidingWindow(_)));
        if has_log { cost } else { 0 }
    }

    fn forget(&self) {
        self.charges.iter().for_each(|charge| self.denials.forget(slot_of_name(&charge.key)));
    }

    fn charge(&mut self, cost: u32, there: u64, back: u64, is_overtaken: bool) {
        let charges = self.costing(cost);
        let question = match self.denials.look(&charges, at(self.local)) {
            Ok(reply) => return self.check(&charges, &reply),
            Err(question) => question,
        };
        self.pass(there);
        let (now, seen) = (self.server_now(), self.seen(&charges));
        let is_denied = !self.decide(&charges);
        if is_overtaken {
            self.refund(cost);
            self.forget();
        }
        self.pass(back);
        if is_denied {
            self.denials.remember(question, &charges, now, at(self.local), seen, slot_of_name);
            self.seen.insert(self.cost_that_counts(cost), (self.charged, there + back + 2));
        }
    }

    fn check(&mut self, charges: &[Charge<'_>], reply: &Reply) {
        self.from_here += 1;
        let votes = self.votes(charges);
        assert!(!is_allowed(votes.iter().copied()), "denied from here, and the server would have admitted it");
        let groups = limits_of(charges).map(|(group, ..)| group);
        let told = groups.zip(reply.verdicts.iter().map(|verdict| verdict.outcome));
        assert!(!is_allowed(told), "a denial that does not say so");
        assert!(reply.now <= self.server_now());
        let wait = |outcomes: &mut dyn Iterator<Item = Outcome>| {
            let wait = |outcome| match outcome {
                Outcome::Allowed => 0,
                Outcome::Denied { retry_after } => retry_after.as_micros(),
                Outcome::NeverAdmissible => u64::MAX,
            };
            outcomes.map(wait).max()
        };
        let (Some(told), Some(truth)) = (
            wait(&mut reply.verdicts.iter().map(|verdict| verdict.outcome)),
            wait(&mut votes.iter().map(|(_, outcome)| *outcome)),
        ) else {
            panic!("no limits")
        };
        let (charged, round_trip) = self.seen[&self.cost_that_counts(charges[0].cost.get())];
        // Who has no history any more can never have credits: that comes with time, and between the two clocks.
        if charged == self.charged && told.max(truth) < u64::MAX {
            assert!(told >= truth, "told to come back after {told}, which is before {truth}");
            assert!(told <= truth + round_trip, "{told} is too long for {truth}");
        }
    }

    fn happen(&mut self, event: &Event) {
        self.denials.hear(self.local);
        match *event {
            Event::Charge { cost, there, back, is_overtaken } => self.charge(cost, there, back, is_overtaken),
            Event::Elsewhere { cost } => {
                let charges = self.costing(cost);
                self.decide(&charges);
            }
            Event::Refund { cost, there, back } => {
                self.pass(there);
                self.refund(cost);
                self.pass(back);
                self.forget();
            }
            Event::Reset => {
                self.states.fill(None);
                self.forget();
            }
            Event::Wait { micros } => self.pass(micros),
        }
    }
}

fn limits_of<'c>(charges: &'c [Charge<'_>]) -> impl Iterator<Item = (Group, &'c Quota, Cost)> {
    charges.iter().flat_map(|charge| charge.quotas.iter().map(|quota| (charge.group, quota, charge.cost)))
}

/// What the script tells of a state: all, but of a log only what its cost asks for.
fn told(quota: &Quota, state: Option<&State>, cost: Cost, at: Timestamp) -> Option<State> {
    let (Quota::SlidingWindow(_), Some(State::SlidingWindow(log))) = (quota, state) else { return state.cloned() };
    let live: Vec<LogEntry> = log.entries().filter(|entry| at.since(entry.at) < quota.window()).collect();
    let used: u64 = live.iter().map(|entry| u64::from(entry.units)).sum();
    let newest = live.last()?.at;
    let entry = |at, units: u64| LogEntry { at, units: u32::try_from(units).unwrap() };
    let missing = (used + cost.units()).saturating_sub(quota.limit());
    if missing == 0 || missing > used {
        return Some(State::SlidingWindow(SlidingWindowState::from_entries([entry(newest, used)])));
    }
    let mut freed = 0;
    let enough = live.iter().find(|entry| {
        freed += u64::from(entry.units);
        freed >= missing
    })?;
    let entries = [entry(enough.at, freed), entry(newest, used - freed)];
    Some(State::SlidingWindow(SlidingWindowState::from_entries(entries)))
}

/// Lets everything happen, and says how many denials were answered from here.
fn run(quotas: [Vec<Quota>; 2], watches: bool, events: &[Event]) -> u64 {
    // A test may leak: so keys and quotas need no owner.
    let spaces: &'static [KeySpace] = Vec::leak(vec![KeySpace::new("one"), KeySpace::new("other")]);
    let [first, second] = quotas.map(|quotas| -> &'static [Quota] { Vec::leak(quotas) });
    let group = if watches { Group::Shadow(0) } else { Group::Enforced };
    let charges = [charge(&spaces[0], "a", first, 1), Charge { group, ..charge(&spaces[1], "b", second, 1) }];
    let states = vec![None; first.len() + second.len()];
    let denials = Denials::of(Table::new(1), Forgotten::new(256));
    let mut world = World { denials, charges, states, local: 1, charged: 0, seen: HashMap::new(), from_here: 0 };
    events.iter().for_each(|event| world.happen(event));
    world.from_here
}

#[test]
fn who_is_denied_from_here_would_have_been_denied_there() {
    static FROM_HERE: AtomicU64 = AtomicU64::new(0);
    let limits = || prop::collection::vec(quota(), 1..3);
    let sequences = prop::collection::vec(event(), 1..120);
    let strategy = ([limits(), limits()], any::<bool>(), sequences);
    let config = Config { cases: 3_000, failure_persistence: None, ..Config::default() };
    TestRunner::new(config)
        .run(&strategy, |(quotas, watches, events)| {
            FROM_HERE.fetch_add(run(quotas, watches, &events), Ordering::Relaxed);
            Ok(())
        })
        .unwrap();
    let from_here = FROM_HERE.load(Ordering::Relaxed);
    assert!(from_here > 10_000, "only {from_here} denials were answered from here");
}
