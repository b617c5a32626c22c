//! Denials with every instant given: when they hold, for whom, and what ends them.

mod never_wrong;

use super::forgotten::Forgotten;
use super::table::{Table, WAYS};
use super::*;
use crate::identity::Identity;
use crate::store::{Key, KeySpace, Subject};
use sluicegate_core::decision::Group;
use sluicegate_core::{Align, Cost, FixedWindow, Rate, SlidingWindow, State, TokenBucket};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, sleep_until};

const NOW: Timestamp = Timestamp::now(1_705_312_800_000_000);
const MILLISECOND: Local = 1_000_000;
const SECOND: Local = 1_000 * MILLISECOND;

/// One token per second, `capacity` at once.
fn bucket(capacity: u64) -> Quota {
    TokenBucket::new(capacity, Rate::new(1, Micros::from_secs(1)).unwrap()).unwrap().into()
}

fn fixed(limit: u64) -> Quota {
    FixedWindow::new(limit, Micros::from_secs(3_600), Align::Epoch).unwrap().into()
}

fn charge<'a>(space: &'a KeySpace, identifier: &'a str, quotas: &'a [Quota], cost: u32) -> Charge<'a> {
    let subject = Subject { tenant: None, identity: Some(Identity::Named(identifier)), address: None };
    Charge { key: Key { space, subject }, quotas, cost: Cost::new(cost), group: Group::Enforced, lease: None }
}

fn at(local: Local) -> Moment {
    Moment { local, era: 0 }
}

/// The state after all was taken at [`NOW`].
fn drained(quota: &Quota) -> Option<State> {
    quota.charge(None, Cost::new(u32::try_from(quota.limit()).unwrap()), NOW)
}

/// Asks at one instant and is answered at another, at [`NOW`] on the server, by limits that are all drained.
fn ask(denials: &Denials, charges: &[Charge<'_>], asked: Local, answered: Local) {
    let Err(question) = denials.look(charges, at(asked)) else { panic!("it is denied already") };
    remember(denials, question, charges, answered);
}

fn remember(denials: &Denials, question: Question, charges: &[Charge<'_>], answered: Local) {
    let quotas = charges.iter().flat_map(|charge| charge.quotas);
    let seen: Vec<Seen> = quotas.map(|quota| Seen { state: drained(quota), at: NOW }).collect();
    denials.remember(question, charges, NOW, at(answered), seen, slot_of_name);
}

/// The slot is the identifier's first byte.
fn slot_of_name(key: &Key<'_>) -> u16 {
    match key.subject.identity {
        Some(Identity::Named(name)) => name.bytes().next().map_or(0, u16::from),
        _ => 0,
    }
}

fn is_denied(denials: &Denials, charges: &[Charge<'_>], local: Local) -> bool {
    denials.look(charges, at(local)).is_ok()
}

#[test]
fn a_denial_is_answered_until_it_may_pass_and_not_a_microsecond_longer() {
    let (denials, space, quotas) = (Denials::new(), KeySpace::new("rule"), [bucket(1)]);
    let charges = [charge(&space, "x", &quotas, 1)];
    ask(&denials, &charges, 5 * MILLISECOND, 9 * MILLISECOND);
    denials.hear(SECOND);
    let last = SECOND + 5 * MILLISECOND - 1_000;
    let reply = denials.look(&charges, at(last)).unwrap();
    // The round trip of the first call is what the answer may be too long by.
    let elapsed = Micros::from_micros(1_000_000 - 4_000 - 1);
    let retry_after = Micros::from_micros(4_001);
    assert_eq!(reply.now, NOW.plus(elapsed));
    assert_eq!(reply.verdicts[0].outcome, Outcome::Denied { retry_after });
    assert_eq!((reply.verdicts[0].limit, reply.verdicts[0].remaining), (1, 0));
    assert_eq!((denials.kept(), denials.answered()), (1, 1));
    assert!(!is_denied(&denials, &charges, last + 1), "the server's clock may show the second by now");
    assert!(!is_denied(&denials, &charges, last + 1_000));
    assert_eq!((denials.kept(), denials.answered()), (0, 1), "what is over is dropped when it is seen");
}

#[test]
fn a_bucket_answers_for_any_cost_and_a_log_for_one() {
    let (denials, space) = (Denials::new(), KeySpace::new("rule"));
    let quotas = [bucket(10)];
    let Err(question) = denials.look(&[], at(0)) else { panic!("nobody is denied yet") };
    let state = quotas[0].charge(None, Cost::new(7), NOW);
    let five = [charge(&space, "x", &quotas, 5)];
    denials.remember(question, &five, NOW, at(1), [Seen { state, at: NOW }], slot_of_name);
    for (cost, is_so) in [(5, true), (4, true), (3, false), (1, false), (6, true), (10, true), (11, true)] {
        assert_eq!(is_denied(&denials, &[charge(&space, "x", &quotas, cost)], MILLISECOND), is_so, "{cost}");
    }
    let quotas = [SlidingWindow::new(5, Micros::from_secs(60)).unwrap().into()];
    ask(&denials, &[charge(&space, "log", &quotas, 2)], 0, 1);
    for (cost, is_so) in [(1, false), (2, true), (3, false)] {
        assert_eq!(is_denied(&denials, &[charge(&space, "log", &quotas, cost)], MILLISECOND), is_so, "{cost}");
    }
}

#[test]
fn other_rules_are_another_decision() {
    let (denials, space, quotas) = (Denials::new(), KeySpace::new("rule"), [fixed(1), bucket(1)]);
    let one = charge(&space, "x", &quotas[..1], 1);
    ask(&denials, &[one], 0, 1);
    assert!(is_denied(&denials, &[one], MILLISECOND));
    let (renamed, changed) = (KeySpace::new("other"), [fixed(2)]);
    for (other, why) in [
        (vec![charge(&renamed, "x", &quotas[..1], 1)], "the name"),
        (vec![charge(&space, "x", &changed, 1)], "the limit"),
        (vec![charge(&space, "x", &quotas, 1)], "a limit more"),
        (vec![charge(&space, "y", &quotas[..1], 1)], "the identity"),
        (vec![one, charge(&space, "y", &quotas[..1], 1)], "a rule more"),
        (vec![Charge { group: Group::Shadow(0), ..one }], "the group"),
    ] {
        assert!(!is_denied(&denials, &other, MILLISECOND), "{why}");
    }
}

#[test]
fn only_enforced_limits_deny_and_all_of_them_are_shown() {
    let (denials, space, quotas) = (Denials::new(), KeySpace::new("rule"), [bucket(1), bucket(3)]);
    let shadow = Charge { group: Group::Shadow(0), ..charge(&space, "x", &quotas, 1) };
    ask(&denials, &[shadow], 0, 1);
    assert_eq!(denials.kept(), 0);
    let charges = [shadow, charge(&space, "y", &quotas, 1)];
    ask(&denials, &charges, 0, 1);
    let reply = denials.look(&charges, at(MILLISECOND)).unwrap();
    assert_eq!(reply.verdicts.iter().map(|verdict| verdict.limit).collect::<Vec<_>>(), [1, 3, 1, 3]);
    assert!(reply.verdicts.iter().all(|verdict| !verdict.outcome.is_allowed()));
}

#[test]
fn what_never_passes_is_denied_unless_history_could_change_that() {
    let (denials, space) = (Denials::new(), KeySpace::new("rule"));
    let hour = Micros::from_secs(3_600);
    let credits = TokenBucket::with_credits(5, Rate::new(1, Micros::from_secs(1)).unwrap(), 3, hour).unwrap();
    let quotas = [Quota::from(credits)];
    let unseen = || [Seen { state: None, at: NOW }];
    let Err(question) = denials.look(&[], at(0)) else { panic!("nobody is denied yet") };
    denials.remember(question, &[charge(&space, "x", &quotas, 7)], NOW, at(1), unseen(), slot_of_name);
    assert_eq!(denials.kept(), 0, "as soon as anything is charged he begins to earn credits");
    let beyond = [charge(&space, "x", &quotas, 9)];
    denials.remember(question, &beyond, NOW, at(1), unseen(), slot_of_name);
    denials.hear(59 * SECOND);
    let reply = denials.look(&beyond, at(59 * SECOND)).unwrap();
    assert_eq!(reply.verdicts[0].outcome, Outcome::NeverAdmissible);
    assert!(!is_denied(&denials, &[charge(&space, "x", &quotas, 7)], 59 * SECOND));
    assert!(!is_denied(&denials, &beyond, 60 * SECOND), "its other numbers are to be looked at now and then");
}

#[test]
fn what_is_given_back_ends_what_was_learnt_before_and_nothing_else() {
    let (denials, space, quotas) = (Denials::new(), KeySpace::new("rule"), [fixed(1)]);
    let [a, b] = ["a", "b"].map(|name| [charge(&space, name, &quotas, 1)]);
    ask(&denials, &a, 0, 1);
    ask(&denials, &b, 0, 1);
    let Err(before) = denials.look(&[charge(&space, "a", &quotas, 0)], at(2)) else { panic!("nothing is free") };
    denials.forget(u16::from(b'a'));
    assert!(!is_denied(&denials, &a, 3) && is_denied(&denials, &b, 3));
    // An answer from before the refund that was on its way meanwhile.
    remember(&denials, before, &a, 4);
    assert!(!is_denied(&denials, &a, 5));
    ask(&denials, &a, 6, 7);
    assert!(is_denied(&denials, &a, 8));
    denials.forgotten.forget_everything();
    assert!(!is_denied(&denials, &a, 9) && !is_denied(&denials, &b, 9));
}

/// A refund whose caller went away may still be done until its deadline.
#[tokio::test(start_paused = true)]
async fn what_ends_without_an_answer_is_forgotten_once_more_when_it_cannot_be_done_any_more() {
    let (denials, space, quotas) = (Arc::new(Denials::new()), KeySpace::new("rule"), [fixed(1)]);
    let charges = [charge(&space, "a", &quotas, 1)];
    let deadline = Instant::now() + Duration::from_secs(5);
    let giving_back = || GivingBack::new(&denials, [u16::from(b'a')], deadline);
    ask(&denials, &charges, 0, 1);
    let answered = giving_back();
    assert!(is_denied(&denials, &charges, 2), "it may not have been done yet");
    answered.finish();
    assert!(!is_denied(&denials, &charges, 3));
    ask(&denials, &charges, 4, 5);
    sleep_until(deadline).await;
    sleep(Duration::from_millis(1)).await;
    assert!(is_denied(&denials, &charges, 6));

    let deadline = Instant::now() + Duration::from_secs(5);
    drop(GivingBack::new(&denials, [u16::from(b'a')], deadline));
    assert!(!is_denied(&denials, &charges, 7));
    ask(&denials, &charges, 8, 9);
    assert!(is_denied(&denials, &charges, 10));
    sleep_until(deadline).await;
    sleep(Duration::from_millis(1)).await;
    assert!(!is_denied(&denials, &charges, 11));
}

#[test]
fn a_limit_that_did_not_deny_may_be_given_back() {
    let (denials, space, quotas) = (Denials::new(), KeySpace::new("rule"), [fixed(1)]);
    let charges = [charge(&space, "a", &quotas, 1), charge(&space, "b", &quotas, 1)];
    let Err(question) = denials.look(&charges, at(0)) else { panic!("nobody is denied yet") };
    let seen = [Seen { state: None, at: NOW }, Seen { state: drained(&quotas[0]), at: NOW }];
    denials.remember(question, &charges, NOW, at(1), seen, slot_of_name);
    denials.forget(u16::from(b'a'));
    let reply = denials.look(&charges, at(2)).unwrap();
    assert!(reply.verdicts[0].outcome.is_allowed() && !reply.verdicts[1].outcome.is_allowed());
    denials.forget(u16::from(b'b'));
    assert!(!is_denied(&denials, &charges, 3));
}

#[test]
fn states_of_another_era_are_not_believed() {
    let (denials, space, quotas) = (Denials::new(), KeySpace::new("rule"), [fixed(1)]);
    let charges = [charge(&space, "a", &quotas, 1)];
    ask(&denials, &charges, 0, 1);
    let next = |local| Moment { local, era: 1 };
    let seen = || [Seen { state: drained(&quotas[0]), at: NOW }];
    let Err(question) = denials.look(&charges, next(2)) else { panic!("the states may be lost") };
    denials.remember(question, &charges, NOW, next(3), seen(), slot_of_name);
    assert!(denials.look(&charges, next(4)).is_ok());
    // Asked before the states were lost, and answered when they were.
    let other = [charge(&space, "b", &quotas, 1)];
    let Err(question) = denials.look(&other, at(0)) else { panic!("nobody is denied yet") };
    denials.remember(question, &other, NOW, next(5), seen(), slot_of_name);
    assert!(denials.look(&other, next(6)).is_err() && denials.look(&other, at(6)).is_err());
}

#[test]
fn without_news_a_denial_is_believed_for_a_second() {
    let (denials, space, quotas) = (Denials::new(), KeySpace::new("rule"), [fixed(1)]);
    let charges = [charge(&space, "a", &quotas, 1)];
    ask(&denials, &charges, 0, 1);
    assert!(is_denied(&denials, &charges, SECOND));
    assert!(!is_denied(&denials, &charges, SECOND + 1));
    denials.hear(10 * SECOND);
    assert!(is_denied(&denials, &charges, 12 * SECOND));
    assert!(!is_denied(&denials, &charges, 12 * SECOND + 1));
    denials.hear(20 * SECOND);
    assert!(is_denied(&denials, &charges, 20 * SECOND), "the news say what was given back meanwhile");
}

#[test]
fn a_clock_that_goes_back_tells_nothing() {
    let (denials, space, quotas) = (Denials::new(), KeySpace::new("rule"), [fixed(1)]);
    let charges = [charge(&space, "a", &quotas, 1)];
    ask(&denials, &charges, SECOND, SECOND);
    assert!(!is_denied(&denials, &charges, SECOND - 1) && is_denied(&denials, &charges, SECOND));
}

#[test]
fn a_full_bucket_drops_what_ends_first() {
    let denials = Denials::of(Table::new(1), Forgotten::new(4096));
    let space = KeySpace::new("rule");
    let names: Vec<String> = (0..=WAYS).map(|number| number.to_string()).collect();
    let quotas: Vec<[Quota; 1]> = (0..=WAYS as u64).map(|number| [bucket(100 - number)]).collect();
    let charges = |index: usize| [charge(&space, &names[index], &quotas[index], 100 - index as u32)];
    for index in 0..WAYS {
        ask(&denials, &charges(index), 0, 1);
    }
    assert_eq!(denials.kept(), WAYS);
    ask(&denials, &charges(WAYS), 0, 1);
    assert_eq!(denials.kept(), WAYS);
    let kept: Vec<usize> = (0..=WAYS).filter(|index| is_denied(&denials, &charges(*index), 2)).collect();
    assert_eq!(kept, [0, 1, 2, 3, 4, 5, 6, 8], "all but the one with the shortest wait when room was needed");
    // What says nothing any more goes before anything that does.
    denials.forget(u16::from(b'0'));
    ask(&denials, &charges(WAYS - 1), 3, 4);
    let kept: Vec<usize> = (0..=WAYS).filter(|index| is_denied(&denials, &charges(*index), 5)).collect();
    assert_eq!(kept, [1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn a_flood_of_denials_takes_a_fixed_number_of_places() {
    let (denials, space, quotas) = (Denials::new(), KeySpace::new("rule"), [fixed(1)]);
    let Err(question) = denials.look(&[], at(0)) else { panic!("nobody is denied yet") };
    for number in 0..300_000 {
        remember(&denials, question, &[charge(&space, &number.to_string(), &quotas, 1)], 1);
    }
    let most = table::BUCKETS * WAYS;
    assert!(denials.kept() <= most && denials.kept() > most * 9 / 10, "{}", denials.kept());
}
