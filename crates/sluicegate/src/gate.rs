//! From the head of an HTTP request to a decision: the one way that gateways, forward-auth and middleware share, so that
//! they cannot disagree.
//!
//! A [`Gate`] finds out who asks ([`Identify`]), guards that by the rules for unverified credentials, and asks the
//! [`Limiter`]. It reads the head only: it sends nothing, answers nothing and writes no header.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderMap;

use crate::clock::Clock;
use crate::decision::Decision;
use crate::identify::{Caller, Identify, Looked, Unauthorized, Unverified};
use crate::identity::{DEFAULT_TENANT, Identity, Request, Stage, Target};
use crate::limiter::{CheckError, Limiter};
use crate::observe::{NoObserver, Observer};
use crate::path::Path;
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
/// let head = Head { method: "GET", path: &path, headers: &HeaderMap::new() };
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
        Self { limiter: limiter.into(), identify }
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
        let resource = head.path.resource();
        let now = self.limiter.clock().now();
        let looked = self.identify.look(head.headers, peer, now).map_err(Refusal::Unauthorized)?;
        let caller = match looked {
            Looked::Known(caller) => caller,
            Looked::Unverified(unverified) => self.verified(unverified, head, &resource).await?,
        };
        let request = Request {
            tenant: caller.tenant(),
            resource: &resource,
            identity: caller.identity(),
            address: Some(caller.counted()),
            tier: caller.tier(),
            cost: None,
            target: Some(target(head)),
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
    async fn verified(
        &self,
        unverified: Unverified<'_>,
        head: &Head<'_>,
        resource: &str,
    ) -> Result<Caller, Refusal> {
        if self.limiter.rules().guards_credentials() {
            let address = unverified.counted();
            let request = Request {
                tenant: DEFAULT_TENANT,
                resource,
                identity: Identity::Address(address),
                address: Some(address),
                tier: None,
                cost: None,
                target: Some(target(head)),
                stage: Stage::Credential,
                descriptor: None,
                rule: None,
            };
            let decision = self.limiter.check(&request).await.map_err(Refusal::Undecided)?;
            if !decision.is_allowed() {
                return Err(Refusal::Guarded(decision));
            }
        }
        unverified.verify(self.limiter.clock().now()).await.map_err(Refusal::Unauthorized)
    }
}

fn target<'a>(head: &Head<'a>) -> Target<'a> {
    Target { method: head.method, path: head.path.matched() }
}
