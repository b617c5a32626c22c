//! Models for loom, which runs them in every order that threads can take: learning against forgetting.

use super::forgotten::Forgotten;
use super::table::Table;
use super::{Denials, Moment, Question, Seen, UNHEARD_MAX};
use crate::store::{Charge, Key, KeySpace, Subject};
use loom::sync::{Arc, Mutex};
use loom::thread;
use sluicegate_core::decision::Group;
use sluicegate_core::{Cost, Micros, Quota, Rate, Timestamp, TokenBucket};

const NOW: Timestamp = Timestamp::now(1_705_312_800_000_000);
const START: Moment = Moment { local: 1, era: 0 };

fn denials() -> Arc<Denials> {
    Arc::new(Denials::of(Table::new(1), Forgotten::new(2)))
}

fn hourly() -> Quota {
    TokenBucket::new(1, Rate::new(1, Micros::from_secs(3_600)).unwrap()).unwrap().into()
}

fn with_charge<T>(act: impl FnOnce(&[Charge<'_>]) -> T) -> T {
    let (space, quotas) = (KeySpace::new("rule"), [hourly()]);
    let key = Key { space: &space, subject: Subject::default() };
    act(&[Charge { key, quotas: &quotas, cost: Cost::ONE, group: Group::Enforced, lease: None }])
}

fn look(denials: &Denials, moment: Moment) -> Result<(), Question> {
    with_charge(|charges| denials.look(charges, moment).map(drop))
}

/// Remembers that there was no room.
fn remember(denials: &Denials, question: Question) {
    with_charge(|charges| {
        let state = hourly().charge(None, Cost::ONE, NOW);
        denials.remember(question, charges, NOW, START, [Seen { state, at: NOW }], |_| 1);
    });
}

#[test]
fn loom_what_a_refund_overtakes_is_never_believed_after_it() {
    loom::model(|| {
        let (denials, has_room) = (denials(), Arc::new(Mutex::new(false)));
        let ask = || {
            let (denials, has_room) = (Arc::clone(&denials), Arc::clone(&has_room));
            thread::spawn(move || {
                let Err(question) = look(&denials, START) else { return };
                let is_denied = !*has_room.lock().unwrap();
                if is_denied {
                    remember(&denials, question);
                }
            })
        };
        let threads = [ask(), ask()];
        *has_room.lock().unwrap() = true;
        denials.forget(1);
        // Whoever looks from here on does so after the refund was answered.
        assert!(look(&denials, START).is_err());
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(look(&denials, START).is_err());
    });
}

#[test]
fn loom_a_refund_of_somebody_else_ends_nothing() {
    loom::model(|| {
        let denials = denials();
        let asker = {
            let denials = Arc::clone(&denials);
            thread::spawn(move || {
                let Err(question) = look(&denials, START) else { return };
                remember(&denials, question);
            })
        };
        denials.forget(0);
        asker.join().unwrap();
        assert!(look(&denials, START).is_ok());
    });
}

#[test]
fn loom_news_revive_only_what_they_do_not_end() {
    loom::model(|| {
        let denials = denials();
        let Err(question) = look(&denials, START) else { panic!("nobody is denied yet") };
        remember(&denials, question);
        let later = Moment { local: START.local + UNHEARD_MAX + 1, era: 0 };
        assert!(look(&denials, later).is_err(), "nothing was heard for too long");
        let reader = {
            let denials = Arc::clone(&denials);
            thread::spawn(move || {
                denials.forget(1);
                denials.hear(later.local);
            })
        };
        assert!(look(&denials, later).is_err());
        reader.join().unwrap();
        assert!(look(&denials, later).is_err());
    });
}
