//! The span of a request, from its head to the head of its answer, and that of sending it on to an upstream.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use axum::http::{HeaderMap, Method, Request, Response, StatusCode, Version};
use opentelemetry::trace::{SpanBuilder, SpanKind, Status, TraceContextExt as _, Tracer as _};
use opentelemetry::{Context, KeyValue};
use sluicegate::core::Timestamp;

use super::{Traces, context};
use crate::config::traces::Parents;
use crate::http::OverTls;

/// The methods that have a name of their own in a span; whoever makes up others does not make up names of spans.
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
/// What every other method is called, by OpenTelemetry's conventions.
const OTHER_METHOD: &str = "_OTHER";

/// The paths of the listeners that are routes as they are. The gateway has routes of its own.
const PATHS: [&str; 12] = [
    "/",
    "/api/ping",
    "/v1/check",
    "/v1/check/batch",
    "/v1/peek",
    "/v1/refund",
    "/v1/reset",
    "/v1/auth",
    "/json",
    "/openapi.json",
    "/docs",
    RATE_LIMIT_SERVICE,
];
const RATE_LIMIT_SERVICE: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// Which listener a request came through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    Gateway,
    Api,
}

impl Door {
    const fn name(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Api => "api",
        }
    }
}

/// A request on its way to an upstream.
#[derive(Debug)]
pub(crate) struct Proxying(Context);

impl Traces {
    /// Begins the span of a request from `peer`. It ends by [`Traces::end`], or when it is dropped.
    pub(crate) fn begin<B>(&self, door: Door, request: &Request<B>, peer: IpAddr, now: Timestamp) -> Context {
        let is_believed = match self.0.parents {
            Parents::Anyone => true,
            Parents::TrustedProxies => self.0.proxies.contains(peer),
        };
        let parent = if is_believed { context::parent_of(request.headers()) } else { Context::new() };
        let (method, path) = (method_name(request.method()), request.uri().path());
        let route = PATHS.iter().copied().find(|route| *route == path);
        let builder = SpanBuilder::from_name(name_of(method, route)).with_kind(SpanKind::Server);
        let span = self.0.tracer.build_with_context(builder.with_start_time(instant(now)), &parent);
        let context = parent.with_span(span);
        describe(&context, door, request, route);
        context
    }

    /// Ends the span of a request.
    pub(crate) fn end<B>(&self, context: &Context, response: &Response<B>, now: Timestamp) {
        let span = context.span();
        answered(context, response.status(), StatusCode::is_server_error);
        span.end_with_timestamp(instant(now));
    }

    /// Names the current request by the route that it takes.
    pub(crate) fn routed(&self, method: &Method, route: &str) {
        let context = Context::current();
        let span = context.span();
        if span.is_recording() {
            span.update_name(name_of(method_name(method), Some(route)));
            span.set_attribute(KeyValue::new("http.route", route.to_owned()));
        }
    }

    /// Begins to send the current request on, and tells the upstream of it.
    pub(crate) fn proxying(
        &self,
        method: &Method,
        route: &str,
        headers: &mut HeaderMap,
        now: Timestamp,
    ) -> Proxying {
        let parent = Context::current();
        let name = name_of(method_name(method), Some(route));
        let builder = SpanBuilder::from_name(name).with_kind(SpanKind::Client).with_start_time(instant(now));
        let context = parent.with_span(self.0.tracer.build_with_context(builder, &parent));
        context.span().set_attribute(KeyValue::new("http.request.method", method_name(method)));
        context::replace(headers, &context);
        Proxying(context)
    }
}

impl Proxying {
    /// Ends with the upstream's answer, or with what went wrong, in a word.
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

/// Tells what a request is, as far as that is not the client's own words.
fn describe<B>(context: &Context, door: Door, request: &Request<B>, route: Option<&'static str>) {
    let span = context.span();
    if !span.is_recording() {
        return;
    }
    let is_tls = request.extensions().get::<OverTls>().is_some();
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

/// `GET /v1/check`, as OpenTelemetry's conventions have it.
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

/// An instant of our clock as OpenTelemetry wants it.
fn instant(at: Timestamp) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(at.as_micros())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_few_whatever_clients_send() {
        let made_up: Method = "BREW".parse().expect("a method");
        assert_eq!(name_of(method_name(&made_up), None), "HTTP");
        assert_eq!(name_of(method_name(&Method::POST), Some("/v1/check")), "POST /v1/check");
    }

    #[test]
    fn every_path_that_is_described_is_a_route() {
        let description: serde_json::Value =
            serde_json::from_str(include_str!("../../ui/openapi.json")).expect("JSON");
        let paths: Vec<&String> = description["paths"].as_object().expect("paths").keys().collect();
        assert!(paths.len() > 5);
        for path in paths {
            assert!(PATHS.contains(&path.as_str()), "{path}");
        }
    }
}
