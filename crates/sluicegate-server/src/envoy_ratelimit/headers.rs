//! The header fields that Envoy adds to its answers on our word. `envoyproxy/ratelimit` has none unless
//! `LIMIT_RESPONSE_HEADERS_ENABLED` says so, and then three with names that can be chosen.

use axum::http::HeaderName;
use sluicegate::LimitReport;
use sluicegate::core::Outcome;
use sluicegate::rules::file::Environment;

use super::variables::{VariableError, flag, text};

/// Which fields Envoy is told to add.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum EnvoyHeaders {
    /// Those that all other answers have.
    #[default]
    AsElsewhere,
    /// None.
    Nothing,
    /// These three.
    Named(HeaderNames),
}

/// What the three fields are called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeaderNames {
    limit: HeaderName,
    remaining: HeaderName,
    reset: HeaderName,
}

impl EnvoyHeaders {
    /// What the variables say.
    pub(super) fn read(environment: &Environment) -> Result<Self, VariableError> {
        if !flag(environment, "LIMIT_RESPONSE_HEADERS_ENABLED")? {
            return Ok(Self::Nothing);
        }
        Ok(Self::Named(HeaderNames {
            limit: name(environment, "LIMIT_LIMIT_HEADER", "ratelimit-limit")?,
            remaining: name(environment, "LIMIT_REMAINING_HEADER", "ratelimit-remaining")?,
            reset: name(environment, "LIMIT_RESET_HEADER", "ratelimit-reset")?,
        }))
    }
}

impl HeaderNames {
    /// The fields that speak for a limit: what it is, what is left, and in how many seconds that changes.
    pub(crate) fn fields(&self, report: &LimitReport<'_>) -> [(&str, u64); 3] {
        let verdict = &report.verdict;
        let reset = match verdict.outcome {
            Outcome::Denied { retry_after } => retry_after.ceil_secs().max(1),
            Outcome::Allowed | Outcome::NeverAdmissible => verdict.reset_after.ceil_secs(),
        };
        [
            (self.limit.as_str(), verdict.limit),
            (self.remaining.as_str(), verdict.remaining),
            (self.reset.as_str(), reset),
        ]
    }
}

fn name(
    environment: &Environment,
    variable: &'static str,
    usual: &'static str,
) -> Result<HeaderName, VariableError> {
    let written = text(environment, variable).unwrap_or(usual);
    HeaderName::from_bytes(written.as_bytes()).map_err(|_| {
        VariableError::new(variable, "use a name that a header field can have, for example RateLimit-Limit")
    })
}
