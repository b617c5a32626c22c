//! The explanation of a request, as in `sluicegate explain --json` and `POST /admin/v1/explain`. The names and meanings of
//! fields are stable; new fields may be added. The explanation does not access the store, so it contains no remaining quota.

use std::net::IpAddr;
use std::num::NonZeroU32;

use serde::Serialize;
use sluicegate::core::{Micros, Quota, Timestamp};
use sluicegate::rules::explain::{Explained, MatchResult, Mismatch};
use sluicegate::rules::matching::Source;
use sluicegate::rules::{Mode, Override, Rule, RuleSet, Unmatched};
use sluicegate::store::redis::{KeyEncoder, RedisStore};
use sluicegate::store::{Charge, Lease};
use sluicegate::{CheckError, Identity, Request};

/// The whole explanation.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ExplainReport {
    pub(crate) request: ExplainedRequest,
    /// The kind of the store: `memory`, or `redis` for all topologies of Redis and Valkey.
    pub(crate) store: &'static str,
    pub(crate) instances: u32,
    pub(crate) outcome: ExplainOutcome,
    pub(crate) rules: Vec<RuleReport>,
}

/// The outcome, as far as rules determine it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ExplainOutcome {
    /// At least one enforced limit applies.
    Limited,
    /// Rules match, but none of them can deny.
    Unlimited,
    /// No rule matches, and unmatched requests are allowed.
    Allowed,
    /// No rule matches, and unmatched requests are denied.
    Denied,
}

/// The explained request.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ExplainedRequest {
    pub(crate) tenant: String,
    pub(crate) resource: String,
    pub(crate) identifier: String,
    pub(crate) tier: Option<String>,
    pub(crate) cost: Option<u32>,
    /// The method, for HTTP requests.
    pub(crate) method: Option<String>,
    /// The normalized path, for HTTP requests.
    pub(crate) path: Option<String>,
    /// Other readings of the path, with encoded slashes as separators. Rules match all readings.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) separated_paths: Vec<String>,
    /// The client's address or network, for HTTP requests.
    pub(crate) address: Option<IpAddr>,
    /// The normalized host, for HTTP requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) host: Option<String>,
}

/// One rule.
#[derive(Debug, Serialize)]
pub(crate) struct RuleReport {
    pub(crate) name: String,
    pub(crate) matches: bool,
    /// The reasons why it does not match.
    pub(crate) mismatches: Vec<MismatchReport>,
    /// Its effect if it matches.
    pub(crate) terms: Option<RuleEffect>,
}

/// A reason why a rule does not match.
#[derive(Debug, Serialize)]
pub(crate) struct MismatchReport {
    pub(crate) part: &'static str,
    pub(crate) reason: String,
}

/// The effect of a rule that matches.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RuleEffect {
    pub(crate) mode: &'static str,
    pub(crate) limits_of: LimitSource,
    /// The override that would apply if it had not expired.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ended: Option<ExpiredOverride>,
    pub(crate) unlimited: bool,
    /// The key in Redis.
    pub(crate) key: Option<String>,
    pub(crate) cost: Option<u32>,
    pub(crate) on_store_failure: &'static str,
    pub(crate) deadline_ms: u64,
    pub(crate) limits: Vec<ExplainedLimit>,
    pub(crate) lease: Option<LeaseReport>,
}

/// The limit set that applies.
#[derive(Debug, Serialize)]
pub(crate) struct LimitSource {
    pub(crate) kind: &'static str,
    /// The tier, or the pattern of the override.
    pub(crate) name: Option<String>,
}

/// An override that has expired.
#[derive(Debug, Serialize)]
pub(crate) struct ExpiredOverride {
    /// Its pattern.
    pub(crate) name: String,
    /// The time of its expiry.
    pub(crate) until: String,
}

/// One limit.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ExplainedLimit {
    pub(crate) name: String,
    pub(crate) algorithm: &'static str,
    /// The largest cost that can pass at once.
    pub(crate) limit: u64,
    /// The window, the time to fill an empty bucket, or the longest window of a calendar.
    pub(crate) window_micros: u64,
    /// The calendar of the windows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) calendar: Option<String>,
    /// The parameters of a token bucket.
    pub(crate) bucket: Option<BucketReport>,
    /// Whether the cost exceeds the limit, so that the request never passes.
    pub(crate) never_fits: bool,
    /// The bound over all instances, for limits with a lease.
    pub(crate) bound: Option<LeaseBound>,
}

/// A token bucket. At most `capacity` plus `credits` pass at once, and `refill_tokens` return per `refill_micros`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BucketReport {
    pub(crate) capacity: u64,
    pub(crate) credits: u64,
    pub(crate) refill_tokens: u64,
    pub(crate) refill_micros: u64,
}

/// The bound of a limit with a lease: in any interval d, at most `burst` + rate·d + `extra` pass.
#[derive(Debug, Serialize)]
pub(crate) struct LeaseBound {
    pub(crate) burst: u64,
    pub(crate) extra: u64,
    /// The most permits that other servers may hold unused when a request is denied.
    pub(crate) stranded: u64,
}

/// The lease of a rule.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LeaseReport {
    pub(crate) mode: &'static str,
    pub(crate) ttl_micros: u64,
    /// Whether the store uses leases.
    pub(crate) in_force: bool,
    /// Whether a lease can cover this request under all matching rules.
    pub(crate) for_this_request: bool,
}

/// The context of an explanation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExplainContext<'a> {
    /// The rules as configured.
    pub(crate) rules: &'a RuleSet,
    /// Whether the store is shared with other servers.
    pub(crate) is_shared: bool,
    /// The number of servers that share the limits.
    pub(crate) instances: NonZeroU32,
    /// The encoder of keys in a shared store.
    pub(crate) encoder: &'a KeyEncoder,
}

impl ExplainReport {
    /// Explains `request` at `now`.
    pub(crate) fn new(
        context: ExplainContext<'_>,
        request: &Request<'_>,
        now: Timestamp,
    ) -> Result<Self, CheckError> {
        let ExplainContext { rules: configured, is_shared, instances, encoder } = context;
        request.validate()?;
        // A limiter with a shared store adapts its rules in the same way.
        let in_force = if is_shared { configured.clone().charged_ahead() } else { configured.clone() };
        let explained = in_force.explain(request, now)?;
        let charges: Vec<Charge<'_>> = explained.iter().filter_map(charge_of).collect();
        let is_charged_ahead = is_shared && RedisStore::can_lease(&charges);
        let explainer = RuleExplainer { configured, is_shared, is_charged_ahead, instances, encoder, request };
        Ok(Self {
            request: ExplainedRequest::new(request),
            store: if is_shared { "redis" } else { "memory" },
            instances: instances.get(),
            outcome: outcome(&explained, configured.unmatched(), request),
            rules: explained.iter().enumerate().map(|(index, each)| explainer.rule(index, each)).collect(),
        })
    }
}

fn charge_of<'a>(explained: &Explained<'a>) -> Option<Charge<'a>> {
    match explained.result {
        MatchResult::Limited(_, charge) => Some(charge),
        MatchResult::Unlimited(_) | MatchResult::Mismatched(_) => None,
    }
}

fn outcome(explained: &[Explained<'_>], unmatched: Unmatched, request: &Request<'_>) -> ExplainOutcome {
    let is_any = |wanted: fn(&Explained<'_>) -> bool| explained.iter().any(wanted);
    if is_any(|each| matches!(each.result, MatchResult::Limited(..)) && each.rule.mode == Mode::Enforce) {
        ExplainOutcome::Limited
    } else if is_any(|each| !matches!(each.result, MatchResult::Mismatched(_))) {
        ExplainOutcome::Unlimited
    } else if unmatched == Unmatched::Allow || request.cost.is_some_and(|cost| cost.is_zero()) {
        ExplainOutcome::Allowed
    } else {
        ExplainOutcome::Denied
    }
}

impl ExplainedRequest {
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
            separated_paths: request
                .target
                .map_or(&[][..], |target| target.separated)
                .iter()
                .map(|reading| reading.path().to_owned())
                .collect(),
            address: request.address,
            host: request.target.and_then(|target| target.host).map(str::to_owned),
        }
    }
}

/// Explains single rules of a request.
struct RuleExplainer<'a> {
    /// The rules as configured.
    configured: &'a RuleSet,
    is_shared: bool,
    is_charged_ahead: bool,
    instances: NonZeroU32,
    encoder: &'a KeyEncoder,
    request: &'a Request<'a>,
}

impl RuleExplainer<'_> {
    fn rule(&self, index: usize, explained: &Explained<'_>) -> RuleReport {
        let rule = explained.rule;
        let mismatch = |mismatch: &Mismatch<'_>| MismatchReport {
            part: mismatch.name(),
            reason: mismatch.reason(self.request),
        };
        let (mismatches, terms) = match &explained.result {
            MatchResult::Mismatched(mismatches) => (mismatches.iter().map(mismatch).collect(), None),
            MatchResult::Unlimited(source) => (Vec::new(), Some(self.terms(index, explained, *source, None))),
            MatchResult::Limited(source, charge) => {
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
    ) -> RuleEffect {
        let labels = rule.limits_of(source).labels();
        let configured = self.configured.rules()[index].limits_of(source).quotas();
        let limit = |charge| {
            let limits = labels.iter().zip(configured).zip(rule.limits_of(source).quotas());
            limits.map(|((label, configured), quota)| self.limit(label, configured, quota, charge)).collect()
        };
        RuleEffect {
            mode: rule.mode.name(),
            limits_of: LimitSource::new(rule, source),
            ended: ended.and_then(ExpiredOverride::new),
            unlimited: charge.is_none(),
            key: charge.map(|charge| self.encoder.name(&charge.key)),
            cost: charge.map(|charge| charge.cost.get()),
            on_store_failure: rule.on_store_failure.name(),
            deadline_ms: u64::try_from(rule.deadline.as_millis()).unwrap_or(u64::MAX),
            limits: charge.map(limit).unwrap_or_default(),
            lease: charge.and_then(|charge| charge.lease).map(|lease| self.lease(lease, rule.mode)),
        }
    }

    fn limit(&self, label: &str, configured: &Quota, quota: &Quota, charge: &Charge<'_>) -> ExplainedLimit {
        let bound = |lease: Lease| LeaseBound {
            burst: configured.limit(),
            extra: lease.extra(quota, self.instances),
            stranded: Lease::most_stranded(quota, self.instances),
        };
        ExplainedLimit {
            name: label.to_owned(),
            algorithm: quota.algorithm(),
            limit: quota.limit(),
            window_micros: quota.window().as_micros(),
            calendar: calendar_name(quota),
            bucket: BucketReport::of(quota),
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

impl LimitSource {
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

impl ExpiredOverride {
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

impl BucketReport {
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
