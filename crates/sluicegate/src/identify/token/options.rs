//! The settings of an issuer, and their bounds.

use super::Issuer;
use super::claims::ClaimRequirements;
use super::error::IssuerError;
use super::keys::{Keys, Origin};
use crate::identity::NAME_BYTES_MAX;
use sluicegate_core::Micros;
use std::time::Duration;

/// The most issuers. The `iss` of each token is compared with all of them.
pub const ISSUERS_MAX: usize = 64;

/// The longest leeway for clocks that differ. A longer one would prolong every token noticeably.
pub const LEEWAY_MAX: Duration = Duration::from_secs(60);

/// The shortest time between two regular fetches of a key set, so that its publisher is not flooded.
pub const REFRESH_MIN: Duration = Duration::from_secs(10);

/// The longest time for which a key set is valid without being renewed: keys that an issuer withdraws must expire.
pub const KEEP_MAX: Duration = Duration::from_secs(7 * 86_400);

/// The settings of one issuer.
#[derive(Debug)]
#[must_use = "settings do nothing until `Tokens::new` has them"]
#[non_exhaustive]
pub struct IssuerOptions {
    /// The `iss` of its tokens, exactly.
    pub issuer: String,
    /// The accepted audiences: `aud` must name one of them.
    pub audience: Vec<String>,
    /// Its keys.
    pub keys: Keys,
    /// The claim with the subject; `sub` by default.
    pub claim: String,
    /// The claim with the tier, if there is one.
    pub tier_claim: Option<String>,
    /// The claim with the tenant, if there is one.
    pub tenant_claim: Option<String>,
    /// The allowed difference between the issuer's clock and ours: [`LEEWAY_MAX`] at most, and zero by default.
    pub leeway: Duration,
    /// The prefix of this issuer's identifiers, which separates its subjects from those of other issuers: see
    /// [`NAMESPACE_END`]. Unset by default: a single issuer then has none, and with several issuers each has its
    /// name.
    pub namespace: Option<String>,
}

/// The separator between an issuer's namespace and the subject: `https://id.example|alice`. No namespace contains it,
/// so a subject of one namespace cannot have an identifier of another, whatever its token contains.
pub const NAMESPACE_END: char = '|';

impl IssuerOptions {
    /// Settings for an issuer whose tokens have their subject in `sub`.
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
            namespace: None,
        }
    }

    /// The namespace of this issuer, given the number of issuers.
    fn namespace(&self, issuer_count: usize) -> Option<&str> {
        let usual = (issuer_count > 1).then_some(&self.issuer);
        self.namespace.as_ref().or(usual).map(String::as_str)
    }

    /// The prefix for one of this many issuers.
    pub(super) fn into_issuer(self, issuer_count: usize) -> Issuer {
        let prefix = self.namespace(issuer_count).map(|namespace| format!("{namespace}{NAMESPACE_END}"));
        let prefix = prefix.unwrap_or_default();
        let Self { issuer, audience, keys, claim, tier_claim, tenant_claim, leeway, namespace: _ } = self;
        // The checks have bounded its length.
        let leeway = Micros::from_micros(u64::try_from(leeway.as_micros()).unwrap_or(u64::MAX));
        let issuer = issuer.into();
        let expected = ClaimRequirements { issuer, prefix, audience, claim, tier_claim, tenant_claim, leeway };
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
        let checked = check_one(options).and_then(|()| {
            let namespace = options.namespace(issuers.len());
            let problem = namespace.and_then(namespace_problem);
            let Some(problem) = problem else { return Ok(()) };
            match options.namespace {
                Some(_) => Err(("namespace", problem)),
                // The name of the issuer is its `iss`.
                None => Err(("issuer", format!("{problem}, or give the issuer a `namespace`"))),
            }
        });
        checked.map_err(|(field, problem)| IssuerError { index, field, problem })?;
    }
    Ok(())
}

/// The error of an invalid namespace, and the remedy.
#[must_use]
pub fn namespace_problem(text: &str) -> Option<String> {
    if text.is_empty() {
        Some("is empty: give it at least one character".to_owned())
    } else if text.len() > NAME_BYTES_MAX {
        Some(format!("has {} bytes as a namespace: use at most {NAME_BYTES_MAX}", text.len()))
    } else if text.contains(NAMESPACE_END) || text.contains(char::is_control) {
        Some(format!("holds a `{NAMESPACE_END}` or a control character as a namespace: leave it out"))
    } else {
        None
    }
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
        let problem = "is empty: name the audience of the tokens, or tokens for others would be accepted";
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
