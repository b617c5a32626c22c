//! Combines the outcomes of several limits into one decision: all or nothing, and the tightest limit determines the
//! reply.
//!
//! Every limit has a [`ChargeMode`]. Enforced limits are charged together or not at all. Limits in shadow mode never
//! change the decision. The limits of one shadow rule are charged together, as if the rule were enforced, but only if
//! the request is allowed.

use crate::time::Micros;
use crate::verdict::{Outcome, Verdict};

/// Whether a limit is enforced, and which limits are charged together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChargeMode {
    /// An enforced limit.
    Enforced,
    /// A limit of a rule in shadow mode; the number identifies the rule within the request.
    Shadow(u16),
}

/// True if every enforced limit has room, so that the request is allowed.
pub fn is_allowed(votes: impl IntoIterator<Item = (ChargeMode, Outcome)>) -> bool {
    votes.into_iter().all(|(mode, outcome)| mode != ChargeMode::Enforced || outcome.is_allowed())
}

/// True if the limits of `mode` are charged: the request is allowed, and all limits of the same mode have room.
pub fn is_charged<I>(votes: I, mode: ChargeMode) -> bool
where
    I: IntoIterator<Item = (ChargeMode, Outcome)>,
{
    votes.into_iter().all(|(voter, outcome)| {
        let concerned = voter == ChargeMode::Enforced || voter == mode;
        !concerned || outcome.is_allowed()
    })
}

/// The wait of a denied request: the longest wait of all enforced limits. `None` if none of them denies, or if one
/// never admits the request.
pub fn joint_wait(votes: impl IntoIterator<Item = (ChargeMode, Outcome)>) -> Option<Micros> {
    let mut longest = None;
    for (_, outcome) in votes.into_iter().filter(|(mode, _)| *mode == ChargeMode::Enforced) {
        match outcome {
            Outcome::NeverAdmissible => return None,
            Outcome::Denied { retry_after } => longest = longest.max(Some(retry_after)),
            Outcome::Allowed => {}
        }
    }
    longest
}

/// The index of the limit that determines the decision. If any limit denies, it is the denial with the longest wait,
/// where never is the longest. Otherwise it is the limit with the smallest remaining quota, or the later reset on a
/// tie. Limits in shadow mode do not count. `None` if no limit is enforced.
pub fn tightest<'v>(verdicts: impl IntoIterator<Item = (ChargeMode, &'v Verdict)>) -> Option<usize> {
    verdicts
        .into_iter()
        .enumerate()
        .filter(|(_, (mode, _))| *mode == ChargeMode::Enforced)
        // `min_by_key` returns the first of equals, so the order of the rules breaks a full tie.
        .min_by_key(|(_, (_, verdict))| looseness(verdict))
        .map(|(index, _)| index)
}

/// A sort key: smaller is tighter.
fn looseness(verdict: &Verdict) -> (u8, u64, u64) {
    let longest_first = |wait: u64| u64::MAX - wait;
    match verdict.outcome {
        Outcome::NeverAdmissible => (0, 0, 0),
        Outcome::Denied { retry_after } => (1, longest_first(retry_after.as_micros()), 0),
        Outcome::Allowed => (2, verdict.remaining, longest_first(verdict.reset_after.as_micros())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Outcome = Outcome::Denied { retry_after: Micros::from_micros(7) };

    fn verdict(outcome: Outcome, remaining: u64, reset_after: u64) -> Verdict {
        Verdict { outcome, limit: 100, remaining, debt: 0, reset_after: Micros::from_micros(reset_after) }
    }

    #[test]
    fn one_denial_denies_and_nothing_is_charged() {
        let votes = [(ChargeMode::Enforced, Outcome::Allowed), (ChargeMode::Enforced, WAIT)];
        assert!(!is_allowed(votes));
        assert!(!is_charged(votes, ChargeMode::Enforced));
    }

    #[test]
    fn shadow_denial_neither_denies_nor_blocks_other_charges() {
        let votes = [
            (ChargeMode::Enforced, Outcome::Allowed),
            (ChargeMode::Shadow(0), WAIT),
            (ChargeMode::Shadow(1), Outcome::Allowed),
        ];
        assert!(is_allowed(votes));
        assert!(is_charged(votes, ChargeMode::Enforced));
        assert!(!is_charged(votes, ChargeMode::Shadow(0)));
        assert!(is_charged(votes, ChargeMode::Shadow(1)));
    }

    #[test]
    fn shadow_limits_are_not_charged_for_a_denied_request() {
        let votes = [(ChargeMode::Enforced, WAIT), (ChargeMode::Shadow(0), Outcome::Allowed)];
        assert!(!is_charged(votes, ChargeMode::Shadow(0)));
    }

    #[test]
    fn tightest_is_the_least_remaining_or_the_longest_wait() {
        let allowed =
            [verdict(Outcome::Allowed, 9, 1), verdict(Outcome::Allowed, 3, 1), verdict(Outcome::Allowed, 3, 2)];
        assert_eq!(tightest(allowed.iter().map(|each| (ChargeMode::Enforced, each))), Some(2));

        let longer = Outcome::Denied { retry_after: Micros::from_micros(8) };
        let denied = [verdict(Outcome::Allowed, 0, 0), verdict(WAIT, 5, 0), verdict(longer, 6, 0)];
        assert_eq!(tightest(denied.iter().map(|each| (ChargeMode::Enforced, each))), Some(2));

        let never = [verdict(longer, 0, 0), verdict(Outcome::NeverAdmissible, 6, 0)];
        assert_eq!(tightest(never.iter().map(|each| (ChargeMode::Enforced, each))), Some(1));
    }

    #[test]
    fn joint_wait_is_the_longest_of_the_enforced_limits() {
        let longer = Outcome::Denied { retry_after: Micros::from_micros(8) };
        let enforced =
            |outcomes: &[Outcome]| joint_wait(outcomes.iter().map(|each| (ChargeMode::Enforced, *each)));
        assert_eq!(enforced(&[Outcome::Allowed]), None);
        assert_eq!(enforced(&[WAIT, longer, Outcome::Allowed]), Some(Micros::from_micros(8)));
        assert_eq!(enforced(&[WAIT, Outcome::NeverAdmissible]), None);
        assert_eq!(
            joint_wait([(ChargeMode::Enforced, WAIT), (ChargeMode::Shadow(0), longer)]),
            Some(Micros::from_micros(7))
        );
    }

    #[test]
    fn shadow_limits_are_never_the_tightest() {
        let shadow = verdict(WAIT, 0, 0);
        assert_eq!(tightest([(ChargeMode::Shadow(0), &shadow)]), None);
    }
}
