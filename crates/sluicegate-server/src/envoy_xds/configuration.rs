//! The resources of a response, beside the ones in force: which domains are good, which keep their last good form, and
//! which are gone.

use std::collections::{BTreeMap, BTreeSet};

use prost_types::Any;
use sluicegate::rules::RULES_MAX;
use sluicegate::rules::envoy::{EnvoyConfig, EnvoyOptions, Mistakes};
use sluicegate::rules::file::problem::shown;
use sluicegate::rules::file::tree::Node;

use super::TYPE_URL;
use super::resource::{Budget, Resource, ResourceError};

/// The most resources of a response: a domain without a limit has no use, so the most limits are a bound of them, too.
pub(crate) const RESOURCES_MAX: usize = RULES_MAX;

/// The resources of each domain; several only if domains may be merged.
pub(super) type Domains = BTreeMap<String, Vec<Resource>>;

/// The part of a response that can take effect.
#[derive(Debug)]
pub(super) struct Taken {
    /// All domains: the good ones of the response, and the last good form of the others.
    pub(super) domains: Domains,
    /// Their limits; `None` if they equal those in force.
    pub(super) config: Option<EnvoyConfig>,
    /// The errors of the other domains.
    pub(super) problems: Vec<String>,
}

/// The resources of a response, sorted by domain.
#[derive(Default)]
struct Sorted {
    domains: Domains,
    /// Domains with an error.
    bad: BTreeSet<String>,
    /// Whether a resource could not be decoded so far that its domain is known.
    has_unknown: bool,
    problems: Vec<String>,
}

/// The part of a response that can take effect beside `current`; an error if none can.
pub(super) fn take(current: &Domains, resources: Vec<Any>, options: &EnvoyOptions) -> Result<Taken, String> {
    let mut sorted = sort(resources)?;
    for (domain, resources) in &sorted.domains {
        let is_known_good = || current.get(domain) == Some(resources);
        if sorted.bad.contains(domain) || is_known_good() {
            continue;
        }
        if let Err(mistakes) = compile(resources, options) {
            sorted.problems.extend(mistakes.to_string().lines().map(str::to_owned));
            sorted.bad.insert(domain.clone());
        }
    }
    let Sorted { mut domains, bad, has_unknown, problems } = sorted;
    domains.retain(|domain, _| !bad.contains(domain));
    for (domain, resources) in current {
        // An unreadable resource may be that of a domain that seems to be absent.
        if bad.contains(domain) || (has_unknown && !domains.contains_key(domain)) {
            domains.insert(domain.clone(), resources.clone());
        }
    }
    if domains == *current {
        return Ok(Taken { domains, config: None, problems });
    }
    let config = compile(domains.values().flatten(), options).map_err(|mistakes| mistakes.to_string())?;
    Ok(Taken { domains, config: Some(config), problems })
}

fn sort(resources: Vec<Any>) -> Result<Sorted, String> {
    if resources.len() > RESOURCES_MAX {
        return Err(format!("{} resources: use at most {RESOURCES_MAX}", resources.len()));
    }
    let (mut sorted, mut budget) = (Sorted::default(), Budget::default());
    for Any { type_url, value } in resources {
        if type_url != TYPE_URL {
            sorted.has_unknown = true;
            sorted.problems.push(format!("a resource of type {}: send {TYPE_URL}", shown(&type_url, false)));
            continue;
        }
        match Resource::read(value.into(), &mut budget) {
            Ok(resource) => sorted.domains.entry(resource.domain.clone()).or_default().push(resource),
            // More of the response would only be read to be rejected.
            Err(ResourceError::TooMany(problem)) => return Err(problem),
            Err(ResourceError::Domain { domain, problem }) => {
                sorted.bad.insert(domain);
                sorted.problems.push(problem);
            }
            Err(ResourceError::Unreadable(problem)) => {
                sorted.has_unknown = true;
                sorted.problems.push(problem);
            }
        }
    }
    Ok(sorted)
}

/// The limits of these resources, read as files are.
fn compile<'r>(
    resources: impl IntoIterator<Item = &'r Resource>,
    options: &EnvoyOptions,
) -> Result<EnvoyConfig, Mistakes> {
    let tree = |resource: &Resource| -> (String, Node) { (resource.title(), resource.tree.clone()) };
    EnvoyConfig::read_trees(resources.into_iter().map(tree), options)
}

#[cfg(test)]
mod tests;
