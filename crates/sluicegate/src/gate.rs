//! From the head of an HTTP request to a decision: the one way that gateways, forward-auth and middleware share, so that
//! they cannot disagree.
//!
//! A [`Gate`] finds out who asks ([`Identify`]), guards that by the rules for unverified credentials, and asks the
//! [`Limiter`]. It reads the head only: it sends nothing, answers nothing and writes no header.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderMap;
use http::header::HOST;

use crate::clock::Clock;
use crate::decision::Decision;
use crate::identify::{Caller, Identify, Looked, Unauthorized, Unverified};
use crate::identity::{Identity, Request, Stage, Target};
use crate::limiter::{CheckError, Limiter};
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

/// What a decision goes by.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// The method.
    pub method: &'a str,
    /// The path.
    pub path: &'a Path<'a>,
    /// The host that the request's target names, if it does: `:authority` of HTTP/2. It wins over the field `Host`.
    pub authority: Option<&'a str>,
    /// The header fields.
    pub headers: &'a HeaderMap,
}

/// Who asks, and what was decided.
#[derive(Debug)]
pub struct Admission {
    /// Who asks.
    pub caller: Caller,
    /// Whether it may pass.
    pub decision: Decision,
}

/// Why there is no decision about the request.
#[derive(Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// Who asks is not known.
    Unauthorized(Unauthorized),
    /// Too many credentials were verified already; this is the decision that says so.
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
    /// A gate that knows callers by `identify` and decides by `limiter`.
    pub fn new(limiter: impl Into<Arc<Limiter<S, C, O>>>, identify: Identify) -> Self {
        let limiter = limiter.into();
        identify.want_claims(&limiter.rules());
        Self { limiter, identify }
    }

    /// Puts other rules in force, as [`Limiter::replace_rules`] does, whatever claims of tokens they ask for.
    pub fn replace_rules(&self, rules: RuleSet) {
        // First, so that no request meets the rules without the claims.
        self.identify.want_claims(&rules);
        self.limiter.replace_rules(rules);
    }

    /// Who decides.
    pub fn limiter(&self) -> &Arc<Limiter<S, C, O>> {
        &self.limiter
    }

    /// How callers are known.
    pub fn identify(&self) -> &Identify {
        &self.identify
    }

    /// Decides about a request that came from `peer`, and charges it if it is allowed.
    ///
    /// # Errors
    /// If who asks is not known, or nothing could be decided.
    pub async fn decide(&self, head: &Head<'_>, peer: IpAddr) -> Result<Admission, Refusal> {
        let (resource, host) = (head.path.resource(), head.host());
        let host = host.as_deref();
        let now = self.limiter.clock().now();
        let looked = self.identify.look(head.headers, peer, now).map_err(Refusal::Unauthorized)?;
        let caller = match looked {
            Looked::Known(caller) => caller,
            Looked::Unverified(unverified) => {
                let request = Request { target: Some(target(head, host)), ..Request::new(&resource, "") };
                self.verified(unverified, request).await?
            }
        };
        let request = Request {
            tenant: caller.tenant(),
            resource: &resource,
            identity: caller.identity(),
            address: Some(caller.counted()),
            tier: caller.tier(),
            cost: None,
            target: Some(Target { claims: caller.claims(), ..target(head, host) }),
            stage: Stage::Request,
            descriptor: None,
            rule: None,
        };
        let decision = self.checked(request).await.map_err(Refusal::Undecided)?;
        Ok(Admission { caller, decision })
    }

    /// Decides. A tier that the rules do not know is the issuer's mistake and not the caller's, so the rules' own limits
    /// apply.
    async fn checked(&self, request: Request<'_>) -> Result<Decision, CheckError> {
        match self.limiter.check(&request).await {
            Err(CheckError::UnknownTier(unknown)) => {
                self.limiter.observer().unknown_tier(&unknown.tier);
                self.limiter.check(&Request { tier: None, ..request }).await
            }
            decided => decided,
        }
    }

    /// Who a credential stands for, if the rules let it be looked at.
    async fn verified(&self, unverified: Unverified<'_>, request: Request<'_>) -> Result<Caller, Refusal> {
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
    Target { host, headers: Some(head.headers), ..Target::new(head.method, head.path.matched()) }
}

impl<'a> Head<'a> {
    /// The host as rules see it: in lower case, without a port. A request that names several in its fields names none:
    /// nobody knows which one counts.
    #[must_use]
    pub fn host(&self) -> Option<Cow<'a, str>> {
        let field = || {
            let mut fields = self.headers.get_all(HOST).iter();
            fields.next().filter(|_| fields.next().is_none())?.to_str().ok()
        };
        let authority = self.authority.or_else(field)?;
        let named = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let end = match named.find(']') {
            Some(bracket) => bracket + 1,
            None => named.find(':').unwrap_or(named.len()),
        };
        let host = named[..end].trim_end_matches('.');
        match host.bytes().any(|byte| byte.is_ascii_uppercase()) {
            _ if host.is_empty() => None,
            true => Some(host.to_ascii_lowercase().into()),
            false => Some(host.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::EncodedSlashes;

    #[test]
    fn a_host_has_one_form() {
        let path = Path::parse("/", EncodedSlashes::Refuse).unwrap();
        let of = |authority: Option<&str>, fields: &[&'static str]| {
            let headers: HeaderMap =
                fields.iter().map(|field| (HOST, http::HeaderValue::from_static(field))).collect();
            Head { method: "GET", path: &path, authority, headers: &headers }.host().map(Cow::into_owned)
        };
        for (written, expected) in [
            ("api.example", Some("api.example")),
            ("API.Example:8443", Some("api.example")),
            ("api.example.", Some("api.example")),
            ("api.example.:80", Some("api.example")),
            ("[2001:DB8::1]:80", Some("[2001:db8::1]")),
            ("[::1]", Some("[::1]")),
            ("user@api.example:1", Some("api.example")),
            ("", None),
            (":80", None),
        ] {
            assert_eq!(of(Some(written), &[]).as_deref(), expected, "{written}");
            assert_eq!(of(None, &[written]).as_deref(), expected, "{written}");
        }
        assert_eq!(of(Some("a"), &["b"]).as_deref(), Some("a"));
        assert_eq!(of(None, &["a", "b"]), None);
        assert_eq!(of(None, &[]), None);
    }
}
