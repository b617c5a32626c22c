//! Who sends a request, once that is known.

use std::net::IpAddr;
use std::sync::Arc;

#[cfg(feature = "jwt")]
use super::token::Claims;
use crate::identity::{DEFAULT_TENANT, Identity, Values};

/// Whom a credential stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The identifier.
    pub identifier: Box<str>,
    /// The tier, if it has one.
    pub tier: Option<Box<str>>,
    /// The tenant, if it is not the default one.
    pub tenant: Option<Box<str>>,
}

/// Who sends a request, and from where.
#[derive(Clone, Debug)]
pub struct Caller {
    pub(super) who: Who,
    pub(super) client: IpAddr,
    pub(super) counted: IpAddr,
}

#[derive(Clone, Debug)]
pub(super) enum Who {
    #[cfg(feature = "jwt")]
    Token(Arc<Claims>),
    Key(Arc<Principal>),
    /// A name that nobody verified.
    Claimed(Box<str>),
    Address,
}

impl Caller {
    /// Whose quota it is.
    #[must_use]
    pub fn identity(&self) -> Identity<'_> {
        match &self.who {
            #[cfg(feature = "jwt")]
            Who::Token(claims) => Identity::Named(&claims.identifier),
            Who::Key(principal) => Identity::Named(&principal.identifier),
            Who::Claimed(name) => Identity::Claimed(name),
            Who::Address => Identity::Address(self.counted),
        }
    }

    /// The tenant.
    #[must_use]
    pub fn tenant(&self) -> &str {
        let tenant = match &self.who {
            #[cfg(feature = "jwt")]
            Who::Token(claims) => claims.tenant.as_deref(),
            Who::Key(principal) => principal.tenant.as_deref(),
            Who::Claimed(_) | Who::Address => None,
        };
        tenant.unwrap_or(DEFAULT_TENANT)
    }

    /// The tier that the credential names, whether or not there is such a tier.
    #[must_use]
    pub fn tier(&self) -> Option<&str> {
        match &self.who {
            #[cfg(feature = "jwt")]
            Who::Token(claims) => claims.tier.as_deref(),
            Who::Key(principal) => principal.tier.as_deref(),
            Who::Claimed(_) | Who::Address => None,
        }
    }

    /// The claims of its token, as far as rules ask for them; nothing where there is no token.
    #[must_use]
    pub fn claims(&self) -> Option<&dyn Values> {
        match &self.who {
            #[cfg(feature = "jwt")]
            Who::Token(claims) => Some(&**claims),
            Who::Key(_) | Who::Claimed(_) | Who::Address => None,
        }
    }

    /// The address of the client.
    #[must_use]
    pub fn client(&self) -> IpAddr {
        self.client
    }

    /// The address as rules count it: IPv6 by its network.
    #[must_use]
    pub fn counted(&self) -> IpAddr {
        self.counted
    }
}
