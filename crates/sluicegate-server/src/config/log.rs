//! `log`: which decisions are written down, and how much of identities.

use sluicegate::rules::file::{Reader, Wrong};

use super::share::{self, Share};
use crate::secret::Secret;

/// The keys of `log`.
pub(crate) const LOG_KEYS: &[&str] = &["decisions", "identities", "hash_secret"];
/// The keys of `log.decisions`.
pub(crate) const DECISIONS_KEYS: &[&str] = &["denied", "shadow_denied", "allowed"];
/// How identities may be told.
pub(crate) const IDENTITY_FORMS: &[(&str, IdentityForm)] =
    &[("hashed", IdentityForm::Hashed), ("cut", IdentityForm::Cut), ("whole", IdentityForm::Whole)];

/// How identities are told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum IdentityForm {
    /// As a keyed hash.
    #[default]
    Hashed,
    /// As their beginning.
    Cut,
    /// As they are.
    Whole,
}

/// What share of decisions is written down, by what came of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DecisionShares {
    pub(crate) denied: Share,
    pub(crate) shadow_denied: Share,
    pub(crate) allowed: Share,
}

/// What the section says.
#[derive(Debug, Default)]
pub(crate) struct LogSettings {
    /// What is written down, if anything is.
    pub(crate) decisions: Option<DecisionShares>,
    /// How identities are told.
    pub(crate) identities: IdentityForm,
    /// What hashes are keyed with, if servers are to agree.
    pub(crate) hash_secret: Option<Secret>,
}

/// Reads `log`.
pub(super) fn read(reader: &Reader<'_>) -> Option<LogSettings> {
    let section = reader.section(LOG_KEYS)?;
    let decisions = section.optional("decisions", None, |decisions| read_decisions(decisions).map(Some));
    let identities = section.optional("identities", IdentityForm::default(), |form| form.choice(IDENTITY_FORMS));
    let hash_secret = section.optional("hash_secret", None, |secret| match secret.secret()? {
        empty if empty.is_empty() => {
            secret.report_as(Wrong::new("empty", "give a secret, or leave the key out"), None);
            None
        }
        text => Some(Some(Secret::new(text))),
    });
    Some(LogSettings { decisions: decisions?, identities: identities?, hash_secret: hash_secret? })
}

fn read_decisions(reader: &Reader<'_>) -> Option<DecisionShares> {
    let section = reader.section(DECISIONS_KEYS)?;
    let denied = section.optional("denied", Share::ALL, share::read);
    let shadow_denied = section.optional("shadow_denied", Share::ALL, share::read);
    let allowed = section.optional("allowed", Share::NONE, share::read);
    Some(DecisionShares { denied: denied?, shadow_denied: shadow_denied?, allowed: allowed? })
}
