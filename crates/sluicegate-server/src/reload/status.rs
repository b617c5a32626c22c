//! How the last reload went, for whoever asks: metrics, health and the admin API.

use serde::Serialize;
use sluicegate::core::Timestamp;

use super::outline::Changes;

/// The most mistakes that are told; more are only counted. Nobody reads on after the first hundred.
const LINES_MAX: usize = 100;

/// What came of a reload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The file is in force, with these differences from what was in force before.
    Applied(Changes),
    /// Nothing was changed.
    Refused(Refused),
}

/// Why a file did not take effect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refused {
    /// One mistake each.
    pub(crate) problems: Vec<String>,
    /// How many more there are.
    pub(crate) left_out: usize,
}

impl Refused {
    /// As many of `problems` as are told.
    pub(super) fn new(mut problems: Vec<String>) -> Self {
        let left_out = problems.len().saturating_sub(LINES_MAX);
        problems.truncate(LINES_MAX);
        Self { problems, left_out }
    }

    /// Everything as one text, a line for each mistake.
    pub(crate) fn text(&self) -> String {
        let more = (self.left_out > 0).then(|| format!("and {} more; solve these first", self.left_out));
        self.problems.iter().cloned().chain(more).collect::<Vec<_>>().join("\n")
    }
}

/// How things stand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Status {
    /// Whether the last version of the file that was looked at is in force.
    pub(crate) successful: bool,
    /// When a file last took effect, in milliseconds since 1970.
    pub(crate) succeeded_at: u64,
    /// What is wrong with the file, if it did not take effect.
    pub(crate) problems: Vec<String>,
    /// Keys that say something else than what is in force, and will until the server is started again.
    pub(crate) needs_restart: Vec<String>,
}

impl Status {
    /// What was read at the start is in force since `now`.
    pub(super) fn started(now: Timestamp) -> Self {
        let succeeded_at = now.as_micros() / 1_000;
        Self { successful: true, succeeded_at, problems: Vec::new(), needs_restart: Vec::new() }
    }

    /// The same, with what is wrong elsewhere.
    pub(super) fn with_trouble(mut self, trouble: Option<String>) -> Self {
        self.successful &= trouble.is_none();
        self.problems.extend(trouble);
        self
    }

    /// Takes note of an outcome.
    pub(super) fn note(&mut self, outcome: &Outcome, now: Timestamp) {
        match outcome {
            Outcome::Applied(changes) => {
                *self = Self { needs_restart: changes.needs_restart.clone(), ..Self::started(now) };
            }
            Outcome::Refused(refused) => {
                self.successful = false;
                self.problems = refused.text().lines().map(str::to_owned).collect();
            }
        }
    }
}
