//! All limits with their paths, for programs that show the configuration or count by path.

use super::limit::Unit;
use super::tree::{Node, Tree};
use super::{EnvoyRules, Limit};

/// One level of a path: a key with its value, if it has one.
pub type Level<'r> = (&'r str, Option<&'r str>);

/// A limit with its path.
#[derive(Clone, Copy, Debug)]
pub struct ListedLimit<'r> {
    /// The index of its rule in the set.
    pub rule: usize,
    /// Its domain.
    pub domain: &'r str,
    /// The levels below the domain; at least one.
    pub path: &'r [Level<'r>],
    /// Requests per unit of time; `None` if unlimited.
    pub limit: Option<(u32, Unit)>,
    /// `quota_mode`.
    pub is_quota: bool,
}

impl EnvoyRules {
    /// Calls `visit` with every limit: domains in alphabetical order, descriptors in the order of the configuration.
    pub fn for_each_limit(&self, mut visit: impl FnMut(&ListedLimit<'_>)) {
        for name in self.tree.domains() {
            if let Some(node) = self.tree.domain(name) {
                let mut listing = Listing { rules: self, domain: name, path: Vec::new(), visit: &mut visit };
                listing.below(node);
            }
        }
    }
}

struct Listing<'r, 'v> {
    rules: &'r EnvoyRules,
    domain: &'r str,
    path: Vec<Level<'r>>,
    visit: &'v mut dyn FnMut(&ListedLimit<'_>),
}

impl<'r> Listing<'r, '_> {
    fn below(&mut self, node: &'r Node) {
        let tree: &'r Tree = &self.rules.tree;
        for (level, child) in node.children_in_order(tree) {
            self.path.push(level);
            if let Some(place) = child.limit() {
                let Limit { is_quota, shown, .. } = &self.rules.limits[place];
                let (rule, domain, path) = (self.rules.first + place, self.domain, &*self.path);
                (self.visit)(&ListedLimit { rule, domain, path, limit: *shown, is_quota: *is_quota });
            }
            self.below(child);
            self.path.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::rules::RuleSet;
    use crate::rules::envoy::{EnvoyConfig, EnvoyOptions};

    #[test]
    fn every_limit_is_listed_with_its_path_in_order() {
        let text = "
domain: edge
descriptors:
  - { key: z, value: v1, rate_limit: { unit: day, requests_per_unit: 1 },
      descriptors: [ { key: a, quota_mode: true, rate_limit: { unlimited: true } } ] }
  - { key: b, descriptors: [ { key: c, value: \"x*\", rate_limit: { unit: hour, requests_per_unit: 2 } } ] }
  - { key: z, rate_limit: { unit: day, requests_per_unit: 3 } }
";
        let config = EnvoyConfig::read([("t.yaml", text)], &EnvoyOptions::default()).unwrap();
        let rules = RuleSet::default().with_envoy(config).unwrap();
        let mut listed = Vec::new();
        rules.envoy().unwrap().for_each_limit(|limit| {
            // Without its digest.
            let name = rules.rules()[limit.rule].space.name().split("..").next().unwrap_or_default();
            listed.push(format!("{} {:?} {:?} {} {name}", limit.domain, limit.path, limit.limit, limit.is_quota));
        });
        assert_eq!(
            listed,
            [
                "edge [(\"z\", Some(\"v1\"))] Some((1, Day)) false edge.z--v1",
                "edge [(\"z\", Some(\"v1\")), (\"a\", None)] None true edge.z--v1.a",
                "edge [(\"b\", None), (\"c\", Some(\"x*\"))] Some((2, Hour)) false edge.b.c--x_",
                "edge [(\"z\", None)] Some((3, Day)) false edge.z",
            ]
        );
    }
}
