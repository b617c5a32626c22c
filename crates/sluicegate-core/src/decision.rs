//! Several limits, one decision: all or nothing, and the tightest limit speaks for the rest.
//!
//! Every limit belongs to a [`Group`]. Limits that are enforced are charged together or not at all. A shadow
//! rule only watches: its limits are charged together, as they would be if it were enforced, but only when
//! the request passes, and what it says never changes the decision.

use crate::verdict::{Outcome, Verdict};

/// Whose limits are charged together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Group {
    /// Limits that decide.
    Enforced,
    /// Limits of one shadow rule, told apart by a number.
    Shadow(u16),
}

/// True if every enforced limit has room, which is what allows the request.
pub fn is_allowed(votes: impl IntoIterator<Item = (Group, Outcome)>) -> bool {
    votes.into_iter().all(|(group, outcome)| group != Group::Enforced || outcome.is_allowed())
}

/// True if the limits of `group` are to be charged: the request is allowed, and so says all of the group.
pub fn is_charged<I>(votes: I, group: Group) -> bool
where
    I: IntoIterator<Item = (Group, Outcome)>,
{
    votes.into_iter().all(|(voter, outcome)| {
        let concerned = voter == Group::Enforced || voter == group;
        !concerned || outcome.is_allowed()
    })
}

/// The index of the limit that speaks for the whole decision: when something denies, the denial with the
/// longest wait (never is the longest), otherwise the limit with the least left (the later reset on a tie).
/// Shadow limits do not speak. `None` when no limit is enforced.
pub fn tightest<'v>(verdicts: impl IntoIterator<Item = (Group, &'v Verdict)>) -> Option<usize> {
    verdicts
        .into_iter()
        .enumerate()
        .filter(|(_, (group, _))| *group == Group::Enforced)
        // `min_by_key` takes the first of equals, so the order of the rules decides a full tie.
        .min_by_key(|(_, (_, verdict))| looseness(verdict))
        .map(|(index, _)| index)
}

/// Smaller is tighter.
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
    use crate::time::Micros;

    const WAIT: Outcome = Outcome::Denied { retry_after: Micros::from_micros(7) };

    fn verdict(outcome: Outcome, remaining: u64, reset_after: u64) -> Verdict {
        Verdict { outcome, limit: 100, remaining, reset_after: Micros::from_micros(reset_after) }
    }

    #[test]
    fn one_denial_denies_and_nothing_is_charged() {
        let votes = [(Group::Enforced, Outcome::Allowed), (Group::Enforced, WAIT)];
        assert!(!is_allowed(votes));
        assert!(!is_charged(votes, Group::Enforced));
    }

    #[test]
    fn a_shadow_denial_neither_denies_nor_keeps_others_from_being_charged() {
        let votes =
            [(Group::Enforced, Outcome::Allowed), (Group::Shadow(0), WAIT), (Group::Shadow(1), Outcome::Allowed)];
        assert!(is_allowed(votes));
        assert!(is_charged(votes, Group::Enforced));
        assert!(!is_charged(votes, Group::Shadow(0)));
        assert!(is_charged(votes, Group::Shadow(1)));
    }

    #[test]
    fn shadow_limits_are_not_charged_for_a_denied_request() {
        let votes = [(Group::Enforced, WAIT), (Group::Shadow(0), Outcome::Allowed)];
        assert!(!is_charged(votes, Group::Shadow(0)));
    }

    #[test]
    fn the_least_remaining_speaks_when_allowed_and_the_longest_wait_when_denied() {
        let allowed =
            [verdict(Outcome::Allowed, 9, 1), verdict(Outcome::Allowed, 3, 1), verdict(Outcome::Allowed, 3, 2)];
        assert_eq!(tightest(allowed.iter().map(|each| (Group::Enforced, each))), Some(2));

        let longer = Outcome::Denied { retry_after: Micros::from_micros(8) };
        let denied = [verdict(Outcome::Allowed, 0, 0), verdict(WAIT, 5, 0), verdict(longer, 6, 0)];
        assert_eq!(tightest(denied.iter().map(|each| (Group::Enforced, each))), Some(2));

        let never = [verdict(longer, 0, 0), verdict(Outcome::NeverAdmissible, 6, 0)];
        assert_eq!(tightest(never.iter().map(|each| (Group::Enforced, each))), Some(1));
    }

    #[test]
    fn shadow_limits_never_speak() {
        let shadow = verdict(WAIT, 0, 0);
        assert_eq!(tightest([(Group::Shadow(0), &shadow)]), None);
    }
}
