//! The status of the last reload, for metrics, health and the admin API.

use serde::Serialize;
use sluicegate::core::Timestamp;

use super::outline::Changes;
use crate::envoy_xds::status::ControlPlane;

/// The most errors in a report; further ones are only counted.
const LINES_MAX: usize = 100;

/// The result of a reload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The file is in force, with these differences from the version before.
    Applied(Changes),
    /// Nothing changed.
    Refused(Refused),
}

/// Why a file did not take effect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refused {
    /// The reported errors.
    pub(crate) problems: Vec<String>,
    /// The number of further errors.
    pub(crate) left_out: usize,
}

impl Refused {
    /// The first of `problems`, up to the maximum.
    pub(super) fn new(mut problems: Vec<String>) -> Self {
        let left_out = problems.len().saturating_sub(LINES_MAX);
        problems.truncate(LINES_MAX);
        Self { problems, left_out }
    }

    /// All errors as one text, a line each.
    pub(crate) fn text(&self) -> String {
        let more = (self.left_out > 0).then(|| format!("and {} more; solve these first", self.left_out));
        self.problems.iter().cloned().chain(more).collect::<Vec<_>>().join("\n")
    }
}

/// The status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Status {
    /// Whether the last checked version of the file is in force.
    pub(crate) successful: bool,
    /// When a file last took effect, in milliseconds since 1970.
    pub(crate) succeeded_at: u64,
    /// The errors of the file, if it did not take effect.
    pub(crate) problems: Vec<String>,
    /// Keys that differ from those in force until the next start.
    pub(crate) needs_restart: Vec<String>,
    /// The control plane, if it has a part of the rules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) control_plane: Option<ControlPlane>,
}

impl Status {
    /// The initial configuration is in force since `now`.
    pub(super) fn started(now: Timestamp) -> Self {
        let succeeded_at = now.as_micros() / 1_000;
        Self {
            successful: true,
            succeeded_at,
            problems: Vec::new(),
            needs_restart: Vec::new(),
            control_plane: None,
        }
    }

    /// The same, with the control plane. A configuration of it that was rejected counts like a file that is invalid.
    pub(super) fn with_control_plane(mut self, control_plane: Option<ControlPlane>) -> Self {
        if let Some(control_plane) = &control_plane {
            self.successful &= control_plane.problems.is_empty();
            self.problems.extend(control_plane.problems.iter().cloned());
        }
        Self { control_plane, ..self }
    }

    /// Whether the control plane has not sent a configuration yet.
    pub(crate) fn awaits_configuration(&self) -> bool {
        self.control_plane.as_ref().is_some_and(|control_plane| !control_plane.configured)
    }

    /// The same, with an error of the database.
    pub(super) fn with_trouble(mut self, trouble: Option<String>) -> Self {
        self.successful &= trouble.is_none();
        self.problems.extend(trouble);
        self
    }

    /// Records a result.
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
