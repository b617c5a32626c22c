//! The span of a request, from its head to the head of its response, and the span of the request to an upstream.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use axum::http::{HeaderMap, Method, Request, Response, StatusCode, Version};
use opentelemetry::trace::{SpanBuilder, SpanKind, Status, TraceContextExt as _, Tracer as _};
use opentelemetry::{Context, KeyValue};
use sluicegate::core::Timestamp;

use super::{Traces, context};
use crate::config::traces::Parents;

/// The methods that appear in spans. Clients can send any other method, so those must not create new span names.
static METHODS: [Method; 9] = [
    Method::GET,
    Method::HEAD,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
    Method::OPTIONS,
    Method::CONNECT,
    Method::TRACE,
];
/// The name of all other methods, by OpenTelemetry's conventions.
const OTHER_METHOD: &str = "_OTHER";

/// The paths of fixed routes. The gateway has configured routes in addition.
const PATHS: [&str; 13] = [
    "/",
    "/api/ping",
    "/v1/check",
    "/v1/check/batch",
    "/v1/peek",
    "/v1/refund",
    "/v1/report",
    "/v1/reset",
    "/v1/auth",
    "/json",
    "/openapi.json",
    "/docs",
    RATE_LIMIT_SERVICE,
];
const RATE_LIMIT_SERVICE: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// The front door that received a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrontDoor {
    Gateway,
    Api,
}

impl FrontDoor {
    const fn name(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Api => "api",
        }
    }
}

/// The span of a request to an upstream.
#[derive(Debug)]
pub(crate) struct UpstreamSpan(Context);

impl Traces {
    /// Starts the span of a request from `peer`. [`Traces::end`] ends it, or dropping it.
    pub(crate) fn begin<B>(
        &self,
        door: FrontDoor,
        is_tls: bool,
        request: &Request<B>,
        peer: IpAddr,
        now: Timestamp,
    ) -> Context {
        let is_trusted = match self.0.parents {
            Parents::Anyone => true,
            Parents::TrustedProxies => self.0.proxies.contains(peer),
        };
        let parent = if is_trusted { context::parent_of(request.headers()) } else { Context::new() };
        let (method, path) = (method_name(request.method()), request.uri().path());
        let route = PATHS.iter().copied().find(|route| *route == path);
        let builder = SpanBuilder::from_name(name_of(method, route)).with_kind(SpanKind::Server);
        let span = self.0.tracer.build_with_context(builder.with_start_time(instant(now)), &parent);
        let context = parent.with_span(span);
        describe(&context, door, is_tls, request, route);
        context
    }

    /// Ends the span of a request.
    pub(crate) fn end<B>(&self, context: &Context, response: &Response<B>, now: Timestamp) {
        let span = context.span();
        answered(context, response.status(), StatusCode::is_server_error);
        span.end_with_timestamp(instant(now));
    }

    /// Sets the route of the current request.
    pub(crate) fn routed(&self, method: &Method, route: &str) {
        let context = Context::current();
        let span = context.span();
        if span.is_recording() {
            span.update_name(name_of(method_name(method), Some(route)));
            span.set_attribute(KeyValue::new("http.route", route.to_owned()));
        }
    }

    /// Starts the span of the request to the upstream, and writes its context into the headers.
    pub(crate) fn proxying(
        &self,
        method: &Method,
        route: &str,
        headers: &mut HeaderMap,
        now: Timestamp,
    ) -> UpstreamSpan {
        let parent = Context::current();
        let name = name_of(method_name(method), Some(route));
        let builder = SpanBuilder::from_name(name).with_kind(SpanKind::Client).with_start_time(instant(now));
        let context = parent.with_span(self.0.tracer.build_with_context(builder, &parent));
        context.span().set_attribute(KeyValue::new("http.request.method", method_name(method)));
        context::replace(headers, &context);
        UpstreamSpan(context)
    }
}

impl UpstreamSpan {
    /// Ends the span with the upstream's status, or with the name of an error.
    pub(crate) fn end(self, outcome: Result<StatusCode, &'static str>, now: Timestamp) {
        let span = self.0.span();
        match outcome {
            Ok(status) => answered(&self.0, status, |status| status.is_server_error() || status.is_client_error()),
            Err(failure) => {
                span.set_attribute(KeyValue::new("error.type", failure));
                span.set_status(Status::error(failure));
            }
        }
        span.end_with_timestamp(instant(now));
    }
}

/// Sets the attributes of a request, except values that clients choose freely.
fn describe<B>(
    context: &Context,
    door: FrontDoor,
    is_tls: bool,
    request: &Request<B>,
    route: Option<&'static str>,
) {
    let span = context.span();
    if !span.is_recording() {
        return;
    }
    span.set_attribute(KeyValue::new("http.request.method", method_name(request.method())));
    span.set_attribute(KeyValue::new("url.scheme", if is_tls { "https" } else { "http" }));
    span.set_attribute(KeyValue::new("network.protocol.version", version_name(request.version())));
    span.set_attribute(KeyValue::new("sluicegate.listener", door.name()));
    if let Some(route) = route {
        span.set_attribute(KeyValue::new("http.route", route));
    }
    if route == Some(RATE_LIMIT_SERVICE) {
        span.set_attribute(KeyValue::new("rpc.system.name", "grpc"));
        span.set_attribute(KeyValue::new("rpc.method", &RATE_LIMIT_SERVICE[1..]));
    }
}

fn answered(context: &Context, status: StatusCode, is_error: impl FnOnce(&StatusCode) -> bool) {
    let span = context.span();
    span.set_attribute(KeyValue::new("http.response.status_code", i64::from(status.as_u16())));
    if is_error(&status) {
        span.set_attribute(KeyValue::new("error.type", status.as_str().to_owned()));
        span.set_status(Status::error(""));
    }
}

fn method_name(method: &Method) -> &'static str {
    METHODS.iter().find(|known| *known == method).map_or(OTHER_METHOD, Method::as_str)
}

/// The name of a span, such as `GET /v1/check`, by OpenTelemetry's conventions.
fn name_of(method: &str, route: Option<&str>) -> String {
    let method = if method == OTHER_METHOD { "HTTP" } else { method };
    route.map_or_else(|| method.to_owned(), |route| format!("{method} {route}"))
}

fn version_name(version: Version) -> &'static str {
    match version {
        Version::HTTP_2 => "2",
        Version::HTTP_10 => "1.0",
        _ => "1.1",
    }
}

/// A timestamp in the type that OpenTelemetry uses.
fn instant(at: Timestamp) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(at.as_micros())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_cannot_create_span_names() {
        let made_up: Method = "BREW".parse().expect("a method");
        assert_eq!(name_of(method_name(&made_up), None), "HTTP");
        assert_eq!(name_of(method_name(&Method::POST), Some("/v1/check")), "POST /v1/check");
    }

    #[test]
    fn every_documented_path_is_a_route() {
        let description: serde_json::Value =
            serde_json::from_str(include_str!("../../ui/openapi.json")).expect("JSON");
        let paths: Vec<&String> = description["paths"].as_object().expect("paths").keys().collect();
        assert!(paths.len() > 5);
        for path in paths {
            assert!(PATHS.contains(&path.as_str()), "{path}");
        }
    }
}
