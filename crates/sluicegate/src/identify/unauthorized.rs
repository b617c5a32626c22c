//! Why nobody knows who sends a request. What it says is for the sender, so it tells no more than the sender may know.

use std::fmt;

use http::header::HeaderName;

#[cfg(feature = "jwt")]
use super::token::{TokenError, TokenErrorKind};

/// A request whose sender is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unauthorized {
    reason: Reason,
    header: Option<HeaderName>,
    /// What was wrong in detail, for the log. It never holds the credential.
    why: Option<String>,
}

/// Why a sender is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// There is no credential.
    Missing,
    /// There are several where one may be, or one whose name is spelled with `_` for `-`.
    Repeated,
    /// Nobody has such a key.
    UnknownKey,
    /// The token is not good.
    Token,
    /// The token was good once.
    Expired,
    /// The token cannot be verified, because the keys of its issuer could not be had yet.
    NoKeys,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Missing, Self::Repeated, Self::UnknownKey, Self::Token, Self::Expired, Self::NoKeys];

    /// The reason in a word, for metrics and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Repeated => "repeated",
            Self::UnknownKey => "unknown_key",
            Self::Token => "token",
            Self::Expired => "expired",
            Self::NoKeys => "no_keys",
        }
    }
}

impl Unauthorized {
    pub(super) fn new(reason: Reason, header: Option<HeaderName>) -> Self {
        Self { reason, header, why: None }
    }

    /// Why.
    #[must_use]
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// The header field that is at fault, or that is missing.
    #[must_use]
    pub fn header(&self) -> Option<&HeaderName> {
        self.header.as_ref()
    }

    /// What was wrong in detail, for those who run the server.
    #[must_use]
    pub fn why(&self) -> Option<&str> {
        self.why.as_deref()
    }
}

#[cfg(feature = "jwt")]
impl From<TokenError> for Unauthorized {
    fn from(error: TokenError) -> Self {
        let reason = match error.kind() {
            TokenErrorKind::Expired => Reason::Expired,
            TokenErrorKind::KeysUnavailable => Reason::NoKeys,
            _ => Reason::Token,
        };
        Self { why: Some(error.to_string()), ..Self::new(reason, Some(http::header::AUTHORIZATION)) }
    }
}

impl fmt::Display for Unauthorized {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = self.header.as_ref().map_or("a credential", HeaderName::as_str);
        match self.reason {
            Reason::Missing => write!(formatter, "the request does not say who sends it: send `{header}`"),
            Reason::Repeated => {
                write!(
                    formatter,
                    "`{header}` is there more than once, or with `_` for `-`: send it once, as it is"
                )
            }
            Reason::UnknownKey => {
                write!(formatter, "the API key is not known: send `{header}` with a key that exists")
            }
            Reason::Token => write!(formatter, "the token is not valid: send one that its issuer signed for here"),
            Reason::Expired => write!(formatter, "the token has expired: get a new one"),
            Reason::NoKeys => write!(formatter, "the token cannot be verified at the moment: try again"),
        }
    }
}

impl std::error::Error for Unauthorized {}
