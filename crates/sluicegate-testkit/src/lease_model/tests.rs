//! Explores the model at sizes that take seconds, and with flaws that the exploration must find.

use super::*;

/// More states than any of these tests has. A setting that exceeds it needs to be made smaller.
const MOST: usize = 3_000_000;

fn explored(setting: &Setting) {
    match setting.explore(MOST) {
        Ok(explored) => println!("{explored:?} of {setting:?}"),
        Err(story) => panic!("{setting:?}: {story}"),
    }
}

/// The smallest settings with two instances in which every action is possible except loss of memory and change of the
/// limit.
fn pair(setting: Setting) -> Setting {
    Setting { instances: 2, ..setting }
}

#[test]
fn two_instances_keep_both_bounds_in_every_state() {
    explored(&pair(Setting::bounded()));
    explored(&pair(Setting::strict()));
}

#[test]
fn three_instances_keep_both_bounds_in_every_state() {
    explored(&Setting { in_flight: 1, ..Setting::bounded() });
    explored(&Setting { in_flight: 1, ..Setting::strict() });
}

#[test]
fn a_slow_or_a_quick_refill_changes_nothing() {
    for (refill, ttl, capacity) in [((1, 3), 2, 3), ((2, 1), 2, 4), ((5, 2), 3, 5)] {
        let setting = Setting { refill, ttl, capacity, instances: 2, in_flight: 1, ..Setting::bounded() };
        explored(&setting);
        let taken = setting.bucket(capacity).refilled_within(setting.lifetime());
        explored(&Setting { capacity: capacity + taken, mode: LeaseMode::Strict, ..setting });
    }
}

#[test]
fn a_store_that_forgets_adds_no_more_than_its_capacity() {
    for setting in [Setting::bounded(), Setting::strict()] {
        explored(&Setting { failovers: 1, in_flight: 1, ..pair(setting) });
    }
}

#[test]
fn a_change_of_the_limit_adds_no_more_than_the_new_one() {
    for setting in [Setting::bounded(), Setting::strict()] {
        for changes_to in [setting.capacity - 1, setting.capacity + 1] {
            explored(&Setting { changes_to: Some(changes_to), in_flight: 1, ..pair(setting.clone()) });
        }
    }
}

#[test]
fn built_in_defects_are_found() {
    let bounded = || pair(Setting::bounded());
    let strict = || pair(Setting::strict());
    for (flaw, setting) in [
        (Flaw::SpendsAfterTheEnd, strict()),
        (Flaw::SpendsAfterTheEnd, bounded()),
        (Flaw::CountsFromTheAnswer, strict()),
        (Flaw::CountsFromTheAnswer, bounded()),
        (Flaw::GivesBackTwice, strict()),
        (Flaw::GivesBackTwice, bounded()),
        (Flaw::RefundsInstead, strict()),
        (Flaw::RefundsInstead, bounded()),
        (Flaw::ChargesTheWholeLimit, strict()),
    ] {
        let story = Setting { flaw: Some(flaw), ..setting.clone() }.explore(MOST).expect_err("a flaw is not seen");
        assert!(story.contains("passed beyond the rate"), "{flaw:?}: {story}");
        println!("{flaw:?} {:?}: {story}", setting.mode);
    }
}

#[test]
fn bounded_terms_need_their_stated_excess() {
    for setting in [pair(Setting::bounded()), Setting { refill: (1, 3), ..pair(Setting::bounded()) }] {
        let mut prepared = Prepared::new(&setting);
        prepared.extra = 0;
        assert!(explore(&prepared, MOST).expect_err("nothing is needed").contains("passed beyond the rate"));
    }
}
