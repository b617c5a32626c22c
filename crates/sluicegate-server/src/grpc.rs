//! Envoy's rate limit service on the api listener: over gRPC, with health and reflection, and as JSON.
//!
//! | module | what it holds |
//! |---|---|
//! | [`messages`] | the messages, as the .proto files have them |
//! | [`unary`] | one message in, one message out, and what is said of bytes that are none |
//! | [`question`] | what a request asks, checked against every bound |
//! | [`lines`], [`terms`] | what decides about each descriptor, and the rules of the call |
//! | [`decide`] | from a question to decisions: one for all descriptors |
//! | [`status`] | from decisions to what Envoy is told |
//! | [`service`] | the service over gRPC |
//! | [`json`] | the same service as JSON |
//! | [`metadata`] | what a configuration tells Envoy beside the decision |
//! | [`health`] | `grpc.health.v1`, by the server's readiness |
//!
//! The router below serves beside those of HTTP: who asks for another service in gRPC's terms is told so in them.

mod decide;
mod health;
mod json;
mod lines;
#[rustfmt::skip]
#[allow(missing_docs, unreachable_pub, unused_qualifications, dead_code, clippy::all, clippy::too_many_lines, reason = "written by a program")]
mod messages;
mod metadata;
mod question;
mod service;
mod status;
mod terms;
mod unary;

use axum::Router;
use axum::extract::Request;
use axum::http::header::{self, HeaderValue};
use axum::response::{IntoResponse as _, Response};
use tonic::Status;
use tonic_reflection::server::Builder;

use crate::app::App;
use crate::http::health::Health;
pub(crate) use service::{PATH, should_rate_limit};

/// What the .proto files say, for those who ask at run time.
const DESCRIPTORS: &[u8] = include_bytes!("grpc/descriptors.bin");

/// What somebody is told who gives back without the right to.
const REFUND_REMEDY: &str = "refunds need the admin token; send it as `authorization: Bearer …`";

/// What every media type of gRPC starts with.
const MEDIA_TYPE: &[u8] = b"application/grpc";

/// The services of gRPC, and Envoy's as JSON.
pub(crate) fn router(app: &App, health: &Health) -> Router {
    let router = Router::new()
        .merge(json::router(app.clone()))
        .merge(service::router(app.clone()))
        .merge(health::router(app.clone(), health.clone()));
    let reflection = || {
        let of_health = tonic_health::pb::FILE_DESCRIPTOR_SET;
        Builder::configure()
            .register_encoded_file_descriptor_set(DESCRIPTORS)
            .register_encoded_file_descriptor_set(of_health)
    };
    // Both versions are in use: the first by nearly everybody, the second by those who came later.
    match (reflection().build_v1alpha(), reflection().build_v1()) {
        (Ok(early), Ok(late)) => router
            .route_service("/grpc.reflection.v1alpha.ServerReflection/{*method}", early)
            .route_service("/grpc.reflection.v1.ServerReflection/{*method}", late),
        // The descriptors are a part of this program, and a test asks for them.
        _ => router,
    }
}

/// The answer to a gRPC request for something that is not served; `None` if the request is none.
pub(crate) fn unknown(request: &Request) -> Option<Response> {
    is_grpc(request.headers().get(header::CONTENT_TYPE)?).then(|| {
        let path = crate::problem::echo(request.uri().path());
        Status::unimplemented(format!("nothing is served at {path}"))
            .into_http::<axum::body::Body>()
            .into_response()
    })
}

fn is_grpc(media_type: &HeaderValue) -> bool {
    media_type.as_bytes().starts_with(MEDIA_TYPE)
}

#[cfg(test)]
mod tests;
