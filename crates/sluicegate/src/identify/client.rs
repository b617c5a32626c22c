//! The identified client of a request.

use std::net::IpAddr;
use std::sync::Arc;

#[cfg(feature = "jwt")]
use super::token::Claims;
use crate::identity::{DEFAULT_TENANT, Identity, Values};

/// The owner of a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The identifier.
    pub identifier: Box<str>,
    /// The tier, if it has one.
    pub tier: Option<Box<str>>,
    /// The tenant, if it is not the default one.
    pub tenant: Option<Box<str>>,
}

/// The identified client of a request, and its address.
#[derive(Clone, Debug)]
pub struct Client {
    pub(super) kind: ClientKind,
    pub(super) address: IpAddr,
    pub(super) counted: IpAddr,
}

#[derive(Clone, Debug)]
pub(super) enum ClientKind {
    #[cfg(feature = "jwt")]
    Token(Arc<Claims>),
    Key(Arc<Principal>),
    /// A name that is not verified.
    Claimed(Box<str>),
    Address,
}

impl Client {
    /// The identity that limits count.
    #[must_use]
    pub fn identity(&self) -> Identity<'_> {
        match &self.kind {
            #[cfg(feature = "jwt")]
            ClientKind::Token(claims) => Identity::Named(&claims.identifier),
            ClientKind::Key(principal) => Identity::Named(&principal.identifier),
            ClientKind::Claimed(name) => Identity::Claimed(name),
            ClientKind::Address => Identity::Address(self.counted),
        }
    }

    /// The tenant.
    #[must_use]
    pub fn tenant(&self) -> &str {
        let tenant = match &self.kind {
            #[cfg(feature = "jwt")]
            ClientKind::Token(claims) => claims.tenant.as_deref(),
            ClientKind::Key(principal) => principal.tenant.as_deref(),
            ClientKind::Claimed(_) | ClientKind::Address => None,
        };
        tenant.unwrap_or(DEFAULT_TENANT)
    }

    /// The tier that the credential names, even if no such tier exists.
    #[must_use]
    pub fn tier(&self) -> Option<&str> {
        match &self.kind {
            #[cfg(feature = "jwt")]
            ClientKind::Token(claims) => claims.tier.as_deref(),
            ClientKind::Key(principal) => principal.tier.as_deref(),
            ClientKind::Claimed(_) | ClientKind::Address => None,
        }
    }

    /// The claims of the client's token that rules need. `None` without a token.
    #[must_use]
    pub fn claims(&self) -> Option<&dyn Values> {
        match &self.kind {
            #[cfg(feature = "jwt")]
            ClientKind::Token(claims) => Some(&**claims),
            ClientKind::Key(_) | ClientKind::Claimed(_) | ClientKind::Address => None,
        }
    }

    /// The address of the client.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// The address as rules count it: an IPv6 address by its network.
    #[must_use]
    pub fn counted(&self) -> IpAddr {
        self.counted
    }
}
