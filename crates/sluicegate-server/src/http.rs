//! The HTTP front doors: gateway, decision API and administration.
//!
//! [`HttpEndpoints`] builds one [`HttpEndpoint`] per listener from the routers of the modules below. [`endpoint`] takes a
//! request through bounds, access control and handler to its response.

pub(crate) mod admin;
mod api;
mod auth;
mod check;
mod docs;
pub(crate) mod endpoint;
pub(crate) mod gateway;
mod http1_fast_check;
mod json_body;
mod metrics;
mod panics;

use axum::Router;

use crate::config::listeners::PrometheusListener;
use crate::engine::Engine;
use crate::health::{self, Health};
use crate::traces::FrontDoor;
use crate::{grpc, problem};
use api::access::Access;
pub(crate) use endpoint::HttpEndpoint;
use gateway::{Gateway, demo};

/// The endpoints of all HTTP listeners.
#[derive(Debug)]
pub(crate) struct HttpEndpoints {
    /// The reverse proxy, or the demo application.
    pub(crate) gateway: HttpEndpoint,
    /// The decision API.
    pub(crate) api: HttpEndpoint,
    /// Health, metrics, the top identities, the admin API and the dashboard.
    pub(crate) admin: HttpEndpoint,
    /// Metrics alone; without any unless the listener is on.
    pub(crate) metrics: HttpEndpoint,
}

impl HttpEndpoints {
    /// The endpoints with the demo application in place of a gateway.
    pub(crate) fn new(engine: &Engine, health: &Health) -> Self {
        let endpoint = |router| HttpEndpoint::from(problem::with_fallbacks(router, grpc::unknown));
        let admin = Router::new()
            .merge(health::router(health.clone(), engine.clone()))
            .merge(metrics::router(engine.clone()))
            .merge(admin::router(engine.clone(), health.clone()));
        Self {
            gateway: endpoint(demo::router(engine.clone())).traced(engine, FrontDoor::Gateway),
            api: endpoint(api_router(engine, health))
                .with_hot_endpoints(engine)
                .with_access(Access::new(engine))
                .traced(engine, FrontDoor::Api),
            admin: endpoint(admin),
            metrics: endpoint(Router::new()),
        }
    }

    /// Replaces the demo application by this gateway, if there is one.
    pub(crate) fn with_gateway(mut self, gateway: Option<Gateway>) -> Self {
        self.gateway.gateway = gateway;
        self
    }

    /// Keeps the demo application if `is_on`. Otherwise every response of the gateway listener explains how to add routes.
    pub(crate) fn with_demo(mut self, is_on: bool) -> Self {
        if !is_on {
            self.gateway.router = problem::without_routes();
        }
        self
    }

    /// Serves the metrics on a listener of their own, if there is one.
    pub(crate) fn with_metrics(mut self, listener: Option<&PrometheusListener>, engine: &Engine) -> Self {
        if let Some(PrometheusListener { path, .. }) = listener {
            let router = metrics::open_router(engine.clone(), path);
            self.metrics = HttpEndpoint::from(problem::with_fallbacks(router, grpc::unknown));
        }
        self
    }

    /// Replaces the demo application by the decision API and its health, as on the HTTP port of `envoyproxy/ratelimit`. A
    /// gateway has precedence.
    pub(crate) fn with_healthcheck(mut self, engine: &Engine, health: &Health) -> Self {
        let router = api_router(engine, health).merge(health::healthcheck(health.clone(), engine.clone()));
        self.gateway.router = problem::with_fallbacks(router, grpc::unknown);
        self.gateway.hot = Some(engine.clone());
        self.gateway.access = Some(Access::new(engine));
        self
    }
}

/// The decision API over HTTP and gRPC, without its hot endpoints.
fn api_router(engine: &Engine, health: &Health) -> Router {
    api::router(engine.clone()).merge(grpc::router(engine, health))
}
