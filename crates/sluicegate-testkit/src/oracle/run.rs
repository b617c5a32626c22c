//! Runs a case step by step on a system and on the contract, and reports the first answer that differs.

use super::answer::{Reply, Scope, Wait, differences};
use super::contract::Contract;
use super::draw::{Case, START};
use super::operation::{Action, Operation, TestRequest};
use super::system::System;
use std::fmt;

/// The number of forgettable entries of which every subset is tried. Of further entries, only all those that differ, or
/// all entries together, are tried.
const CHOICES_MAX: usize = 10;

/// An answer that breaks the contract.
#[derive(Clone, Debug)]
pub struct Disagreement {
    /// The case, up to the operation with the wrong answer.
    pub case: Case,
    /// The time of every operation.
    pub times: Vec<u64>,
    /// The fields that differ.
    pub differences: Vec<String>,
}

/// The totals of a case without a disagreement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Completed operations.
    pub operations: usize,
    /// Checks that were allowed.
    pub allowed: usize,
    /// Checks that were denied.
    pub denied: usize,
}

impl Tally {
    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            operations: self.operations + other.operations,
            allowed: self.allowed + other.allowed,
            denied: self.denied + other.denied,
        }
    }
}

/// Runs `case` on a new system.
///
/// # Errors
/// If an answer breaks the contract.
pub async fn run<S: System>(case: &Case, system: &mut S, scope: Scope) -> Result<Tally, Box<Disagreement>> {
    let mut run = Run {
        contract: Contract::new(case.rules.clone(), START),
        now: START,
        wait: 0,
        scope,
        tally: Tally::default(),
    };
    let mut times = Vec::with_capacity(case.operations.len());
    for (place, operation) in case.operations.iter().enumerate() {
        let differences = run.step(operation, system).await;
        times.push(run.now);
        if !differences.is_empty() {
            let operations = case.operations[..=place].to_vec();
            return Err(Box::new(Disagreement { case: Case { operations, ..case.clone() }, times, differences }));
        }
    }
    Ok(run.tally)
}

/// A running case.
struct Run {
    contract: Contract,
    now: u64,
    /// The last reported wait.
    wait: u64,
    scope: Scope,
    tally: Tally,
}

impl Run {
    async fn step(&mut self, operation: &Operation, system: &mut impl System) -> Vec<String> {
        match operation {
            Operation::Advance(micros) => self.now += micros,
            Operation::StepBack(micros) => {
                self.now -= micros;
                // The denial cache uses the clock of its process, which never steps back. Here it does, so a charge
                // after the step appears to be earlier than the step.
                if self.scope == Scope::RememberedDenials {
                    self.scope = Scope::NoNumbersOfDeniedChecks;
                }
            }
            Operation::AdvanceByWait(more) => self.now += self.wait.saturating_add_signed(*more),
            Operation::Reload(rules) => {
                self.contract.reload((**rules).clone());
                system.reload(rules).await;
            }
            Operation::Act(action, requests) => {
                self.contract.set_clock(self.now);
                let actual = system.act(*action, requests, self.now).await;
                return self.compare(*action, requests, &actual);
            }
        }
        Vec::new()
    }

    fn compare(&mut self, action: Action, requests: &[TestRequest], actual: &Reply) -> Vec<String> {
        let scope = self.scope;
        let forgettable = self.contract.forgettable(requests);
        let expected = self.contract.act(action, requests);
        self.count(action, &expected);
        let is_check = action == Action::Check;
        let found = differences(&expected, actual, is_check, scope);
        if found.is_empty() || forgettable.is_empty() {
            return found;
        }
        // A store may have forgotten any usage that no longer mattered. From here on the contract follows the system.
        self.contract.roll_back();
        let before = self.contract.clone();
        let differs = |place: usize| expected[0].limits.get(place) != actual[0].limits.get(place);
        let differing = forgettable.iter().map(|(place, _)| differs(*place)).collect();
        for choice in choices(differing) {
            let chosen = forgettable.iter().zip(choice).filter(|(_, is_chosen)| *is_chosen);
            chosen.for_each(|((_, place), _)| self.contract.forget(place));
            let expected = self.contract.act(action, requests);
            if differences(&expected, actual, is_check, scope).is_empty() {
                return Vec::new();
            }
            self.contract = before.clone();
        }
        found
    }

    fn count(&mut self, action: Action, expected: &Reply) {
        self.tally.operations += 1;
        if let Some(Wait::Micros(wait)) = expected[0].wait {
            self.wait = wait;
        }
        if action == Action::Check {
            self.tally.allowed += usize::from(expected[0].allowed);
            self.tally.denied += usize::from(!expected[0].allowed);
        }
    }
}

/// The combinations of usage that may have been forgotten: the entries that differ, all of them, or any subset.
fn choices(differs: Vec<bool>) -> Vec<Vec<bool>> {
    let count = differs.len();
    let any = 1..1_usize << count.min(CHOICES_MAX);
    let any = any.map(|choice| (0..count).map(|place| choice >> place & 1 == 1).collect());
    [differs, vec![true; count]].into_iter().chain(any).collect()
}

impl fmt::Display for Disagreement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { case, times, differences } = self;
        writeln!(
            formatter,
            "seed {}\n\n{}\noperations, with seconds since the start:",
            case.seed,
            case.rules.to_yaml()
        )?;
        for (operation, now) in case.operations.iter().zip(times) {
            let micros = i128::from(*now) - i128::from(START);
            let sign = if micros < 0 { '-' } else { ' ' };
            let micros = micros.abs();
            writeln!(formatter, "{sign}{:>6}.{:06}  {operation}", micros / 1_000_000, micros % 1_000_000)?;
        }
        writeln!(formatter, "\nthe last answer breaks the contract:")?;
        differences.iter().try_for_each(|difference| writeln!(formatter, "{difference}"))
    }
}
