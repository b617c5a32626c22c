//! Which rate limit headers Envoy adds to its responses. Environment variables of envoyproxy/ratelimit select them; the
//! configuration file has no key for it.

use axum::http::HeaderName;

/// The header fields that Envoy adds to its responses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum EnvoyHeaders {
    /// The same fields as in all other responses.
    #[default]
    AsElsewhere,
    /// No fields.
    Nothing,
    /// Three fields with configured names.
    Named(HeaderNames),
}

/// The names of the three fields of envoyproxy/ratelimit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeaderNames {
    pub(crate) limit: HeaderName,
    pub(crate) remaining: HeaderName,
    pub(crate) reset: HeaderName,
}
