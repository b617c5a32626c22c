//! Random rule sets, and random changes of them.

use super::limits::{self, Scale};
use super::{Random, START};
use crate::oracle::rules::{Limits, Mode, Override, Per, Rule, Rules};

const NAMES: [&str; 5] = ["api", "plan", "burst", "guard", "trial"];
pub(super) const TIERS: [&str; 3] = ["free", "pro", "admin"];
const TENANTS: [Option<&str>; 6] = [None, None, None, Some("*"), Some("acme"), Some("def*")];
const RESOURCES: [Option<&str>; 6] = [None, None, None, Some("api.*"), Some("api.read"), Some("*.write")];
const EXACT: [&str; 3] = ["ann", "vip-1", "bob"];
const PATTERNS: [&str; 3] = ["vip-*", "b*", "*n*"];

pub(super) fn draw(random: &mut Random, scale: &Scale) -> Rules {
    let count = random.one_of(&[1, 1, 2, 2, 3]);
    let rules = NAMES[..count].iter().map(|name| rule(random, scale, name)).collect();
    Rules { tiers: TIERS.to_vec(), denies_unmatched: random.percent(10), rules }
}

fn rule(random: &mut Random, scale: &Scale, name: &'static str) -> Rule {
    let tiers = TIERS.iter().filter(|_| random.percent(35)).copied().collect::<Vec<_>>();
    let tiers = tiers.into_iter().map(|tier| (tier, limits_of(random, scale))).collect();
    Rule {
        name,
        tenant: random.one_of(&TENANTS),
        resource: random.one_of(&RESOURCES),
        per: per(random),
        mode: mode(random, scale),
        cost: random.one_of(&[1, 1, 1, 1, 1, 2, 3, 0]),
        limits: limits_of(random, scale),
        tiers,
        overrides: overrides(random, scale),
    }
}

fn limits_of(random: &mut Random, scale: &Scale) -> Limits {
    random.percent(93).then(|| limits::list(random, scale))
}

fn per(random: &mut Random) -> Per {
    let per = |tenant, identifier, address| Per { tenant, identifier, address };
    random.one_of(&[
        per(true, true, false),
        per(true, true, false),
        per(true, true, true),
        per(true, false, false),
        per(true, false, false),
        per(true, false, true),
        per(false, false, true),
        per(false, false, false),
    ])
}

fn mode(random: &mut Random, scale: &Scale) -> Mode {
    match random.below(10) {
        0 | 1 if scale.shadow => Mode::Shadow,
        2 if random.percent(30) => Mode::Off,
        _ => Mode::Enforce,
    }
}

/// At most one exact override with an end and one without, then patterns that do not hide each other completely.
fn overrides(random: &mut Random, scale: &Scale) -> Vec<Override> {
    let mut all = Vec::new();
    if random.percent(60) {
        return all;
    }
    let span = (scale.unit / 200_000).clamp(2, 200_000);
    let mut add = |random: &mut Random, identifier, ends: bool| {
        let until = ends.then(|| START / 1_000_000 + 1 + random.below(span));
        all.push(Override { identifier, until, limits: limits_of(random, scale) });
    };
    let exact = random.one_of(&EXACT);
    if random.percent(30) {
        add(random, exact, true);
    }
    if random.percent(50) {
        add(random, exact, false);
    }
    let pattern = random.one_of(&PATTERNS);
    if random.percent(30) {
        add(random, pattern, true);
    }
    if random.percent(60) {
        add(random, pattern, false);
    }
    all
}

/// One random change, as a user makes them: parameters, modes, and limit sets and rules that are added or removed. A
/// set or rule that returns has other limits, so its usage may need a repair.
pub(super) fn change(random: &mut Random, scale: &Scale, rules: &mut Rules) {
    if !scale.repairs {
        rules.rules.iter_mut().for_each(|rule| change_numbers(random, scale, rule));
        return;
    }
    let unused = NAMES.iter().find(|name| rules.rules.iter().all(|rule| rule.name != **name));
    if random.percent(10)
        && let Some(name) = unused
    {
        rules.rules.push(rule(random, scale, name));
        return;
    }
    if rules.rules.is_empty() {
        return;
    }
    let place = random.below(rules.rules.len() as u64) as usize;
    if random.percent(8) {
        rules.rules.remove(place);
        return;
    }
    let rule = &mut rules.rules[place];
    match random.below(10) {
        0 => rule.mode = mode(random, scale),
        1 => rule.cost = random.one_of(&[0, 1, 1, 2]),
        2 if !rule.tiers.is_empty() => _ = rule.tiers.pop(),
        3 => {
            let tier = random.one_of(&TIERS);
            rule.tiers.retain(|(other, _)| *other != tier);
            rule.tiers.push((tier, limits_of(random, scale)));
        }
        4 => rule.overrides = overrides(random, scale),
        _ => change_numbers(random, scale, rule),
    }
}

fn change_numbers(random: &mut Random, scale: &Scale, rule: &mut Rule) {
    let tiers = rule.tiers.iter_mut().map(|(_, limits)| limits);
    let overrides = rule.overrides.iter_mut().map(|each| &mut each.limits);
    let sets = [&mut rule.limits].into_iter().chain(tiers).chain(overrides);
    for limit in sets.flatten().flatten() {
        if random.percent(60) {
            limits::change(random, scale, limit);
        }
    }
}
