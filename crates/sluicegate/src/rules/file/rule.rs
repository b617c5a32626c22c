//! A rule in a file: the declarations of its keys, and its reader.

use super::descriptor::{ENTRY, read_descriptor};
use super::field::{
    Absent, Choice, Custom, Described, Field, Form, Integer, Mapping, Nested, Shape, Text, path_pattern, words,
};
use super::lease::{LEASE_FIELDS, check_lease, read_lease};
use super::limit::read_limits;
use super::problem::ValueError;
use super::reader::Reader;
use super::section::Section;
use super::shadowed_override::EarlierOverrides;
use super::tier::{Tiers, check_algorithms};
use super::value::{METHOD_BYTES_MAX, VALUE_NAME_BYTES_MAX};
use super::{Names, PATTERN, all, value};
use crate::authority::HOST_BYTES_MAX;
use crate::identity::{ENTRIES_MAX, Stage};
use crate::path::PathPattern;
use crate::pattern::Pattern;
use crate::rules::{
    DEADLINE_DEFAULT, EntryPattern, Limits, Mode, NamedPattern, OnStoreFailure, Override, Per, Rule, Selector,
};
use crate::store::{KeySpace, Lease};
use sluicegate_core::{Cost, Timestamp};
use std::time::Duration;

/// The keys of a rule.
pub static RULE: Mapping = Mapping {
    doc: "A rule: the requests that it matches, and their limits.",
    fields: &[
        &NAME,
        &MATCH,
        &PER,
        &LIMITS,
        &TIERS,
        &OVERRIDES,
        &MODE,
        &ON_STORE_FAILURE,
        &DEADLINE,
        &COST,
        &LEASE,
    ],
    constraints: &[],
};

static NAME: Field<Described> = Field {
    key: "name",
    doc: "Unique, and a part of the keys of the rule's state: a new name starts with new state.",
    kind: Described(|| Form::Named("name")),
    absent: Absent::Required("give the rule a name of its own, for example name: payments"),
    examples: &["payments"],
};

static MATCH: Field<Nested<Selector>> = Field {
    key: "match",
    doc: "[Which requests](#match) the rule applies to. Every part that is present must match.",
    kind: Nested { mapping: &SELECTOR, read: read_selector },
    absent: Absent::Nothing("all requests"),
    examples: &[],
};

static PER: Field<Custom<Per>> = Field {
    key: "per",
    doc: "The subject that has one count: each identifier within its tenant, each tenant, each client address, or all requests together. A list means each combination of its parts.",
    kind: Custom {
        read: read_per,
        form: || {
            let parts = || Form::Words(words(PARTS));
            let item = Box::new(parts());
            Form::Any(vec![parts(), Form::List { noun: "these", item, min: 1, max: None, is_unique: true }])
        },
    },
    absent: Absent::Default("identifier"),
    examples: &["identifier", "[tenant, ip]"],
};

static LIMITS: Field<Described> = Field {
    key: "limits",
    doc: "The limits of requests without a tier or override of their own.",
    kind: Described(|| Form::Named("limits")),
    absent: Absent::Required(
        "list the limits, for example [{ algorithm: token_bucket, capacity: 100, refill: 100/60s }]",
    ),
    examples: &[],
};

static TIERS: Field<Described> = Field {
    key: "tiers",
    doc: "The limits of a tier, instead of `limits`. The top-level `tiers` must list the tier.",
    kind: Described(|| Form::Map {
        about: "mapping from tier to [limits](#limits)",
        name: Box::new(Form::Named("name")),
        value: Box::new(Form::Named("limits")),
        min: 0,
        max: None,
    }),
    absent: Absent::Nothing("none"),
    examples: &["{ admin: unlimited }"],
};

static OVERRIDES: Field<Described> = Field {
    key: "overrides",
    doc: "The limits of some identifiers, instead of `limits`: exact identifiers first, then the first pattern that matches.",
    kind: Described(|| {
        let item = Box::new(Form::Named("override"));
        Form::List { noun: "overrides", item, min: 0, max: None, is_unique: false }
    }),
    absent: Absent::Default("[]"),
    examples: &[],
};

static MODE: Field<Choice<Mode>> = Field {
    key: "mode",
    doc: "`enforce` denies; `shadow` decides, counts and reports, and never denies; `off` does nothing.",
    kind: Choice(&[("enforce", Mode::Enforce), ("shadow", Mode::Shadow), ("off", Mode::Off)]),
    absent: Absent::Default("enforce"),
    examples: &[],
};

static ON_STORE_FAILURE: Field<Choice<OnStoreFailure>> = Field {
    key: "on_store_failure",
    doc: "The policy [when the store fails](#when-the-store-fails): `open` allows, `closed` rejects, `local` applies this server's share of the limits.",
    kind: Choice(&[
        (OnStoreFailure::Open.name(), OnStoreFailure::Open),
        (OnStoreFailure::Closed.name(), OnStoreFailure::Closed),
        (OnStoreFailure::Local.name(), OnStoreFailure::Local),
    ]),
    absent: Absent::Default("open"),
    examples: &[],
};

static DEADLINE: Field<Custom<Duration>> = Field {
    key: "deadline",
    doc: "The longest time for a store call, after which `on_store_failure` applies. Of all rules that match and limit, the shortest applies.",
    kind: Custom { read: |reader| reader.deadline(), form: || Form::Duration { min: "1ms", max: "10s" } },
    absent: Absent::Default("15ms"),
    examples: &["15ms"],
};

static COST: Field<Integer<Cost>> = Field {
    key: "cost",
    doc: "The cost of a request that names none.",
    kind: Integer { min: 0, max: u32::MAX as u64, convert: |units| u32::try_from(units).ok().map(Cost::new) },
    absent: Absent::Default("1"),
    examples: &["1"],
};

static LEASE: Field<Nested<Lease>> = Field {
    key: "lease",
    doc: "Lets servers [charge requests ahead](#charging-ahead) in a shared store.",
    kind: Nested { mapping: &LEASE_FIELDS, read: read_lease },
    absent: Absent::Nothing("none"),
    examples: &[],
};

/// The keys of a rule's `match`.
pub static SELECTOR: Mapping = Mapping {
    doc: "The requests that a rule applies to. An absent part matches all.",
    fields: &[&TENANT, &RESOURCE, &PATH, &METHOD, &HOST, &HEADER, &CLAIM, &CREDENTIAL, &DESCRIPTOR],
    constraints: &[],
};

static TENANT: Field<Text<Pattern>> = Field {
    key: "tenant",
    doc: "The tenant. A request that names none has the tenant `default`.",
    kind: PATTERN,
    absent: Absent::Nothing("any"),
    examples: &["acme"],
};

static RESOURCE: Field<Text<Pattern>> = Field {
    key: "resource",
    doc: "The resource. For HTTP requests it is the path with dots: `/api/ping` is `api.ping`, `/` is `/`.",
    kind: PATTERN,
    absent: Absent::Nothing("any"),
    examples: &["\"api.payment.*\""],
};

static PATH: Field<Text<PathPattern>> = Field {
    key: "path",
    doc: "The path of an HTTP request: `*` stands for any run of characters within a segment, `**` for any run of segments. `/api/**` matches `/api` and all paths below it.",
    kind: Text { parse: value::path, form: path_pattern },
    absent: Absent::Nothing("any"),
    examples: &["/api/payments/**"],
};

static METHOD: Field<Custom<Vec<Box<str>>>> = Field {
    key: "method",
    doc: "The methods of an HTTP request. `GET` includes `HEAD`.",
    kind: Custom {
        read: read_methods,
        form: || {
            let pattern = format!("^[A-Za-z0-9_-]{{1,{METHOD_BYTES_MAX}}}$");
            let method = || Form::Text(Shape::matching("method", pattern.clone()));
            let item = Box::new(method());
            let list = Form::List { noun: "methods", item, min: 1, max: Some(METHODS_MAX), is_unique: false };
            Form::Any(vec![method(), list])
        },
    },
    absent: Absent::Nothing("any"),
    examples: &["[POST, PUT]"],
};

static HOST: Field<Text<Pattern>> = Field {
    key: "host",
    doc: "The host of an HTTP request, in upper or lower case and on any port; `*` stands for any run of characters.",
    kind: Text {
        parse: value::host,
        form: || {
            let shape = Shape::matching("pattern", HOST_PATTERN);
            Form::Text(Shape { max_length: Some(HOST_BYTES_MAX), ..shape })
        },
    },
    absent: Absent::Nothing("any"),
    examples: &["api.example.com", "\"*.example.com\""],
};

static HEADER: Field<Custom<Vec<NamedPattern>>> = Field {
    key: "header",
    doc: "Header fields of an HTTP request, each with a pattern for its value. All must be present. Names ignore case, values do not; of several values of a field one must match.",
    kind: Custom {
        read: |reader| read_values(reader, value::header_name),
        form: || named_patterns("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$"),
    },
    absent: Absent::Nothing("any"),
    examples: &["{ X-Plan: \"gold*\" }"],
};

static CLAIM: Field<Custom<Vec<NamedPattern>>> = Field {
    key: "claim",
    doc: "Claims of the verified [token](identity.md), each with a pattern for its value. All must be present. A list matches if one of its texts does; numbers and `true` are compared as they are written.",
    kind: Custom {
        read: |reader| read_values(reader, value::claim_name),
        form: || named_patterns("^[^\\u0000-\\u001f\\u007f-\\u009f]+$"),
    },
    absent: Absent::Nothing("any"),
    examples: &["{ plan: pro }"],
};

static CREDENTIAL: Field<Choice<Stage>> = Field {
    key: "credential",
    doc: "The rule limits the [verification of credentials](identity.md#guarding-the-verification) instead of requests. Such a rule counts by `ip` or `global`.",
    kind: Choice(&[("unverified", Stage::Credential)]),
    absent: Absent::Nothing("requests"),
    examples: &[],
};

static DESCRIPTOR: Field<Custom<Vec<EntryPattern>>> = Field {
    key: "descriptor",
    doc: "Entries that a descriptor of [Envoy's protocol](envoy.md) must contain, in any order and among any others.",
    kind: Custom {
        read: read_descriptor,
        form: || Form::List {
            noun: "entries",
            item: Box::new(Form::Mapping(&ENTRY)),
            min: 1,
            max: Some(ENTRIES_MAX),
            is_unique: false,
        },
    },
    absent: Absent::Nothing("any"),
    examples: &["[{ key: remote_address, value: \"10.*\" }]"],
};

/// The keys of an override.
pub static OVERRIDE: Mapping = Mapping {
    doc: "Limits of its own for some identifiers.",
    fields: &[&OVERRIDE_IDENTIFIER, &OVERRIDE_LIMITS, &OVERRIDE_UNTIL],
    constraints: &[],
};

/// The identifiers that an override applies to.
pub static OVERRIDE_IDENTIFIER: Field<Text<Pattern>> = Field {
    key: "identifier",
    doc: "The identifiers.",
    kind: PATTERN,
    absent: Absent::Required("name the identifiers, for example identifier: \"vip-*\""),
    examples: &["\"vip-*\""],
};

/// The limits of an override.
pub static OVERRIDE_LIMITS: Field<Described> = Field {
    key: "limits",
    doc: "The limits that apply to them.",
    kind: Described(|| Form::Named("limits")),
    absent: Absent::Required("list the limits, or write unlimited"),
    examples: &[],
};

/// The end of an override.
pub static OVERRIDE_UNTIL: Field<Text<Timestamp>> = Field {
    key: "until",
    doc: "The instant at which the override ends (RFC 3339, with an offset).",
    kind: Text {
        parse: value::instant,
        form: || {
            let pattern = "^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.,][0-9]+)?)?([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)$";
            Form::Text(Shape::matching("instant", pattern))
        },
    },
    absent: Absent::Nothing("never"),
    examples: &["\"2026-12-31T00:00:00Z\""],
};

fn named_patterns(name: &str) -> Form {
    let name = Shape { max_length: Some(VALUE_NAME_BYTES_MAX), ..Shape::matching("name", name).literally() };
    Form::Map {
        about: "mapping of 1 to 8 names to patterns",
        name: Box::new(Form::Text(name)),
        value: Box::new(Form::Named("pattern")),
        min: 1,
        max: Some(VALUES_MAX),
    }
}

/// The regular expression of a pattern of hosts.
pub const HOST_PATTERN: &str = "^([A-Za-z0-9._*-]+|\\[[0-9A-Fa-f:.]+\\])$";
/// The most methods of one rule: HTTP has nine, and extensions add a few.
const METHODS_MAX: usize = 32;
/// The most header fields, and the most claims, that one rule matches: each costs a lookup per candidate request.
const VALUES_MAX: usize = 8;
/// The parts of an identity that a rule can count by.
const PARTS: &[(&str, Per)] =
    &[("identifier", Per::IDENTIFIER), ("tenant", Per::TENANT), ("ip", Per::ADDRESS), ("global", Per::GLOBAL)];

/// Reads a rule. Its name must not be among `names` yet; its tiers must be among `known`.
///
/// Compatible stand-ins replace unreadable values, so that the other values are still checked against each other and one
/// problem hides no other. Such a rule never takes effect, because its document has a problem. Without a name there is
/// no rule.
pub(super) fn read_rule(reader: &Reader<'_>, names: &mut Names, known: &Tiers) -> Option<Rule> {
    let Some(section) = reader.mapping(&RULE) else {
        names.miss_one();
        return None;
    };
    let name = names.read(section.find(&NAME));
    // Limits are named after their rule; a rule without a name is invalid anyway.
    let rule = name.as_deref().unwrap_or_default();
    let limits = section.find(&LIMITS).map(|limits| read_limits(limits, rule));
    let selector = section.read_optional(&MATCH).map(Option::unwrap_or_default);
    let per = section.read(&PER);
    let tiers = section.optional(TIERS.key, Vec::new(), |each| read_tiers(each, rule, known));
    let overrides = section.optional(OVERRIDES.key, Vec::new(), |each| read_overrides(each, rule));
    let (mode, policy) = (section.read(&MODE), section.read(&ON_STORE_FAILURE));
    let (deadline, cost) = (section.read(&DEADLINE), section.read(&COST));
    let lease = section.read_optional(&LEASE);
    let has_tiers = tiers.is_some();
    let rule = Rule {
        space: KeySpace::new(rule),
        selector: selector.unwrap_or_default(),
        per: per.unwrap_or(Per::GLOBAL),
        limits: limits.unwrap_or(Limits::Unlimited),
        tiers: tiers.unwrap_or_default(),
        overrides: overrides.unwrap_or_default(),
        mode: mode.unwrap_or_default(),
        on_store_failure: policy.unwrap_or_default(),
        deadline: deadline.unwrap_or(DEADLINE_DEFAULT),
        cost: cost.unwrap_or(Cost::ONE),
        lease: lease.flatten(),
    };
    check_stage(&section, &rule);
    check_lease(&section, &rule);
    if has_tiers {
        check_algorithms(&section, &rule, known);
    }
    name.map(|_| rule)
}

fn read_selector(section: &Section<'_>) -> Option<Selector> {
    let tenant = section.read_optional(&TENANT);
    let resource = section.read_optional(&RESOURCE);
    let path = section.read_optional(&PATH);
    let methods = section.read_optional(&METHOD).flatten();
    let stage = section.read_optional(&CREDENTIAL).flatten();
    let host = section.read_optional(&HOST);
    let headers = section.read_optional(&HEADER).flatten();
    let claims = section.read_optional(&CLAIM).flatten();
    let descriptor = section.read_optional(&DESCRIPTOR).flatten();
    Some(Selector {
        tenant: tenant.flatten(),
        resource: resource.flatten(),
        path: path.flatten(),
        methods: methods.unwrap_or_default(),
        host: host.flatten(),
        headers: headers.unwrap_or_default(),
        claims: claims.unwrap_or_default(),
        stage: stage.unwrap_or(Stage::Request),
        descriptor: descriptor.unwrap_or_default(),
        only_by_place: false,
    })
}

/// Reads names, each with a pattern for its value.
fn read_values(
    reader: &Reader<'_>,
    read_name: impl Fn(&str) -> Result<Box<str>, ValueError>,
) -> Option<Vec<NamedPattern>> {
    let pairs = reader.pairs()?;
    if !(1..=VALUES_MAX).contains(&pairs.len()) {
        let remedy = format!("name 1 to {VALUES_MAX}, each with a pattern, for example {{ name: \"*\" }}");
        return reader.refuse(ValueError::new(format!("{} names", pairs.len()), remedy));
    }
    let mut names: Vec<Box<str>> = Vec::new();
    all(pairs.iter().map(|pair| {
        let name = pair.key.text_as(&read_name);
        let pattern = pair.value.text_as(value::pattern);
        let name = name?;
        if names.contains(&name) {
            return pair.key.refuse(ValueError::new("named twice, in upper or lower case", "keep one of the two"));
        }
        names.push(name.clone());
        Some(NamedPattern { name, pattern: pattern? })
    }))
}

/// One method, or a list of them.
fn read_methods(reader: &Reader<'_>) -> Option<Vec<Box<str>>> {
    if !reader.is_list() {
        return Some(vec![reader.text_as(value::method)?]);
    }
    let items = reader.list("write a list of methods, for example [GET, POST]")?;
    if !(1..=METHODS_MAX).contains(&items.len()) {
        let remedy = format!("name 1 to {METHODS_MAX}, or leave the key out for all");
        return reader.refuse(ValueError::new(format!("{} methods", items.len()), remedy));
    }
    all(items.iter().map(|item| item.text_as(value::method)))
}

/// The identity behind an unverified credential is unknown, so a rule for it cannot count by identity.
fn check_stage(section: &Section<'_>, rule: &Rule) {
    if rule.selector.stage == Stage::Request {
        return;
    }
    if !rule.selector.claims.is_empty() {
        let remedy = "remove the claims, or the credential: before it is verified a token claims nothing";
        section.reader().report(ValueError::new("matches unverified credentials by claims", remedy));
    }
    if rule.per.identifier || rule.per.tenant || rule.selector.tenant.is_some() {
        let remedy = "write per: ip or per: global, and no tenant";
        section.reader().report(ValueError::new("counts unverified credentials by identity", remedy));
    }
}

/// One word, or a list of words that count together.
fn read_per(reader: &Reader<'_>) -> Option<Per> {
    if !reader.is_list() {
        return reader.choice(PARTS);
    }
    let together = "name what to count by, or write global to count all requests together";
    let parts = reader.choices(PARTS, together)?;
    if parts.is_empty() {
        return reader.refuse(ValueError::new("an empty list", together));
    }
    if parts.len() > 1 && parts.contains(&Per::GLOBAL) {
        return reader.refuse(ValueError::new("global among others", "let it stand alone, or remove it"));
    }
    Some(parts.into_iter().fold(Per::GLOBAL, Per::and))
}

fn read_tiers(reader: &Reader<'_>, rule: &str, known: &Tiers) -> Option<Vec<(Box<str>, Limits)>> {
    let read = reader.pairs()?.into_iter().map(|pair| {
        if known.lack(pair.name) {
            pair.key.report_lazily(None, || known.unknown(pair.name));
        }
        (pair.name.into(), read_limits(&pair.value, rule))
    });
    Some(read.collect())
}

fn read_overrides(reader: &Reader<'_>, rule: &str) -> Option<Vec<Override>> {
    let items = reader.list("write a list of overrides, each with `identifier` and `limits`")?;
    let mut earlier = EarlierOverrides::default();
    let read = items.iter().map(|item| {
        let section = item.mapping(&OVERRIDE);
        let each = section.as_ref().map_or_else(inert_override, |section| read_override(section, rule));
        if let Some(taken) = earlier.add(&each)
            && let Some(identifier) = section.and_then(|section| section.get(OVERRIDE_IDENTIFIER.key).cloned())
        {
            identifier.report(taken.wrong(&format!("the override at {}", items[taken.by()].place())));
        }
        each
    });
    Some(read.collect())
}

/// Reads an override of the rule called `rule`. The caller opens the section with the keys of [`OVERRIDE`] and its own.
/// An unreadable override matches no identifier.
#[must_use]
pub fn read_override(section: &Section<'_>, rule: &str) -> Override {
    let until = section.read_optional(&OVERRIDE_UNTIL);
    let identifier = section.read(&OVERRIDE_IDENTIFIER);
    let limits = section.find(&OVERRIDE_LIMITS);
    let limits = limits.map_or(Limits::Unlimited, |limits| read_limits(limits, rule));
    match identifier.zip(until) {
        Some((identifier, until)) => Override { identifier, limits, until },
        None => {
            section.reader().ensure_reported();
            Override { limits, ..inert_override() }
        }
    }
}

/// An override without effect: it matches no identifier, has ended, and shadows no other.
fn inert_override() -> Override {
    Override { identifier: Pattern::new(""), limits: Limits::Unlimited, until: Some(Timestamp::from_micros(0)) }
}
