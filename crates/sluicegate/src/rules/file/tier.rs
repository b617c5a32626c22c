//! Tiers as they stand in a file: a name, or a name and the algorithms that its limits may use.

use super::problem::Wrong;
use super::reader::Reader;
use super::{Names, TIERS_MAX, all};
use crate::rules::{Limits, Rule};
use sluicegate_core::algorithm::Algorithm as _;
use sluicegate_core::{FixedWindow, Quota, SlidingCounter, SlidingWindow, TokenBucket};

/// The keys of a tier in its long form.
pub const TIER_KEYS: &[&str] = &["name", "algorithms"];
/// The algorithms that a tier may be bound to.
pub const ALGORITHMS: &[(&str, &str)] = &[
    (TokenBucket::NAME, TokenBucket::NAME),
    (SlidingWindow::NAME, SlidingWindow::NAME),
    (SlidingCounter::NAME, SlidingCounter::NAME),
    (FixedWindow::NAME, FixedWindow::NAME),
];

/// One tier.
#[derive(Debug)]
pub(super) struct Tier {
    pub(super) name: Box<str>,
    /// What its limits may be made of; anything if absent.
    algorithms: Option<Vec<&'static str>>,
}

/// Reads the list of all tiers.
pub(super) fn read_tiers(reader: &Reader<'_>) -> Option<Vec<Tier>> {
    let items = reader.list("write a list of names, for example [free, pro]")?;
    if items.len() > TIERS_MAX {
        return reader.refuse(Wrong::new(format!("{} tiers", items.len()), format!("use at most {TIERS_MAX}")));
    }
    let mut names = Names::default();
    all(items.iter().map(|item| read_tier(item, &mut names)))
}

fn read_tier(reader: &Reader<'_>, names: &mut Names) -> Option<Tier> {
    if !reader.is_mapping() {
        return Some(Tier { name: names.read(reader)?, algorithms: None });
    }
    let section = reader.section(TIER_KEYS)?;
    let name =
        section.required("name", "say which tier, for example name: free").and_then(|name| names.read(name));
    let algorithms = section.optional("algorithms", None, |each| read_algorithms(each).map(Some));
    Some(Tier { name: name?, algorithms: algorithms? })
}

fn read_algorithms(reader: &Reader<'_>) -> Option<Vec<&'static str>> {
    let remedy = "list the algorithms that the tier may use, for example [fixed_window]";
    let algorithms = reader.choices(ALGORITHMS, remedy)?;
    if algorithms.is_empty() {
        return reader.refuse(Wrong::new("an empty list", remedy));
    }
    Some(algorithms)
}

/// Checks that the rule, which `reader` has read, gives every tier what it may use: by the limits of the tier, or else by its
/// own.
pub(super) fn check_algorithms(reader: &Reader<'_>, rule: &Rule, tiers: &[Tier]) -> Option<()> {
    let mut is_good = Some(());
    for Tier { name, algorithms } in tiers {
        let Some(algorithms) = algorithms else { continue };
        let given = rule.tiers.iter().find(|(tier, _)| tier == name);
        let limits = given.map_or(&rule.limits, |(_, limits)| limits);
        if let Some(other) = first_other(limits, algorithms) {
            let message =
                format!("gives the tier {name} a {other}, and {name} may use only {}", algorithms.join(", "));
            let remedy =
                "give the tier limits of its own in the rule's `tiers`, or list the algorithm with the tier";
            place(reader, given.is_some()).refuse::<()>(Wrong::new(message, remedy));
            is_good = None;
        }
    }
    is_good
}

fn first_other<'l>(limits: &'l Limits, algorithms: &[&str]) -> Option<&'l str> {
    limits.quotas().iter().map(Quota::algorithm).find(|algorithm| !algorithms.contains(algorithm))
}

/// Where the limits stand that are at fault.
fn place<'d>(rule: &Reader<'d>, is_of_tier: bool) -> Reader<'d> {
    let key = if is_of_tier { "tiers" } else { "limits" };
    let section = rule.open_section();
    section.and_then(|section| section.get(key).cloned()).unwrap_or_else(|| rule.clone())
}
