//! The short way of a check: the store is in this process and answers at once, so there is nothing to wait for and nothing to
//! carry over. Apart from that it decides, and tells the observer, as the long way does.

use super::{Action, Limiter, Question, is_free, validate};
use crate::clock::Clock;
use crate::decision::Decision;
use crate::identity::Request;
use crate::limiter::CheckError;
use crate::observe::{Decided, Observer, Operation};
use crate::rules::RuleSet;
use crate::rules::matching::Matched;
use crate::store::{MemoryStore, Store, Verdicts};
use std::sync::Arc;

impl<S: Store, C: Clock, O: Observer> Limiter<S, C, O> {
    /// Decides, and charges all limits if the request is allowed.
    pub(super) fn check_at_once(
        &self,
        store: &MemoryStore,
        rules: Arc<RuleSet>,
        request: &Request<'_>,
    ) -> Result<Decision, CheckError> {
        let began = self.clock.now();
        validate(&rules, request)?;
        let mut matched = Matched::nothing();
        matched.consider_all(&rules, request, began);
        let asked_at = if self.is_worth_measuring(&rules) { self.clock.now() } else { began };
        // What nothing limits needs no store.
        let asked_store = !matched.charges.is_empty();
        let verdicts = if asked_store { store.charge_now(&matched.charges, asked_at) } else { Verdicts::new() };
        let took = self.answered(Action::Charge, &matched.charges, asked_at, began);
        let (applied, is_covered) = (std::mem::take(&mut matched.applied), matched.any || is_free(request));
        // The rules go with the decision.
        drop(matched);
        let answer = Ok(Decision::new(rules, applied, verdicts, asked_at, is_covered));
        if let Ok(decision) = &answer {
            self.observer.decided(&Decided { request, decision, asked_at, took });
            let (requests, operation) = (std::slice::from_ref(request), Operation::Charge);
            self.finished(Question { requests, operation, began, asked_at, asked_store, took }, Ok(decision));
        }
        answer
    }
}
