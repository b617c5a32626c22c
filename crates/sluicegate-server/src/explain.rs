//! What becomes of a request, told as `sluicegate explain --json` and `POST /admin/v1/explain` tell it. Names and meanings
//! of fields stay; new ones may come. It asks no store: what is left of a limit is not known here.

use std::net::IpAddr;
use std::num::NonZeroU32;

use serde::Serialize;
use sluicegate::core::{Micros, Quota, Timestamp};
use sluicegate::rules::explain::{Explained, Mismatch, Says};
use sluicegate::rules::matching::Source;
use sluicegate::rules::{Mode, Override, Rule, RuleSet, Unmatched};
use sluicegate::store::redis::{KeyEncoder, RedisStore};
use sluicegate::store::{Charge, Lease};
use sluicegate::{CheckError, Identity, Request};

/// The whole explanation.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    pub(crate) request: Asked,
    /// Where state would be: `memory`, or `redis` in all its forms.
    pub(crate) store: &'static str,
    pub(crate) instances: u32,
    pub(crate) outcome: Outcome,
    pub(crate) rules: Vec<RuleReport>,
}

/// What comes of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Outcome {
    /// Limits decide.
    Limited,
    /// Rules match, none of them denies.
    Unlimited,
    /// No rule matches, so it passes.
    Allowed,
    /// No rule matches, so it is denied.
    Denied,
}

/// The request.
#[derive(Debug, Serialize)]
pub(crate) struct Asked {
    pub(crate) tenant: String,
    pub(crate) resource: String,
    pub(crate) identifier: String,
    pub(crate) tier: Option<String>,
    pub(crate) cost: Option<u32>,
    /// Of an HTTP request.
    pub(crate) method: Option<String>,
    /// Of an HTTP request, as rules see it.
    pub(crate) path: Option<String>,
    /// Of an HTTP request: the client's, as rules count it.
    pub(crate) address: Option<IpAddr>,
    /// Of an HTTP request, as rules see it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) host: Option<String>,
}

/// One rule.
#[derive(Debug, Serialize)]
pub(crate) struct RuleReport {
    pub(crate) name: String,
    pub(crate) matches: bool,
    /// Why it does not match.
    pub(crate) mismatches: Vec<MismatchReport>,
    /// What applies if it does.
    pub(crate) terms: Option<Terms>,
}

/// One reason.
#[derive(Debug, Serialize)]
pub(crate) struct MismatchReport {
    pub(crate) part: &'static str,
    pub(crate) reason: String,
}

/// What a rule that matches says.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Terms {
    pub(crate) mode: &'static str,
    pub(crate) limits_of: Whose,
    /// Whose limits would apply if their time was not over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ended: Option<Ended>,
    pub(crate) unlimited: bool,
    /// The key as it stands in Redis.
    pub(crate) key: Option<String>,
    pub(crate) cost: Option<u32>,
    pub(crate) on_store_failure: &'static str,
    pub(crate) deadline_ms: u64,
    pub(crate) limits: Vec<LimitReport>,
    pub(crate) lease: Option<LeaseReport>,
}

/// Whose limits apply.
#[derive(Debug, Serialize)]
pub(crate) struct Whose {
    pub(crate) kind: &'static str,
    /// The tier, or the pattern of the override.
    pub(crate) name: Option<String>,
}

/// An override whose time is over.
#[derive(Debug, Serialize)]
pub(crate) struct Ended {
    /// Its pattern.
    pub(crate) name: String,
    /// Since when.
    pub(crate) until: String,
}

/// One limit as it is charged.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LimitReport {
    pub(crate) name: String,
    pub(crate) algorithm: &'static str,
    /// The most that passes at once.
    pub(crate) limit: u64,
    /// The window, or the time a bucket takes to fill; of a calendar, its longest window.
    pub(crate) window_micros: u64,
    /// The calendar that the windows are of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) calendar: Option<String>,
    /// Of a token bucket.
    pub(crate) bucket: Option<Bucket>,
    /// Whether the cost is more than the limit ever has.
    pub(crate) never_fits: bool,
    /// What holds through all instances together, where requests may be charged ahead.
    pub(crate) bound: Option<Bound>,
}

/// A token bucket: capacity and credits are what passes at once, and so many tokens come back per period.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Bucket {
    pub(crate) capacity: u64,
    pub(crate) credits: u64,
    pub(crate) refill_tokens: u64,
    pub(crate) refill_micros: u64,
}

/// In any time d at most `burst` + rate·d + `extra` pass.
#[derive(Debug, Serialize)]
pub(crate) struct Bound {
    pub(crate) burst: u64,
    pub(crate) extra: u64,
    /// How much at most sits unused elsewhere when a request is denied.
    pub(crate) stranded: u64,
}

/// The terms of charging ahead.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LeaseReport {
    pub(crate) mode: &'static str,
    pub(crate) ttl_micros: u64,
    /// Whether the store charges ahead at all.
    pub(crate) in_force: bool,
    /// Whether it would charge this very request ahead, with all rules that match.
    pub(crate) for_this_request: bool,
}

/// What a request is explained by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Surroundings<'a> {
    /// The rules as they were written.
    pub(crate) rules: &'a RuleSet,
    /// Whether state is shared with other servers.
    pub(crate) is_shared: bool,
    /// How many servers share the limits.
    pub(crate) instances: NonZeroU32,
    /// How keys are written in a shared store.
    pub(crate) encoder: &'a KeyEncoder,
}

impl Report {
    /// Explains what becomes of `request` at this instant.
    pub(crate) fn new(
        surroundings: Surroundings<'_>,
        request: &Request<'_>,
        now: Timestamp,
    ) -> Result<Self, CheckError> {
        let Surroundings { rules: whole, is_shared, instances, encoder } = surroundings;
        request.validate()?;
        // As a limiter does that has such a store.
        let in_force = if is_shared { whole.clone().charged_ahead() } else { whole.clone() };
        let explained = in_force.explain(request, now)?;
        let charges: Vec<Charge<'_>> = explained.iter().filter_map(charge_of).collect();
        let is_charged_ahead = is_shared && RedisStore::may_charge_ahead(&charges);
        let view = View { whole, is_shared, is_charged_ahead, instances, encoder, request };
        Ok(Self {
            request: Asked::new(request),
            store: if is_shared { "redis" } else { "memory" },
            instances: instances.get(),
            outcome: outcome(&explained, whole.unmatched(), request),
            rules: explained.iter().enumerate().map(|(index, each)| view.rule(index, each)).collect(),
        })
    }
}

fn charge_of<'a>(explained: &Explained<'a>) -> Option<Charge<'a>> {
    match explained.says {
        Says::Limited(_, charge) => Some(charge),
        Says::Unlimited(_) | Says::Nothing(_) => None,
    }
}

fn outcome(explained: &[Explained<'_>], unmatched: Unmatched, request: &Request<'_>) -> Outcome {
    let is_any = |wanted: fn(&Explained<'_>) -> bool| explained.iter().any(wanted);
    if is_any(|each| matches!(each.says, Says::Limited(..)) && each.rule.mode == Mode::Enforce) {
        Outcome::Limited
    } else if is_any(|each| !matches!(each.says, Says::Nothing(_))) {
        Outcome::Unlimited
    } else if unmatched == Unmatched::Allow || request.cost.is_some_and(|cost| cost.is_zero()) {
        Outcome::Allowed
    } else {
        Outcome::Denied
    }
}

impl Asked {
    fn new(request: &Request<'_>) -> Self {
        Self {
            tenant: request.tenant.to_owned(),
            resource: request.resource.to_owned(),
            identifier: match request.identity {
                Identity::Named(name) | Identity::Claimed(name) => name.to_owned(),
                Identity::Address(address) => address.to_string(),
            },
            tier: request.tier.map(str::to_owned),
            cost: request.cost.map(|cost| cost.get()),
            method: request.target.map(|target| target.method.to_owned()),
            path: request.target.map(|target| target.path.to_owned()),
            address: request.address,
            host: request.target.and_then(|target| target.host).map(str::to_owned),
        }
    }
}

/// What all rules are looked at with.
struct View<'a> {
    /// The rules as they were written.
    whole: &'a RuleSet,
    is_shared: bool,
    is_charged_ahead: bool,
    instances: NonZeroU32,
    encoder: &'a KeyEncoder,
    request: &'a Request<'a>,
}

impl View<'_> {
    fn rule(&self, index: usize, explained: &Explained<'_>) -> RuleReport {
        let rule = explained.rule;
        let mismatch = |mismatch: &Mismatch<'_>| MismatchReport {
            part: mismatch.name(),
            reason: mismatch.reason(self.request),
        };
        let (mismatches, terms) = match &explained.says {
            Says::Nothing(mismatches) => (mismatches.iter().map(mismatch).collect(), None),
            Says::Unlimited(source) => (Vec::new(), Some(self.terms(index, explained, *source, None))),
            Says::Limited(source, charge) => {
                (Vec::new(), Some(self.terms(index, explained, *source, Some(charge))))
            }
        };
        RuleReport { name: rule.space.name().to_owned(), matches: terms.is_some(), mismatches, terms }
    }

    fn terms(
        &self,
        index: usize,
        Explained { rule, ended, .. }: &Explained<'_>,
        source: Source,
        charge: Option<&Charge<'_>>,
    ) -> Terms {
        let labels = rule.limits_of(source).labels();
        let whole = self.whole.rules()[index].limits_of(source).quotas();
        let limit = |charge| {
            let limits = labels.iter().zip(whole).zip(rule.limits_of(source).quotas());
            limits.map(|((label, whole), quota)| self.limit(label, whole, quota, charge)).collect()
        };
        Terms {
            mode: rule.mode.name(),
            limits_of: Whose::new(rule, source),
            ended: ended.and_then(Ended::new),
            unlimited: charge.is_none(),
            key: charge.map(|charge| self.encoder.name(&charge.key)),
            cost: charge.map(|charge| charge.cost.get()),
            on_store_failure: rule.on_store_failure.name(),
            deadline_ms: u64::try_from(rule.deadline.as_millis()).unwrap_or(u64::MAX),
            limits: charge.map(limit).unwrap_or_default(),
            lease: charge.and_then(|charge| charge.lease).map(|lease| self.lease(lease, rule.mode)),
        }
    }

    fn limit(&self, label: &str, whole: &Quota, quota: &Quota, charge: &Charge<'_>) -> LimitReport {
        let bound = |lease: Lease| Bound {
            burst: whole.limit(),
            extra: lease.extra(quota, self.instances),
            stranded: Lease::most_stranded(quota, self.instances),
        };
        LimitReport {
            name: label.to_owned(),
            algorithm: quota.algorithm(),
            limit: quota.limit(),
            window_micros: quota.window().as_micros(),
            calendar: calendar_name(quota),
            bucket: Bucket::of(quota),
            never_fits: charge.cost.units() > quota.limit(),
            bound: charge.lease.filter(|_| self.is_shared).map(bound),
        }
    }

    fn lease(&self, Lease { ttl, mode }: Lease, rule: Mode) -> LeaseReport {
        LeaseReport {
            mode: mode.name(),
            ttl_micros: Micros::as_micros(ttl),
            in_force: self.is_shared,
            for_this_request: self.is_charged_ahead && rule == Mode::Enforce,
        }
    }
}

impl Whose {
    fn new(rule: &Rule, source: Source) -> Self {
        match source {
            Source::Rule => Self { kind: "rule", name: None },
            Source::Tier(index) => Self { kind: "tier", name: Some(rule.tiers[index].0.to_string()) },
            Source::Override(index) => {
                Self { kind: "override", name: Some(rule.overrides[index].identifier.text()) }
            }
        }
    }
}

impl Ended {
    fn new(ended: &Override) -> Option<Self> {
        let until = i64::try_from(ended.until?.as_micros()).ok()?;
        let until = jiff::Timestamp::from_microsecond(until).ok()?.to_string();
        Some(Self { name: ended.identifier.text(), until })
    }
}

fn calendar_name(quota: &Quota) -> Option<String> {
    let Quota::FixedWindow(window) = quota else { return None };
    window.calendar().map(|calendar| calendar.name().to_owned())
}

impl Bucket {
    fn of(quota: &Quota) -> Option<Self> {
        let Quota::TokenBucket(bucket) = quota else { return None };
        Some(Self {
            capacity: bucket.capacity(),
            credits: bucket.credits(),
            refill_tokens: bucket.parts_per_micro(),
            refill_micros: bucket.parts_per_token(),
        })
    }
}
