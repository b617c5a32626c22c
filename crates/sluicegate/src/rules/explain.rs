//! Explanations: the result of every rule for a request, computed by the same code as decisions.

use super::matching::{Source, UnknownTier};
use super::{EntryPattern, NamedPattern, Override, Rule, RuleSet};
use crate::identity::{Request, Stage, Values};
use crate::path::{PathPattern, Reading};
use crate::pattern::Pattern;
use crate::store::Charge;
use sluicegate_core::Timestamp;
use std::borrow::Cow;
use std::ops::ControlFlow;

/// A rule with its result for a request.
#[derive(Clone, Debug)]
pub struct Explained<'a> {
    /// The rule.
    pub rule: &'a Rule,
    /// Its result.
    pub result: MatchResult<'a>,
    /// The override that would apply if it had not ended.
    pub ended: Option<&'a Override>,
}

/// The result of a rule for a request.
#[derive(Clone, Debug)]
pub enum MatchResult<'a> {
    /// It does not match, for all these reasons.
    Mismatched(Vec<Mismatch<'a>>),
    /// It matches and does not limit the request.
    Unlimited(Source),
    /// It limits the request: the source of the limits, and the charge.
    Limited(Source, Charge<'a>),
}

/// A reason why a rule does not match a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mismatch<'a> {
    /// Its mode is `off`.
    Off,
    /// It applies to other tenants.
    Tenant(&'a Pattern),
    /// It applies to other resources.
    Resource(&'a Pattern),
    /// It applies to other methods, or the request has none.
    Method(&'a [Box<str>]),
    /// It applies to other paths, or the request has none.
    Path(&'a PathPattern),
    /// It applies to other hosts, or the request names none.
    Host(&'a Pattern),
    /// It applies to requests with a certain header field.
    Header(&'a NamedPattern),
    /// It applies to requests whose token has a certain claim.
    Claim(&'a NamedPattern),
    /// It applies to another stage.
    Stage(Stage),
    /// It applies to other descriptors, or the request has none; this entry is missing.
    Descriptor(&'a EntryPattern),
    /// It applies only to requests that name it, and this one does not.
    NotNamed,
    /// Its scope is the client's address, which is not known.
    NoAddress,
}

impl Mismatch<'_> {
    /// The part of the rule that does not match, as one word.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Off => "mode",
            Self::Tenant(_) => "tenant",
            Self::Resource(_) => "resource",
            Self::Method(_) => "method",
            Self::Path(_) => "path",
            Self::Host(_) => "host",
            Self::Header(_) => "header",
            Self::Claim(_) => "claim",
            Self::Stage(_) => "credential",
            Self::Descriptor(_) => "descriptor",
            Self::NotNamed => "place",
            Self::NoAddress => "address",
        }
    }

    /// The reason as text, for the request that it was computed for.
    #[must_use]
    pub fn reason(&self, request: &Request<'_>) -> String {
        let unfit =
            |pattern: &Pattern, text: &str| format!("{} {text} does not match {}", self.name(), pattern.text());
        match self {
            Self::Off => "mode off".to_owned(),
            Self::Tenant(pattern) => unfit(pattern, request.tenant),
            Self::Resource(pattern) => {
                let separated = request.target.map_or(&[][..], |target| target.separated);
                unfit(pattern, &readings(request.resource, separated, Reading::resource))
            }
            Self::Method(methods) => match request.target {
                Some(target) => format!("method {} is not one of {}", target.method, methods.join(", ")),
                None => format!("it is for the methods {}, and the request has none", methods.join(", ")),
            },
            Self::Path(pattern) => match request.target {
                Some(target) => {
                    let paths = readings(target.path, target.separated, Reading::path);
                    format!("path {paths} does not match {}", pattern.text())
                }
                None => format!("it is for the path {}, and the request has none", pattern.text()),
            },
            Self::Host(pattern) => match request.target.and_then(|target| target.host) {
                Some(host) => unfit(pattern, host),
                None => format!("it is for the host {}, and the request has none", pattern.text()),
            },
            Self::Header(wanted) => self.unfit_value(wanted, request.target.and_then(|target| target.headers)),
            Self::Claim(wanted) => self.unfit_value(wanted, request.target.and_then(|target| target.claims)),
            Self::Stage(Stage::Credential) => {
                "it is for credentials that are not verified yet, not for requests".to_owned()
            }
            Self::Stage(Stage::Request) => "it is for requests of identified clients".to_owned(),
            Self::Descriptor(missing) => match request.descriptor {
                Some(_) => format!("no entry of the descriptor matches {missing}"),
                None => format!("it is for descriptors with {missing}, and the request has none"),
            },
            Self::NotNamed => "it is for requests that name it".to_owned(),
            Self::NoAddress => "it counts by client address, and the request has none".to_owned(),
        }
    }
}

/// The values that a rule was compared with: an encoded slash gives a path several readings.
fn readings<'t>(first: &'t str, separated: &[Reading], text: fn(&Reading) -> &str) -> Cow<'t, str> {
    let others: Vec<&str> = separated.iter().map(text).collect();
    match &*others {
        [] => first.into(),
        others => format!("{first}, also read as {},", others.join(" and ")).into(),
    }
}

impl Mismatch<'_> {
    /// The value from the request is not repeated, because it may be a secret.
    fn unfit_value(&self, wanted: &NamedPattern, values: Option<&dyn Values>) -> String {
        let (kind, NamedPattern { name, pattern }) = (self.name(), wanted);
        let mut is_there = false;
        if let Some(values) = values {
            values.each(name, &mut |_| is_there = true);
        }
        match is_there {
            true => format!("{kind} {name} does not match {}", pattern.text()),
            false => format!("it is for the {kind} {name}, and the request has none"),
        }
    }
}

impl RuleSet {
    /// The result of every rule for `request` at `now`, in the order of the rules. The charges are those of [`RuleSet::charges`].
    ///
    /// # Errors
    /// If the request names an unknown tier.
    pub fn explain<'a>(
        &'a self,
        request: &Request<'a>,
        now: Timestamp,
    ) -> Result<Vec<Explained<'a>>, UnknownTier> {
        self.check_tier(request.tier)?;
        let explained = |(index, rule): (usize, &'a Rule)| Explained {
            rule,
            result: self.result(rule, request, index, now),
            ended: rule.ended_override(request, now),
        };
        Ok(self.rules().iter().enumerate().map(explained).collect())
    }

    fn result<'a>(
        &'a self,
        rule: &'a Rule,
        request: &Request<'a>,
        index: usize,
        now: Timestamp,
    ) -> MatchResult<'a> {
        let mut reasons = Vec::new();
        if request.rule.is_some_and(|place| place != index) {
            reasons.push(Mismatch::NotNamed);
        }
        let flow = rule.mismatches(request, |mismatch| {
            reasons.push(mismatch);
            ControlFlow::Continue(())
        });
        if flow.is_break() || !reasons.is_empty() {
            return MatchResult::Mismatched(reasons);
        }
        let source = rule.source(request, now);
        match self.charge_of(index, source, request) {
            Some(charge) => MatchResult::Limited(source, charge),
            None => MatchResult::Unlimited(source),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{Entry, Target};
    use crate::path::{EncodedSlashes, Path};
    use crate::rules::{Limits, Mode, Override, Per, Unmatched};
    use proptest::prelude::*;
    use sluicegate_core::{Cost, Micros, Quota, SlidingWindow};

    const NOW: Timestamp = Timestamp::now(1_705_312_800_000_000);

    fn limits(name: &str, limit: u64) -> Limits {
        let window = SlidingWindow::new(limit, Micros::from_secs(1)).unwrap();
        Limits::all(name, [(None, Quota::from(window))])
    }

    fn set(rules: Vec<Rule>) -> RuleSet {
        RuleSet::new(rules, vec!["pro".into(), "admin".into()], Unmatched::Allow).unwrap()
    }

    #[test]
    fn all_reasons_are_reported_as_text() {
        let mut rule = Rule::new("api", limits("api", 1));
        rule.selector.tenant = Some(Pattern::new("shop-*"));
        rule.selector.resource = Some(Pattern::new("api.payment.*"));
        rule.selector.host = Some(Pattern::new("*.example"));
        let wanted = |name: &str| vec![NamedPattern { name: name.into(), pattern: Pattern::new("gold") }];
        rule.selector.headers = [wanted("x-plan"), wanted("x-none")].concat();
        rule.selector.claims = wanted("plan");
        rule.per = Per::ADDRESS;
        rule.mode = Mode::Off;
        let headers = vec![("x-plan", "secret")];
        let target = Target { host: Some("example"), headers: Some(&headers), ..Target::new("GET", "/") };
        let (rules, request) = (set(vec![rule]), Request::new("api.read", "alice"));
        let request = Request { target: Some(target), ..request };
        let explained = rules.explain(&request, NOW).unwrap();
        let MatchResult::Mismatched(reasons) = &explained[0].result else { panic!("{explained:?}") };
        let words: Vec<String> = reasons.iter().map(|reason| reason.reason(&request)).collect();
        assert_eq!(
            words,
            [
                "mode off",
                "tenant default does not match shop-*",
                "resource api.read does not match api.payment.*",
                "host example does not match *.example",
                "header x-plan does not match gold",
                "it is for the header x-none, and the request has none",
                "it is for the claim plan, and the request has none",
                "it counts by client address, and the request has none",
            ]
        );
        assert!(rules.explain(&request.tier("gold"), NOW).is_err());
    }

    /// Resource and path of a rule must match the same reading of a path; any reading will do.
    #[test]
    fn a_rule_for_one_reading_of_a_path_applies_once_and_others_list_the_compared_readings() {
        let rule = |name: &str, resource: Option<&str>, path: Option<&str>| {
            let mut rule = Rule::new(name, limits(name, 1));
            rule.selector.resource = resource.map(Pattern::new);
            rule.selector.path = path.map(|path| PathPattern::parse(path).unwrap());
            rule
        };
        let rules = set(vec![
            rule("neither", None, Some("/x")),
            rule("data", Some("x%2f..%2fadmin"), Some("/x%2F..%2fadmin")),
            rule("separator", Some("admin"), Some("/admin/**")),
            rule("any", None, Some("/**")),
            rule("literal", None, Some("/x/*/admin")),
            rule("mixed", Some("admin"), Some("/x%2f..%2fadmin")),
        ]);
        let path = Path::parse("/x%2F..%2Fadmin", EncodedSlashes::Keep).unwrap();
        let resource = path.resource();
        let request = Request { target: Some(Target::of("GET", &path)), ..Request::new(&resource, "alice") };
        let places: Vec<usize> =
            rules.charges(&request, NOW).unwrap().applied.iter().map(|applied| applied.rule).collect();
        assert_eq!(places, [1, 2, 3, 4]);
        let reasons: Vec<String> = rules
            .explain(&request, NOW)
            .unwrap()
            .iter()
            .filter_map(|each| match &each.result {
                MatchResult::Mismatched(reasons) => {
                    Some(reasons.iter().map(|reason| reason.reason(&request)).collect())
                }
                _ => None,
            })
            .collect();
        assert_eq!(
            reasons,
            [
                "path /x%2f..%2fadmin, also read as /admin and /x/../admin, does not match /x",
                "resource x%2f..%2fadmin, also read as admin and x....admin, does not match admin",
            ]
        );
    }

    fn named_values() -> impl Strategy<Value = Vec<(&'static str, &'static str)>> {
        let pair = (prop::sample::select(vec!["n", "m"]), prop::sample::select(vec!["a", "b", "ab"]));
        prop::collection::vec(pair, 0..=3)
    }

    /// A request that names a rule is matched by that rule only, and a rule that must be named by no other request.
    #[test]
    fn a_request_that_names_a_rule_is_limited_by_that_rule_only() {
        let mut named = Rule::new("named", limits("named", 1));
        named.selector.only_by_place = true;
        let rules = set(vec![Rule::new("all", limits("all", 1)), named, Rule::new("more", limits("more", 1))]);
        let by = |rule: Option<usize>| {
            let request = Request { rule, ..Request::new("api.read", "alice") };
            let places: Vec<usize> =
                rules.charges(&request, NOW).unwrap().applied.iter().map(|applied| applied.rule).collect();
            let is_limited = |each: &Explained<'_>| matches!(each.result, MatchResult::Limited(..));
            let explained = rules.explain(&request, NOW).unwrap();
            let limited: Vec<usize> = explained
                .iter()
                .enumerate()
                .filter(|(_, each)| is_limited(each))
                .map(|(place, _)| place)
                .collect();
            assert_eq!(limited, places);
            places
        };
        assert_eq!(by(None), [0, 2]);
        assert_eq!(by(Some(1)), [1]);
        assert_eq!(by(Some(2)), [2]);
        assert!(by(Some(3)).is_empty());
    }

    #[test]
    fn a_missing_entry_of_a_descriptor_is_named() {
        let mut rule = Rule::new("api", limits("api", 1));
        let wanted =
            |key: &str, value: Option<&str>| EntryPattern { key: key.into(), value: value.map(Pattern::new) };
        rule.selector.descriptor = vec![wanted("path", None), wanted("remote_address", Some("10.*"))];
        let rules = set(vec![rule]);
        let text = |entries: Option<&[Entry<'_>]>| {
            let request = Request { descriptor: entries, ..Request::new("r", "i") };
            match &rules.explain(&request, NOW).unwrap()[0].result {
                MatchResult::Mismatched(reasons) => reasons[0].reason(&request),
                _ => "limited".to_owned(),
            }
        };
        let (path, inside) = (Entry::new("path", "/"), Entry::new("remote_address", "10.1.2.3"));
        assert_eq!(text(None), "it is for descriptors with path, and the request has none");
        let outside = [path, Entry::new("remote_address", "11.1.2.3")];
        assert_eq!(text(Some(&outside)), "no entry of the descriptor matches remote_address=10.*");
        assert_eq!(text(Some(&[Entry::new("other", ""), inside, path])), "limited");
    }

    fn patterns() -> impl Strategy<Value = Option<Pattern>> {
        proptest::option::of(prop::sample::select(vec!["a", "b", "a*", "*"]).prop_map(Pattern::new))
    }

    fn rules() -> impl Strategy<Value = Rule> {
        let lists = || prop_oneof![Just(Limits::Unlimited), (1..9_u64).prop_map(|limit| limits("r", limit))];
        let tiers = prop::sample::subsequence(vec!["pro", "admin"], 0..=2);
        let modes = prop::sample::select(vec![Mode::Enforce, Mode::Shadow, Mode::Off]);
        let pers = prop::sample::select(vec![Per::IDENTIFIER, Per::TENANT, Per::ADDRESS, Per::GLOBAL]);
        let paths = proptest::option::of(prop::sample::select(vec!["/a", "/a/**", "/**"]));
        let methods = prop::sample::subsequence(vec![Box::from("GET"), Box::from("POST")], 0..=2);
        let stages = prop::sample::select(vec![Stage::Request, Stage::Credential]);
        let limits = (lists(), lists(), lists());
        let values = || prop::collection::vec((prop::sample::select(vec!["n", "m"]), patterns()), 0..=2);
        let http = (paths, methods, stages, patterns(), values(), values(), 0..4_u64);
        let entry = (prop::sample::select(vec!["k", "l"]), patterns());
        let entry = entry.prop_map(|(key, value)| EntryPattern { key: key.into(), value });
        let wanted = (proptest::collection::vec(entry, 0..3), proptest::bool::weighted(0.2));
        let parts = (patterns(), patterns(), patterns(), modes, pers, tiers, limits, (http, wanted));
        parts.prop_map(|(tenant, resource, overridden, mode, per, tiers, limits, (http, wanted))| {
            let (path, methods, stage, host, headers, claims, until) = http;
            let (descriptor, only_by_place) = wanted;
            let (own, of_tiers, of_override) = limits;
            let mut rule = Rule { mode, per, ..Rule::new("r", own) };
            rule.selector.tenant = tenant;
            rule.selector.resource = resource;
            rule.selector.path = path.map(|path| PathPattern::parse(path).unwrap());
            rule.selector.methods = methods;
            rule.selector.stage = stage;
            rule.selector.host = host;
            let named = |(name, pattern): (&str, Option<Pattern>)| {
                let pattern = pattern.unwrap_or_else(|| Pattern::new("*"));
                NamedPattern { name: name.into(), pattern }
            };
            rule.selector.headers = headers.into_iter().map(named).collect();
            rule.selector.claims = claims.into_iter().map(named).collect();
            rule.selector.descriptor = descriptor;
            rule.selector.only_by_place = only_by_place;
            rule.tiers = tiers.into_iter().map(|tier| (tier.into(), of_tiers.clone())).collect();
            let overridden = overridden.map(|identifier| {
                // In the past, just now, or in the future.
                let until = Some(Timestamp::from_micros(NOW.as_micros() + until - 1)).filter(|_| until < 3);
                Override { identifier, limits: of_override, until }
            });
            rule.overrides = overridden.into_iter().collect();
            rule
        })
    }

    fn remove(all: &mut Vec<NamedPattern>, one: &NamedPattern) {
        let place = all.iter().position(|each| each == one).unwrap();
        all.remove(place);
    }

    /// The rule without the cause of this reason.
    fn without(mut rule: Rule, reason: &Mismatch<'_>) -> Rule {
        match reason {
            Mismatch::Off => rule.mode = Mode::Enforce,
            Mismatch::Tenant(_) => rule.selector.tenant = None,
            Mismatch::Resource(_) => rule.selector.resource = None,
            Mismatch::Method(_) => rule.selector.methods.clear(),
            Mismatch::Path(_) => rule.selector.path = None,
            Mismatch::Host(_) => rule.selector.host = None,
            // Two reasons may be equal.
            Mismatch::Header(wanted) => remove(&mut rule.selector.headers, wanted),
            Mismatch::Claim(wanted) => remove(&mut rule.selector.claims, wanted),
            Mismatch::Stage(_) => rule.selector.stage = Stage::Request,
            Mismatch::Descriptor(_) => rule.selector.descriptor.clear(),
            Mismatch::NotNamed => rule.selector.only_by_place = false,
            Mismatch::NoAddress => rule.per.address = false,
        }
        rule
    }

    proptest! {
        /// Explanations agree with decisions; and a rule matches exactly when all its reasons are removed.
        #[test]
        fn an_explanation_is_the_decision(
            rules in proptest::collection::vec(rules(), 0..6),
            (tenant, resource, identifier) in (0..3_usize, 0..3_usize, 0..3_usize),
            address in any::<Option<std::net::Ipv4Addr>>(),
            tier in prop::sample::select(vec![None, Some("pro"), Some("admin")]),
            cost in proptest::option::of(0..3_u32),
            entries in proptest::option::of(proptest::collection::vec((0..2_usize, 0..3_usize), 0..3)),
            target in prop::sample::select(vec![
                None, Some(("GET", "/a")), Some(("HEAD", "/a/b")), Some(("PUT", "/")), Some(("GET", "/a%2Fb")),
                Some(("GET", "/x%2F..%2Fa")), Some(("GET", "/a%2f..%2fb")),
            ]),
            host in prop::sample::select(vec![None, Some("a"), Some("b")]),
            headers in named_values(),
            claims in proptest::option::of(named_values()),
        ) {
            let named = |(index, mut rule): (usize, Rule)| {
                rule.space = crate::store::KeySpace::new(&format!("r{index}"));
                rule
            };
            let rules = set(rules.into_iter().enumerate().map(named).collect());
            let texts = ["a", "b", "ab"];
            let entries: Option<Vec<Entry<'_>>> = entries.map(|entries| {
                entries.into_iter().map(|(key, value)| Entry::new(["k", "l"][key], texts[value])).collect()
            });
            let target = target.map(|(method, path)| (method, Path::parse(path, EncodedSlashes::Keep).unwrap()));
            let request = Request {
                tier,
                address: address.map(Into::into),
                cost: cost.map(Cost::new),
                target: target.as_ref().map(|(method, path)| Target {
                    host,
                    headers: Some(&headers),
                    claims: claims.as_ref().map(|claims| claims as &dyn Values),
                    ..Target::of(method, path)
                }),
                descriptor: entries.as_deref(),
                ..Request::new(texts[resource], texts[identifier]).tenant(texts[tenant])
            };
            let (matched, explained) = (rules.charges(&request, NOW).unwrap(), rules.explain(&request, NOW).unwrap());
            let mut limited = Vec::new();
            for (index, Explained { rule, result, ended }) in explained.iter().enumerate() {
                match result {
                    MatchResult::Limited(source, charge) => limited.push((index, *source, format!("{charge:?}"))),
                    MatchResult::Unlimited(source) => prop_assert!(rule.limits_of(*source).quotas().is_empty()),
                    MatchResult::Mismatched(reasons) => {
                        let mut rule = (*rule).clone();
                        prop_assert!(!reasons.is_empty());
                        for reason in reasons {
                            prop_assert!(!rule.matches(&request));
                            rule = without(rule, reason);
                        }
                        prop_assert!(rule.matches(&request));
                    }
                }
                prop_assert_eq!(!matches!(result, MatchResult::Mismatched(_)), rule.matches(&request));
                let over = rule.overrides.first().filter(|each| each.identifier.matches(texts[identifier]));
                let is_over = over.is_some_and(|each| each.until.is_some_and(|until| until <= NOW));
                prop_assert_eq!(ended.is_some(), is_over);
                if let MatchResult::Limited(source, _) | MatchResult::Unlimited(source) = result {
                    prop_assert_eq!(matches!(source, Source::Override(_)), over.is_some() && !is_over);
                }
            }
            let charged = matched.applied.iter().zip(&matched.charges);
            let charged: Vec<_> =
                charged.map(|(applied, charge)| (applied.rule, applied.source, format!("{charge:?}"))).collect();
            prop_assert_eq!(limited, charged);
            prop_assert_eq!(matched.any, explained.iter().any(|each| !matches!(each.result, MatchResult::Mismatched(_))));
        }
    }
}
