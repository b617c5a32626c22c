//! The gate: turns the head of an HTTP request into a decision. Gateway, forward-auth and middleware all use it, so
//! they cannot disagree.
//!
//! A [`Gate`] identifies the client ([`Identify`]), applies the rules for unverified credentials before it verifies
//! one, and calls the [`Limiter`]. It only reads the head: it sends no response and writes no header.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderMap;
use http::header::HOST;

use crate::authority;
use crate::clock::Clock;
use crate::decision::Decision;
use crate::error::CheckError;
use crate::identify::{Client, Identify, Lookup, Unauthorized, Unverified};
use crate::identity::{Charging, Identity, Request, Stage, Target};
use crate::limiter::Limiter;
use crate::observe::{NoObserver, Observer};
use crate::path::Path;
use crate::rules::RuleSet;
use crate::store::Store;

/// Decides about HTTP requests.
///
/// ```
/// use http::HeaderMap;
/// use sluicegate::clock::SystemClock;
/// use sluicegate::core::{Micros, Quota, Rate, TokenBucket};
/// use sluicegate::gate::{Gate, Head};
/// use sluicegate::identify::{Identify, Source};
/// use sluicegate::path::{EncodedSlashes, Path};
/// use sluicegate::rules::{Limits, Rule, RuleSet, Unmatched};
/// use sluicegate::{Limiter, MemoryStore};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # runtime.block_on(async {
/// let one = Quota::from(TokenBucket::new(1, Rate::new(1, Micros::from_secs(60))?)?);
/// let rules = RuleSet::new(vec![Rule::new("one", Limits::all("one", [(None, one)]))], vec![], Unmatched::Allow)?;
/// let limiter = Limiter::new(rules, MemoryStore::default(), SystemClock::new());
/// let gate = Gate::new(limiter, Identify::new(vec![Source::Address]));
///
/// let path = Path::parse("/orders", EncodedSlashes::Refuse)?;
/// let head = Head { method: "GET", path: &path, authority: None, headers: &HeaderMap::new() };
/// let peer = "192.0.2.7".parse()?;
/// assert!(gate.decide(&head, peer).await?.decision.is_allowed());
/// assert!(!gate.decide(&head, peer).await?.decision.is_allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Gate<S, C, O = NoObserver> {
    limiter: Arc<Limiter<S, C, O>>,
    identify: Identify,
}

/// The parts of a request that a decision depends on.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// The method.
    pub method: &'a str,
    /// The path.
    pub path: &'a Path<'a>,
    /// The host of the request's target, if the target has one: `:authority` of HTTP/2. It takes precedence over the
    /// field `Host`.
    pub authority: Option<&'a str>,
    /// The header fields.
    pub headers: &'a HeaderMap,
}

/// The identified client, and the decision on its request.
#[derive(Debug)]
pub struct Admission {
    /// The identified client.
    pub client: Client,
    /// The decision.
    pub decision: Decision,
}

/// Why the gate has no decision on a request.
#[derive(Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// The client could not be identified.
    Unauthorized(Unauthorized),
    /// The rules for unverified credentials deny one more verification. This is their decision.
    Guarded(Decision),
    /// The limiter could not decide.
    Undecided(CheckError),
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unauthorized(error) => error.fmt(formatter),
            Self::Guarded(_) => formatter.write_str("too many credentials were tried: wait, then try again"),
            Self::Undecided(error) => error.fmt(formatter),
        }
    }
}

impl std::error::Error for Refusal {}

impl<S: Store, C: Clock, O: Observer> Gate<S, C, O> {
    /// A gate that identifies clients by `identify` and decides by `limiter`.
    pub fn new(limiter: impl Into<Arc<Limiter<S, C, O>>>, identify: Identify) -> Self {
        let limiter = limiter.into();
        identify.want_claims(&limiter.rules());
        Self { limiter, identify }
    }

    /// Replaces the rules, as [`Limiter::replace_rules`] does, and selects the claims of tokens that the new rules
    /// need.
    pub fn replace_rules(&self, rules: RuleSet) {
        // The claims come first, so that no request meets the new rules without them.
        self.identify.want_claims(&rules);
        self.limiter.replace_rules(rules);
    }

    /// The limiter that decides.
    pub fn limiter(&self) -> &Arc<Limiter<S, C, O>> {
        &self.limiter
    }

    /// The sources that identify clients.
    pub fn identify(&self) -> &Identify {
        &self.identify
    }

    /// Decides on a request from `peer`, and charges it if it is allowed.
    ///
    /// # Errors
    /// If the client cannot be identified, or the limiter cannot decide.
    pub async fn decide(&self, head: &Head<'_>, peer: IpAddr) -> Result<Admission, Refusal> {
        let (resource, host) = (head.path.resource(), head.host());
        let host = host.as_deref();
        let now = self.limiter.clock().now();
        let lookup = self.identify.look(head.headers, peer, now).map_err(Refusal::Unauthorized)?;
        let client = match lookup {
            Lookup::Known(client) => client,
            Lookup::Unverified(unverified) => {
                let request = Request { target: Some(target(head, host)), ..Request::new(&resource, "") };
                self.verified(unverified, request).await?
            }
        };
        let request = Request {
            tenant: client.tenant(),
            resource: &resource,
            identity: client.identity(),
            address: Some(client.counted()),
            tier: client.tier(),
            cost: None,
            charging: Charging::IfAllowed,
            target: Some(Target { claims: client.claims(), ..target(head, host) }),
            stage: Stage::Request,
            descriptor: None,
            rule: None,
        };
        let decision = self.checked(request).await.map_err(Refusal::Undecided)?;
        Ok(Admission { client, decision })
    }

    /// Decides. The issuer, not the client, is responsible for a tier that the rules do not know, so the rules' own
    /// limits apply.
    async fn checked(&self, request: Request<'_>) -> Result<Decision, CheckError> {
        match self.limiter.check(&request).await {
            Err(CheckError::UnknownTier(unknown)) => {
                self.limiter.observer().unknown_tier(&unknown.tier);
                self.limiter.check(&Request { tier: None, ..request }).await
            }
            decided => decided,
        }
    }

    /// The client that a credential stands for, if the rules for unverified credentials allow the verification.
    async fn verified(&self, unverified: Unverified<'_>, request: Request<'_>) -> Result<Client, Refusal> {
        if self.limiter.rules().guards_credentials() {
            let address = unverified.counted();
            let request = Request {
                identity: Identity::Address(address),
                address: Some(address),
                stage: Stage::Credential,
                ..request
            };
            let decision = self.limiter.check(&request).await.map_err(Refusal::Undecided)?;
            if !decision.is_allowed() {
                return Err(Refusal::Guarded(decision));
            }
        }
        unverified.verify(self.limiter.clock().now()).await.map_err(Refusal::Unauthorized)
    }
}

fn target<'a>(head: &Head<'a>, host: Option<&'a str>) -> Target<'a> {
    Target { host, headers: Some(head.headers), ..Target::of(head.method, head.path) }
}

impl<'a> Head<'a> {
    /// The host as rules see it: in lower case, without a port. `None` if the request has several `Host` fields,
    /// because readers differ in which one counts.
    #[must_use]
    pub fn host(&self) -> Option<Cow<'a, str>> {
        let field = || {
            let mut fields = self.headers.get_all(HOST).iter();
            fields.next().filter(|_| fields.next().is_none())?.to_str().ok()
        };
        let authority = self.authority.or_else(field)?;
        authority::matched_host(authority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::EncodedSlashes;

    #[test]
    fn the_host_is_that_of_the_target_or_of_the_only_host_field() {
        let path = Path::parse("/", EncodedSlashes::Refuse).unwrap();
        let of = |authority: Option<&str>, fields: &[&'static str]| {
            let headers: HeaderMap =
                fields.iter().map(|field| (HOST, http::HeaderValue::from_static(field))).collect();
            Head { method: "GET", path: &path, authority, headers: &headers }.host().map(Cow::into_owned)
        };
        for written in ["API.Example.:8443", "user@api.example:1"] {
            assert_eq!(of(Some(written), &[]).as_deref(), Some("api.example"), "{written}");
            assert_eq!(of(None, &[written]).as_deref(), Some("api.example"), "{written}");
        }
        assert_eq!(of(Some("a"), &["b"]).as_deref(), Some("a"));
        assert_eq!(of(None, &["a", "b"]), None);
        assert_eq!(of(None, &[]), None);
    }
}
