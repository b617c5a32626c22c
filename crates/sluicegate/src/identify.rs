//! Identifies the client of a request from its head and its connection.
//!
//! [`Identify`] tries its sources in order, and the first that applies decides: a signed token (`token`, feature
//! `jwt`), an API key ([`api_key`]), the client's address ([`address`]). An invalid credential is rejected and never
//! falls back to the quota of the address, so guessing and forging gain nothing.
//!
//! A credential that needs verification is returned as [`Lookup::Unverified`], so that the caller can limit
//! verifications before they cost anything: see [`Gate`](crate::gate::Gate).

pub mod address;
pub mod api_key;
#[cfg(feature = "jwt")]
mod authorization;
mod client;
#[cfg(feature = "jwt")]
pub mod token;
mod unauthorized;

use std::net::IpAddr;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use sluicegate_core::Timestamp;

use self::address::{IPV6_PREFIX_BITS, TrustedProxies, client_address, counted};
use self::api_key::{ApiKeys, KeyLookup};
use self::client::ClientKind;
pub use self::client::{Client, Principal};
#[cfg(feature = "jwt")]
use self::token::Tokens;
pub use self::unauthorized::{Reason, Unauthorized};
#[cfg(feature = "jwt")]
use crate::clock::Clock;
use crate::rules::RuleSet;

/// One source of identities.
#[derive(Debug)]
#[non_exhaustive]
pub enum Source {
    /// A token in `Authorization: Bearer`.
    #[cfg(feature = "jwt")]
    Tokens(Tokens),
    /// A key in a header field.
    ApiKeys(ApiKeys),
    /// The client's address, which every request has.
    Address,
}

/// All sources of identities, in order.
///
/// ```
/// use http::HeaderMap;
/// use sluicegate::Identity;
/// use sluicegate::core::Timestamp;
/// use sluicegate::identify::{Identify, Lookup, Source};
///
/// let identify = Identify::new(vec![Source::Address]);
/// let headers = HeaderMap::new();
/// let lookup = identify.look(&headers, "192.0.2.7".parse()?, Timestamp::now(0))?;
/// let Lookup::Known(client) = lookup else { unreachable!("an address needs no verification") };
/// assert_eq!(client.identity(), Identity::Address("192.0.2.7".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Identify {
    sources: Vec<Source>,
    proxies: TrustedProxies,
    ipv6_prefix: u8,
}

/// The result of a lookup, before anything is verified.
#[derive(Debug)]
pub enum Lookup<'a> {
    /// The client is identified.
    Known(Client),
    /// The request carries a credential that must be verified.
    Unverified(Unverified<'a>),
}

/// A credential that is not verified yet.
#[derive(Debug)]
pub struct Unverified<'a> {
    credential: Credential<'a>,
    address: IpAddr,
    counted: IpAddr,
}

#[derive(Debug)]
enum Credential<'a> {
    #[cfg(feature = "jwt")]
    Token(&'a Tokens, &'a str),
    /// A key that is not in the list. It always fails.
    UnknownKey(&'a HeaderName),
}

impl Identify {
    /// Tries these sources in order. No proxy is trusted.
    #[must_use]
    pub fn new(sources: Vec<Source>) -> Self {
        Self { sources, proxies: TrustedProxies::default(), ipv6_prefix: IPV6_PREFIX_BITS }
    }

    /// The same, behind these trusted proxies.
    #[must_use]
    pub fn behind(self, proxies: TrustedProxies) -> Self {
        Self { proxies, ..self }
    }

    /// The same, with IPv6 addresses counted by networks of this prefix length in bits.
    #[must_use]
    pub fn ipv6_prefix(self, ipv6_prefix: u8) -> Self {
        Self { ipv6_prefix, ..self }
    }

    /// The proxies whose forwarding fields count.
    #[must_use]
    pub fn proxies(&self) -> &TrustedProxies {
        &self.proxies
    }

    /// The sources, in order.
    #[must_use]
    pub fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// Runs the key fetches of all issuers with remote keys, for ever. It returns at once if there are none. One task
    /// runs this beside the requests.
    #[cfg(feature = "jwt")]
    pub async fn keep_keys_fresh(&self, clock: &dyn Clock) {
        let tokens = self.sources.iter().filter_map(|source| match source {
            Source::Tokens(tokens) => Some(tokens.keep_keys_fresh(clock)),
            Source::ApiKeys(_) | Source::Address => None,
        });
        futures_util::future::join_all(tokens).await;
    }

    /// Selects the claims that these rules need, for every token verified from now on. Cached tokens without them are
    /// verified again.
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

    /// Looks up the client of a request from `peer`.
    ///
    /// # Errors
    /// If no source applies, or a credential is malformed.
    pub fn look<'a>(
        &'a self,
        headers: &'a HeaderMap,
        peer: IpAddr,
        now: Timestamp,
    ) -> Result<Lookup<'a>, Unauthorized> {
        let address = client_address(peer, headers, &self.proxies);
        let counted = counted(address, self.ipv6_prefix);
        let known = |kind| Ok(Lookup::Known(Client { kind, address, counted }));
        let unverified = |credential| Ok(Lookup::Unverified(Unverified { credential, address, counted }));
        for source in &self.sources {
            match source {
                #[cfg(feature = "jwt")]
                Source::Tokens(tokens) => {
                    if let Some(token) = authorization::bearer(headers)? {
                        return match tokens.known(token, now) {
                            Some(claims) => known(ClientKind::Token(claims)),
                            None => unverified(Credential::Token(tokens, token)),
                        };
                    }
                }
                Source::ApiKeys(keys) => match keys.look(headers)? {
                    KeyLookup::Absent => {}
                    KeyLookup::Owner(owner) => return known(ClientKind::Key(owner)),
                    KeyLookup::Claimed(name) => return known(ClientKind::Claimed(name)),
                    KeyLookup::Unknown => return unverified(Credential::UnknownKey(keys.header())),
                },
                Source::Address => return known(ClientKind::Address),
            }
        }
        let _ = now;
        Err(Unauthorized::new(Reason::Missing, self.wanted()))
    }

    /// The header field that would identify a client, for the response to a request without a credential.
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

    /// Verifies the credential. This may wait for a fetch of keys.
    ///
    /// # Errors
    /// If the credential is invalid, or the keys to verify it are unavailable.
    pub async fn verify(self, now: Timestamp) -> Result<Client, Unauthorized> {
        let Self { credential, address, counted } = self;
        match credential {
            #[cfg(feature = "jwt")]
            Credential::Token(tokens, token) => {
                let claims = tokens.verify(token, now).await.map_err(Unauthorized::from)?;
                Ok(Client { kind: ClientKind::Token(claims), address, counted })
            }
            Credential::UnknownKey(header) => {
                // Without the feature `jwt`, these are unused.
                let _ = (address, counted, now);
                Err(Unauthorized::new(Reason::UnknownKey, Some(header.clone())))
            }
        }
    }
}

/// The value of a field that may occur once.
fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h HeaderValue>, Unauthorized> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        // A proxy in front may have read the other one.
        (Some(_), Some(_)) => Err(Unauthorized::new(Reason::Repeated, Some(name.clone()))),
        (only, _) => Ok(only),
    }
}

/// True if a field is present under a name that many applications cannot distinguish from this one, because they turn
/// names into variables: `X_API_Key` or `X.API.Key` for `X-API-Key`. Such applications would accept a credential that
/// this server ignores.
fn is_spelled_otherwise(wanted: &HeaderName, headers: &HeaderMap) -> bool {
    let wanted = wanted.as_str();
    let is_sign = |byte: u8| !byte.is_ascii_alphanumeric();
    let is_same = |(one, other): (u8, u8)| one == other || is_sign(one) && is_sign(other);
    let is_like = |name: &str| name.bytes().zip(wanted.bytes()).all(is_same);
    headers
        .keys()
        .map(HeaderName::as_str)
        .any(|name| name.len() == wanted.len() && name != wanted && is_like(name))
}

#[cfg(test)]
mod tests;
