//! The algorithm that `docs/custom-algorithm.md` adds, verbatim: it compiles, works, and has everything that an entry
//! in the list of algorithms needs. The page shows this very code.
#![allow(unreachable_pub, reason = "the code is copied from the page")]

use sluicegate_core::verdict::{Outcome, Standing};
use sluicegate_core::{Algorithm, Cost, Micros, Timestamp};

/// At least `gap` between two requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Spacing {
    gap: Micros,
}

impl Algorithm for Spacing {
    /// The earliest instant of the next request.
    type State = Timestamp;
    const NAME: &'static str = "spacing";

    fn limit(&self) -> u64 {
        1
    }

    fn window(&self) -> Micros {
        self.gap
    }

    fn repair(&self, state: &Timestamp, now: Timestamp) -> Option<Timestamp> {
        // No earlier request can have left more than one gap to wait.
        let latest = now.plus(self.gap);
        (*state > latest).then_some(latest)
    }

    fn outcome(&self, state: Option<&Timestamp>, cost: Cost, now: Timestamp) -> Outcome {
        match state {
            _ if cost.units() > 1 => Outcome::NeverAdmissible,
            Some(next) if now < *next => Outcome::Denied { retry_after: next.since(now) },
            _ => Outcome::Allowed,
        }
    }

    fn charge(&self, _: Option<Timestamp>, _: Cost, now: Timestamp) -> Timestamp {
        now.plus(self.gap)
    }

    fn refund(&self, _: Timestamp, _: Cost, now: Timestamp) -> Timestamp {
        now
    }

    fn standing(&self, state: Option<&Timestamp>, now: Timestamp) -> Standing {
        let reset_after = state.map_or(Micros::ZERO, |next| next.since(now));
        Standing { remaining: u64::from(reset_after.is_zero()), debt: 0, reset_after }
    }

    fn kept_until(&self, state: &Timestamp) -> Timestamp {
        *state
    }
}

const START: Timestamp = Timestamp::now(1_705_312_800_000_000);

#[test]
fn example_enforces_its_gap() {
    let spacing = Spacing { gap: Micros::from_secs(2) };
    let (state, first) = spacing.decide(None, Cost::ONE, START);
    assert_eq!((first.outcome, first.remaining), (Outcome::Allowed, 0));
    let (state, early) = spacing.decide(state, Cost::ONE, START.plus(Micros::from_micros(1_999_999)));
    assert_eq!(early.outcome, Outcome::Denied { retry_after: Micros::from_micros(1) });
    let (_, later) = spacing.decide(state, Cost::ONE, START.plus(Micros::from_secs(2)));
    assert_eq!(later.outcome, Outcome::Allowed);
    let (_, never) = spacing.decide(None, Cost::new(2), START);
    assert_eq!(never.outcome, Outcome::NeverAdmissible);
    assert_eq!((spacing.limit(), spacing.window()), (1, Micros::from_secs(2)));
    assert_eq!(spacing.refund(START.plus(Micros::from_secs(2)), Cost::ONE, START), START);
    assert_eq!(spacing.kept_until(&START), START);
    assert_eq!(Spacing::NAME, "spacing");
}

#[test]
fn forced_charge_takes_at_most_the_remaining_quota() {
    let spacing = Spacing { gap: Micros::from_secs(2) };
    let next = START.plus(Micros::from_secs(2));
    assert_eq!(spacing.force(None, Cost::new(7), START), Some(next));
    let soon = START.plus(Micros::from_secs(1));
    assert_eq!(spacing.force(Some(next), Cost::ONE, soon), Some(next));
    assert_eq!(spacing.force(None, Cost::new(0), START), None, "a cost of zero creates no state");
}

/// A variant like those of `Quota` and `State`, with all derived traits, and the text of that list.
macro_rules! place {
    ($place:ident($held:ty): $($derived:ident),+) => {
        #[derive($($derived),+)]
        struct $place($held);

        impl $place {
            const DERIVED: &str = stringify!($($derived),+);
        }
    };
}

place!(InQuota(Spacing): Clone, Debug, PartialEq, Eq, Hash);
place!(InState(<Spacing as Algorithm>::State): Clone, Debug, PartialEq);

#[test]
fn example_has_all_traits_of_the_algorithm_list() {
    let list = include_str!("../../src/algorithm.rs");
    for (derived, of) in [(InQuota::DERIVED, "pub enum Quota {"), (InState::DERIVED, "pub enum State {")] {
        let before = list.split_once(of).map(|(before, _)| before).expect("the enum");
        let written = before.rsplit_once("#[derive(").and_then(|(_, rest)| rest.split_once(")]"));
        assert_eq!(written.map(|(names, _)| names), Some(derived), "{of}");
    }
    let (quota, state) = (InQuota(Spacing { gap: Micros::from_secs(2) }), InState(START));
    assert_eq!((quota.clone(), state.clone()), (quota, state));
}

#[test]
fn page_shows_this_code() {
    let page = include_str!("../../../../docs/custom-algorithm.md");
    let here = include_str!("custom_algorithm.rs");
    let shown = page.split("```rust\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a code block");
    // The page's code is inside the crate and uses other imports. Everything after the imports is equal.
    let code = shown.split_once("/// At least `gap`").map(|(_, code)| code).expect("the type");
    assert!(here.contains(code.trim_end()), "docs/custom-algorithm.md and this file differ");
}

#[test]
fn defaults_are_even_windows_without_shares_or_charges_in_advance() {
    let spacing = Spacing { gap: Micros::from_secs(2) };
    assert_eq!(spacing.window_at(START), Micros::from_secs(2));
    assert_eq!(spacing.share(std::num::NonZeroU32::MIN), None);
    assert_eq!(spacing.prepaid(Micros::from_secs(1)), None);
}
