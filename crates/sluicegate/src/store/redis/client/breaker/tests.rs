//! The breaker against a plain model, and its documented numbers.

use super::*;
use proptest::prelude::*;

fn opened(results: impl IntoIterator<Item = bool>, step_ms: u32) -> Option<usize> {
    let breaker = Breaker::default();
    results.into_iter().enumerate().find_map(|(index, good)| {
        let now_ms = u32::try_from(index).unwrap() * step_ms;
        let change = if good {
            breaker.succeeded(now_ms);
            Change::Other
        } else {
            breaker.failed(now_ms)
        };
        (change == Change::Opened).then_some(index + 1)
    })
}

#[test]
fn five_failures_in_a_row_open_the_breaker() {
    assert_eq!(opened([false; 5], 0), Some(5));
    assert_eq!(opened([false; 5], 10_000), Some(5));
    assert_eq!(opened([false, false, false, false, true, false, false, false, false], 10_000), None);
}

#[test]
fn ten_failures_of_twenty_calls_open_the_breaker() {
    let alternating = (0..100).map(|index| index % 2 == 0);
    assert_eq!(opened(alternating.clone(), 1), Some(20));
    // A tenth of that rate never has twenty calls in a second.
    assert_eq!(opened(alternating, 100), None);
    // A third is less than half.
    assert_eq!(opened((0..10_000).map(|index| index % 3 != 0), 0), None);
}

#[test]
fn three_good_probes_in_a_row_start_the_ramp() {
    let breaker = Breaker::default();
    (0..5).for_each(|_| _ = breaker.failed(0));
    for good in [true, true, false, true, true] {
        breaker.probed(1, good);
        assert_eq!(breaker.phase(), Phase::Open);
        assert!(!breaker.admits(|| 1_000_000, 0));
    }
    // Calls that were in flight when it opened prove nothing.
    breaker.succeeded(1);
    assert_eq!(breaker.phase(), Phase::Open);
    breaker.probed(2, true);
    assert_eq!(breaker.phase(), Phase::Ramping);
}

fn ramping(since_ms: u32) -> Breaker {
    Breaker(AtomicU64::new(State { phase: Phase::Ramping, since_ms, ..State::CLOSED }.pack()))
}

#[test]
fn the_ramp_admits_one_percent_then_ten_then_all() {
    let breaker = ramping(u32::MAX - 100);
    let passed = |elapsed: u32| {
        let now_ms = (u32::MAX - 100).wrapping_add(elapsed);
        (0..1000).filter(|number| breaker.admits(|| now_ms, *number)).count()
    };
    assert_eq!([passed(0), passed(332), passed(333), passed(665), passed(666)], [10, 10, 100, 100, 1000]);
}

#[test]
fn a_failure_while_ramping_opens_the_breaker() {
    let breaker = ramping(0);
    assert_eq!(breaker.failed(500), Change::Opened);
    let breaker = ramping(0);
    breaker.succeeded(500);
    assert_eq!(breaker.phase(), Phase::Ramping);
    breaker.succeeded(700);
    assert_eq!(breaker.phase(), Phase::Closed);
}

/// A model with a list of all events.
#[derive(Default)]
struct Model {
    row: usize,
    window: Vec<bool>,
    window_start: u32,
    open: bool,
}

impl Model {
    fn call(&mut self, now_ms: u32, good: bool) {
        if now_ms.wrapping_sub(self.window_start) >= WINDOW_MS {
            self.window.clear();
            self.window_start = now_ms;
        }
        self.window.push(good);
        self.row = if good { 0 } else { self.row + 1 };
        let failures = self.window.iter().filter(|good| !**good).count();
        self.open = !good && (self.row >= 5 || (self.window.len() >= 20 && failures * 2 >= self.window.len()));
    }
}

proptest! {
    #[test]
    fn the_breaker_opens_exactly_when_the_model_does(calls in prop::collection::vec((any::<bool>(), 0..200_u32), 1..300)) {
        let (breaker, mut model) = (Breaker::default(), Model::default());
        let mut now_ms = 0_u32;
        for (good, step) in calls {
            now_ms += step;
            model.call(now_ms, good);
            if good { breaker.succeeded(now_ms) } else { breaker.failed(now_ms); }
            prop_assert_eq!(breaker.phase() == Phase::Open, model.open);
            if model.open {
                break;
            }
        }
    }

    #[test]
    fn every_state_survives_packing(steps in prop::collection::vec((0..4_u8, any::<u32>()), 0..200)) {
        let breaker = Breaker::default();
        for (step, now_ms) in steps {
            match step {
                0 => breaker.succeeded(now_ms),
                1 => _ = breaker.failed(now_ms),
                2 => _ = breaker.probed(now_ms, true),
                _ => _ = breaker.probed(now_ms, false),
            }
            let word = breaker.0.load(Ordering::Relaxed);
            prop_assert_eq!(State::unpack(word).pack(), word);
        }
    }
}

#[test]
fn a_busy_window_keeps_its_ratio() {
    let breaker = Breaker::default();
    for index in 0..100_000_u32 {
        if index % 10 == 0 { _ = breaker.failed(0) } else { breaker.succeeded(0) }
    }
    assert_eq!(breaker.phase(), Phase::Closed);
    let state = State::unpack(breaker.0.load(Ordering::Relaxed));
    assert!(state.failures * 9 < state.calls && state.failures * 11 > state.calls, "{state:?}");
}
