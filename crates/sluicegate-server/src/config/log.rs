//! `log`: the decision log, and how it shows identities.

use sluicegate::rules::file::field::{Absent, Choice, Custom, Field, Form, Mapping, Nested, Shape, Text};
use sluicegate::rules::file::{Reader, Section, ValueError};

use super::share::{SHARE, Share};
use crate::secret::Secret;

/// The section.
pub(super) static LOG: Mapping = Mapping {
    doc: "Which decisions the log records, and how much of an identity it shows.",
    fields: &[&DECISIONS, &IDENTITIES, &HASH_SECRET],
    constraints: &[],
};

static DECISIONS: Field<Nested<DecisionShares>> = Field {
    key: "decisions",
    doc: "The share of decisions that the log records, by outcome. Without it the log records no decisions.",
    kind: Nested { mapping: &DECISION_SHARES, read: read_decisions },
    absent: Absent::Nothing("none"),
    examples: &[],
};

static IDENTITIES: Field<Choice<IdentityForm>> = Field {
    key: "identities",
    doc: "How the decision log and spans show identities: as a keyed hash, by their beginning, or whole.",
    kind: Choice(&[("hashed", IdentityForm::Hashed), ("cut", IdentityForm::Cut), ("whole", IdentityForm::Whole)]),
    absent: Absent::Default("hashed"),
    examples: &[],
};

static HASH_SECRET: Field<Custom<Secret>> = Field {
    key: "hash_secret",
    doc: "The key of these hashes. Set the same one on every server to compare their logs.",
    kind: Custom {
        read: read_hash_secret,
        form: || Form::Text(Shape { min_length: Some(1), ..Shape::new("text") }),
    },
    absent: Absent::Nothing("random at every start"),
    examples: &["\"${LOG_HASH_SECRET}\""],
};

/// The subsection `log.decisions`.
pub(super) static DECISION_SHARES: Mapping = Mapping {
    doc: "The share of decisions that the log records, by outcome.",
    fields: &[&DENIED, &SHADOW_DENIED, &ALLOWED],
    constraints: &[],
};

static DENIED: Field<Text<Share>> = Field {
    key: "denied",
    doc: "Requests that were denied, or rejected by a `closed` rule because the store failed.",
    kind: SHARE,
    absent: Absent::Default("100%"),
    examples: SHARE_EXAMPLES,
};

static SHADOW_DENIED: Field<Text<Share>> = Field {
    key: "shadow_denied",
    doc: "Requests that passed, and that a rule in shadow mode would have denied.",
    kind: SHARE,
    absent: Absent::Default("100%"),
    examples: SHARE_EXAMPLES,
};

static ALLOWED: Field<Text<Share>> = Field {
    key: "allowed",
    doc: "All other requests.",
    kind: SHARE,
    absent: Absent::Default("0%"),
    examples: SHARE_EXAMPLES,
};

/// Shares for editors to suggest.
pub(super) const SHARE_EXAMPLES: &[&str] = &["5%", "0.01%"];

/// How the decision log and spans show identities.
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

/// The share of decisions that the log records, by outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DecisionShares {
    pub(crate) denied: Share,
    pub(crate) shadow_denied: Share,
    pub(crate) allowed: Share,
}

/// The options of the decision log.
#[derive(Debug, Default)]
pub(crate) struct LogSettings {
    /// The recorded shares; `None` records nothing.
    pub(crate) decisions: Option<DecisionShares>,
    /// How the decision log and spans show identities.
    pub(crate) identities: IdentityForm,
    /// The key of the hashes; `None` selects a random one at every start.
    pub(crate) hash_secret: Option<Secret>,
}

/// Reads `log`.
pub(super) fn read(section: &Section<'_>) -> Option<LogSettings> {
    let decisions = section.read_optional(&DECISIONS);
    let identities = section.read(&IDENTITIES);
    let hash_secret = section.read_optional(&HASH_SECRET);
    Some(LogSettings { decisions: decisions?, identities: identities?, hash_secret: hash_secret? })
}

fn read_decisions(section: &Section<'_>) -> Option<DecisionShares> {
    let denied = section.read(&DENIED);
    let shadow_denied = section.read(&SHADOW_DENIED);
    let allowed = section.read(&ALLOWED);
    Some(DecisionShares { denied: denied?, shadow_denied: shadow_denied?, allowed: allowed? })
}

fn read_hash_secret(reader: &Reader<'_>) -> Option<Secret> {
    let secret = reader.secret()?;
    if secret.is_empty() {
        reader.report_as(ValueError::new("empty", "give a secret, or leave the key out"), None);
        return None;
    }
    Some(Secret::new(secret))
}
