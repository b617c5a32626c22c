//! Concurrent requests. The order of their decisions is unknown, but charges at one instant commute, and the room only
//! shrinks. The contract therefore requires, for any order:
//!
//! - The allowed requests fit together: charged one after the other, each of them is allowed.
//! - Nothing else was charged: afterwards the remaining quota of every limit equals that of the contract.
//! - Every denial was necessary: a denied request is still denied at the end.
//!
//! On a Cluster a request may be denied because of a charge that another request reverts later. There the requests of a
//! round are a microsecond apart, so that the reverted charges lie between those that stay.

use super::answer::{Scope, differences};
use super::between::{Answered, Between};
use super::contract::Contract;
use super::draw::{Case, Options, Random, START};
use super::operation::{Action, TestRequest};
use super::rules::Mode;
use super::run::Tally;
use super::shown::Shown;
use super::system::Library;
use sluicegate::store::Store;

const ROUNDS: usize = 6;
const REQUESTS_PER_ROUND: usize = 48;

/// One case: rules, and rounds of concurrent requests.
#[derive(Debug)]
pub(super) struct Crowd {
    case: Case,
    rounds: Vec<(u64, Vec<TestRequest>)>,
}

impl Crowd {
    /// The case of a seed. It has no shadow rule, because the requests that a shadow rule charges depend on their
    /// order. If denied requests revert their charges, a client without history may then have state, so such cases have
    /// no credits.
    pub(super) fn draw(seed: u64, credits: bool) -> Self {
        let mut case = Case::draw(seed, &Options { credits, ..Options::everything(0) });
        for rule in case.rules.rules.iter_mut().filter(|rule| rule.mode == Mode::Shadow) {
            rule.mode = Mode::Enforce;
        }
        let random = &mut Random::new(seed ^ 1);
        let mut now = START;
        let rounds = (0..ROUNDS).map(|_| {
            now += case.draw_pause(random);
            // Few clients, so that they conflict.
            let clients: Vec<TestRequest> =
                (0..random.between(1, 6)).map(|_| Case::draw_request(random)).collect();
            (now, (0..REQUESTS_PER_ROUND).map(|_| random.one_of(&clients)).collect())
        });
        let rounds = rounds.collect();
        Self { case, rounds }
    }

    pub(super) fn case(&self) -> &Case {
        &self.case
    }

    /// Sends all requests, with `at_once` for those of one round, and returns the differences.
    pub(super) async fn run<S: Store>(
        &self,
        library: &Library<S>,
        at_once: impl AsyncFn(&[TestRequest], u64) -> Vec<bool>,
    ) -> Result<Tally, String> {
        let mut contract = Contract::new(self.case.rules.clone(), START);
        let mut tally = Tally::default();
        for (now, requests) in &self.rounds {
            contract.set_clock(*now);
            let allowed = at_once(requests, *now).await;
            let wrong = |what: &str, request: &TestRequest| {
                let Case { seed, rules, .. } = &self.case;
                format!("seed {seed}, {} µs after the start, {request}: {what}\n{}", now - START, rules.to_yaml())
            };
            let answers = || requests.iter().zip(&allowed);
            for (request, _) in answers().filter(|(_, allowed)| **allowed) {
                if !contract.act(Action::Check, &[*request])[0].allowed {
                    return Err(wrong("more was allowed than fits", request));
                }
            }
            for (request, is_allowed) in answers() {
                let expected = contract.act(Action::Peek, &[*request]);
                let found = differences(&expected, &library.peek(request).await, false, Scope::Everything);
                if !found.is_empty() {
                    return Err(wrong(&found.join("\n"), request));
                }
                if !is_allowed && expected[0].allowed {
                    return Err(wrong("it was denied, and there is still room for it", request));
                }
            }
            let admitted = allowed.iter().filter(|allowed| **allowed).count();
            let (operations, denied) = (requests.len(), requests.len() - admitted);
            tally = tally.plus(Tally { operations, allowed: admitted, denied });
        }
        Ok(tally)
    }

    /// The same, with each request a microsecond after the previous one, so that no two charges have the same instant.
    /// Admissions and remaining quotas are compared with the contract between the first instant and the last. A request
    /// may be denied because of a charge that another one reverts later.
    pub(super) async fn run_apart<S: Store>(
        &self,
        library: &Library<S>,
        at_once: impl AsyncFn(&[TestRequest], u64) -> Vec<bool>,
    ) -> Result<Tally, String> {
        let mut between = Between::new(&self.case.rules, START, Scope::Everything);
        let mut tally = Tally::default();
        for (now, requests) in &self.rounds {
            let last = now + requests.len() as u64;
            let allowed = at_once(requests, *now).await;
            let admitted: Vec<Answered> = requests
                .iter()
                .zip(&allowed)
                .filter(|(_, allowed)| **allowed)
                .map(|(request, _)| Answered {
                    action: Action::Check,
                    requests: vec![*request],
                    shown: vec![Shown::only(true)],
                })
                .collect();
            let mut wrong = between.compare(*now, last, &admitted);
            for request in requests {
                let shown = vec![Shown::of(&library.peek(request).await[0])];
                let peeked = Answered { action: Action::Peek, requests: vec![*request], shown };
                let found = between.compare(last, last, &[peeked]);
                wrong.extend(found.into_iter().map(|what| format!("afterwards, {request}: {what}")));
            }
            if !wrong.is_empty() {
                let (Case { seed, rules, .. }, wrong) = (&self.case, wrong.join("\n"));
                return Err(format!(
                    "seed {seed}, {} µs after the start:\n{wrong}\n{}",
                    now - START,
                    rules.to_yaml()
                ));
            }
            let (operations, admitted) = (requests.len(), admitted.len());
            tally = tally.plus(Tally { operations, allowed: admitted, denied: operations - admitted });
        }
        Ok(tally)
    }
}
