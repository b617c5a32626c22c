//! Random limits. The limits of one case have lengths of a similar scale, so that they interact.

use super::{Options, Random};
use crate::oracle::limit::{Bucket, FixedWindow, Limit, SlidingCounter, SlidingWindow, Windows};

const MILLI: u64 = 1_000;
const DAY: u64 = 86_400_000_000;

/// The approximate length of a window of a case, in milliseconds.
const VIRTUAL_TIME: [u64; 9] = [1, 10, 100, 1_000, 1_000, 10_000, 60_000, 3_600_000, 86_400_000];
const REAL_TIME: [u64; 6] = [200, 1_000, 60_000, 3_600_000, 3_600_000, 86_400_000];

/// The scale and the features of the limits of a case.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    /// The approximate length of a window.
    pub(super) unit: u64,
    credits: bool,
    pub(super) repairs: bool,
    pub(super) steps_back: bool,
    /// Whether there may be shadow rules.
    pub(super) shadow: bool,
    /// Whether several requests may have one decision.
    pub(super) joint: bool,
}

impl Scale {
    pub(super) fn draw(random: &mut Random, options: &Options) -> Self {
        let Options { credits, repairs, steps_back, joint_shadow, real_time, .. } = *options;
        let unit = random.one_of(if real_time { &REAL_TIME } else { &VIRTUAL_TIME }) * MILLI;
        let shadow = random.percent(50);
        let (shadow, joint) = (joint_shadow || shadow, joint_shadow || !shadow);
        Self { unit, credits, repairs, steps_back, shadow, joint }
    }

    /// A random length in whole milliseconds, close to the scale.
    fn length(&self, random: &mut Random) -> u64 {
        match random.below(4) {
            0 => self.unit,
            1 => self.unit * random.between(2, 10),
            2 => random.between(1, 4 * self.unit / MILLI) * MILLI,
            _ => (self.unit / MILLI / random.between(1, 5)).max(1) * MILLI,
        }
    }
}

/// One to three limits, occasionally more.
pub(super) fn list(random: &mut Random, scale: &Scale) -> Vec<Limit> {
    let count = random.one_of(&[1, 1, 1, 2, 2, 3, 4]);
    (0..count).map(|_| limit(random, scale)).collect()
}

fn limit(random: &mut Random, scale: &Scale) -> Limit {
    match random.below(5) {
        0 | 1 => Limit::Bucket(bucket(random, scale)),
        2 => Limit::SlidingWindow(SlidingWindow { limit: units(random), window: scale.length(random) }),
        3 => Limit::SlidingCounter(SlidingCounter { limit: units(random), window: scale.length(random) }),
        _ => Limit::FixedWindow(FixedWindow { limit: units(random), windows: windows(random, scale) }),
    }
}

/// Changes the parameters of the limit but keeps its algorithm. Without repairs it also keeps its length, or a bucket
/// takes longer to fill.
pub(super) fn change(random: &mut Random, scale: &Scale, limit: &mut Limit) {
    let changes_length = scale.repairs && random.percent(50);
    match limit {
        Limit::Bucket(before) => change_bucket(random, scale, before),
        Limit::SlidingWindow(before) if changes_length => before.window = scale.length(random),
        Limit::SlidingWindow(before) => before.limit = units(random),
        Limit::SlidingCounter(before) if changes_length => before.window = scale.length(random),
        Limit::SlidingCounter(before) => before.limit = units(random),
        Limit::FixedWindow(before) if changes_length => before.windows = windows(random, scale),
        Limit::FixedWindow(before) => before.limit = units(random),
    }
}

fn change_bucket(random: &mut Random, scale: &Scale, before: &mut Bucket) {
    let other = bucket(random, scale);
    match random.below(3) {
        _ if !scale.repairs => before.capacity += random.between(1, 5),
        0 => before.capacity = other.capacity,
        1 => before.credits = other.credits,
        _ => *before = other,
    }
}

/// Mostly small numbers, so that limits are reached.
fn units(random: &mut Random) -> u64 {
    match random.below(20) {
        0 => 0,
        1 => random.between(11, 1_000),
        2 => random.between(1, 10_000),
        _ => random.between(1, 10),
    }
}

fn bucket(random: &mut Random, scale: &Scale) -> Bucket {
    let has_credits = scale.credits && random.percent(30);
    let capacity = if random.percent(90) { random.between(1, 10) } else { random.between(11, 300) };
    let amount = match random.below(10) {
        0 => random.between(100, 1_000_000),
        1 | 2 => capacity,
        _ => random.between(1, 12),
    };
    Bucket {
        capacity,
        credits: if has_credits { random.between(1, 20) } else { 0 },
        amount,
        period: scale.length(random),
        credit_ttl: if random.percent(30) { DAY } else { scale.length(random) },
    }
}

fn windows(random: &mut Random, scale: &Scale) -> Windows {
    if random.percent(75) {
        return Windows::Even(scale.length(random));
    }
    match random.below(4) {
        0 => Windows::Hours,
        1 => Windows::Days,
        2 => Windows::Weeks(random.below(7)),
        _ => Windows::Months(random.between(1, 31)),
    }
}
