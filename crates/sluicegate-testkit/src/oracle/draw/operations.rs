//! Random operations on a few clients that share tenants, addresses and patterns.

use super::Random;
use super::limits::Scale;
use super::rules::{self, TIERS};
use crate::oracle::operation::{Action, Ask, Operation};
use crate::oracle::rules::Rules;

const TENANTS: [&str; 3] = ["default", "default", "acme"];
const RESOURCES: [&str; 4] = ["api.read", "api.read", "api.write", "other"];
const IDENTIFIERS: [&str; 5] = ["ann", "ann", "bob", "vip-1", "vip-2"];

/// The next operation. `in_force` is updated to the rules after it.
pub(super) fn draw(random: &mut Random, scale: &Scale, in_force: &mut Rules) -> Operation {
    match random.below(200) {
        0..60 => Operation::Advance(advance(random, scale)),
        60..76 => Operation::AdvanceByWait(random.one_of(&[-1, 0, 0, 1])),
        76..79 if scale.steps_back => Operation::StepBack(step_back(random, scale)),
        76..79 => Operation::Advance(1),
        79..82 => {
            rules::change(random, scale, in_force);
            Operation::Reload(Box::new(in_force.clone()))
        }
        82..84 => Operation::Act(Action::Reset, vec![ask(random)]),
        84..91 => Operation::Act(Action::Refund, asks(random, scale)),
        91..94 => Operation::Act(Action::Report, vec![ask(random)]),
        94..120 => Operation::Act(Action::Peek, asks(random, scale)),
        120..126 => {
            let is_report = |random: &mut Random| random.percent(60);
            let asks = asks(random, scale).into_iter();
            let asks = asks.map(|ask| Ask { is_report: is_report(random), ..ask }).collect();
            Operation::Act(Action::Check, asks)
        }
        _ => Operation::Act(Action::Check, asks(random, scale)),
    }
}

fn asks(random: &mut Random, scale: &Scale) -> Vec<Ask> {
    let count = if scale.joint && random.percent(10) { random.between(2, 4) } else { 1 };
    (0..count).map(|_| ask(random)).collect()
}

/// One request of one of the clients.
pub(super) fn ask(random: &mut Random) -> Ask {
    Ask {
        tenant: random.one_of(&TENANTS),
        resource: random.one_of(&RESOURCES),
        identifier: random.one_of(&IDENTIFIERS),
        address: random.one_of(&[None, Some(1), Some(1), Some(2)]),
        tier: random.one_of(&[None, None, Some(TIERS[0]), Some(TIERS[1]), Some(TIERS[2])]),
        cost: cost(random),
        is_report: false,
    }
}

fn cost(random: &mut Random) -> Option<u32> {
    match random.below(40) {
        0..20 => None,
        20..28 => Some(1),
        28..35 => Some(random.between(2, 5) as u32),
        35..38 => Some(random.between(6, 30) as u32),
        38 => Some(0),
        _ => Some(random.one_of(&[1_000, 1_000_000, u32::MAX / 8])),
    }
}

fn advance(random: &mut Random, scale: &Scale) -> u64 {
    match random.below(10) {
        0 | 1 => random.below(1_000),
        2..6 => random.below(scale.unit / 4 + 1),
        6..9 => random.below(2 * scale.unit),
        _ => random.below(30 * scale.unit),
    }
}

/// Without repairs, all backward steps of a case together stay far below the second of tolerance of a store.
fn step_back(random: &mut Random, scale: &Scale) -> u64 {
    match random.below(4) {
        0 => random.between(1, 1_000),
        _ if !scale.repairs => random.between(1, 20_000),
        1 | 2 => random.between(1, 1_000_000),
        _ => random.between(1, 20 * scale.unit),
    }
}
