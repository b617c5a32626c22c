//! Which request is explained: one as `check` would ask it, or an HTTP request as the gateway would see it.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr};

use axum::http::header::{HeaderMap, HeaderName, HeaderValue};
use clap::Args;
use futures_util::FutureExt as _;
use sluicegate::clock::{Clock as _, SystemClock};
use sluicegate::core::Cost;
use sluicegate::gate::Head;
use sluicegate::identify::{Caller, Looked};
use sluicegate::identity::{DEFAULT_TENANT, Identity, Stage, Target, Values};
use sluicegate::path::{EncodedSlashes, Path};
use sluicegate::rules::RuleSet;
use sluicegate::{CheckError, Request};

use crate::config::Config;
use crate::config::identity::{IdentitySettings, KeysFrom, SourceSettings};
use crate::identify::{IdentifyError, identify};
use crate::settings::Env;

#[derive(Clone, Debug, Args)]
pub(super) struct Selectors {
    /// What is asked for; of an HTTP request, its path says it
    #[arg(long, value_name = "R", required_unless_present_any = ["path", "descriptor"], conflicts_with = "path")]
    resource: Option<String>,
    /// Who asks; of an HTTP request, its header fields and its address say it
    #[arg(long, value_name = "I", required_unless_present_any = ["path", "descriptor"])]
    identifier: Option<String>,
    /// Whose customer it is (default: default)
    #[arg(long, value_name = "T", requires = "identifier")]
    tenant: Option<String>,
    /// How much is asked for (default: the rule's own cost, usually 1)
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = crate::cli::selectors::cost)]
    cost: Option<u32>,
    /// The tier of the identity
    #[arg(long, value_name = "X", requires = "identifier")]
    tier: Option<String>,
    /// The path of an HTTP request, as the gateway sees it
    #[arg(long, value_name = "PATH")]
    path: Option<String>,
    /// The method of an HTTP request (default: GET)
    #[arg(long, value_name = "METHOD")]
    method: Option<String>,
    /// A header field of an HTTP request; may be repeated
    #[arg(long, value_name = "NAME: VALUE", value_parser = header)]
    header: Vec<(HeaderName, HeaderValue)>,
    /// The host that an HTTP request names (default: that of its header fields)
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// A claim of the token of an HTTP request, where --identifier stands for the token; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = claim, requires = "identifier")]
    claim: Vec<(String, String)>,
    /// The address an HTTP request comes from (default: 127.0.0.1)
    #[arg(long, value_name = "IP")]
    from: Option<IpAddr>,
}

/// Why there is nothing to explain.
#[derive(Debug, thiserror::Error)]
pub(super) enum QuestionError {
    #[error("--method, --host, --header, --claim and --from are of an HTTP request; give its --path, too")]
    NoPath,
    #[error("--path: {0}")]
    Path(#[from] sluicegate::path::PathError),
    #[error(transparent)]
    Identify(#[from] IdentifyError),
    #[error("the request would be answered with 401: {0}")]
    Unauthorized(#[from] sluicegate::identify::Unauthorized),
    #[error(
        "the keys of {0} are at a URL, and nobody is asked here; \
         give --identifier, --tenant and --tier instead of the token"
    )]
    RemoteKeys(String),
    #[error(transparent)]
    Wrong(#[from] CheckError),
}

/// A request with all that it borrows.
#[derive(Debug)]
pub(super) struct Question<'s> {
    selectors: &'s Selectors,
    caller: Option<Caller>,
    path: Option<Path<'s>>,
    resource: String,
    headers: HeaderMap,
    host: Option<String>,
    tier: Option<String>,
}

impl Selectors {
    /// The request, as a server with this configuration would take it.
    pub(super) fn question(&self, config: &Config, env: &Env) -> Result<Question<'_>, QuestionError> {
        let is_http = self.method.is_some() || self.from.is_some() || self.host.is_some();
        if (is_http || !self.header.is_empty() || !self.claim.is_empty()) && self.path.is_none() {
            return Err(QuestionError::NoPath);
        }
        let path = self.path.as_deref().map(|path| Path::parse(path, EncodedSlashes::Refuse)).transpose()?;
        let resource = match &path {
            Some(path) => path.resource(),
            None => self.resource.clone().unwrap_or_default(),
        };
        let caller = match (&self.identifier, &path) {
            (None, Some(_)) => Some(self.caller(config, env)?),
            _ => None,
        };
        let tier = match &caller {
            Some(caller) => caller.tier().filter(|tier| is_known(tier, &config.rules)).map(str::to_owned),
            None => self.tier.clone(),
        };
        let headers: HeaderMap = self.header.iter().cloned().collect();
        let host = path.as_ref().and_then(|path| {
            let authority = self.host.as_deref();
            Head { method: "GET", path, authority, headers: &headers }.host().map(Cow::into_owned)
        });
        Ok(Question { selectors: self, caller, path, resource, headers, host, tier })
    }

    fn from(&self) -> IpAddr {
        self.from.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

    /// Who sends the request, by its header fields and its address.
    fn caller(&self, config: &Config, env: &Env) -> Result<Caller, QuestionError> {
        let headers: HeaderMap = self.header.iter().cloned().collect();
        let settings = config.identity.clone();
        let settings = settings.unwrap_or_else(|| IdentitySettings::usual(config.gateway.routes.is_empty()));
        let remote = settings.sources.iter().find_map(|source| match source {
            SourceSettings::Jwt(jwt) if matches!(jwt.keys, KeysFrom::JwksUrl { .. }) => Some(jwt.issuer.clone()),
            _ => None,
        });
        if let Some(issuer) = remote.filter(|_| headers.contains_key(axum::http::header::AUTHORIZATION)) {
            return Err(QuestionError::RemoteKeys(issuer));
        }
        let identify = identify(settings, config.proxies.clone(), env.variables())?;
        identify.want_claims(&config.rules);
        let now = SystemClock::new().now();
        match identify.look(&headers, self.from(), now)? {
            Looked::Known(caller) => Ok(caller),
            // Keys that are here are not waited for.
            Looked::Unverified(unverified) => {
                let verified = unverified.verify(now).now_or_never();
                Ok(verified.ok_or_else(|| QuestionError::RemoteKeys("its issuer".to_owned()))??)
            }
        }
    }
}

impl Question<'_> {
    /// Those of the token, or those that were given in its stead.
    fn claims(&self) -> Option<&dyn Values> {
        let given = &self.selectors.claim;
        let of_caller = || self.caller.as_ref().and_then(Caller::claims);
        if given.is_empty() { of_caller() } else { Some(given) }
    }

    /// The request.
    pub(super) fn request(&self) -> Request<'_> {
        let selectors = self.selectors;
        let named = || Identity::Named(selectors.identifier.as_deref().unwrap_or_default());
        let by_flag = selectors.tenant.as_deref().unwrap_or(DEFAULT_TENANT);
        Request {
            tenant: self.caller.as_ref().map_or(by_flag, Caller::tenant),
            resource: &self.resource,
            identity: self.caller.as_ref().map_or_else(named, Caller::identity),
            address: self
                .path
                .as_ref()
                .map(|_| self.caller.as_ref().map_or_else(|| selectors.from(), Caller::counted)),
            tier: self.tier.as_deref(),
            cost: selectors.cost.map(Cost::new),
            target: self.path.as_ref().map(|path| Target {
                host: self.host.as_deref(),
                headers: Some(&self.headers),
                claims: self.claims(),
                ..Target::new(selectors.method.as_deref().unwrap_or("GET"), path.matched())
            }),
            stage: Stage::Request,
            descriptor: None,
            rule: None,
        }
    }
}

fn is_known(tier: &str, rules: &RuleSet) -> bool {
    rules.tiers().iter().any(|known| **known == *tier)
}

fn claim(text: &str) -> Result<(String, String), String> {
    let (name, value) =
        text.split_once('=').ok_or_else(|| "write NAME=VALUE, for example plan=gold".to_owned())?;
    Ok((name.to_owned(), value.to_owned()))
}

fn header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let remedy = || "write NAME: VALUE, for example 'X-API-Key: demo-key'".to_owned();
    let (name, value) = text.split_once(':').ok_or_else(remedy)?;
    let name = name.trim().parse().map_err(|_| remedy())?;
    let value = value.trim().parse().map_err(|_| remedy())?;
    Ok((name, value))
}
