//! Demand that comes and goes, and the sizes that follow from it.

use super::*;
use std::num::NonZeroU32;

const TTL: Micros = Micros::from_millis(100);
const ASKING: Asking = Asking { ttl: TTL, most: 1_000, instances: 4 };

fn at(micros: u64) -> Moment {
    Moment::after(Micros::from_micros(micros))
}

/// Requests at an even pace, from `start` for `micros`.
fn steadily(pace: &mut Pace, per_second: u64, start: u64, micros: u64) -> u64 {
    let gap = 1_000_000 / per_second;
    (0..micros / gap).for_each(|index| pace.count(at(start + index * gap)));
    start + micros
}

#[test]
fn a_steady_demand_is_known_to_a_tenth() {
    for per_second in [200, 1_000, 20_000, 1_000_000] {
        let mut pace = Pace::default();
        let mut now = steadily(&mut pace, per_second, 0, 2_000_000);
        for _ in 0..10 {
            now = steadily(&mut pace, per_second, now, 10_000);
            pace.fade(at(now));
            let known = pace.within(Micros::from_secs(1));
            assert!((known * 10).abs_diff(per_second * 10) <= per_second, "{known} for {per_second}");
        }
    }
}

#[test]
fn half_of_a_demand_is_forgotten_in_a_tenth_of_a_second() {
    let mut pace = Pace::default();
    let end = steadily(&mut pace, 10_000, 0, 1_000_000);
    let before = pace.demand;
    pace.fade(at(end + 99_999));
    assert!((before / 2).abs_diff(pace.demand) < before / 1_000, "{before} {}", pace.demand);
    assert!(!pace.is_over(at(end + 500_000)));
    assert!(pace.is_over(at(end + 2_000_000)));
    pace.fade(at(u64::MAX));
    assert_eq!(pace.demand, 0);
}

#[test]
fn only_a_hot_decision_asks_and_it_cools_down_at_half_the_heat() {
    let size = |pace: &mut Pace, now| {
        pace.learn(1_000_000, false, at(now));
        pace.size(&ASKING, at(now))
    };
    let mut pace = Pace::default();
    let mut now = steadily(&mut pace, 150, 0, 2_000_000);
    assert_eq!(size(&mut pace, now), 0, "not yet hot");
    now = steadily(&mut pace, 300, now, 2_000_000);
    assert!(size(&mut pace, now) > 0);
    now = steadily(&mut pace, 150, now, 2_000_000);
    assert!(size(&mut pace, now) > 0, "still hot");
    now = steadily(&mut pace, 60, now, 2_000_000);
    assert_eq!(size(&mut pace, now), 0, "no longer");
    now = steadily(&mut pace, 150, now, 2_000_000);
    assert_eq!(size(&mut pace, now), 0, "not hot again");
}

#[test]
fn a_pot_holds_what_is_used_in_half_its_time_within_bounds() {
    let sized = |ttl, per_second| {
        let mut pace = Pace::default();
        let now = steadily(&mut pace, per_second, 0, 2_000_000);
        pace.learn(1_000_000, false, at(now));
        pace.size(&Asking { ttl: Micros::from_millis(ttl), ..ASKING }, at(now))
    };
    for (ttl, per_second, size) in [(100, 1_000, 50), (100, 10_000, 500), (100, 100_000, 1_000), (30, 1_000, 20)] {
        assert!(
            sized(ttl, per_second).abs_diff(size) <= size / 10,
            "{} for {ttl} {per_second}",
            sized(ttl, per_second)
        );
    }
    assert!(sized(10_000, 1_000).abs_diff(100) <= 10, "not more than a tenth of a second ahead");
    assert!(sized(10, 1_000).abs_diff(10) <= 1, "not longer than it counts");
}

#[test]
fn what_is_left_is_left_to_others() {
    let asking = Asking { most: 12, ..ASKING };
    for (wanted, remaining, size) in
        [(5, 80, 5), (50, 80, 10), (50, 800, 12), (0, 80, 1), (50, 8, 1), (50, 7, 0), (9, 0, 0)]
    {
        assert_eq!(asking.size(wanted, remaining), size, "{wanted} of {remaining}");
    }
    assert_eq!(Asking { most: 0, ..ASKING }.size(50, 800), 0, "a cost above what may be held");
}

#[test]
fn nothing_is_asked_for_before_the_first_answer_or_after_a_denial() {
    let mut pace = Pace::default();
    let now = steadily(&mut pace, 10_000, 0, 500_000);
    assert_eq!(pace.size(&ASKING, at(now)), 0);
    pace.learn(1_000, true, at(now));
    assert_eq!(pace.size(&ASKING, at(now + 99_999)), 0);
    let later = steadily(&mut pace, 10_000, now, 100_000);
    pace.learn(1_000, false, at(later));
    assert!(pace.size(&ASKING, at(later)) > 0);
}

#[test]
fn instances_that_nobody_has_heard_of_are_many() {
    let count = |instances: &Instances| Asking::new(TTL, 1, instances).instances;
    let instances = Instances::default();
    assert_eq!(count(&instances), 16);
    instances.set(3);
    assert_eq!(count(&instances), 3);
    let instances = Instances::at_least(NonZeroU32::new(20).unwrap());
    assert_eq!(count(&instances), 20);
    instances.set(3);
    assert_eq!(count(&instances), 20);
}
