//! Pots, one event at a time and in any order.

use super::*;
use proptest::prelude::*;

const FIRST: Generation = Generation(1);
const SECOND: Generation = Generation(2);

fn at(micros: u64) -> Moment {
    Moment::after(Micros::from_micros(micros))
}

fn grant(permits: u32, ends: u64) -> Grant<()> {
    Grant { permits, charged_at: Timestamp::now(7), ends: at(ends), generation: FIRST, state: () }
}

fn holding(permits: u32, ends: u64) -> Pot<()> {
    let mut pot = Pot::default();
    assert_eq!(pot.ask(permits), permits);
    pot.grant(grant(permits, ends));
    pot
}

fn spends(pot: &mut Pot<()>, now: u64, generation: Generation) -> bool {
    pot.spend(at(now), generation, |_| ()).is_some()
}

#[test]
fn a_permit_is_spent_once_and_before_its_end() {
    let mut pot = holding(2, 100);
    assert!(spends(&mut pot, 99, FIRST));
    assert!(!spends(&mut pot, 100, FIRST), "its time is over, whatever it was doing until now");
    assert!(spends(&mut pot, 99, FIRST));
    assert!(!spends(&mut pot, 99, FIRST));
    assert_eq!(pot.tally(), Tally { granted: 2, spent: 2, returned: 0, lost: 0 });
    assert!(pot.is_idle());
}

#[test]
fn what_has_ended_is_given_back_once() {
    let mut pot = holding(3, 100);
    assert!(spends(&mut pot, 0, FIRST));
    assert!(pot.expire(at(99), FIRST).is_empty());
    let returns = pot.expire(at(100), FIRST);
    assert_eq!(returns[..], [Return { permits: 2, charged_at: Timestamp::now(7), generation: FIRST, state: () }]);
    assert!(pot.expire(at(100), FIRST).is_empty() && pot.drain(FIRST).is_empty());
    assert!(!spends(&mut pot, 0, FIRST), "what is on its way back is not spent as well");
    assert_eq!(pot.tally(), Tally { granted: 3, spent: 1, returned: 2, lost: 0 });
}

#[test]
fn everything_is_given_back_at_the_end() {
    let mut pot = holding(3, 100);
    assert_eq!(pot.ask(5), 2);
    pot.grant(grant(2, 150));
    let permits: Vec<u32> = pot.drain(FIRST).iter().map(|back| back.permits).collect();
    assert_eq!(permits, [3, 2]);
    assert!(pot.is_idle());
}

#[test]
fn what_another_generation_granted_is_neither_spent_nor_given_back() {
    let mut pot = holding(2, 100);
    assert!(!spends(&mut pot, 0, SECOND));
    assert!(pot.expire(at(0), SECOND).is_empty());
    assert_eq!(pot.tally(), Tally { granted: 2, spent: 0, returned: 0, lost: 2 });
    let mut pot = holding(2, 100);
    assert!(pot.drain(SECOND).is_empty());
    assert_eq!(pot.tally().lost, 2);
}

#[test]
fn no_more_is_asked_for_than_fills_the_pot_and_by_one_call_at_a_time() {
    let mut pot = holding(3, 100);
    assert_eq!(pot.ask(3), 0);
    assert_eq!(pot.ask(8), 5);
    assert_eq!(pot.ask(9), 0, "a call is under way");
    pot.unanswered();
    assert_eq!(pot.ask(8), 5);
    pot.grant(grant(4, 90));
    assert_eq!(pot.ask(99), 0, "two grants are here");
    let ends: Vec<u64> = pot.grants().iter().map(|grant| grant.ends.as_micros()).collect();
    assert_eq!(ends, [90, 100], "what ends first is spent first");
}

#[test]
fn what_nobody_asked_for_is_lost() {
    let mut pot = holding(1, 100);
    pot.grant(grant(4, 100));
    assert_eq!((pot.held(), pot.tally().lost), (1, 4));
    assert_eq!(pot.ask(3), 2);
    pot.grant(grant(5, 100));
    assert_eq!((pot.held(), pot.tally().lost), (3, 7));
}

proptest! {
    /// Whatever happens in whatever order: no permit is made up or forgotten, none is spent after its end, and there are
    /// never more than was agreed.
    #[test]
    fn permits_are_conserved(steps in prop::collection::vec((0..7_u8, 0..9_u32, 0..60_u64), 1..200)) {
        let (mut pot, mut now, mut generation, mut back) = (Pot::default(), 0, 0, 0);
        for (step, count, length) in steps {
            let current = Generation(generation);
            match step {
                0 => {
                    pot.ask(count);
                }
                1 => pot.grant(Grant { generation: current, ..grant(count, now + length) }),
                2 => pot.unanswered(),
                3 => {
                    let ends = pot.spend(at(now), current, |grant| grant.ends);
                    prop_assert!(ends.is_none_or(|ends| at(now) < ends));
                }
                4 => back += pot.expire(at(now), current).iter().map(|each| u64::from(each.permits)).sum::<u64>(),
                5 if count == 0 => generation += 1,
                5 => now += length,
                _ if count == 0 => {
                    back += pot.drain(current).iter().map(|each| u64::from(each.permits)).sum::<u64>();
                }
                _ => {}
            }
            prop_assert!(pot.tally().is_balanced(pot.held().into()), "{:?}", pot);
            prop_assert_eq!(pot.tally().returned, back);
            prop_assert!(pot.held() <= 8 && pot.grants().len() <= GRANTS_MAX);
            prop_assert!(pot.grants().iter().all(|grant| grant.permits > 0));
        }
    }
}
