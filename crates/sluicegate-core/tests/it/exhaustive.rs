//! Exhaustive tests for small limits, and tests at the extremes of all numbers.
//!
//! A proof checker would show for all numbers that `decide` does not panic and keeps its promises. Two searches take
//! its place. The first visits every state that small limits can reach, by every path, and compares with the model.
//! The second combines a corpus of numbers at which arithmetic tends to fail. Overflow checks are on in test builds,
//! so any overflow fails a test.

use crate::harness::{Run, Subject, quota};
use sluicegate_core::algorithm::fixed_window::FixedWindowState;
use sluicegate_core::algorithm::sliding_counter::SlidingCounterState;
use sluicegate_core::algorithm::sliding_window::{Entry, LIMIT_MAX, SlidingWindowState};
use sluicegate_core::algorithm::token_bucket::TokenBucketState;
use sluicegate_core::decision::{self, ChargeMode};
use sluicegate_core::quota::UNITS_MAX;
use sluicegate_core::{Cost, Micros, Outcome, Quota, State, Timestamp, Verdict};
use sluicegate_testkit::model::{Bucket, Counter, Fixed, Limit, Log};
use std::collections::{HashSet, VecDeque};

const PERIOD_MAX: u64 = Micros::PERIOD_MAX.as_micros();
const NOW_MAX: u64 = Timestamp::NOW_MAX.as_micros();
/// So late that a state from that instant is not accepted when the clock goes back to the start.
const FAR: u64 = 1_500_000;

/// Visits every state reachable from a new identity by charging and refunding up to one unit more than the limit at
/// these instants, with the clock moving either way and the limit changing among these. Returns the number of states.
fn visit_all(limits: &[Limit], instants: &[u64]) -> usize {
    let first = Run::new(&limits[0], instants[0]);
    let mut seen = HashSet::from([first.fingerprint()]);
    let mut open = VecDeque::from([(first, 0_usize)]);
    while let Some((run, place)) = open.pop_front() {
        let units = u32::try_from(run.subject().quota.limit()).expect("a small limit") + 1;
        let mut next = Vec::new();
        for cost in 0..=units {
            next.push((stepped(&run, |run| run.check(cost)), place));
            if !is_far_ahead(&run) {
                next.push((stepped(&run, |run| run.refund(cost)), place));
            }
        }
        for elsewhere in [place + 1, place + 2, place.wrapping_sub(1), 0] {
            let Some(instant) = instants.get(elsewhere) else { continue };
            let moved = |run: &mut Run| {
                run.set_clock(*instant);
                run.check(0)
            };
            next.push((stepped(&run, moved), elsewhere));
        }
        for other in limits.iter().filter(|other| *other != run.limit()) {
            next.push((stepped(&run, |run| run.change(other)), place));
        }
        open.extend(next.into_iter().filter(|(run, _)| seen.insert(run.fingerprint())));
    }
    seen.len()
}

/// True while the clock is back and the state is from far ahead. Repaying such a debt token by token would create a
/// million similar states.
fn is_far_ahead(run: &Run) -> bool {
    let furthest = 2 * run.subject().quota.window().as_micros();
    run.subject().verdict.is_some_and(|verdict| verdict.reset_after.as_micros() > furthest)
}

fn stepped<T>(run: &Run, step: impl FnOnce(&mut Run) -> Result<T, String>) -> Run {
    let mut next = run.clone();
    if let Err(problem) = step(&mut next).and_then(|_| next.verify_bound()) {
        panic!("{:?} from {:?}: {problem}", run.limit(), run.subject());
    }
    next
}

#[test]
fn every_state_of_small_buckets_agrees_with_the_model() {
    let mut states = 0;
    for (amount, period) in [(1, 1), (1, 2), (1, 3), (2, 1), (3, 1), (2, 3), (3, 2), (4, 3), (5, 7)] {
        for capacity in 1..=4 {
            let bucket = Bucket { capacity, credits: 0, amount, period, credit_ttl: 1_000 };
            states += visit_all(&[Limit::Bucket(bucket)], &[0, 1, 2, 3, 4, FAR]);
        }
    }
    println!("{states} states");
    assert!(states > 3_000, "only {states} states");
}

#[test]
fn every_state_of_small_buckets_with_credits_agrees_with_the_model() {
    // The retention is at least a millisecond: the later instants lie on both sides of it.
    let instants = [0, 1, 1_000, 1_001, 2_002, FAR];
    let mut states = 0;
    for (amount, period) in [(1, 1), (3, 2), (1, 600)] {
        for (capacity, credits) in [(1, 1), (1, 2), (2, 1)] {
            let bucket = Bucket { capacity, credits, amount, period, credit_ttl: 1_000 };
            states += visit_all(&[Limit::Bucket(bucket)], &instants);
        }
    }
    println!("{states} states");
    assert!(states > 3_000, "only {states} states");
}

#[test]
fn every_state_of_small_windows_agrees_with_the_model() {
    let instants = [0, 1, 999, 1_000, 1_001, 1_999, 2_000, 2_001, 3_000, 4_000, FAR];
    let mut states = 0;
    for window in [1_000, 2_000] {
        for limit in 0..=6 {
            states += visit_all(&[Limit::Fixed(Fixed { limit, window })], &instants);
            states += visit_all(&[Limit::Counter(Counter { limit, window })], &instants);
        }
        for limit in 0..=3 {
            states += visit_all(&[Limit::Log(Log { limit, window })], &instants);
        }
    }
    println!("{states} states");
    assert!(states > 8_000, "only {states} states");
}

#[test]
fn every_state_across_a_change_of_limit_agrees_with_the_model() {
    let bucket = |capacity, credits, amount, period| {
        Limit::Bucket(Bucket { capacity, credits, amount, period, credit_ttl: 1_000 })
    };
    let instants = [0, 1, 3, FAR];
    let mut states = visit_all(&[bucket(2, 0, 2, 3), bucket(1, 0, 3, 2), bucket(1, 1, 2, 1)], &instants);
    let instants = [0, 1, 1_000, 2_000, 3_000, 4_000, 5_999, 6_000, FAR];
    let windows = [(2, 2_000), (1, 3_000), (3, 1_000)];
    states += visit_all(&windows.map(|(limit, window)| Limit::Log(Log { limit, window })), &instants[..6]);
    states += visit_all(&windows.map(|(limit, window)| Limit::Fixed(Fixed { limit, window })), &instants);
    states += visit_all(&windows.map(|(limit, window)| Limit::Counter(Counter { limit, window })), &instants);
    let (fixed, log) = (Fixed { limit: 2, window: 1_000 }, Log { limit: 2, window: 1_000 });
    states += visit_all(&[bucket(2, 0, 1, 300), Limit::Fixed(fixed), Limit::Log(log)], &instants[..4]);
    println!("{states} states");
    assert!(states > 4_000, "only {states} states");
}

/// Instants at which clocks and arithmetic tend to fail: the epoch, a leap second, the last clock reading (in the
/// year 2112), a moment later, and the last instant of all.
fn instants() -> [u64; 8] {
    let leap_second = 1_483_228_799_999_999;
    [0, 1, leap_second, NOW_MAX - 1, NOW_MAX, NOW_MAX + 1, NOW_MAX + 2, Timestamp::MAX.as_micros()]
}

/// Charges and refunds every interesting cost in every one of these states at every one of these instants. Returns
/// the number of operations.
fn question(limit: &Limit, instants: &[u64], states: impl Fn(&Quota, u64) -> Vec<State>) -> u64 {
    let quota = quota(limit).expect("the limits of the corpus are valid");
    let whole = u32::try_from(quota.limit()).unwrap_or(u32::MAX);
    let mut questions = 0;
    for &now in instants {
        let states = states(&quota, now).into_iter().map(Some).chain([None]);
        for (state, cost) in product(states, [0, 1, whole, whole.saturating_add(1), u32::MAX]) {
            questions += 1;
            let mut subject = Subject::new(quota.clone(), state.clone(), now);
            if now == Timestamp::MAX.as_micros() {
                // Nothing follows the last instant, so nothing can be promised; but it must not panic.
                let (state, verdict) = quota.decide(state, Cost::new(cost), Timestamp::MAX);
                let state = quota.refund(state, Cost::new(cost), Timestamp::MAX);
                let remaining = quota.standing(state.as_ref(), Timestamp::MAX).remaining;
                assert!(verdict.remaining.max(remaining) <= quota.limit());
                continue;
            }
            let outcome = subject.check(cost).and_then(|_| subject.refund(cost)).and_then(|()| subject.check(1));
            if let Err(problem) = outcome {
                panic!("{limit:?} in {state:?} at {now} for {cost}: {problem}");
            }
        }
    }
    questions
}

fn product<L: Clone, R: Clone>(
    left: impl IntoIterator<Item = L>,
    right: impl Clone + IntoIterator<Item = R>,
) -> Vec<(L, R)> {
    left.into_iter().flat_map(|left| right.clone().into_iter().map(move |right| (left.clone(), right))).collect()
}

/// Limits at the edges of validation: one token per microsecond, a capacity of one, parts per microsecond and units
/// at their maximum, ten years to fill.
fn extreme_buckets() -> Vec<Limit> {
    let units = [1, 3, UNITS_MAX - 1, UNITS_MAX];
    let periods = [1, 2, 1 << 32, 999_999_999_989, PERIOD_MAX - 1, PERIOD_MAX];
    let mut limits = Vec::new();
    for ((capacity, amount), period) in product(product([1, 2, 1 << 49, UNITS_MAX], units), periods) {
        for (credits, credit_ttl) in [(0, 1_000), (1, 1_000), (UNITS_MAX.saturating_sub(capacity), PERIOD_MAX)] {
            limits.push(Limit::Bucket(Bucket { capacity, credits, amount, period, credit_ttl }));
        }
    }
    limits.retain(|limit| quota(limit).is_ok());
    limits
}

#[test]
fn buckets_are_correct_at_the_edges_of_their_range() {
    let states = |quota: &Quota, now: u64| {
        let Quota::TokenBucket(bucket) = quota else { panic!("a bucket") };
        let (parts, full) = (bucket.parts_per_micro(), quota.window().as_micros());
        let instants = [0, now, now + 1, now + full - 1, now + full, now + full + 1, u64::MAX];
        let rests = [(0, parts), (parts - 1, parts), (parts, parts), (u64::MAX, 0)];
        let written = product(product(instants, rests), [0, u64::MAX]);
        let state = |((tat_micros, (tat_parts, parts_per_micro)), kept_until_micros)| {
            State::TokenBucket(TokenBucketState { tat_micros, tat_parts, parts_per_micro, kept_until_micros })
        };
        written.into_iter().map(state).collect()
    };
    let limits = extreme_buckets();
    let questions: u64 = limits.iter().map(|limit| question(limit, &instants(), states)).sum();
    println!("{questions} questions to {} buckets", limits.len());
    assert!(limits.len() > 50 && questions > 100_000);
}

#[test]
fn windows_are_correct_at_the_edges_of_their_range() {
    let mut questions = 0;
    for (limit, window) in product([0, 1, UNITS_MAX], [1_000, 7_000, PERIOD_MAX]) {
        let states = |_: &Quota, now: u64| {
            let ends = [0, 1, now, now + 1, now + window, now + 2 * window, now + 2 * window + 1, u64::MAX];
            let state = |(end, count)| FixedWindowState { count, end: Timestamp::from_micros(end) };
            let counts = [0, 1, limit, limit + 1, u64::MAX];
            product(ends, counts).into_iter().map(state).map(State::FixedWindow).collect()
        };
        questions += question(&Limit::Fixed(Fixed { limit, window }), &instants(), states);
    }
    // 2⁵³ − 1 = 6361 · 69431 · 20394401: limits and windows with exactly the maximum product.
    let largest = [(1_416_003_655_831, 6_361), (129_728_784_761, 69_431), (441_650_591, 20_394_401)];
    for (limit, millis) in
        largest.into_iter().chain([(0, 1), (1, 1), (UNITS_MAX, 9), (28_561, PERIOD_MAX / 1_000)])
    {
        let window = millis * 1_000;
        let states = |_: &Quota, now: u64| {
            let ends = [0, now, now + 1, now + window, now + 2 * window, u64::MAX];
            let counts = product([0, 1, limit, u64::MAX], [0, 1, limit, u64::MAX]);
            let state = |(end, (previous, current))| {
                State::SlidingCounter(SlidingCounterState { previous, current, end: Timestamp::from_micros(end) })
            };
            product(ends, counts).into_iter().map(state).collect()
        };
        questions += question(&Limit::Counter(Counter { limit, window }), &instants(), states);
    }
    for (limit, millis) in largest {
        let beyond = Limit::Counter(Counter { limit: limit + 1, window: millis * 1_000 });
        assert!(quota(&beyond).is_err(), "{beyond:?} reaches 2⁵³");
    }
    println!("{questions} questions");
    assert!(questions > 20_000);
}

#[test]
fn logs_are_correct_at_the_edges_of_their_range() {
    let mut questions = 0;
    for (limit, window) in product([0, 1, LIMIT_MAX - 1, LIMIT_MAX], [1_000, PERIOD_MAX]) {
        let states = |_: &Quota, now: u64| {
            let before = now.saturating_sub(window);
            let (units, all) = (u32::try_from(limit).expect("a small limit"), u32::MAX);
            let logs: [&[(u64, u32)]; 7] = [
                &[],
                &[(now, 0)],
                &[(before, 1), (before + 1, units)],
                &[(0, all), (1, all), (now, all)],
                &[(now, all), (now, 1)],
                &[(now + 1, units), (u64::MAX, all), (u64::MAX, all)],
                &[(u64::MAX, 1), (now, units), (0, 1)],
            ];
            let entry = |(at, units): &(u64, u32)| Entry { at: Timestamp::from_micros(*at), units: *units };
            let state = |log: &[(u64, u32)]| SlidingWindowState::from_entries(log.iter().map(entry));
            logs.into_iter().map(state).map(State::SlidingWindow).collect()
        };
        questions += question(&Limit::Log(Log { limit, window }), &instants(), states);
    }
    println!("{questions} questions");
    assert!(questions > 2_000);
}

#[test]
fn validation_rejects_numbers_that_could_overflow() {
    let bucket = |capacity, credits, amount, period, credit_ttl| {
        Limit::Bucket(Bucket { capacity, credits, amount, period, credit_ttl })
    };
    let log = |limit, window| Limit::Log(Log { limit, window });
    let counter = |limit, window| Limit::Counter(Counter { limit, window });
    let fixed = |limit, window| Limit::Fixed(Fixed { limit, window });
    let refused = [
        (bucket(0, 0, 1, 1, 1_000), "capacity"),
        (bucket(UNITS_MAX + 1, 0, 1, 1, 1_000), "capacity"),
        (bucket(1, UNITS_MAX, 1, 1, 1_000), "credits"),
        (bucket(1, u64::MAX, 1, 1, 1_000), "credits"),
        (bucket(1, 1, 1, 1, 999), "credit_ttl"),
        (bucket(1, 1, 1, 1, PERIOD_MAX + 1), "credit_ttl"),
        (bucket(1, 0, 0, 1, 1_000), "refill amount"),
        (bucket(1, 0, u64::MAX, 1, 1_000), "refill amount"),
        (bucket(1, 0, 1, 0, 1_000), "refill period"),
        (bucket(1, 0, 1, PERIOD_MAX + 1, 1_000), "refill period"),
        (bucket(2, 0, 1, PERIOD_MAX, 1_000), "capacity"),
        (bucket(1, 1, 1, PERIOD_MAX, 1_000), "capacity"),
        (bucket(UNITS_MAX, 0, 1, PERIOD_MAX, 1_000), "capacity"),
        (log(LIMIT_MAX + 1, 1_000), "limit"),
        (log(1, 0), "window"),
        (log(1, 1_001), "window"),
        (counter(UNITS_MAX + 1, 1_000), "limit"),
        (counter(1, PERIOD_MAX + 1_000), "window"),
        (fixed(UNITS_MAX + 1, 1_000), "limit"),
        (fixed(1, 999), "window"),
        (fixed(1, u64::MAX), "window"),
    ];
    for (limit, field) in refused {
        assert_eq!(quota(&limit).map_err(|error| error.field()), Err(field), "{limit:?}");
    }
    for allowed in
        [bucket(1, 0, 1, PERIOD_MAX, 1_000), bucket(UNITS_MAX - 1, 1, UNITS_MAX, PERIOD_MAX, PERIOD_MAX)]
    {
        assert!(quota(&allowed).is_ok(), "{allowed:?}");
    }
}

#[test]
fn every_combination_of_three_limits_is_all_or_nothing() {
    let wait = |micros| Outcome::Denied { retry_after: Micros::from_micros(micros) };
    let outcomes = [Outcome::Allowed, wait(1), wait(2), Outcome::NeverAdmissible];
    let votes = product([ChargeMode::Enforced, ChargeMode::Shadow(0), ChargeMode::Shadow(1)], outcomes);
    for ((first, second), third) in product(product(votes.clone(), votes.clone()), votes) {
        let votes = [first, second, third];
        let denials = |mode| votes.iter().filter(|(of, outcome)| *of == mode && !outcome.is_allowed()).count();
        let enforced = denials(ChargeMode::Enforced);
        assert_eq!(decision::is_allowed(votes), enforced == 0, "{votes:?}");
        for mode in [ChargeMode::Enforced, ChargeMode::Shadow(0), ChargeMode::Shadow(1)] {
            let all_agree = enforced == 0 && denials(mode) == 0;
            assert_eq!(decision::is_charged(votes, mode), all_agree, "{votes:?} {mode:?}");
        }
        let wait_of = |outcome| match outcome {
            Outcome::Allowed => 0,
            Outcome::Denied { retry_after } => retry_after.as_micros(),
            Outcome::NeverAdmissible => u64::MAX,
        };
        let verdicts = votes.map(|(mode, outcome)| {
            (mode, Verdict { outcome, limit: 1, remaining: 1, debt: 0, reset_after: Micros::ZERO })
        });
        let waits = votes.iter().map(|(mode, outcome)| (*mode == ChargeMode::Enforced).then(|| wait_of(*outcome)));
        let longest = waits.clone().flatten().max();
        let first_longest = waits.clone().position(|wait| wait.is_some() && wait == longest);
        let tightest = decision::tightest(verdicts.iter().map(|(mode, verdict)| (*mode, verdict)));
        assert_eq!(tightest, first_longest, "{votes:?}");
    }
}
