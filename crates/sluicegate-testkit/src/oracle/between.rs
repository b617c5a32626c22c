//! The contract for decisions at an instant that is known only to lie between two others: real servers in real time.
//!
//! Two states are kept: a lower and an upper bound of the charged usage. An earlier charge also recovers earlier, so
//! each operation runs on both states at both instants, and the system's answer must lie between the results. If the
//! outcome of a check depends on the instant, the check is charged according to the system's answer. If the answer
//! omits something, for example the limits of a shadow rule that a front door does not show, that usage is charged to
//! the upper bound only.

use super::answer::{Answer, Reply, Scope};
use super::contract::{Contract, Told};
use super::operation::{Action, TestRequest};
use super::rules::Rules;
use super::shown::{Comparison, Possible, Shown};
use std::collections::BTreeMap;

/// One operation and its results. For several requests with one decision, the joint answer comes first, followed by
/// that of each request.
#[derive(Clone, Debug)]
pub struct Answered {
    /// The action.
    pub action: Action,
    /// The requests.
    pub requests: Vec<TestRequest>,
    /// The answers, as the front door showed them.
    pub shown: Vec<Shown>,
}

/// The contract over an interval of possible instants.
#[derive(Clone, Debug)]
pub struct Between {
    least: Contract,
    most: Contract,
    scope: Scope,
    /// Checks for which the contract allows only one outcome.
    certain: usize,
    uncertain: usize,
}

/// A state, and the instant at which the operation runs on it.
struct Corner {
    contract: Contract,
    at: u64,
    /// Whether unknown charges are applied.
    charges: bool,
}

impl Between {
    /// Starts without any charges.
    #[must_use]
    pub fn new(rules: &Rules, now: u64, scope: Scope) -> Self {
        let contract = Contract::new(rules.clone(), now);
        Self { least: contract.clone(), most: contract, scope, certain: 0, uncertain: 0 }
    }

    /// Replaces the rules.
    pub fn reload(&mut self, rules: &Rules) {
        self.least.reload(rules.clone());
        self.most.reload(rules.clone());
    }

    /// The number of checks with only one possible outcome, and the number with two.
    #[must_use]
    pub const fn certainty(&self) -> [usize; 2] {
        [self.certain, self.uncertain]
    }

    /// Compares operations that ran in this order between these two instants. Returns the differences that no instant
    /// explains.
    pub fn compare(&mut self, from: u64, to: u64, answered: &[Answered]) -> Vec<String> {
        let (least, most) = (|| self.least.clone(), || self.most.clone());
        let corner = |contract: Contract, at: u64, charges: bool| Corner { contract, at, charges };
        let mut corners = [
            corner(least(), from, false),
            corner(least(), to, false),
            corner(most(), from, true),
            corner(most(), to, true),
        ];
        let mut found = Vec::new();
        for (place, each) in answered.iter().enumerate() {
            let what = self.step(&mut corners, (from, to), each);
            let name = if answered.len() > 1 { format!("check {place}: ") } else { String::new() };
            found.extend(what.into_iter().map(|what| format!("{name}{what}")));
        }
        let [earliest, _, _, latest] = corners;
        (self.least, self.most) = (earliest.contract, latest.contract);
        found
    }

    fn step(&mut self, corners: &mut [Corner; 4], (from, to): (u64, u64), answered: &Answered) -> Vec<String> {
        let Answered { action, requests, shown } = answered;
        // A fifth corner: usage charged at the earliest instant, read at the latest.
        let refilled = Corner { contract: corners[0].contract.clone(), at: to, charges: false };
        let mut all: Vec<&mut Corner> = corners.iter_mut().collect();
        let mut refilled = refilled;
        all.push(&mut refilled);
        let granted = |(at, reply): (u64, Reply)| match shown[0].is_granted {
            true => (at, reply.into_iter().map(Answer::granted).collect()),
            false => (at, reply),
        };
        let untold: Vec<(u64, Reply)> = all.iter().map(|corner| granted(corner.send(*action, requests))).collect();
        let mut found = self.compare_outcome(answered, &untold, to - from);
        let told = all.iter().map(|corner| told(answered, &untold, corner.charges)).collect::<Vec<_>>();
        let replies: Vec<(u64, Reply)> = all
            .iter_mut()
            .zip(told)
            .map(|(corner, told)| {
                corner.contract.set_clock(corner.at);
                granted((corner.at, corner.contract.act_as_told(*action, requests, &told)))
            })
            .collect();
        let is_denied_check = *action == Action::Check && !shown[0].allowed;
        if self.scope == Scope::NoNumbersOfDeniedChecks && is_denied_check {
            return found;
        }
        for (place, shown) in shown.iter().enumerate() {
            let comparison = Comparison { shown, possible: possible(&replies, place), width: to - from };
            let name = if place == 0 { String::new() } else { format!("request {place}: ") };
            found.extend(comparison.differences().into_iter().map(|what| format!("{name}{what}")));
        }
        found
    }

    /// Compares whether each outcome is possible. A refund and a reset return the same answer as a subsequent peek.
    fn compare_outcome(&mut self, answered: &Answered, untold: &[(u64, Reply)], width: u64) -> Vec<String> {
        let mut found = Vec::new();
        for (place, shown) in answered.shown.iter().enumerate() {
            let [may_allow, may_deny] = Comparison { shown, possible: possible(untold, place), width }.outcomes();
            if place == 0 && answered.action == Action::Check {
                self.certain += usize::from(may_allow != may_deny);
                self.uncertain += usize::from(may_allow && may_deny);
            }
            if !(if shown.allowed { may_allow } else { may_deny }) {
                let outcome = if shown.allowed { "allowed" } else { "denied" };
                found.push(format!("request {place} is {outcome}, which is not possible"));
            }
        }
        found
    }
}

impl Corner {
    /// The answer of this corner. The charge is not kept.
    fn send(&self, action: Action, requests: &[TestRequest]) -> (u64, Reply) {
        let mut contract = self.contract.clone();
        contract.set_clock(self.at);
        (self.at, contract.act(action, requests))
    }
}

fn possible<'a>(replies: &'a [(u64, Reply)], place: usize) -> Vec<Possible<'a>> {
    replies.iter().map(|(at, reply)| (*at, &reply[place])).collect()
}

/// The facts about a check that its answer reveals. For shadow rules that are not shown, the corner assumes the largest
/// possible charge, or the smallest.
fn told(answered: &Answered, untold: &[(u64, Reply)], charges: bool) -> Told {
    if answered.action != Action::Check {
        return Told::default();
    }
    let shown = &answered.shown[0];
    let mut shadows = BTreeMap::new();
    match &shown.limits {
        Some(limits) if shown.with_shadow => {
            let names = untold[0].1[0].limits.iter().map(|limit| &limit.rule);
            for (limit, rule) in limits.iter().zip(names).filter(|(limit, _)| limit.shadow) {
                *shadows.entry(rule).or_insert(true) &= limit.wait == Some(super::shown::ShownWait::None);
            }
        }
        _ => {
            let rooms: Vec<BTreeMap<&String, bool>> = untold.iter().map(|(_, reply)| rooms(&reply[0])).collect();
            for rule in rooms[0].keys() {
                let mut had_room = rooms.iter().map(|rooms| rooms[rule]);
                shadows.insert(*rule, if charges { had_room.any(|room| room) } else { had_room.all(|room| room) });
            }
        }
    }
    Told {
        allowed: Some(shown.allowed),
        shadows: shadows.into_iter().map(|(rule, room)| (rule.clone(), room)).collect(),
    }
}

/// The shadow rules, with a flag for each: whether all of its limits have room.
fn rooms(answer: &Answer) -> BTreeMap<&String, bool> {
    let mut rooms = BTreeMap::new();
    for limit in answer.limits.iter().filter(|limit| limit.shadow) {
        *rooms.entry(&limit.rule).or_insert(true) &= limit.wait.is_none();
    }
    rooms
}
