//! Envoy's rate limit service on the api listener: over gRPC, with health and reflection, and as JSON.
//!
//! | module | content |
//! |---|---|
//! | [`messages`] | the messages of the .proto files |
//! | [`unary`] | unary calls: framing of one message, and errors for invalid bytes |
//! | [`call_options`] | the options of a call, from its header fields |
//! | [`parsed_request`] | a parsed request, validated against every bound |
//! | [`descriptor`], [`call_rules`] | the rule of each descriptor, and the rules of the call |
//! | [`decide`] | one decision for all descriptors |
//! | [`status`], [`configured_status`] | the response to Envoy; the statuses under a configuration of `envoyproxy/ratelimit` |
//! | [`service`] | the service over gRPC |
//! | [`json`] | the same service as JSON |
//! | [`signals`] | the deciding rule, and exceeded limits that deny nothing |
//! | [`metadata`] | the dynamic metadata that a configuration returns to Envoy |
//! | [`health`] | `grpc.health.v1`, by the server's readiness |
//!
//! Its router serves beside the HTTP routers; calls of unknown gRPC services get a gRPC error.

mod configured_status;
mod decide;
mod descriptor;
mod health;
mod json;
#[rustfmt::skip]
#[allow(missing_docs, unreachable_pub, unused_qualifications, dead_code, clippy::all, clippy::too_many_lines, reason = "written by a program")]
mod messages;
mod call_options;
mod call_rules;
mod metadata;
mod parsed_request;
mod service;
mod signals;
mod status;
mod unary;

use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use sluicegate::problem::is_grpc;
use tonic::Status;
use tonic_reflection::server::Builder;

use crate::engine::Engine;
use crate::health::Health;
pub(crate) use service::{PATH, should_rate_limit};

/// The descriptor of the .proto files, for reflection.
const DESCRIPTORS: &[u8] = include_bytes!("grpc/descriptors.bin");

/// The services of gRPC, and Envoy's as JSON.
pub(crate) fn router(engine: &Engine, health: &Health) -> Router {
    let router =
        Router::new().merge(json::router(engine.clone())).merge(health::router(engine.clone(), health.clone()));
    let reflection = || {
        let of_health = tonic_health::pb::FILE_DESCRIPTOR_SET;
        Builder::configure()
            .register_encoded_file_descriptor_set(DESCRIPTORS)
            .register_encoded_file_descriptor_set(of_health)
    };
    // Both versions of reflection are in use: most clients use the first, newer ones the second.
    match (reflection().build_v1alpha(), reflection().build_v1()) {
        (Ok(early), Ok(late)) => router
            .route_service("/grpc.reflection.v1alpha.ServerReflection/{*method}", early)
            .route_service("/grpc.reflection.v1.ServerReflection/{*method}", late),
        // The descriptors are part of this program, and a test loads them.
        _ => router,
    }
}

/// The gRPC error for an unknown service; `None` if the request is not gRPC.
pub(crate) fn unknown(request: &Request) -> Option<Response> {
    is_grpc(request.headers()).then(|| {
        let path = crate::problem::echo(request.uri().path());
        Status::unimplemented(format!("nothing is served at {path}"))
            .into_http::<axum::body::Body>()
            .into_response()
    })
}

#[cfg(test)]
mod tests;
