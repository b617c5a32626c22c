//! Tiers in a file: a name, or a name and the algorithms that its limits may use.

use super::field::{Absent, Custom, Described, Field, Form, Mapping};
use super::problem::ValueError;
use super::reader::Reader;
use super::section::Section;
use super::suggest::with_closest;
use super::{Names, TIERS_MAX};
use crate::rules::{Limits, Rule};
use sluicegate_core::Quota;

/// The keys of a tier in its long form.
pub static TIER: Mapping = Mapping {
    doc: "A tier, and the algorithms that its limits may use.",
    fields: &[&NAME, &TIER_ALGORITHMS],
    constraints: &[],
};

static NAME: Field<Described> = Field {
    key: "name",
    doc: "The name of the tier.",
    kind: Described(|| Form::Named("name")),
    absent: Absent::Required("say which tier, for example name: free"),
    examples: &[],
};

static TIER_ALGORITHMS: Field<Custom<Vec<&'static str>>> = Field {
    key: "algorithms",
    doc: "The algorithms that limits of the tier may use.",
    kind: Custom {
        read: read_algorithms,
        form: || Form::List {
            noun: "algorithms",
            item: Box::new(Form::Words(Quota::ALGORITHMS.to_vec())),
            min: 1,
            max: None,
            is_unique: true,
        },
    },
    absent: Absent::Nothing("all"),
    examples: &["[fixed_window]"],
};

/// A tier of the file.
#[derive(Debug)]
pub(super) struct Tier {
    pub(super) name: Box<str>,
    /// The algorithms that its limits may use; `None` allows all.
    algorithms: Option<Vec<&'static str>>,
}

/// The tiers of a file.
#[derive(Debug, Default)]
pub(super) struct Tiers {
    /// The readable tiers, in order.
    pub(super) list: Vec<Tier>,
    names: Names,
}

impl Tiers {
    /// Reads the list of all tiers.
    pub(super) fn read(reader: &Reader<'_>) -> Self {
        let mut tiers = Self::default();
        let Some(items) = reader.list("write a list of names, for example [free, pro]") else {
            tiers.names.miss_one();
            return tiers;
        };
        if items.len() > TIERS_MAX {
            reader.report(ValueError::new(format!("{} tiers", items.len()), format!("use at most {TIERS_MAX}")));
            tiers.names.miss_one();
            return tiers;
        }
        tiers.list = items.iter().filter_map(|item| read_tier(item, &mut tiers.names)).collect();
        tiers
    }

    /// True if the file certainly lists no tier of this name.
    pub(super) fn lack(&self, name: &str) -> bool {
        self.names.lack(name)
    }

    /// The error for a tier that the file does not list.
    pub(super) fn unknown(&self, name: &str) -> ValueError {
        let known: Vec<&str> = self.list.iter().map(|tier| &*tier.name).collect();
        let listed = match known.as_slice() {
            [] => "the file has no top-level `tiers` yet".to_owned(),
            known => format!("listed are: {}", known.join(", ")),
        };
        let remedy = format!("list it in the top-level `tiers`, or correct it; {listed}");
        ValueError::new("unknown tier", with_closest(name, &known, &remedy))
    }
}

fn read_tier(reader: &Reader<'_>, names: &mut Names) -> Option<Tier> {
    if !reader.is_mapping() {
        return Some(Tier { name: names.read(Some(reader))?, algorithms: None });
    }
    let section = reader.mapping(&TIER)?;
    let name = names.read(section.find(&NAME));
    let algorithms = section.read_optional(&TIER_ALGORITHMS);
    Some(Tier { name: name?, algorithms: algorithms.flatten() })
}

fn read_algorithms(reader: &Reader<'_>) -> Option<Vec<&'static str>> {
    let remedy = "list the algorithms that the tier may use, for example [fixed_window]";
    let known: Vec<(&str, &str)> = Quota::ALGORITHMS.iter().map(|name| (*name, *name)).collect();
    let algorithms = reader.choices(&known, remedy)?;
    if algorithms.is_empty() {
        return reader.refuse(ValueError::new("an empty list", remedy));
    }
    Some(algorithms)
}

/// Reports algorithms of the rule that a tier may not use, in the limits of the tier or else in those of the rule.
pub(super) fn check_algorithms(section: &Section<'_>, rule: &Rule, tiers: &Tiers) {
    // An unknown tier name may be a misspelled one of those that seem to have no limits of their own.
    let are_known = rule.tiers.iter().all(|(name, _)| tiers.list.iter().any(|tier| tier.name == *name));
    for Tier { name, algorithms } in &tiers.list {
        let Some(algorithms) = algorithms else { continue };
        let given = rule.tiers.iter().find(|(tier, _)| tier == name);
        if given.is_none() && !are_known {
            continue;
        }
        let limits = given.map_or(&rule.limits, |(_, limits)| limits);
        if let Some(other) = first_other(limits, algorithms) {
            let message =
                format!("gives the tier {name} a {other}, and {name} may use only {}", algorithms.join(", "));
            let remedy =
                "give the tier limits of its own in the rule's `tiers`, or list the algorithm with the tier";
            let key = if given.is_some() { "tiers" } else { "limits" };
            section.get(key).unwrap_or(section.reader()).report(ValueError::new(message, remedy));
        }
    }
}

fn first_other<'l>(limits: &'l Limits, algorithms: &[&str]) -> Option<&'l str> {
    limits.quotas().iter().map(Quota::algorithm).find(|algorithm| !algorithms.contains(algorithm))
}
