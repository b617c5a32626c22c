//! The settings of an issuer, and what they may be.

use super::Issuer;
use super::claims::Expected;
use super::error::IssuerError;
use super::keys::{Keys, Origin};
use sluicegate_core::Micros;
use std::time::Duration;

/// The most issuers. Each token's `iss` is compared with all of them.
pub const ISSUERS_MAX: usize = 64;

/// The longest leeway for clocks that do not agree. More would prolong every token noticeably.
pub const LEEWAY_MAX: Duration = Duration::from_secs(60);

/// The shortest time between two regular fetches of a key set: who publishes one is not to be flooded.
pub const REFRESH_MIN: Duration = Duration::from_secs(10);

/// The longest time for which a key set is believed without being renewed: what an issuer takes back must end somewhere.
pub const KEEP_MAX: Duration = Duration::from_secs(7 * 86_400);

/// The settings of one issuer.
#[derive(Debug)]
#[must_use = "settings do nothing until `Tokens::new` has them"]
#[non_exhaustive]
pub struct IssuerOptions {
    /// The `iss` of its tokens, exactly.
    pub issuer: String,
    /// Whom tokens may be issued for: `aud` must name one of them.
    pub audience: Vec<String>,
    /// Its keys.
    pub keys: Keys,
    /// The claim that says who the bearer is; `sub` at first.
    pub claim: String,
    /// The claim that says which tier the bearer has, if any does.
    pub tier_claim: Option<String>,
    /// The claim that says which tenant the bearer belongs to, if any does.
    pub tenant_claim: Option<String>,
    /// How far the issuer's clock may be from ours: [`LEEWAY_MAX`] at most, and nothing at first.
    pub leeway: Duration,
}

impl IssuerOptions {
    /// Settings for an issuer whose tokens name their bearer in `sub`.
    pub fn new<A: Into<String>>(
        issuer: impl Into<String>,
        audience: impl IntoIterator<Item = A>,
        keys: Keys,
    ) -> Self {
        Self {
            issuer: issuer.into(),
            audience: audience.into_iter().map(Into::into).collect(),
            keys,
            claim: "sub".to_owned(),
            tier_claim: None,
            tenant_claim: None,
            leeway: Duration::ZERO,
        }
    }

    pub(super) fn into_issuer(self) -> Issuer {
        let Self { issuer, audience, keys, claim, tier_claim, tenant_claim, leeway } = self;
        // It has been checked to be short.
        let leeway = Micros::from_micros(u64::try_from(leeway.as_micros()).unwrap_or(u64::MAX));
        let expected = Expected { issuer: issuer.into(), audience, claim, tier_claim, tenant_claim, leeway };
        Issuer { expected, keys }
    }
}

/// Checks all settings.
pub(super) fn check(issuers: &[IssuerOptions]) -> Result<(), IssuerError> {
    if issuers.len() > ISSUERS_MAX {
        let problem = format!("is one too many: use at most {ISSUERS_MAX}");
        return Err(IssuerError { index: ISSUERS_MAX, field: "issuer", problem });
    }
    for (index, options) in issuers.iter().enumerate() {
        let is_again = issuers[..index].iter().any(|other| other.issuer == options.issuer);
        if is_again {
            let problem = "is the name of an issuer before it: a token could not tell which is meant".to_owned();
            return Err(IssuerError { index, field: "issuer", problem });
        }
        check_one(options).map_err(|(field, problem)| IssuerError { index, field, problem })?;
    }
    Ok(())
}

fn check_one(options: &IssuerOptions) -> Result<(), (&'static str, String)> {
    let mut texts = vec![("issuer", &options.issuer), ("claim", &options.claim)];
    texts.extend(options.audience.iter().map(|audience| ("audience", audience)));
    texts.extend(options.tier_claim.iter().map(|claim| ("tier_claim", claim)));
    texts.extend(options.tenant_claim.iter().map(|claim| ("tenant_claim", claim)));
    if let Some((field, _)) = texts.iter().find(|(_, text)| text.is_empty()) {
        return Err((field, "is empty: give it at least one character".to_owned()));
    }
    if options.audience.is_empty() {
        let problem = "names nobody: say whom tokens are issued for, or those for others would do";
        return Err(("audience", problem.to_owned()));
    }
    if options.leeway > LEEWAY_MAX {
        return Err(("leeway", format!("is too long: use at most {} s", LEEWAY_MAX.as_secs())));
    }
    if let Origin::Remote(remote) = &options.keys.0 {
        if remote.refresh < REFRESH_MIN {
            return Err(("refresh", format!("is too short: use at least {} s", REFRESH_MIN.as_secs())));
        }
        if !(remote.refresh..=KEEP_MAX).contains(&remote.keep) {
            let days = KEEP_MAX.as_secs() / 86_400;
            return Err(("keep", format!("is out of bounds: use at least `refresh` and at most {days} days")));
        }
    }
    Ok(())
}
