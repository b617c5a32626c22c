//! Who asks, and whether that is enough: tokens and their roles.
//!
//! Whatever is sent is compared with every token, by hashes and in constant time. One address may be wrong
//! [`FAILURES_MAX`] times a minute; after that, nothing that it sends is looked at until a while has passed.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use axum::extract::ConnectInfo;
use axum::http::header::{self, HeaderValue};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use futures_util::FutureExt as _;
use sluicegate::clock::{Clock as _, SystemClock};
use sluicegate::core::{Micros, Quota, Rate, TokenBucket};
use sluicegate::identify::api_key::KeyHash;
use sluicegate::rules::file::Environment;
use sluicegate::rules::{Limits, Rule, RuleSet, Unmatched};
use sluicegate::store::memory::MemoryOptions;
use sluicegate::{Identity, Limiter, MemoryStore, Request};
use subtle::{Choice, ConditionallySelectable as _, ConstantTimeEq as _};

use super::guard;
use crate::config::admin::{TokenIs, TokenSettings};
use crate::http::admin_token;
use crate::problem::Problem;
use crate::secret::Secret;

/// How many wrong tokens one address may send in a minute.
const FAILURES_MAX: u64 = 10;
/// The most addresses whose failures are counted for themselves; more share one count.
const ADDRESSES_MAX: usize = 10_000;
/// Who has the token of the environment, in the audit.
const ADMINISTRATOR: &str = "admin";

/// What a token allows; each role includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// To read.
    Read,
    /// To change tenants and overrides, too.
    Operate,
    /// To change everything.
    Admin,
}

impl Role {
    const fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }
}

/// All tokens there are.
#[derive(Debug, Default)]
pub(crate) struct Tokens {
    tokens: Vec<Token>,
    failures: Failures,
}

/// A token.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    name: Box<str>,
    role: Role,
    hash: KeyHash,
}

/// A token that is not there.
#[derive(Debug, thiserror::Error)]
#[error("admin.tokens: the environment variable {variable} is not set; put the token of {name} into it")]
pub(crate) struct NoToken {
    variable: String,
    name: Box<str>,
}

impl Tokens {
    /// The token of the environment, if there is one, and those that the file names.
    pub(crate) fn new(administrator: Option<&Secret>, named: Vec<Token>) -> Self {
        let administrator = administrator.map(|secret| Token {
            name: ADMINISTRATOR.into(),
            role: Role::Admin,
            hash: KeyHash::of(secret.reveal().as_bytes()),
        });
        Self { tokens: administrator.into_iter().chain(named).collect(), failures: Failures::default() }
    }

    /// Lets whoever has a token of this role, by the header fields alone.
    pub(in crate::http) fn holder(&self, headers: &HeaderMap, role: Role) -> Result<&str, Problem> {
        self.is_there()?;
        self.find(headers).ok_or_else(admin_token::unauthorized)?.at_least(role)
    }

    /// Without a token there is nobody to change anything.
    fn is_there(&self) -> Result<(), Problem> {
        if !self.tokens.is_empty() {
            return Ok(());
        }
        Err(Problem::new(
            StatusCode::FORBIDDEN,
            "changes are off because no admin token is configured; \
             set SLUICEGATE_ADMIN_TOKEN and restart the server",
        ))
    }

    /// Who may change something that needs `role`.
    pub(in crate::http) fn writer(&self, head: &Parts, role: Role) -> Result<&str, Problem> {
        guard::own_page(head)?;
        self.is_there()?;
        self.known(head)?.ok_or_else(admin_token::unauthorized)?.at_least(role)
    }

    /// Lets whoever has a token read, and whoever is on this machine unless it sends a wrong one.
    pub(in crate::http) fn reader(&self, head: &Parts) -> Result<(), Problem> {
        match self.known(head)? {
            Some(token) => token.at_least(Role::Read).map(|_| ()),
            None if guard::is_local(head) => Ok(()),
            None => Err(admin_token::unauthorized()),
        }
    }

    /// Whose token was sent, if one was.
    fn known(&self, head: &Parts) -> Result<Option<&Token>, Problem> {
        if !head.headers.contains_key(header::AUTHORIZATION) {
            return Ok(None);
        }
        let address = peer(head);
        self.failures.check(address)?;
        let token = self.find(&head.headers);
        if token.is_none() {
            self.failures.note(address);
            return Err(admin_token::unauthorized());
        }
        Ok(token)
    }

    /// Compares what was sent with all of them, however early one fits.
    fn find(&self, headers: &HeaderMap) -> Option<&Token> {
        let sent = KeyHash::of(admin_token::bearer(headers)?);
        let mut found = u32::MAX;
        for (token, index) in self.tokens.iter().zip(0_u32..) {
            let is_same: Choice = token.hash.as_bytes().ct_eq(sent.as_bytes());
            found = u32::conditional_select(&found, &index, is_same);
        }
        self.tokens.get(found as usize)
    }
}

/// The tokens that the file names.
pub(crate) fn named(settings: &[TokenSettings], environment: &Environment) -> Result<Vec<Token>, NoToken> {
    let token = |TokenSettings { name, role, is }: &TokenSettings| {
        let hash = match is {
            TokenIs::Hash(hash) => *hash,
            TokenIs::Env(variable) => {
                let token = environment.get(variable).filter(|token| !token.is_empty());
                let missing = || NoToken { variable: variable.clone(), name: name.clone() };
                KeyHash::of(token.ok_or_else(missing)?.as_bytes())
            }
        };
        Ok(Token { name: name.clone(), role: *role, hash })
    };
    settings.iter().map(token).collect()
}

impl Token {
    fn at_least(&self, role: Role) -> Result<&str, Problem> {
        if self.role >= role {
            return Ok(&self.name);
        }
        let (has, needs) = (self.role.word(), role.word());
        let detail = format!("the token of {} has the role {has}; this needs the role {needs}", self.name);
        Err(Problem::new(StatusCode::FORBIDDEN, detail))
    }
}

fn peer(head: &Parts) -> IpAddr {
    let peer = head.extensions.get::<ConnectInfo<SocketAddr>>();
    peer.map_or(Ipv4Addr::UNSPECIFIED.into(), |ConnectInfo(peer)| peer.ip().to_canonical())
}

/// Wrong tokens by address, counted by the limiter that this is all about.
#[derive(Debug)]
struct Failures(Limiter<MemoryStore, SystemClock>);

impl Default for Failures {
    fn default() -> Self {
        let bucket =
            Rate::new(FAILURES_MAX, Micros::from_secs(60)).and_then(|rate| TokenBucket::new(FAILURES_MAX, rate));
        let limits =
            bucket.map_or(Limits::Unlimited, |bucket| Limits::all("failures", [(None, Quota::from(bucket))]));
        let rules = RuleSet::new(vec![Rule::new("failures", limits)], Vec::new(), Unmatched::Allow);
        let clock = SystemClock::new();
        let options = MemoryOptions { max_keys: ADDRESSES_MAX, ..MemoryOptions::default() };
        let store = MemoryStore::new(options, clock.now());
        Self(Limiter::new(rules.unwrap_or_default(), store, clock))
    }
}

impl Failures {
    fn check(&self, address: IpAddr) -> Result<(), Problem> {
        // The store is in this process, so nothing is waited for.
        let peeked = self.0.peek(&request(address)).now_or_never();
        match peeked {
            Some(Ok(decision)) if !decision.is_allowed() => {
                let detail = "too many wrong tokens came from this address; wait, and send the right one";
                Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, detail)
                    .header(header::RETRY_AFTER, HeaderValue::from_static("6")))
            }
            _ => Ok(()),
        }
    }

    fn note(&self, address: IpAddr) {
        let _ = self.0.check(&request(address)).now_or_never();
    }
}

fn request(address: IpAddr) -> Request<'static> {
    Request { identity: Identity::Address(address), ..Request::new("admin", "address") }
}
