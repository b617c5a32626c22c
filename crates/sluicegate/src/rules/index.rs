//! The index of rules: finds the candidates for a request without evaluating all rules.
//!
//! Every rule is in one bin: by its exact tenant, resource, host, or value of a header field or claim, or by the literal prefix
//! of its resource or path, whichever it shares with the fewest other rules; or in the bin that every request checks.
//! A request looks up the bins of its own tenant, resource, path and so on. Rules in these bins may match and are evaluated; rules
//! in other bins cannot match. A decision among ten thousand rules therefore costs about as much as among ten.
//!
//! The index only excludes rules that cannot match: whether a candidate matches is decided by the rule itself.

use super::{NamedPattern, Rule};
use crate::identity::{Request, Target};
use crate::pattern::Pattern;
use hashbrown::HashMap;
use smallvec::SmallVec;

/// With at most this many rules, evaluating all of them is faster than the index.
const INDEXED_FROM: usize = 16;

/// The most header fields and claims that are indexed; every request is searched for all of them.
const NAMES_MAX: usize = 8;

/// Indexes of rules in their set, of which there are at most [`RULES_MAX`](super::RULES_MAX).
pub(super) type Places = SmallVec<[u16; 16]>;

type Shelves = HashMap<Box<str>, SmallVec<[u16; 4]>, foldhash::fast::RandomState>;

/// The index of one rule set.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    /// Whether the index is worth its cost.
    is_used: bool,
    always: SmallVec<[u16; 4]>,
    tenants: Shelves,
    resources: Shelves,
    resource_starts: Starts,
    path_starts: Starts,
    hosts: Shelves,
    named: Vec<NamedShelves>,
    entries: HashMap<Box<str>, EntryShelves, foldhash::fast::RandomState>,
}

/// Bins by the values of one header field or claim.
#[derive(Clone, Debug)]
struct NamedShelves {
    kind: Kind,
    name: Box<str>,
    shelves: Shelves,
}

/// A named value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Header,
    Claim,
}

/// Bins for one key of a descriptor's entries.
#[derive(Clone, Debug, Default)]
struct EntryShelves {
    /// Rules for any value, or for a pattern.
    any: SmallVec<[u16; 4]>,
    /// Rules for one value.
    values: Shelves,
}

/// Bins by a literal prefix.
#[derive(Clone, Debug, Default)]
struct Starts {
    shelves: Shelves,
    /// The lengths of all prefixes, ascending.
    lengths: Vec<usize>,
}

/// A bin that may contain a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Shelf<'r> {
    Tenant(&'r str),
    Resource(&'r str),
    ResourceStart(&'r str),
    PathStart(&'r str),
    Host(&'r str),
    Named(Kind, &'r str, &'r str),
    /// A key, and the value if it is exact.
    Entry(&'r str, Option<&'r str>),
}

impl Index {
    pub(super) fn new(rules: &[Rule]) -> Self {
        // Bounded by the maximum number of rules.
        let count = rules.len() as u16;
        if rules.len() < INDEXED_FROM {
            return Self::default();
        }
        let mut standing: HashMap<Shelf<'_>, usize, foldhash::fast::RandomState> = HashMap::default();
        for shelf in rules.iter().flat_map(shelves_of) {
            *standing.entry(shelf).or_default() += 1;
        }
        let mut index = Self { is_used: true, ..Self::default() };
        // Rules that requests name by index need no bin.
        for (place, rule) in (0..count).zip(rules).filter(|(_, rule)| !rule.selector.only_by_place) {
            let usable = shelves_of(rule).into_iter().filter(|shelf| index.has_room_for(shelf));
            let least = usable.min_by_key(|shelf| standing.get(shelf).copied());
            index.shelf(least).push(place);
        }
        index.resource_starts.measure();
        index.path_starts.measure();
        index
    }

    fn has_room_for(&self, shelf: &Shelf<'_>) -> bool {
        let Shelf::Named(kind, name, _) = shelf else { return true };
        self.named.len() < NAMES_MAX || self.named.iter().any(|named| named.is(*kind, name))
    }

    fn shelf(&mut self, shelf: Option<Shelf<'_>>) -> &mut SmallVec<[u16; 4]> {
        let (shelves, name) = match shelf {
            None => return &mut self.always,
            Some(Shelf::Tenant(name)) => (&mut self.tenants, name),
            Some(Shelf::Resource(name)) => (&mut self.resources, name),
            Some(Shelf::ResourceStart(name)) => (&mut self.resource_starts.shelves, name),
            Some(Shelf::PathStart(name)) => (&mut self.path_starts.shelves, name),
            Some(Shelf::Host(name)) => (&mut self.hosts, name),
            Some(Shelf::Named(kind, name, value)) => (self.named_shelves(kind, name), value),
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

    fn named_shelves(&mut self, kind: Kind, name: &str) -> &mut Shelves {
        let place = self.named.iter().position(|named| named.is(kind, name)).unwrap_or_else(|| {
            self.named.push(NamedShelves { kind, name: name.into(), shelves: Shelves::default() });
            self.named.len() - 1
        });
        &mut self.named[place].shelves
    }

    /// The indexes of all candidates for `request`, ascending; `None` if there are so few rules that all are candidates.
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
            for separated in target.separated {
                self.path_starts.of(separated.path()).for_each(&mut add);
                self.resources.get(separated.resource()).into_iter().for_each(&mut add);
                self.resource_starts.of(separated.resource()).for_each(&mut add);
            }
            target.host.and_then(|host| self.hosts.get(host)).into_iter().for_each(&mut add);
            self.named.iter().for_each(|named| named.find(&target, &mut add));
        }
        for entry in request.descriptor.unwrap_or_default() {
            if let Some(shelves) = self.entries.get(entry.key) {
                add(&shelves.any);
                shelves.values.get(entry.value).into_iter().for_each(&mut add);
            }
        }
        places.sort_unstable();
        // A repeated field, two entries with one key, or several readings of a path lead to the same bin twice.
        places.dedup();
        places
    }
}

impl NamedShelves {
    fn is(&self, kind: Kind, name: &str) -> bool {
        self.kind == kind && *self.name == *name
    }

    fn find(&self, target: &Target<'_>, add: &mut impl FnMut(&SmallVec<[u16; 4]>)) {
        let values = match self.kind {
            Kind::Header => target.headers,
            Kind::Claim => target.claims,
        };
        let Some(values) = values else { return };
        values.each(&self.name, &mut |value| self.shelves.get(value).into_iter().for_each(&mut *add));
    }
}

impl Starts {
    fn measure(&mut self) {
        self.lengths = self.shelves.keys().map(|name| name.len()).collect();
        self.lengths.sort_unstable();
        self.lengths.dedup();
    }

    /// The bins whose prefix begins `text`.
    fn of<'s>(&'s self, text: &'s str) -> impl Iterator<Item = &'s SmallVec<[u16; 4]>> {
        let starts = self.lengths.iter().map_while(move |length| (*length <= text.len()).then_some(*length));
        starts.filter_map(move |length| self.shelves.get(text.get(..length)?))
    }
}

/// All bins in which every matching request would find the rule.
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
    if let Some(host) = selector.host.as_ref().filter(|host| exact(host)) {
        shelves.push(Shelf::Host(host.start()));
    }
    for (kind, all) in [(Kind::Header, &selector.headers), (Kind::Claim, &selector.claims)] {
        let fixed = all.iter().filter(|wanted| exact(&wanted.pattern));
        shelves.extend(fixed.map(|NamedPattern { name, pattern }| Shelf::Named(kind, name, pattern.start())));
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
    use crate::path::{EncodedSlashes, Path, PathPattern};
    use crate::rules::{EntryPattern, Limits, RuleSet, Unmatched};
    use proptest::prelude::*;

    fn rule() -> impl Strategy<Value = Rule> {
        let texts = || prop::sample::select(vec!["a", "ab", "abc", "a*", "ab*", "*c", "*", "é", "é*", "b.*.c"]);
        let paths = prop::sample::select(vec!["/", "/a", "/a/**", "/a/b", "/a/b*", "/*/b", "/**", "/ab/**/c"]);
        let of = |texts| proptest::option::weighted(0.6, texts);
        let names = prop::sample::select(vec!["n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9"]);
        let named = move || prop::collection::vec((names.clone(), texts()), 0..=2);
        let http = (proptest::option::weighted(0.4, paths), of(texts()), named(), named());
        let entry = (prop::sample::select(vec!["k", "l"]), of(texts()));
        let entry =
            entry.prop_map(|(key, value)| EntryPattern { key: key.into(), value: value.map(Pattern::new) });
        let entries = prop_oneof![2 => Just(Vec::new()), 1 => proptest::collection::vec(entry, 1..3)];
        let by_place = proptest::bool::weighted(0.1);
        (of(texts()), of(texts()), http, entries, by_place).prop_map(
            |(tenant, resource, (path, host, headers, claims), entries, by_place)| {
                let mut rule = Rule::new("r", Limits::Unlimited);
                rule.selector.descriptor = entries;
                rule.selector.only_by_place = by_place;
                rule.selector.tenant = tenant.map(Pattern::new);
                rule.selector.resource = resource.map(Pattern::new);
                rule.selector.path = path.map(|path| PathPattern::parse(path).unwrap());
                rule.selector.host = host.map(Pattern::new);
                let wanted =
                    |(name, text): (&str, &str)| NamedPattern { name: name.into(), pattern: Pattern::new(text) };
                rule.selector.headers = headers.into_iter().map(wanted).collect();
                rule.selector.claims = claims.into_iter().map(wanted).collect();
                rule
            },
        )
    }

    fn values() -> impl Strategy<Value = Vec<(String, &'static str)>> {
        let pair = (0..10_u8, prop::sample::select(vec!["a", "ab", "abc", "é"]));
        prop::collection::vec(pair.prop_map(|(name, value)| (format!("n{name}"), value)), 0..12)
    }

    proptest! {
        /// The candidates include every matching rule, once, in the order of the rules.
        #[test]
        fn every_matching_rule_is_a_candidate(
            rules in proptest::collection::vec(rule(), 0..60),
            tenant in prop::sample::select(vec!["a", "ab", "abc", "x", "é"]),
            resource in prop::sample::select(vec!["a", "ab", "abc", "abcd", "é", "éa", "b.x.c"]),
            entries in proptest::option::of(
                proptest::collection::vec((prop::sample::select(vec!["k", "l", "m"]), prop::sample::select(vec!["a", "abc", ""])), 0..4)
            ),
            path in proptest::option::of(prop::sample::select(vec![
                "/", "/a", "/a/b", "/a/bc", "/x/b", "/ab/x/y/c", "/a%2fb", "/x%2F..%2Fa", "/a%2F..%2Fab%2fc", "/b%2Fx%2Fc",
            ])),
            host in proptest::option::of(prop::sample::select(vec!["a", "ab", "abc", "x"])),
            (headers, claims) in (values(), values()),
        ) {
            let path = path.map(|path| Path::parse(path, EncodedSlashes::Keep).unwrap());
            let target = path.as_ref().map(|path| Target {
                host,
                headers: Some(&headers),
                claims: Some(&claims),
                ..Target::of("GET", path)
            });
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

    /// Of ten thousand rules, only a few are candidates.
    #[test]
    fn of_many_rules_only_a_few_are_candidates() {
        let wanted = |name: &str, index: usize| {
            let pattern = Pattern::new(&if index == 0 { "*".to_owned() } else { format!("value-{index}") });
            NamedPattern { name: name.into(), pattern }
        };
        let named = |index: usize| {
            let mut rule = Rule::new(&format!("r{index}"), Limits::Unlimited);
            match index % 7 {
                0 => rule.selector.resource = Some(Pattern::new(&format!("service.{index}.read"))),
                1 => rule.selector.resource = Some(Pattern::new(&format!("service.{index}.*"))),
                2 => rule.selector.path = Some(PathPattern::parse(&format!("/service/{index}/**")).unwrap()),
                3 => rule.selector.host = Some(Pattern::new(&format!("host-{index}.example"))),
                4 => rule.selector.headers = vec![wanted("x-customer", index), wanted("x-any", 0)],
                5 => rule.selector.claims = vec![wanted("org", index)],
                _ => {
                    rule.selector.tenant = Some(Pattern::new(&format!("tenant-{index}")));
                    rule.selector.resource = Some(Pattern::new("service.*"));
                }
            }
            rule
        };
        let set = RuleSet::new((0..10_000).map(named).collect(), Vec::new(), Unmatched::Allow).unwrap();
        let headers = vec![("x-customer", "value-4008"), ("x-any", "1"), ("x-customer", "value-4008")];
        let claims = vec![("org", "value-4009")];
        let target = Some(Target {
            host: Some("host-4007.example"),
            headers: Some(&headers),
            claims: Some(&claims),
            ..Target::new("GET", "/service/4006/x")
        });
        let request = Request { target, ..Request::new("service.4005.read", "i").tenant("tenant-4010") };
        let found = set.index.candidates(&request);
        assert_eq!(found.as_deref(), Some(&[4_005, 4_006, 4_007, 4_008, 4_009, 4_010][..]));
    }
}
