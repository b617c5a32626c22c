//! The claims of a token, and the checks of its audience and its dates.
//!
//! Every claim in use must have its type: a date that is a string is not an absent date. Times are compared in
//! microseconds with an instant that is an argument; the leeway widens both ends.

use super::claims_cache::CachedClaims;
use super::error::{TokenError, TokenErrorKind};
use super::members::{Member, Members};
use crate::identity::{IDENTIFIER_BYTES_MAX, NAME_BYTES_MAX, Values};
use sluicegate_core::{Micros, Timestamp};
use std::sync::Arc;

/// The last second of the year 9999. A later date is an error.
const SECONDS_MAX: u64 = 253_402_300_799;

/// The claims of a verified token.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Claims {
    /// The subject as the issuer knows it, behind the issuer's namespace if it has one. Subjects of different issuers
    /// are never the same unless their issuers share a namespace.
    pub identifier: Box<str>,
    /// The tier, if the issuer's settings name a claim for it and the token has it.
    pub tier: Option<Box<str>>,
    /// The tenant, likewise.
    pub tenant: Option<Box<str>>,
    /// The issuer of the token.
    pub issuer: Arc<str>,
    /// The first instant at which the token is no longer accepted, with the leeway.
    pub expires_at: Timestamp,
    /// The claims that rules need.
    pub(super) kept: CachedClaims,
}

impl Values for Claims {
    fn each(&self, name: &str, visit: &mut dyn FnMut(&str)) {
        self.kept.each(name, visit);
    }
}

/// The required claims of one issuer's tokens.
#[derive(Debug)]
pub(super) struct ClaimRequirements {
    pub(super) issuer: Arc<str>,
    /// The prefix of every identifier: empty, or the namespace and its separator.
    pub(super) prefix: String,
    pub(super) audience: Vec<String>,
    pub(super) claim: String,
    pub(super) tier_claim: Option<String>,
    pub(super) tenant_claim: Option<String>,
    pub(super) leeway: Micros,
}

impl ClaimRequirements {
    /// The claims of a token of this issuer, if its audience matches and it is valid at `now`.
    pub(super) fn claims(
        &self,
        members: &Members<'_>,
        now: Timestamp,
        kept: CachedClaims,
    ) -> Result<Claims, TokenError> {
        self.check_audience(members)?;
        let expires_at = required_instant(members, "exp")?.plus(self.leeway);
        if now >= expires_at {
            return Err(TokenError::new(TokenErrorKind::Expired, "the token has expired"));
        }
        for (name, problem) in [("nbf", "is not valid yet"), ("iat", "was issued in the future")] {
            if instant(members, name)?.is_some_and(|start| start > now.plus(self.leeway)) {
                return Err(TokenError::new(TokenErrorKind::NotYetValid, format!("the token {problem}")));
            }
        }
        // The namespace is short, so a subject always fits.
        let identifier = text(members, &self.claim, IDENTIFIER_BYTES_MAX - self.prefix.len())?;
        let identifier = identifier.ok_or_else(|| TokenError::claim(&self.claim, "is absent"))?;
        let identifier =
            if self.prefix.is_empty() { identifier } else { format!("{}{identifier}", self.prefix).into() };
        let optional = |name: &Option<String>| match name {
            Some(name) => text(members, name, NAME_BYTES_MAX),
            None => Ok(None),
        };
        Ok(Claims {
            identifier,
            tier: optional(&self.tier_claim)?,
            tenant: optional(&self.tenant_claim)?,
            issuer: Arc::clone(&self.issuer),
            expires_at,
            kept,
        })
    }

    fn check_audience(&self, members: &Members<'_>) -> Result<(), TokenError> {
        let is_ours = |name: &str| self.audience.iter().any(|ours| ours == name);
        let is_for_us = match members.get("aud") {
            Some(Member::Text(name)) => is_ours(name),
            Some(Member::Texts(names)) => names.iter().any(|name| is_ours(name)),
            Some(_) => return Err(TokenError::claim("aud", "is neither a string nor a list of strings")),
            None => return Err(TokenError::claim("aud", "is absent")),
        };
        if is_for_us {
            Ok(())
        } else {
            Err(TokenError::new(TokenErrorKind::Audience, "the token was issued for another audience"))
        }
    }
}

fn required_instant(members: &Members<'_>, name: &str) -> Result<Timestamp, TokenError> {
    instant(members, name)?.ok_or_else(|| TokenError::claim(name, "is absent"))
}

fn instant(members: &Members<'_>, name: &str) -> Result<Option<Timestamp>, TokenError> {
    match members.get(name) {
        None => Ok(None),
        Some(Member::Whole(seconds)) if *seconds <= SECONDS_MAX => {
            Ok(Some(Timestamp::from_micros(seconds * 1_000_000)))
        }
        Some(_) => Err(TokenError::claim(name, "is not a whole number of seconds before the year 10000")),
    }
}

fn text(members: &Members<'_>, name: &str, bytes_max: usize) -> Result<Option<Box<str>>, TokenError> {
    let text = match members.get(name) {
        None => return Ok(None),
        Some(Member::Text(text)) => text,
        Some(_) => return Err(TokenError::claim(name, "is not a string")),
    };
    if text.is_empty() {
        Err(TokenError::claim(name, "is empty"))
    } else if text.len() > bytes_max {
        Err(TokenError::claim(name, &format!("has more than {bytes_max} bytes")))
    } else if text.chars().any(char::is_control) {
        Err(TokenError::claim(name, "holds a control character"))
    } else {
        Ok(Some(text.as_ref().into()))
    }
}
