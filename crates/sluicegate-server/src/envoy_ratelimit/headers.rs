//! The header fields that Envoy adds to responses at the service's request. `envoyproxy/ratelimit` sends none unless
//! `LIMIT_RESPONSE_HEADERS_ENABLED` is set, and then three with configurable names.

use axum::http::HeaderName;
use sluicegate::rules::file::Environment;

use crate::config::envoy_headers::{EnvoyHeaders, HeaderNames};

use super::variables::{VariableError, flag, text};

/// The settings of the variables.
pub(super) fn read(environment: &Environment) -> Result<EnvoyHeaders, VariableError> {
    if !flag(environment, "LIMIT_RESPONSE_HEADERS_ENABLED")? {
        return Ok(EnvoyHeaders::Nothing);
    }
    Ok(EnvoyHeaders::Named(HeaderNames {
        limit: name(environment, "LIMIT_LIMIT_HEADER", "ratelimit-limit")?,
        remaining: name(environment, "LIMIT_REMAINING_HEADER", "ratelimit-remaining")?,
        reset: name(environment, "LIMIT_RESET_HEADER", "ratelimit-reset")?,
    }))
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
