//! The request to explain: the arguments of `check`, or an HTTP request at the gateway.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr};

use axum::http::header::{HeaderMap, HeaderName, HeaderValue};
use clap::Args;
use futures_util::FutureExt as _;
use sluicegate::clock::{Clock as _, SystemClock};
use sluicegate::core::Cost;
use sluicegate::gate::Head;
use sluicegate::identify::{Client, Lookup};
use sluicegate::identity::{Charging, DEFAULT_TENANT, Identity, Stage, Target, Values};
use sluicegate::path::Path;
use sluicegate::rules::RuleSet;
use sluicegate::{CheckError, Request};

use crate::config::Config;
use crate::config::identity::{IdentitySettings, KeyLocation, SourceSettings};
use crate::identify::{IdentifyError, identify};
use crate::settings::Env;

#[derive(Clone, Debug, Args)]
pub(super) struct ExplainSelectors {
    /// Resource; for an HTTP request, its path determines the resource
    #[arg(long, value_name = "R", required_unless_present_any = ["path", "descriptor"], conflicts_with = "path")]
    resource: Option<String>,
    /// Client's identifier; for an HTTP request, its header fields and address determine the identity
    #[arg(long, value_name = "I", required_unless_present_any = ["path", "descriptor"])]
    identifier: Option<String>,
    /// Tenant (default: default)
    #[arg(long, value_name = "T", requires = "identifier")]
    tenant: Option<String>,
    /// Cost (default: the rule's own cost, usually 1)
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = crate::cli::selectors::cost)]
    cost: Option<u32>,
    /// Tier of the identity
    #[arg(long, value_name = "X", requires = "identifier")]
    tier: Option<String>,
    /// Path of an HTTP request at the gateway
    #[arg(long, value_name = "PATH")]
    path: Option<String>,
    /// Method of an HTTP request (default: GET)
    #[arg(long, value_name = "METHOD")]
    method: Option<String>,
    /// Header field of an HTTP request; may be repeated
    #[arg(long, value_name = "NAME: VALUE", value_parser = header)]
    header: Vec<(HeaderName, HeaderValue)>,
    /// Host of an HTTP request (default: the host in its header fields)
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// Claim of the token of an HTTP request, if --identifier replaces the token; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = claim, requires = "identifier")]
    claim: Vec<(String, String)>,
    /// Client address of an HTTP request (default: 127.0.0.1)
    #[arg(long, value_name = "IP")]
    from: Option<IpAddr>,
}

/// The reason why the request cannot be explained.
#[derive(Debug, thiserror::Error)]
pub(super) enum SelectorError {
    #[error("--method, --host, --header, --claim and --from describe an HTTP request; also give its --path")]
    NoPath,
    #[error("--path: {0}")]
    Path(#[from] sluicegate::path::PathError),
    #[error(transparent)]
    Identify(#[from] IdentifyError),
    #[error("the request would be answered with 401: {0}")]
    Unauthorized(#[from] sluicegate::identify::Unauthorized),
    #[error(
        "the keys of {0} are at a URL, and explain does not fetch them; \
         give --identifier, --tenant and --tier instead of the token"
    )]
    RemoteKeys(String),
    #[error(transparent)]
    Wrong(#[from] CheckError),
}

/// The owner of all data that the request borrows.
#[derive(Debug)]
pub(super) struct SelectedRequest<'s> {
    selectors: &'s ExplainSelectors,
    caller: Option<Client>,
    path: Option<Path<'s>>,
    resource: String,
    headers: HeaderMap,
    host: Option<String>,
    tier: Option<String>,
}

impl ExplainSelectors {
    /// Resolves the request as a server with this configuration does.
    pub(super) fn resolve(&self, config: &Config, env: &Env) -> Result<SelectedRequest<'_>, SelectorError> {
        let is_http = self.method.is_some() || self.from.is_some() || self.host.is_some();
        if (is_http || !self.header.is_empty() || !self.claim.is_empty()) && self.path.is_none() {
            return Err(SelectorError::NoPath);
        }
        let slashes = config.gateway.encoded_slashes;
        let path = self.path.as_deref().map(|path| Path::parse(path, slashes)).transpose()?;
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
        Ok(SelectedRequest { selectors: self, caller, path, resource, headers, host, tier })
    }

    fn from(&self) -> IpAddr {
        self.from.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

    /// Identifies the client by its header fields and its address.
    fn caller(&self, config: &Config, env: &Env) -> Result<Client, SelectorError> {
        let headers: HeaderMap = self.header.iter().cloned().collect();
        let settings = config.identity.clone();
        let settings = settings.unwrap_or_else(|| IdentitySettings::usual(config.demo));
        let remote = settings.sources.iter().find_map(|source| match source {
            SourceSettings::Jwt(jwt) if matches!(jwt.keys, KeyLocation::JwksUrl { .. }) => {
                Some(jwt.issuer.clone())
            }
            _ => None,
        });
        if let Some(issuer) = remote.filter(|_| headers.contains_key(axum::http::header::AUTHORIZATION)) {
            return Err(SelectorError::RemoteKeys(issuer));
        }
        let identify = identify(settings, config.proxies.clone(), env.variables())?;
        identify.want_claims(&config.rules);
        let now = SystemClock::new().now();
        match identify.look(&headers, self.from(), now)? {
            Lookup::Known(caller) => Ok(caller),
            // Local keys need no waiting.
            Lookup::Unverified(unverified) => {
                let verified = unverified.verify(now).now_or_never();
                Ok(verified.ok_or_else(|| SelectorError::RemoteKeys("its issuer".to_owned()))??)
            }
        }
    }
}

impl SelectedRequest<'_> {
    /// The claims in the arguments, or else those of the token.
    fn claims(&self) -> Option<&dyn Values> {
        let given = &self.selectors.claim;
        let of_caller = || self.caller.as_ref().and_then(Client::claims);
        if given.is_empty() { of_caller() } else { Some(given) }
    }

    /// The request.
    pub(super) fn request(&self) -> Request<'_> {
        let selectors = self.selectors;
        let named = || Identity::Named(selectors.identifier.as_deref().unwrap_or_default());
        let by_flag = selectors.tenant.as_deref().unwrap_or(DEFAULT_TENANT);
        Request {
            tenant: self.caller.as_ref().map_or(by_flag, Client::tenant),
            resource: &self.resource,
            identity: self.caller.as_ref().map_or_else(named, Client::identity),
            address: self
                .path
                .as_ref()
                .map(|_| self.caller.as_ref().map_or_else(|| selectors.from(), Client::counted)),
            tier: self.tier.as_deref(),
            cost: selectors.cost.map(Cost::new),
            charging: Charging::IfAllowed,
            target: self.path.as_ref().map(|path| Target {
                host: self.host.as_deref(),
                headers: Some(&self.headers),
                claims: self.claims(),
                ..Target::of(selectors.method.as_deref().unwrap_or("GET"), path)
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
