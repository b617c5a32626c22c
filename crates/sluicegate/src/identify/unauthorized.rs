//! Why a client could not be identified. The text is sent to the client, so it contains nothing that would help to
//! guess a credential.

use std::fmt;

use http::header::HeaderName;

#[cfg(feature = "jwt")]
use super::token::{TokenError, TokenErrorKind};

/// A request whose client could not be identified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unauthorized {
    reason: Reason,
    header: Option<HeaderName>,
    /// The error in detail, for the log. It never contains the credential.
    why: Option<String>,
}

/// Why a client could not be identified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The request has no credential.
    Missing,
    /// The request has several credentials where one is allowed, or one whose field name has `_` for `-`.
    Repeated,
    /// The key is not in the list.
    UnknownKey,
    /// The token is invalid.
    Token,
    /// The token has expired.
    Expired,
    /// The token cannot be verified, because the keys of its issuer are not available yet.
    NoKeys,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Self; 6] =
        [Self::Missing, Self::Repeated, Self::UnknownKey, Self::Token, Self::Expired, Self::NoKeys];

    /// The reason as a label of metrics and logs.
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

    /// The reason.
    #[must_use]
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// The header field that is invalid or missing.
    #[must_use]
    pub fn header(&self) -> Option<&HeaderName> {
        self.header.as_ref()
    }

    /// The error in detail, for operators.
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
            Reason::Missing => write!(formatter, "the request has no credential: send `{header}`"),
            Reason::Repeated => {
                write!(
                    formatter,
                    "`{header}` occurs more than once, or with `_` for `-`: send it once, under its own name"
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
