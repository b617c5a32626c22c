//! What is explained, as it is printed with `--json`. Names and meanings of fields stay; new ones may come.

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

use crate::config::Config;
use crate::settings::StoreUrl;

/// The whole explanation.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    pub(super) request: Asked,
    /// Where state would be: `memory`, or `redis` in all its forms.
    pub(super) store: &'static str,
    pub(super) instances: u32,
    pub(super) outcome: Outcome,
    pub(super) rules: Vec<RuleReport>,
}

/// What comes of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Outcome {
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
pub(super) struct Asked {
    pub(super) tenant: String,
    pub(super) resource: String,
    pub(super) identifier: String,
    pub(super) tier: Option<String>,
    pub(super) cost: Option<u32>,
    /// Of an HTTP request.
    pub(super) method: Option<String>,
    /// Of an HTTP request, as rules see it.
    pub(super) path: Option<String>,
    /// Of an HTTP request: the client's, as rules count it.
    pub(super) address: Option<IpAddr>,
}

/// One rule.
#[derive(Debug, Serialize)]
pub(super) struct RuleReport {
    pub(super) name: String,
    pub(super) matches: bool,
    /// Why it does not match.
    pub(super) mismatches: Vec<MismatchReport>,
    /// What applies if it does.
    pub(super) terms: Option<Terms>,
}

/// One reason.
#[derive(Debug, Serialize)]
pub(super) struct MismatchReport {
    pub(super) part: &'static str,
    pub(super) reason: String,
}

/// What a rule that matches says.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Terms {
    pub(super) mode: &'static str,
    pub(super) limits_of: Whose,
    /// Whose limits would apply if their time was not over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ended: Option<Ended>,
    pub(super) unlimited: bool,
    /// The key as it stands in Redis.
    pub(super) key: Option<String>,
    pub(super) cost: Option<u32>,
    pub(super) on_store_failure: &'static str,
    pub(super) deadline_ms: u64,
    pub(super) limits: Vec<LimitReport>,
    pub(super) lease: Option<LeaseReport>,
}

/// Whose limits apply.
#[derive(Debug, Serialize)]
pub(super) struct Whose {
    pub(super) kind: &'static str,
    /// The tier, or the pattern of the override.
    pub(super) name: Option<String>,
}

/// An override whose time is over.
#[derive(Debug, Serialize)]
pub(super) struct Ended {
    /// Its pattern.
    pub(super) name: String,
    /// Since when.
    pub(super) until: String,
}

/// One limit as it is charged.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LimitReport {
    pub(super) name: String,
    pub(super) algorithm: &'static str,
    /// The most that passes at once.
    pub(super) limit: u64,
    /// The window, or the time a bucket takes to fill.
    pub(super) window_micros: u64,
    /// Of a token bucket.
    pub(super) bucket: Option<Bucket>,
    /// Whether the cost is more than the limit ever has.
    pub(super) never_fits: bool,
    /// What holds through all instances together, where requests may be charged ahead.
    pub(super) bound: Option<Bound>,
}

/// A token bucket: capacity and credits are what passes at once, and so many tokens come back per period.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Bucket {
    pub(super) capacity: u64,
    pub(super) credits: u64,
    pub(super) refill_tokens: u64,
    pub(super) refill_micros: u64,
}

/// In any time d at most `burst` + rate·d + `extra` pass.
#[derive(Debug, Serialize)]
pub(super) struct Bound {
    pub(super) burst: u64,
    pub(super) extra: u64,
    /// How much at most sits unused elsewhere when a request is denied.
    pub(super) stranded: u64,
}

/// The terms of charging ahead.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LeaseReport {
    pub(super) mode: &'static str,
    pub(super) ttl_micros: u64,
    /// Whether the store charges ahead at all.
    pub(super) in_force: bool,
    /// Whether it would charge this very request ahead, with all rules that match.
    pub(super) for_this_request: bool,
}

impl Report {
    /// Explains what becomes of `request` on so many servers with this configuration and store.
    pub(super) fn new(
        config: &Config,
        store: &StoreUrl,
        instances: NonZeroU32,
        request: &Request<'_>,
        now: Timestamp,
    ) -> Result<Self, CheckError> {
        request.validate()?;
        let is_shared = matches!(store, StoreUrl::Redis(_));
        let whole = &config.rules;
        // As a limiter does that has such a store.
        let in_force = if is_shared { whole.clone().charged_ahead() } else { whole.clone() };
        let explained = in_force.explain(request, now)?;
        let charges: Vec<Charge<'_>> = explained.iter().filter_map(charge_of).collect();
        let is_charged_ahead = is_shared && RedisStore::may_charge_ahead(&charges);
        let encoder = &config.redis.encoder;
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
