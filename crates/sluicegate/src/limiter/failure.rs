//! What each rule says when the store said nothing. Pure.
//!
//! One rule that decides and is closed then refuses the request, and nothing is charged for it anywhere. Otherwise the
//! local ones decide together, all or nothing, and the open ones have no objection. A rule that only watches refuses
//! in no case: it is watched on if it is local, and else has nothing to say.
//!
//! An error about the request itself, rather than about reaching the store, makes every rule a closed one: whoever
//! could bring such an error about would otherwise have found a way around the limit. A cost of nothing is allowed
//! even then, because it always is.

use crate::rules::matching::{Applied, Matched};
use crate::rules::{Mode, OnStoreFailure, Rule, RuleSet};
use crate::store::{Charge, ErrorClass};
use smallvec::SmallVec;

/// The rules of one request by what they say.
#[derive(Debug, Default)]
pub(super) struct Answers<'a> {
    /// Those that this instance decides by its share.
    pub(super) local: Local<'a>,
    /// Those that have no objection although they decide.
    pub(super) open: SmallVec<[Applied; 2]>,
    /// Those that refuse.
    pub(super) closed: SmallVec<[Applied; 2]>,
}

/// Charges and their origins, for this instance alone.
#[derive(Debug, Default)]
pub(super) struct Local<'a> {
    pub(super) charges: SmallVec<[Charge<'a>; 2]>,
    pub(super) applied: SmallVec<[Applied; 2]>,
}

/// What all rules that matched say to trouble of this class.
pub(super) fn answers<'a>(rules: &RuleSet, matched: Matched<'a>, class: ErrorClass) -> Answers<'a> {
    let mut answers = Answers::default();
    for (charge, applied) in matched.charges.into_iter().zip(matched.applied) {
        match answer(&rules.rules()[applied.rule], &charge, class) {
            Some(OnStoreFailure::Local) => {
                answers.local.charges.push(charge);
                answers.local.applied.push(applied);
            }
            Some(OnStoreFailure::Open) => answers.open.push(applied),
            Some(OnStoreFailure::Closed) => answers.closed.push(applied),
            None => {}
        }
    }
    answers
}

/// What one of them says, if it has anything to say.
pub(super) fn answer(rule: &Rule, charge: &Charge<'_>, class: ErrorClass) -> Option<OnStoreFailure> {
    match policy(rule, charge, class) {
        OnStoreFailure::Local => Some(OnStoreFailure::Local),
        _ if rule.mode != Mode::Enforce => None,
        policy => Some(policy),
    }
}

fn policy(rule: &Rule, charge: &Charge<'_>, class: ErrorClass) -> OnStoreFailure {
    let policy = if class.is_about_the_request() { OnStoreFailure::Closed } else { rule.on_store_failure };
    match policy {
        OnStoreFailure::Closed if charge.cost.is_zero() => OnStoreFailure::Open,
        policy => policy,
    }
}
