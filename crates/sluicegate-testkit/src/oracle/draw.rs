//! Random cases: rules, clients and operations, all generated from one seed.

mod limits;
mod operations;
mod random;
mod rules;

use super::operation::Operation;
#[cfg(feature = "servers")]
use super::operation::TestRequest;
use super::rules::Rules;
pub use random::Random;

/// An instant in January 2024 that lies on no window boundary.
pub const START: u64 = 1_705_312_800_123_456;

/// The features that a case may use.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The number of operations of a case.
    pub operations: usize,
    /// Whether token buckets may have credits.
    pub credits: bool,
    /// Whether usage may come to lie too far ahead of the clock: by backward steps of more than a second, and by
    /// reloads that shorten a limit.
    pub repairs: bool,
    /// Whether the clock may step back.
    pub steps_back: bool,
    /// Whether one case may combine shadow rules with several requests under one decision.
    pub joint_shadow: bool,
    /// Whether the case runs in real time: limits are then so short that waiting for them is quick, or so long that
    /// nothing recovers.
    pub real_time: bool,
}

impl Options {
    /// All features.
    #[must_use]
    pub const fn everything(operations: usize) -> Self {
        Self { operations, credits: true, repairs: true, steps_back: true, joint_shadow: true, real_time: false }
    }
}

/// One case: initial rules and operations.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// The seed of the case.
    pub seed: u64,
    /// The rules at the start.
    pub rules: Rules,
    /// The operations, in order.
    pub operations: Vec<Operation>,
}

impl Case {
    /// The case of a seed.
    #[must_use]
    pub fn draw(seed: u64, options: &Options) -> Self {
        let random = &mut Random::new(seed);
        let scale = limits::Scale::draw(random, options);
        let rules = rules::draw(random, &scale);
        let mut in_force = rules.clone();
        let mut drawn = Vec::with_capacity(options.operations);
        for _ in 0..options.operations {
            drawn.push(operations::draw(random, &scale, &mut in_force));
        }
        Self { seed, rules, operations: drawn }
    }

    /// The same case, starting at this instant: overrides end later by the same amount.
    #[must_use]
    pub fn beginning_at(mut self, seconds: u64) -> Self {
        let reloaded = self.operations.iter_mut().filter_map(|operation| match operation {
            Operation::Reload(rules) => Some(&mut **rules),
            _ => None,
        });
        let rules = [&mut self.rules].into_iter().chain(reloaded).flat_map(|rules| &mut rules.rules);
        for until in rules.flat_map(|rule| &mut rule.overrides).filter_map(|each| each.until.as_mut()) {
            *until = *until - START / 1_000_000 + seconds;
        }
        self
    }

    /// A request of one of the clients.
    #[cfg(feature = "servers")]
    pub(super) fn draw_request(random: &mut Random) -> TestRequest {
        operations::send(random)
    }

    /// A pause between requests, short or long relative to the windows of the case.
    #[cfg(feature = "servers")]
    pub(super) fn draw_pause(&self, random: &mut Random) -> u64 {
        let scale = limits::Scale::draw(&mut Random::new(self.seed), &Options::everything(0));
        random.below(2 * scale.unit)
    }
}
