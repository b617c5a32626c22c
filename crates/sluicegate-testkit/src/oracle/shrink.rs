//! Shrinks a failing case: removes operations and rules as long as some answer still breaks the contract.

use super::draw::Case;
use super::operation::Operation;
use super::rules::Rule;
use super::run::Disagreement;
use std::collections::BTreeSet;

/// The maximum number of smaller cases to try.
const ATTEMPTS_MAX: usize = 2_000;

/// The smallest failing case found by running smaller ones with `run`.
pub async fn shrink(
    found: Box<Disagreement>,
    run: impl AsyncFn(&Case) -> Result<(), Box<Disagreement>>,
) -> Box<Disagreement> {
    let mut smallest = found;
    let mut attempts = 0;
    loop {
        let before = (smallest.case.operations.len(), parts(&smallest.case));
        let mut length = smallest.case.operations.len().div_ceil(2);
        while length > 0 {
            let mut start = 0;
            while start < smallest.case.operations.len() {
                let mut smaller = smallest.case.clone();
                let end = (start + length).min(smaller.operations.len());
                smaller.operations.drain(start..end);
                attempts += 1;
                match run(&smaller).await {
                    Err(found) => smallest = found,
                    Ok(()) => start += length,
                }
                if attempts > ATTEMPTS_MAX {
                    return smallest;
                }
            }
            length /= 2;
        }
        for smaller in with_less_rules(&smallest.case) {
            attempts += 1;
            if let Err(found) = run(&smaller).await {
                smallest = found;
                break;
            }
        }
        if before == (smallest.case.operations.len(), parts(&smallest.case)) || attempts > ATTEMPTS_MAX {
            return smallest;
        }
    }
}

/// All rules of a case: those at the start, and those of every reload.
fn all_rules(case: &mut Case) -> impl Iterator<Item = &mut Rule> {
    let reloaded = case.operations.iter_mut().filter_map(|operation| match operation {
        Operation::Reload(rules) => Some(&mut **rules),
        _ => None,
    });
    [&mut case.rules].into_iter().chain(reloaded).flat_map(|rules| &mut rules.rules)
}

/// The number of removable parts of the rules.
fn parts(case: &Case) -> usize {
    let of_rule =
        |rule: &mut Rule| 1 + rule.tiers.len() + rule.overrides.len() + rule.limits.as_ref().map_or(0, Vec::len);
    all_rules(&mut case.clone()).map(of_rule).sum()
}

/// The case without a rule, or without the tiers, the overrides or the last limit of all its rules of that name.
fn with_less_rules(case: &Case) -> Vec<Case> {
    let mut smaller = Vec::new();
    let names: BTreeSet<&'static str> = all_rules(&mut case.clone()).map(|rule| rule.name).collect();
    for name in names {
        let mut without = case.clone();
        without.rules.rules.retain(|rule| rule.name != name);
        for operation in &mut without.operations {
            if let Operation::Reload(rules) = operation {
                rules.rules.retain(|rule| rule.name != name);
            }
        }
        smaller.push(without);
        let edits: [fn(&mut Rule); 4] = [
            |rule| rule.tiers.clear(),
            |rule| rule.overrides.clear(),
            |rule| _ = rule.limits.as_mut().filter(|limits| limits.len() > 1).and_then(Vec::pop),
            |rule| _ = rule.limits.as_mut().filter(|limits| limits.len() > 1).map(|limits| limits.remove(0)),
        ];
        for edit in edits {
            let mut edited = case.clone();
            all_rules(&mut edited).filter(|rule| rule.name == name).for_each(edit);
            if edited != *case {
                smaller.push(edited);
            }
        }
    }
    smaller
}
