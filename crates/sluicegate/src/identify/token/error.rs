//! Errors of tokens, of keys and of an issuer's settings.
//!
//! A [`TokenError`] is for the log: it names the failed check and never contains any part of the token.
//! [`TokenError::for_client`] is for the client and does not help to find out which token would pass.

use std::borrow::Cow;
use std::fmt;

/// Why a token is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenError {
    kind: TokenErrorKind,
    message: Cow<'static, str>,
}

/// The failed check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TokenErrorKind {
    /// The token does not have the form of a signed token, or its header needs an unsupported feature.
    Malformed,
    /// The issuer is not configured.
    Issuer,
    /// The audience is another one.
    Audience,
    /// The token has expired.
    Expired,
    /// The token is not valid yet, or was issued in the future.
    NotYetValid,
    /// A claim is absent, of the wrong type or unusable.
    Claim,
    /// The key is not for the algorithm that the token names.
    Algorithm,
    /// The token names a key that its issuer does not have, or names none where many would fit.
    UnknownKey,
    /// The signature is invalid.
    Signature,
    /// The keys of its issuer were never loaded, or are too old, so the token cannot be verified.
    KeysUnavailable,
}

impl TokenError {
    pub(super) fn new(kind: TokenErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, message: message.into() }
    }

    pub(super) fn malformed(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(TokenErrorKind::Malformed, message)
    }

    pub(super) fn claim(name: &str, problem: &str) -> Self {
        Self::new(TokenErrorKind::Claim, format!("the claim `{name}` {problem}"))
    }

    /// The failed check.
    #[must_use]
    pub const fn kind(&self) -> TokenErrorKind {
        self.kind
    }

    /// True if the token may be valid and only could not be verified now: the response is then 503 and not 401.
    #[must_use]
    pub const fn is_unavailable(&self) -> bool {
        matches!(self.kind, TokenErrorKind::KeysUnavailable)
    }

    /// The text for the client. It helps an honest client and tells an attacker nothing.
    #[must_use]
    pub const fn for_client(&self) -> &'static str {
        match self.kind {
            TokenErrorKind::Expired => "the token has expired: get a new one",
            TokenErrorKind::KeysUnavailable => "tokens cannot be verified at the moment: try again later",
            _ => "the token is not valid",
        }
    }
}

impl fmt::Display for TokenError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for TokenError {}

/// Why keys cannot be used or fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeysError(Cow<'static, str>);

impl KeysError {
    /// An error with this message. Logs show it: it must contain no secret, and foreign text must be escaped.
    #[must_use]
    pub fn new(message: impl Into<Cow<'static, str>>) -> Self {
        Self(message.into())
    }
}

impl fmt::Display for KeysError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for KeysError {}

/// An invalid setting of an issuer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuerError {
    /// The index of the issuer, counted from 0.
    pub index: usize,
    /// The setting, named as in [`IssuerOptions`](super::IssuerOptions).
    pub field: &'static str,
    /// The error and the remedy.
    pub problem: String,
}

impl fmt::Display for IssuerError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "`{}` of issuer {} {}", self.field, self.index + 1, self.problem)
    }
}

impl std::error::Error for IssuerError {}
