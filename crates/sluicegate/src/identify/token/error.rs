//! What can be wrong with a token, with keys and with the settings of an issuer.
//!
//! A [`TokenError`] is for the log: it names the check that failed and never holds anything of the token. What the
//! client may hear is [`TokenError::for_client`], which does not help to find out what would have passed.

use std::borrow::Cow;
use std::fmt;

/// Why a token was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenError {
    kind: TokenErrorKind,
    message: Cow<'static, str>,
}

/// The check that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TokenErrorKind {
    /// It does not have the shape of a signed token, or its header asks for what is not done here.
    Malformed,
    /// Its issuer is not one of ours.
    Issuer,
    /// It was issued for somebody else.
    Audience,
    /// It has expired.
    Expired,
    /// It is not valid yet, or was issued in the future.
    NotYetValid,
    /// A claim is absent, of the wrong type or cannot be used.
    Claim,
    /// The key is not for the algorithm that the token names.
    Algorithm,
    /// It names a key that its issuer does not have, or none where many would fit.
    UnknownKey,
    /// The signature is not the issuer's.
    Signature,
    /// The keys of its issuer were never loaded, or are too old: nothing can be said about the token.
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

    /// The check that failed.
    #[must_use]
    pub const fn kind(&self) -> TokenErrorKind {
        self.kind
    }

    /// True if the token may well be good and only could not be verified now: an answer of 503 and not 401.
    #[must_use]
    pub const fn is_unavailable(&self) -> bool {
        matches!(self.kind, TokenErrorKind::KeysUnavailable)
    }

    /// The text for whoever sent the token. It tells an honest client what to do and a dishonest one nothing.
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

/// Why keys cannot be used, or could not be fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeysError(Cow<'static, str>);

impl KeysError {
    /// An error with this message. It is shown in logs: let it hold no secret, and escape what somebody else wrote.
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

/// What is wrong with the settings of an issuer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuerError {
    /// Which of the issuers, counted from 0.
    pub index: usize,
    /// The setting, named as in [`IssuerOptions`](super::IssuerOptions).
    pub field: &'static str,
    /// What is wrong with it, and the remedy.
    pub problem: String,
}

impl fmt::Display for IssuerError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "`{}` of issuer {} {}", self.field, self.index + 1, self.problem)
    }
}

impl std::error::Error for IssuerError {}
