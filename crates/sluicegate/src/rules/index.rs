//! Which rules may have a say in a request, without looking at all of them.
//!
//! Every rule stands on one shelf: under its exact tenant, its exact resource, or the text that its resource or path
//! begins with, whichever it shares with the fewest other rules; or among those that are always looked at. A request
//! finds the shelves of its own tenant, resource and path. What stands there may match and is looked at; what stands
//! elsewhere cannot. A decision among ten thousand rules so costs about what it costs among ten.
//!
//! It only leaves out what does not match: whether a rule matches, the rule itself says.

use super::Rule;
use super::pattern::Pattern;
use crate::identity::Request;
use hashbrown::HashMap;
use smallvec::SmallVec;

/// So few rules are looked at one after the other in less time than it takes to find shelves.
const INDEXED_FROM: usize = 16;

/// Places of rules in their set, of which there are at most [`RULES_MAX`](super::RULES_MAX).
pub(super) type Places = SmallVec<[u16; 16]>;

type Shelves = HashMap<Box<str>, SmallVec<[u16; 4]>, foldhash::fast::RandomState>;

/// Where the rules of one set stand.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    /// Whether it is worth asking.
    is_used: bool,
    always: SmallVec<[u16; 4]>,
    tenants: Shelves,
    resources: Shelves,
    resource_starts: Starts,
    path_starts: Starts,
    entries: HashMap<Box<str>, EntryShelves, foldhash::fast::RandomState>,
}

/// Shelves for one key of a descriptor's entries.
#[derive(Clone, Debug, Default)]
struct EntryShelves {
    /// Of rules for any value, or for a pattern.
    any: SmallVec<[u16; 4]>,
    /// Of rules for one value.
    values: Shelves,
}

/// Shelves that are found by what a text begins with.
#[derive(Clone, Debug, Default)]
struct Starts {
    shelves: Shelves,
    /// The lengths of all names of shelves, ascending.
    lengths: Vec<usize>,
}

/// Where a rule may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Shelf<'r> {
    Tenant(&'r str),
    Resource(&'r str),
    ResourceStart(&'r str),
    PathStart(&'r str),
    /// A key, and the value if only one will do.
    Entry(&'r str, Option<&'r str>),
}

impl Index {
    pub(super) fn new(rules: &[Rule]) -> Self {
        // Bounded by the most rules there may be.
        let count = rules.len() as u16;
        if rules.len() < INDEXED_FROM {
            return Self::default();
        }
        let mut standing: HashMap<Shelf<'_>, usize, foldhash::fast::RandomState> = HashMap::default();
        for shelf in rules.iter().flat_map(shelves_of) {
            *standing.entry(shelf).or_default() += 1;
        }
        let mut index = Self { is_used: true, ..Self::default() };
        // What is found by its place needs no other.
        for (place, rule) in (0..count).zip(rules).filter(|(_, rule)| !rule.selector.only_by_place) {
            let least = shelves_of(rule).into_iter().min_by_key(|shelf| standing.get(shelf).copied());
            index.shelf(least).push(place);
        }
        index.resource_starts.measure();
        index.path_starts.measure();
        index
    }

    fn shelf(&mut self, shelf: Option<Shelf<'_>>) -> &mut SmallVec<[u16; 4]> {
        let (shelves, name) = match shelf {
            None => return &mut self.always,
            Some(Shelf::Tenant(name)) => (&mut self.tenants, name),
            Some(Shelf::Resource(name)) => (&mut self.resources, name),
            Some(Shelf::ResourceStart(name)) => (&mut self.resource_starts.shelves, name),
            Some(Shelf::PathStart(name)) => (&mut self.path_starts.shelves, name),
            Some(Shelf::Entry(key, value)) => {
                let shelves = self.entries.entry(key.into()).or_default();
                match value {
                    None => return &mut shelves.any,
                    Some(value) => (&mut shelves.values, value),
                }
            }
        };
        shelves.entry(name.into()).or_default()
    }

    /// The places of all rules that may match `request`, ascending; `None` if they are so few that all may.
    #[inline]
    pub(super) fn candidates(&self, request: &Request<'_>) -> Option<Places> {
        if self.is_used { Some(self.found(request)) } else { None }
    }

    fn found(&self, request: &Request<'_>) -> Places {
        let mut places = Places::from_slice(&self.always);
        let mut add = |shelf: &SmallVec<[u16; 4]>| places.extend_from_slice(shelf);
        self.tenants.get(request.tenant).into_iter().for_each(&mut add);
        self.resources.get(request.resource).into_iter().for_each(&mut add);
        self.resource_starts.of(request.resource).for_each(&mut add);
        if let Some(target) = request.target {
            self.path_starts.of(target.path).for_each(&mut add);
        }
        for entry in request.descriptor.unwrap_or_default() {
            if let Some(shelves) = self.entries.get(entry.key) {
                add(&shelves.any);
                shelves.values.get(entry.value).into_iter().for_each(&mut add);
            }
        }
        places.sort_unstable();
        if request.descriptor.is_some() {
            // Several entries may have one key.
            places.dedup();
        }
        places
    }
}

impl Starts {
    fn measure(&mut self) {
        self.lengths = self.shelves.keys().map(|name| name.len()).collect();
        self.lengths.sort_unstable();
        self.lengths.dedup();
    }

    /// The shelves whose name `text` begins with.
    fn of<'s>(&'s self, text: &'s str) -> impl Iterator<Item = &'s SmallVec<[u16; 4]>> {
        let starts = self.lengths.iter().map_while(move |length| (*length <= text.len()).then_some(*length));
        starts.filter_map(move |length| self.shelves.get(text.get(..length)?))
    }
}

/// All shelves on which a rule would be found by every request that it matches.
fn shelves_of(rule: &Rule) -> SmallVec<[Shelf<'_>; 4]> {
    let mut shelves = SmallVec::new();
    let selector = &rule.selector;
    let exact = |pattern: &'_ Pattern| pattern.is_exact();
    if let Some(tenant) = selector.tenant.as_ref().filter(|tenant| exact(tenant)) {
        shelves.push(Shelf::Tenant(tenant.start()));
    }
    match &selector.resource {
        Some(resource) if resource.is_exact() => shelves.push(Shelf::Resource(resource.start())),
        Some(resource) if !resource.start().is_empty() => shelves.push(Shelf::ResourceStart(resource.start())),
        _ => {}
    }
    if let Some(start) = selector.path.as_ref().map(|path| path.start()).filter(|start| !start.is_empty()) {
        shelves.push(Shelf::PathStart(start));
    }
    shelves.extend(selector.descriptor.iter().map(|entry| {
        let exact = entry.value.as_ref().filter(|value| value.is_exact());
        Shelf::Entry(&entry.key, exact.map(Pattern::start))
    }));
    shelves
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{Entry, Target};
    use crate::path::PathPattern;
    use crate::rules::{EntryPattern, Limits, RuleSet, Unmatched};
    use proptest::prelude::*;

    fn rule() -> impl Strategy<Value = Rule> {
        let texts = || prop::sample::select(vec!["a", "ab", "abc", "a*", "ab*", "*c", "*", "é", "é*", "b.*.c"]);
        let paths = prop::sample::select(vec!["/", "/a", "/a/**", "/a/b", "/a/b*", "/*/b", "/**", "/ab/**/c"]);
        let of = |texts| proptest::option::weighted(0.6, texts);
        let entry = (prop::sample::select(vec!["k", "l"]), of(texts()));
        let entry =
            entry.prop_map(|(key, value)| EntryPattern { key: key.into(), value: value.map(Pattern::new) });
        let entries = prop_oneof![2 => Just(Vec::new()), 1 => proptest::collection::vec(entry, 1..3)];
        let path = proptest::option::weighted(0.4, paths);
        let by_place = proptest::bool::weighted(0.1);
        (of(texts()), of(texts()), path, entries, by_place).prop_map(
            |(tenant, resource, path, entries, by_place)| {
                let mut rule = Rule::new("r", Limits::Unlimited);
                rule.selector.descriptor = entries;
                rule.selector.only_by_place = by_place;
                rule.selector.tenant = tenant.map(Pattern::new);
                rule.selector.resource = resource.map(Pattern::new);
                rule.selector.path = path.map(|path| PathPattern::parse(path).unwrap());
                rule
            },
        )
    }

    proptest! {
        /// Nothing that matches is left out, nothing comes twice, and the order is that of the rules.
        #[test]
        fn whatever_matches_is_a_candidate(
            rules in proptest::collection::vec(rule(), 0..60),
            tenant in prop::sample::select(vec!["a", "ab", "abc", "x", "é"]),
            resource in prop::sample::select(vec!["a", "ab", "abc", "abcd", "é", "éa", "b.x.c"]),
            entries in proptest::option::of(
                proptest::collection::vec((prop::sample::select(vec!["k", "l", "m"]), prop::sample::select(vec!["a", "abc", ""])), 0..4)
            ),
            path in proptest::option::of(prop::sample::select(vec!["/", "/a", "/a/b", "/a/bc", "/x/b", "/ab/x/y/c"])),
        ) {
            let target = path.map(|path| Target { method: "GET", path });
            let entries: Option<Vec<Entry<'_>>> =
                entries.map(|entries| entries.into_iter().map(|(key, value)| Entry { key, value }).collect());
            let descriptor = entries.as_deref();
            let request = Request { target, descriptor, ..Request::new(resource, "i").tenant(tenant) };
            let all = || (0..rules.len() as u16).collect();
            let candidates: Places = Index::new(&rules).candidates(&request).unwrap_or_else(all);
            prop_assert!(candidates.is_sorted_by(|one, next| one < next));
            let matching: Vec<u16> =
                (0..).zip(&rules).filter(|(_, rule)| rule.matches(&request)).map(|(place, _)| place).collect();
            let of_candidates: Vec<u16> =
                candidates.into_iter().filter(|place| rules[usize::from(*place)].matches(&request)).collect();
            prop_assert_eq!(of_candidates, matching);
        }
    }

    /// What the index is for: of ten thousand rules only a few are looked at.
    #[test]
    fn of_many_rules_only_a_few_are_candidates() {
        let named = |index: usize| {
            let mut rule = Rule::new(&format!("r{index}"), Limits::Unlimited);
            match index % 4 {
                0 => rule.selector.resource = Some(Pattern::new(&format!("service.{index}.read"))),
                1 => rule.selector.resource = Some(Pattern::new(&format!("service.{index}.*"))),
                2 => rule.selector.path = Some(PathPattern::parse(&format!("/service/{index}/**")).unwrap()),
                _ => {
                    rule.selector.tenant = Some(Pattern::new(&format!("tenant-{index}")));
                    rule.selector.resource = Some(Pattern::new("service.*"));
                }
            }
            rule
        };
        let set = RuleSet::new((0..10_000).map(named).collect(), Vec::new(), Unmatched::Allow).unwrap();
        let target = Some(Target { method: "GET", path: "/service/4002/x" });
        let request = Request { target, ..Request::new("service.4001.read", "i").tenant("tenant-4003") };
        assert_eq!(set.index.candidates(&request).as_deref(), Some(&[4_001, 4_002, 4_003][..]));
    }
}
