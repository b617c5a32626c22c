//! Changing demand, and the resulting pool sizes.

use super::*;
use std::num::NonZeroU32;

const TTL: Micros = Micros::from_millis(100);
const REQUEST: PermitRequest = PermitRequest { ttl: TTL, most: 1_000, instances: 4 };

fn at(micros: u64) -> Uptime {
    Uptime::after(Micros::from_micros(micros))
}

/// Requests at an even rate, from `start` for `micros`.
fn steadily(demand: &mut Demand, per_second: u64, start: u64, micros: u64) -> u64 {
    let gap = 1_000_000 / per_second;
    (0..micros / gap).for_each(|index| demand.count(at(start + index * gap)));
    start + micros
}

#[test]
fn a_steady_demand_is_estimated_within_a_tenth() {
    for per_second in [200, 1_000, 20_000, 1_000_000] {
        let mut demand = Demand::default();
        let mut now = steadily(&mut demand, per_second, 0, 2_000_000);
        for _ in 0..10 {
            now = steadily(&mut demand, per_second, now, 10_000);
            demand.fade(at(now));
            let known = demand.within(Micros::from_secs(1));
            assert!((known * 10).abs_diff(per_second * 10) <= per_second, "{known} for {per_second}");
        }
    }
}

#[test]
fn demand_halves_in_a_tenth_of_a_second() {
    let mut demand = Demand::default();
    let end = steadily(&mut demand, 10_000, 0, 1_000_000);
    let before = demand.requests;
    demand.fade(at(end + 99_999));
    assert!((before / 2).abs_diff(demand.requests) < before / 1_000, "{before} {}", demand.requests);
    assert!(!demand.is_over(at(end + 500_000)));
    assert!(demand.is_over(at(end + 2_000_000)));
    demand.fade(at(u64::MAX));
    assert_eq!(demand.requests, 0);
}

#[test]
fn only_hot_decisions_request_permits_with_hysteresis() {
    let size = |demand: &mut Demand, now| {
        demand.learn(1_000_000, false, at(now));
        demand.size(&REQUEST, at(now))
    };
    let mut demand = Demand::default();
    let mut now = steadily(&mut demand, 150, 0, 2_000_000);
    assert_eq!(size(&mut demand, now), 0, "not yet hot");
    now = steadily(&mut demand, 300, now, 2_000_000);
    assert!(size(&mut demand, now) > 0);
    now = steadily(&mut demand, 150, now, 2_000_000);
    assert!(size(&mut demand, now) > 0, "still hot");
    now = steadily(&mut demand, 60, now, 2_000_000);
    assert_eq!(size(&mut demand, now), 0, "no longer");
    now = steadily(&mut demand, 150, now, 2_000_000);
    assert_eq!(size(&mut demand, now), 0, "not hot again");
}

#[test]
fn a_pool_holds_half_a_lifetime_of_demand_within_bounds() {
    let sized = |ttl, per_second| {
        let mut demand = Demand::default();
        let now = steadily(&mut demand, per_second, 0, 2_000_000);
        demand.learn(1_000_000, false, at(now));
        demand.size(&PermitRequest { ttl: Micros::from_millis(ttl), ..REQUEST }, at(now))
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
fn scarce_permits_are_left_to_other_instances() {
    let request = PermitRequest { most: 12, ..REQUEST };
    for (wanted, remaining, size) in
        [(5, 80, 5), (50, 80, 10), (50, 800, 12), (0, 80, 1), (50, 8, 1), (50, 7, 0), (9, 0, 0)]
    {
        assert_eq!(request.size(wanted, remaining), size, "{wanted} of {remaining}");
    }
    assert_eq!(PermitRequest { most: 0, ..REQUEST }.size(50, 800), 0, "a cost above the bound");
}

#[test]
fn no_permits_are_requested_before_the_first_reply_or_after_a_denial() {
    let mut demand = Demand::default();
    let now = steadily(&mut demand, 10_000, 0, 500_000);
    assert_eq!(demand.size(&REQUEST, at(now)), 0);
    demand.learn(1_000, true, at(now));
    assert_eq!(demand.size(&REQUEST, at(now + 99_999)), 0);
    let later = steadily(&mut demand, 10_000, now, 100_000);
    demand.learn(1_000, false, at(later));
    assert!(demand.size(&REQUEST, at(later)) > 0);
}

#[test]
fn an_unknown_instance_count_is_assumed_to_be_large() {
    let count = |instances: &Instances| PermitRequest::new(TTL, 1, instances).instances;
    let instances = Instances::default();
    assert_eq!(count(&instances), 16);
    instances.set(3);
    assert_eq!(count(&instances), 3);
    let instances = Instances::at_least(NonZeroU32::new(20).unwrap());
    assert_eq!(count(&instances), 20);
    instances.set(3);
    assert_eq!(count(&instances), 20);
}
