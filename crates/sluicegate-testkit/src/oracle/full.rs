//! A full embedded store, compared with the contract: strangers keep filling it, and new clients share the overflow
//! state.
//!
//! A client with shared state may be denied because of the charges of others, and its remaining quota includes their
//! usage. But the store must never admit a request that the contract denies to that client alone, no matter which keys
//! come and go in the meantime. The contract is therefore charged for the admitted requests, and it must allow each of
//! them. A peek must agree with the check that follows it, and a refund or a reset must agree with the peek that
//! follows it.

use super::contract::{Contract, Told};
use super::draw::{Case, Options, Random, START};
use super::operation::{Action, Ask, Operation};
use super::rules::{Mode, Rule};
use super::run::Tally;
use super::system::{Library, System};
use sluicegate::MemoryStore;
use sluicegate::core::Timestamp;
use sluicegate::store::memory::MemoryOptions;

/// The number of operations of a case.
const OPERATIONS: usize = 200;
/// A store with more keys than this has room for all clients.
const KEYS_MAX: u64 = 12;
/// Additional clients that fill the store.
const STRANGERS: [&str; 12] = ["s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11"];

/// A case, and the capacity of its store.
pub(super) struct Full {
    case: Case,
    max_keys: usize,
    random: Random,
    contract: Contract,
    now: u64,
    log: String,
}

impl Full {
    /// The case of a seed. It has no shadow rules, because their charges are not visible. It has no credits either: a
    /// client with fewer remaining credits is remembered for longer, so it may have more credits later.
    pub(super) fn draw(seed: u64) -> Self {
        let options =
            Options { credits: false, repairs: false, steps_back: false, ..Options::everything(OPERATIONS) };
        let mut case = Case::draw(seed, &options);
        let reloads = case.operations.iter_mut().filter_map(|operation| match operation {
            Operation::Reload(rules) => Some(&mut **rules),
            _ => None,
        });
        let enforce = |rule: &mut Rule| rule.mode = Mode::Enforce;
        [&mut case.rules].into_iter().chain(reloads).flat_map(|rules| &mut rules.rules).for_each(enforce);
        let mut random = Random::new(seed ^ 2);
        let contract = Contract::new(case.rules.clone(), START);
        let max_keys = random.below(KEYS_MAX) as usize;
        Self { case, max_keys, random, contract, now: START, log: String::new() }
    }

    pub(super) async fn run(mut self) -> Result<Tally, String> {
        let options = MemoryOptions { max_keys: self.max_keys, shards: 1 };
        let store = MemoryStore::new(options, Timestamp::now(START));
        let mut library = Library::new(store, &self.case.rules);
        let mut tally = Tally::default();
        for operation in std::mem::take(&mut self.case.operations) {
            self.log += &format!("{:>12} {operation}\n", self.now - START);
            match operation {
                Operation::Advance(micros) => self.now += micros,
                Operation::StepBack(_) | Operation::AdvanceByWait(_) => self.now += 1,
                Operation::Reload(rules) => {
                    self.contract.reload((*rules).clone());
                    library.reload(&rules).await;
                }
                Operation::Act(action, asks) => {
                    self.act(&mut library, action, &asks, &mut tally).await?;
                    let stranger = Ask { identifier: self.random.one_of(&STRANGERS), ..asks[0] };
                    self.act(&mut library, Action::Check, &[stranger], &mut tally).await?;
                }
            }
        }
        Ok(tally)
    }

    async fn act(
        &mut self,
        library: &mut Library<MemoryStore>,
        action: Action,
        asks: &[Ask],
        tally: &mut Tally,
    ) -> Result<(), String> {
        self.contract.set_clock(self.now);
        let peeked = library.act(Action::Peek, asks, self.now).await[0].clone();
        let expected = self.contract.act(Action::Peek, asks)[0].allowed;
        let answer = library.act(action, asks, self.now).await[0].clone();
        tally.operations += 1;
        if action == Action::Check {
            tally.allowed += usize::from(answer.allowed);
            tally.denied += usize::from(!answer.allowed);
            if answer.allowed && !expected {
                return Err(self.wrong("more was admitted than the client has", asks));
            }
            if answer.allowed != peeked.allowed {
                return Err(self.wrong("a check is answered otherwise than the peek before it", asks));
            }
        } else if let ([ask], Action::Refund | Action::Report | Action::Reset) = (asks, action) {
            let after = library.peek(ask).await[0].clone();
            if after != answer {
                return Err(self.wrong(&format!("{answer:?}, and then a peek says {after:?}"), asks));
            }
        }
        self.contract.act_as_told(action, asks, &Told { allowed: Some(answer.allowed), shadows: Vec::new() });
        Ok(())
    }

    fn wrong(&self, what: &str, asks: &[Ask]) -> String {
        let (Self { case, max_keys, now, log, .. }, asks) = (self, asks.iter().map(ToString::to_string));
        let asks = asks.collect::<Vec<_>>().join(" and ");
        let (seed, after, rules) = (case.seed, now - START, case.rules.to_yaml());
        format!("seed {seed}, {max_keys} keys, {after} µs after the start, {asks}: {what}\n{rules}{log}")
    }
}
