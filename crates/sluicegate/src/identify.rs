//! Who sends a request, found out from its head and its connection.
//!
//! [`Identify`] asks its sources in their order, and the first that applies answers: a signed token (`token`, feature
//! `jwt`), an API key ([`api_key`]), the client's address ([`address`]). A credential that is sent counts even when
//! it is wrong: it is refused, and never gets the quota of the address instead, so guessing and forging gain nothing.
//!
//! What is not known to be good yet is handed back as [`Looked::Unverified`], so that whoever asks can limit how much
//! is verified before it costs anything: see [`Gate`](crate::gate::Gate).

pub mod address;
pub mod api_key;
mod caller;
#[cfg(feature = "jwt")]
pub mod token;
mod unauthorized;

use std::net::IpAddr;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use sluicegate_core::Timestamp;

use self::address::{IPV6_PREFIX_BITS, TrustedProxies, client_address, counted};
use self::api_key::{ApiKeys, KeyLooked};
use self::caller::Who;
pub use self::caller::{Caller, Principal};
#[cfg(feature = "jwt")]
use self::token::Tokens;
pub use self::unauthorized::{Reason, Unauthorized};
#[cfg(feature = "jwt")]
use crate::clock::Clock;
use crate::rules::RuleSet;

/// One way to know who asks.
#[derive(Debug)]
#[non_exhaustive]
pub enum Source {
    /// By a token in `Authorization: Bearer`.
    #[cfg(feature = "jwt")]
    Tokens(Tokens),
    /// By a key in a header field.
    ApiKeys(ApiKeys),
    /// By the client's address, which every request has.
    Address,
}

/// All ways to know who asks, in order.
///
/// ```
/// use http::HeaderMap;
/// use sluicegate::Identity;
/// use sluicegate::core::Timestamp;
/// use sluicegate::identify::{Identify, Looked, Source};
///
/// let identify = Identify::new(vec![Source::Address]);
/// let headers = HeaderMap::new();
/// let looked = identify.look(&headers, "192.0.2.7".parse()?, Timestamp::now(0))?;
/// let Looked::Known(caller) = looked else { unreachable!("an address needs no verification") };
/// assert_eq!(caller.identity(), Identity::Address("192.0.2.7".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Identify {
    sources: Vec<Source>,
    proxies: TrustedProxies,
    ipv6_prefix: u8,
}

/// What is known of a caller before anything is verified.
#[derive(Debug)]
pub enum Looked<'a> {
    /// Who it is.
    Known(Caller),
    /// That it says something that must be verified.
    Unverified(Unverified<'a>),
}

/// A credential that is not known to be good.
#[derive(Debug)]
pub struct Unverified<'a> {
    credential: Credential<'a>,
    client: IpAddr,
    counted: IpAddr,
}

#[derive(Debug)]
enum Credential<'a> {
    #[cfg(feature = "jwt")]
    Token(&'a Tokens, &'a str),
    /// Nobody's key: there is nothing more to look at.
    UnknownKey(&'a HeaderName),
}

impl Identify {
    /// By these sources, in their order, with nobody trusted to speak for others.
    #[must_use]
    pub fn new(sources: Vec<Source>) -> Self {
        Self { sources, proxies: TrustedProxies::default(), ipv6_prefix: IPV6_PREFIX_BITS }
    }

    /// The same, behind these proxies.
    #[must_use]
    pub fn behind(self, proxies: TrustedProxies) -> Self {
        Self { proxies, ..self }
    }

    /// The same, with IPv6 addresses counted by networks of so many bits.
    #[must_use]
    pub fn ipv6_prefix(self, ipv6_prefix: u8) -> Self {
        Self { ipv6_prefix, ..self }
    }

    /// Who is trusted to speak for others.
    #[must_use]
    pub fn proxies(&self) -> &TrustedProxies {
        &self.proxies
    }

    /// The sources, in order.
    #[must_use]
    pub fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// Fetches the keys of all issuers whose keys are fetched, for ever; returns at once if there are none. One task runs
    /// this beside those that decide.
    #[cfg(feature = "jwt")]
    pub async fn keep_keys_fresh(&self, clock: &dyn Clock) {
        let tokens = self.sources.iter().filter_map(|source| match source {
            Source::Tokens(tokens) => Some(tokens.keep_keys_fresh(clock)),
            Source::ApiKeys(_) | Source::Address => None,
        });
        futures_util::future::join_all(tokens).await;
    }

    /// Keeps the claims that these rules ask for, from every token that is verified from now on. Tokens that were verified
    /// without them are verified anew.
    pub fn want_claims(&self, rules: &RuleSet) {
        #[cfg(feature = "jwt")]
        for source in &self.sources {
            if let Source::Tokens(tokens) = source {
                tokens.want_claims(rules.claim_names());
            }
        }
        #[cfg(not(feature = "jwt"))]
        let _ = rules;
    }

    /// Looks at a request that came from `peer`.
    ///
    /// # Errors
    /// If no source applies, or a credential is no credential at all.
    pub fn look<'a>(
        &'a self,
        headers: &'a HeaderMap,
        peer: IpAddr,
        now: Timestamp,
    ) -> Result<Looked<'a>, Unauthorized> {
        let client = client_address(peer, headers, &self.proxies);
        let counted = counted(client, self.ipv6_prefix);
        let known = |who| Ok(Looked::Known(Caller { who, client, counted }));
        let unverified = |credential| Ok(Looked::Unverified(Unverified { credential, client, counted }));
        for source in &self.sources {
            match source {
                #[cfg(feature = "jwt")]
                Source::Tokens(tokens) => {
                    if let Some(token) = bearer(headers)? {
                        return match tokens.known(token, now) {
                            Some(claims) => known(Who::Token(claims)),
                            None => unverified(Credential::Token(tokens, token)),
                        };
                    }
                }
                Source::ApiKeys(keys) => match keys.look(headers)? {
                    KeyLooked::Absent => {}
                    KeyLooked::Owner(owner) => return known(Who::Key(owner)),
                    KeyLooked::Claimed(name) => return known(Who::Claimed(name)),
                    KeyLooked::Unknown => return unverified(Credential::UnknownKey(keys.header())),
                },
                Source::Address => return known(Who::Address),
            }
        }
        let _ = now;
        Err(Unauthorized::new(Reason::Missing, self.wanted()))
    }

    /// What a request could send to be known, for the answer to one that did not.
    fn wanted(&self) -> Option<HeaderName> {
        self.sources.iter().find_map(|source| match source {
            #[cfg(feature = "jwt")]
            Source::Tokens(_) => Some(http::header::AUTHORIZATION),
            Source::ApiKeys(keys) => Some(keys.header().clone()),
            Source::Address => None,
        })
    }
}

impl Unverified<'_> {
    /// The address that rules count.
    #[must_use]
    pub fn counted(&self) -> IpAddr {
        self.counted
    }

    /// Verifies the credential. It may wait for keys that have to be fetched.
    ///
    /// # Errors
    /// If it is not good, or there are no keys to tell.
    pub async fn verify(self, now: Timestamp) -> Result<Caller, Unauthorized> {
        let Self { credential, client, counted } = self;
        match credential {
            #[cfg(feature = "jwt")]
            Credential::Token(tokens, token) => {
                let claims = tokens.verify(token, now).await.map_err(Unauthorized::from)?;
                Ok(Caller { who: Who::Token(claims), client, counted })
            }
            Credential::UnknownKey(header) => {
                // Without tokens, nothing here needs the rest.
                let _ = (client, counted, now);
                Err(Unauthorized::new(Reason::UnknownKey, Some(header.clone())))
            }
        }
    }
}

/// The value of a field that may be there once.
fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h HeaderValue>, Unauthorized> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        // A proxy in front may have believed another one than we would.
        (Some(_), Some(_)) => Err(Unauthorized::new(Reason::Repeated, Some(name.clone()))),
        (only, _) => Ok(only),
    }
}

/// The token of `Authorization: Bearer`; `None` without the field, or for another scheme.
#[cfg(feature = "jwt")]
fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Unauthorized> {
    use http::header::AUTHORIZATION;

    const SCHEME: &[u8] = b"bearer";
    let Some(value) = only(headers, &AUTHORIZATION)? else { return Ok(None) };
    let bytes = value.as_bytes();
    let (scheme, rest) =
        bytes.split_at(bytes.iter().position(|byte| matches!(byte, b' ' | b'\t')).unwrap_or(bytes.len()));
    if !scheme.eq_ignore_ascii_case(SCHEME) {
        return Ok(None);
    }
    let malformed = || Unauthorized::new(Reason::Token, Some(AUTHORIZATION));
    std::str::from_utf8(rest).map(|token| Some(token.trim_matches([' ', '\t']))).map_err(|_| malformed())
}

#[cfg(test)]
mod tests;
