//! Random events in any order: a cached denial equals the one that the server would return.
//!
//! The server is the core with a clock of its own, and calls take time both ways. Requests come under different sets
//! of rules that share keys, with mixed costs, and some are repeated in one call. Other processes charge the same
//! keys; refunds and resets come in between. All of these may overtake the reply to a charge, and a reply may be
//! lost. The server cuts the state of a log as the script does.

use super::*;
use crate::store::redis::KeyEncoder;
use crate::store::redis::protocol::key::seed;
use crate::store::redis::protocol::reply::FoundLimit;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use sluicegate_core::algorithm::sliding_window::{Entry as LogEntry, SlidingWindowState};
use sluicegate_core::calendar::Run;
use sluicegate_core::decision::{is_allowed, is_charged};
use sluicegate_core::{Calendar, SlidingCounter};
use std::sync::atomic::{AtomicU64, Ordering};

/// An event. Times are in microseconds.
#[derive(Clone, Debug)]
enum Event {
    Charge(ChargeEvent),
    /// A charge by another process.
    Elsewhere {
        cost: u32,
        rules: usize,
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

/// A charge by this process.
#[derive(Clone, Debug)]
struct ChargeEvent {
    cost: u32,
    /// Which of the three rules apply, one bit for each.
    rules: usize,
    /// The repetitions in one call, as in coalesced calls and leases.
    times: u32,
    there: u64,
    back: u64,
    /// The event before the reply.
    meanwhile: Meanwhile,
}

#[derive(Clone, Debug)]
enum Meanwhile {
    Nothing,
    /// A refund is answered.
    Refund,
    /// Another charge by this process is answered.
    Charge(u32, usize),
    /// The connection breaks, and there is no reply.
    Loss,
}

fn event() -> impl Strategy<Value = Event> {
    let cost = || prop_oneof![4 => Just(1_u32), 3 => 0_u32..9];
    let route = || prop_oneof![Just(0_u64), 1_u64..50_000];
    let rules = || 1_usize..8;
    let meanwhile = prop_oneof![
        16 => Just(Meanwhile::Nothing),
        1 => Just(Meanwhile::Refund),
        3 => (cost(), rules()).prop_map(|(cost, rules)| Meanwhile::Charge(cost, rules)),
        1 => Just(Meanwhile::Loss),
    ];
    let times = prop_oneof![6 => Just(1_u32), 1 => 2_u32..5];
    let sent_at = (cost(), rules(), times, route(), route(), meanwhile);
    let sent_at = sent_at.prop_map(|(cost, rules, times, there, back, meanwhile)| ChargeEvent {
        cost,
        rules,
        times,
        there,
        back,
        meanwhile,
    });
    prop_oneof![
        12 => sent_at.prop_map(Event::Charge),
        1 => (cost(), rules()).prop_map(|(cost, rules)| Event::Elsewhere { cost, rules }),
        1 => (cost(), route(), route()).prop_map(|(cost, there, back)| Event::Refund { cost, there, back }),
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

/// Three keys under three rules, the second of which may be in shadow mode.
struct World {
    cache: DenialCache,
    charges: [Charge<'static>; 3],
    /// The server's state of every limit.
    states: [Vec<Option<State>>; 3],
    local: LocalNanos,
    /// When another process last charged.
    elsewhere: Option<LocalNanos>,
    /// The longest call, in microseconds.
    slowest: u64,
    /// Whether a charge has been decided and not answered yet.
    is_unanswered: bool,
    from_here: u64,
    /// How many denials were compared with the server's.
    compared: u64,
}

impl World {
    fn server_now(&self) -> Timestamp {
        NOW.plus(Micros::from_micros(self.local / 1_000))
    }

    fn pass(&mut self, micros: u64) {
        self.local += micros * 1_000 + 300;
    }

    fn chosen(rules: usize) -> impl Iterator<Item = usize> {
        (0..3).filter(move |rule| rules >> rule & 1 == 1)
    }

    fn costing(&self, cost: u32, rules: usize) -> Vec<Charge<'static>> {
        Self::chosen(rules).map(|rule| Charge { cost: Cost::new(cost), ..self.charges[rule] }).collect()
    }

    /// The states of these rules in order.
    fn states(&self, rules: usize) -> Vec<Option<State>> {
        Self::chosen(rules).flat_map(|rule| self.states[rule].clone()).collect()
    }

    fn votes(&self, charges: &[Charge<'_>], rules: usize) -> Vec<(ChargeMode, Outcome)> {
        let (now, states) = (self.server_now(), self.states(rules));
        let vote = |(state, (charge, quota)): (&Option<State>, (&Charge<'_>, &Quota))| {
            (charge.mode, quota.outcome(state.as_ref(), charge.cost, aligned(charge, quota, now)))
        };
        states.iter().zip(limits_of(charges)).map(vote).collect()
    }

    fn decide(&mut self, charges: &[Charge<'_>], rules: usize) -> bool {
        let (votes, now) = (self.votes(charges, rules), self.server_now());
        for (rule, charge) in Self::chosen(rules).zip(charges) {
            if is_charged(votes.iter().copied(), charge.mode) {
                for (state, quota) in self.states[rule].iter_mut().zip(charge.quotas) {
                    *state = quota.charge(state.take(), charge.cost, aligned(charge, quota, now));
                }
            }
        }
        is_allowed(votes)
    }

    fn refund(&mut self, cost: u32) {
        let now = self.server_now();
        for (states, charge) in self.states.iter_mut().zip(&self.charges) {
            for (state, quota) in states.iter_mut().zip(charge.quotas) {
                *state = quota.refund(state.take(), Cost::new(cost), aligned(charge, quota, now));
            }
        }
    }

    fn invalidate(&self) {
        self.charges.iter().for_each(|charge| self.cache.invalidate(partition(&charge.key)));
    }

    fn charge(&mut self, sent_at: &ChargeEvent) {
        let &ChargeEvent { cost, rules, there, back, ref meanwhile, .. } = sent_at;
        let charges = self.costing(cost, rules);
        if let Some(reply) = self.cache.lookup(&charges, at(self.local)) {
            return self.check(&charges, rules, &reply);
        }
        // For a repeated log the script returns other data.
        let times = if limits_of(&charges).any(|(_, quota)| is_log(quota)) { 1 } else { sent_at.times };
        let (call_start, sent) = (self.cache.call_start(at(self.local)), self.local);
        self.pass(there);
        let (now, states) = (self.server_now(), self.states(rules));
        for _ in 0..times {
            self.decide(&charges, rules);
        }
        match *meanwhile {
            Meanwhile::Nothing => {}
            Meanwhile::Refund => {
                self.refund(cost);
                self.invalidate();
            }
            Meanwhile::Charge(cost, rules) => {
                let meanwhile = Meanwhile::Nothing;
                self.pass(0);
                self.is_unanswered = true;
                self.charge(&ChargeEvent { cost, rules, times: 1, there: 0, back: 0, meanwhile });
                self.is_unanswered = false;
            }
            Meanwhile::Loss => {
                let now = self.local;
                return charges.iter().for_each(|charge| self.cache.table.give_up(charge.key.digest(), now));
            }
        }
        self.pass(back);
        // Two more, because each clock is read in whole microseconds.
        self.slowest = self.slowest.max((self.local - sent).div_ceil(1_000) + 2);
        let decision = Decision { operation: Operation::Charge, times, charges: &charges, states };
        let shown = |found_limit: &FoundLimit<'_>| {
            cached_wait(
                found_limit.limit.quota,
                found_limit.state.as_ref(),
                found_limit.limit.cost,
                found_limit.at,
            )
        };
        answer(&self.cache, call_start, vec![decision], now, at(self.local), shown);
    }

    fn check(&mut self, charges: &[Charge<'_>], rules: usize, reply: &Reply) {
        self.from_here += 1;
        let votes = self.votes(charges, rules);
        assert!(!is_allowed(votes.iter().copied()), "denied from here, and the server would have admitted it");
        let modes = limits_of(charges).map(|(charge, _)| charge.mode);
        let outcomes = modes.zip(reply.verdicts.iter().map(|verdict| verdict.outcome));
        assert!(!is_allowed(outcomes), "a denial that does not say so");
        assert!(reply.now <= self.server_now());
        // Charges of other processes may be missing while an observation is valid.
        let is_unseen = self.elsewhere.is_some_and(|elsewhere| self.local - elsewhere <= ROOM_AGE_MAX);
        if !is_unseen && !self.is_unanswered {
            self.check_numbers(charges, rules, reply, &votes);
        }
    }

    fn check_numbers(
        &mut self,
        charges: &[Charge<'_>],
        rules: usize,
        reply: &Reply,
        votes: &[(ChargeMode, Outcome)],
    ) {
        self.compared += 1;
        let (now, states) = (self.server_now(), self.states(rules));
        let earliest = Timestamp::from_micros(now.as_micros() - self.slowest);
        let limits = limits_of(charges).zip(&states).zip(votes).zip(&reply.verdicts);
        for ((((charge, quota), state), (_, truth)), cached_wait) in limits {
            let left = |now| quota.standing(state.as_ref(), aligned(charge, quota, now)).remaining;
            // The remaining quota grows until the credits expire, which may happen between the two instants.
            let expires = state.as_ref().map_or(now, |state| quota.kept_until(state));
            let (least, most) = (left(now).min(left(earliest)), left(expires.clamp(earliest, now)).max(left(now)));
            let left = cached_wait.remaining;
            assert!(left <= most, "{left} remain, and {most} is true: {quota:?}");
            assert!(left >= least || is_log(quota), "{left} remain, and {least} did: {quota:?}");
            let (cached_wait, truth) = (wait(cached_wait.outcome), wait(*truth));
            // A client without history never has credits. History may begin between the two clocks.
            if cached_wait.max(truth) < u64::MAX {
                assert!(cached_wait >= truth, "the cached wait {cached_wait} is shorter than {truth}: {quota:?}");
                assert!(cached_wait <= truth + self.slowest, "{cached_wait} is too long for {truth}: {quota:?}");
            }
        }
    }

    fn happen(&mut self, event: &Event) {
        self.cache.record_exchange(self.local);
        match *event {
            Event::Charge(ref sent_at) => self.charge(sent_at),
            Event::Elsewhere { cost, rules } => {
                let charges = self.costing(cost, rules);
                self.decide(&charges, rules);
                self.elsewhere = Some(self.local);
            }
            Event::Refund { cost, there, back } => {
                self.pass(there);
                self.refund(cost);
                self.pass(back);
                self.invalidate();
            }
            Event::Reset => {
                self.states.iter_mut().for_each(|states| states.fill(None));
                self.invalidate();
            }
            Event::Wait { micros } => self.pass(micros),
        }
    }
}

fn wait(outcome: Outcome) -> u64 {
    match outcome {
        Outcome::Allowed => 0,
        Outcome::Denied { retry_after } => retry_after.as_micros(),
        Outcome::NeverAdmissible => u64::MAX,
    }
}

fn limits_of<'c>(charges: &'c [Charge<'_>]) -> impl Iterator<Item = (&'c Charge<'c>, &'c Quota)> {
    charges.iter().flat_map(|charge| charge.quotas.iter().map(move |quota| (charge, quota)))
}

/// The present on the time scale of this key's limit.
fn aligned(charge: &Charge<'_>, quota: &Quota, now: Timestamp) -> Timestamp {
    quota.aligned(now, seed(&KeyEncoder::default().encode(&charge.key)))
}

/// The part of a state that the script returns: all of it, but of a log only the part that its cost needs.
fn cached_wait(quota: &Quota, state: Option<&State>, cost: Cost, at: Timestamp) -> Option<State> {
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

/// Runs all events. Returns the number of cached denials, and how many of them were compared.
fn run(quotas: [Vec<Quota>; 3], watches: bool, events: &[Event]) -> (u64, u64) {
    // A test may leak, so keys and quotas need no owner.
    let spaces: &'static [KeySpace] = Vec::leak(["one", "two", "three"].map(KeySpace::new).into());
    let [first, second, third] = quotas.map(|quotas| -> &'static [Quota] { Vec::leak(quotas) });
    let mode = if watches { ChargeMode::Shadow(0) } else { ChargeMode::Enforced };
    let charges = [
        charge(&spaces[0], "a", first, 1),
        Charge { mode, ..charge(&spaces[1], "b", second, 1) },
        charge(&spaces[2], "c", third, 1),
    ];
    let states = charges.map(|charge| vec![None; charge.quotas.len()]);
    let mut world = World {
        cache: DenialCache::of(ObservationTable::new(1), InvalidationClock::new(256)),
        charges,
        states,
        local: 1,
        elsewhere: None,
        slowest: 1,
        is_unanswered: false,
        from_here: 0,
        compared: 0,
    };
    events.iter().for_each(|event| world.happen(event));
    (world.from_here, world.compared)
}

#[test]
fn a_cached_denial_equals_the_servers_after_random_charges() {
    static FROM_HERE: AtomicU64 = AtomicU64::new(0);
    static COMPARED: AtomicU64 = AtomicU64::new(0);
    let limits = || prop::collection::vec(quota(), 1..3);
    let sequences = prop::collection::vec(event(), 1..120);
    let strategy = ([limits(), limits(), limits()], any::<bool>(), sequences);
    let config = Config { cases: 3_000, failure_persistence: None, ..Config::default() };
    TestRunner::new(config)
        .run(&strategy, |(quotas, watches, events)| {
            let (from_here, compared) = run(quotas, watches, &events);
            FROM_HERE.fetch_add(from_here, Ordering::Relaxed);
            COMPARED.fetch_add(compared, Ordering::Relaxed);
            Ok(())
        })
        .unwrap();
    let (from_here, compared) = (FROM_HERE.load(Ordering::Relaxed), COMPARED.load(Ordering::Relaxed));
    assert!(from_here > 10_000, "only {from_here} denials were answered from here");
    assert!(compared > 5_000, "only {compared} of {from_here} denials were compared");
}

/// Credits are earned and expire within one call: they exist at neither end of it, but in between.
#[test]
fn credits_that_expire_during_the_round_trip_were_correct() {
    let rate = |millis| Rate::new(1, Micros::from_millis(millis)).unwrap();
    let bucket = |tokens, millis| vec![Quota::from(TokenBucket::new(tokens, rate(millis)).unwrap())];
    let credits = TokenBucket::with_credits(1, rate(1_293), 1, Micros::from_millis(100)).unwrap();
    let ask = |cost, rules, there, back| {
        Event::Charge(ChargeEvent { cost, rules, times: 1, there, back, meanwhile: Meanwhile::Nothing })
    };
    let events = [
        ask(1, 1, 1_425, 49_853),
        ask(1, 1, 0, 0),
        ask(1, 4, 0, 0),
        Event::Wait { micros: 600_199 },
        ask(1, 1, 16_634, 7_488),
        ask(1, 1, 0, 28_576),
        Event::Wait { micros: 472_307 },
        ask(1, 1, 14_063, 26_210),
        Event::Wait { micros: 1_369_241 },
        Event::Refund { cost: 1, there: 0, back: 22_309 },
        ask(3, 4, 0, 28_970),
        ask(3, 4, 0, 0),
    ];
    let (_, compared) = run([bucket(3, 638), bucket(1, 300), vec![credits.into()]], true, &events);
    assert!(compared > 0);
}
