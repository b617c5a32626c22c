//! The answer of each rule to a store failure. Pure.
//!
//! If any enforced rule fails closed, the request is rejected and nothing is charged. Otherwise the fallback decides all
//! `local` rules together, all or nothing, and the rules that fail open do not object. A rule in shadow mode never rejects:
//! the fallback counts it if it is `local`, and ignores it otherwise.
//!
//! An overloaded store has not failed. Then the fallback decides all rules, whatever their policy, so a flood of requests
//! neither disables a limit nor takes the service down.
//!
//! Usage that has already happened is charged when the store answers again, also under rules in shadow mode, and under rules
//! that fail closed if it is part of a check: Envoy ignores the response to a report. A report alone under a rule that fails
//! closed is an error, and nothing is charged, so the client can repeat it.
//!
//! If the error is about the request itself and not about reaching the store, every rule fails closed. Otherwise a client
//! that provokes such an error could bypass the limit. A cost of zero is always allowed, even then.

use crate::rules::matching::{Applied, Matched};
use crate::rules::{Mode, OnStoreFailure, Rule, RuleSet};
use crate::store::{Charge, ErrorClass};
use smallvec::SmallVec;

/// The rules of one request, grouped by their answer to the failure.
#[derive(Debug, Default)]
pub(super) struct FailureAnswers<'a> {
    /// The rules that the fallback decides.
    pub(super) local: LocalCharges<'a>,
    /// The enforced rules that fail open.
    pub(super) open: SmallVec<[Applied; 2]>,
    /// The enforced rules that fail closed.
    pub(super) closed: SmallVec<[Applied; 2]>,
    /// The usage under all rules that the fallback does not decide: it is charged when the store answers again.
    pub(super) other_usage: SmallVec<[Charge<'a>; 1]>,
}

/// The charges for the fallback, with their rules and limit sets.
#[derive(Debug, Default)]
pub(super) struct LocalCharges<'a> {
    pub(super) charges: SmallVec<[Charge<'a>; 2]>,
    pub(super) applied: SmallVec<[Applied; 2]>,
}

/// The answers of all matching rules to an error of this class.
pub(super) fn answers<'a>(rules: &RuleSet, matched: Matched<'a>, class: ErrorClass) -> FailureAnswers<'a> {
    let mut answers = FailureAnswers::default();
    for (charge, applied) in matched.charges.into_iter().zip(matched.applied) {
        match answer(&rules.rules()[applied.rule], &charge, class) {
            Some(OnStoreFailure::Local) => {
                answers.local.charges.push(charge);
                answers.local.applied.push(applied);
            }
            Some(OnStoreFailure::Open) => {
                answers.open.push(applied);
                answers.other_usage.push(charge.usage_alone());
            }
            Some(OnStoreFailure::Closed) => {
                answers.closed.push(applied);
                answers.other_usage.push(charge.usage_alone());
            }
            None => answers.other_usage.push(charge.usage_alone()),
        }
    }
    answers
}

/// The answer of one rule; `None` if the rule is in shadow mode and not local.
pub(super) fn answer(rule: &Rule, charge: &Charge<'_>, class: ErrorClass) -> Option<OnStoreFailure> {
    match policy(rule, charge, class) {
        OnStoreFailure::Local => Some(OnStoreFailure::Local),
        _ if rule.mode != Mode::Enforce => None,
        policy => Some(policy),
    }
}

fn policy(rule: &Rule, charge: &Charge<'_>, class: ErrorClass) -> OnStoreFailure {
    let policy = match class {
        class if class.is_overload() => OnStoreFailure::Local,
        class if class.is_about_the_request() => OnStoreFailure::Closed,
        _ => rule.on_store_failure,
    };
    match policy {
        OnStoreFailure::Closed if charge.cost.is_zero() => OnStoreFailure::Open,
        policy => policy,
    }
}
