//! Health on the admin listener: `/livez`, `/readyz` and `/healthz`.
//!
//! `/livez` is 200 as long as the process can respond at all, because a restart helps only otherwise. `/readyz` and
//! `/healthz`, its alias, report whether the server should receive traffic: 200 with
//! `{"status":"ready","degraded":false}`, or 503 during the start and from the beginning of a shutdown. Stopping is final: a
//! stopping server never becomes ready again.
//!
//! `degraded` is true while the store, or a part of it, is down. The server stays ready as long as a rule can decide without
//! the store. If every rule fails closed and all of the store is down, the response is 503 with
//! `{"status":"unavailable","degraded":true}`, so that load balancers prefer other servers.
//!
//! `"staleConfiguration":true` is present while the configuration file is invalid. The previous configuration stays in force,
//! so readiness does not change. `GET /admin/v1/reload` lists the errors. `"awaitingConfiguration":true` is present until the
//! control plane, if there is one, has sent its first configuration.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{self, HeaderValue};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::Serialize;
use sluicegate::rules::RuleSet;
use sluicegate::store::{self, Store as _};

use crate::admin_api::HealthReport;
use crate::engine::Engine;
use crate::envoy_xds::status::XdsStatus;

/// The server's readiness for traffic. It only advances, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Readiness {
    /// Not every listener accepts yet.
    Starting = 0,
    /// Serving.
    Ready = 1,
    /// Shutting down.
    Stopping = 2,
}

impl Readiness {
    fn from_code(code: u8) -> Self {
        match code {
            0 => Self::Starting,
            1 => Self::Ready,
            _ => Self::Stopping,
        }
    }

    fn status(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Stopping => "stopping",
        }
    }
}

/// The shared state of the server's readiness.
#[derive(Clone, Debug, Default)]
pub(crate) struct Health(Arc<AtomicU8>);

impl Health {
    /// Advances the readiness. It never goes back: [`Readiness::Stopping`] is final.
    pub(crate) fn set(&self, readiness: Readiness) {
        self.0.fetch_max(readiness as u8, Ordering::AcqRel);
    }

    /// The response of `/readyz`.
    pub(crate) fn report(&self, engine: &Engine) -> (StatusCode, HealthReport) {
        let limiter = engine.limiter();
        let (status, report) = report(self.readiness(), limiter.store().health(), &limiter.rules());
        let reload = engine.reload().status();
        let awaiting_configuration = reload.awaits_configuration();
        (status, HealthReport { stale_configuration: !reload.successful, awaiting_configuration, ..report })
    }

    /// The current readiness.
    pub(crate) fn readiness(&self) -> Readiness {
        Readiness::from_code(self.0.load(Ordering::Acquire))
    }
}

/// The three health routes.
pub(crate) fn router(health: Health, engine: Engine) -> Router {
    Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/healthz", get(readyz))
        .with_state((health, engine))
}

/// `/healthcheck` of `envoyproxy/ratelimit`: 200 while the server serves, otherwise 500. The store's state does not matter:
/// orchestrators restart a server that fails here, and a restart does not repair the store. The first configuration of a
/// control plane matters only if `HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED` says so.
pub(crate) fn healthcheck(health: Health, engine: Engine) -> Router {
    Router::new().route("/healthcheck", get(checked)).with_state((health, engine))
}

async fn checked(State((health, engine)): State<(Health, Engine)>) -> Response {
    let is_missing = engine.reload().control_plane().is_some_and(XdsStatus::is_missing_configuration);
    let (status, text) = match health.readiness() {
        Readiness::Ready if is_missing => (StatusCode::INTERNAL_SERVER_ERROR, "no configuration yet"),
        Readiness::Ready => (StatusCode::OK, "OK"),
        Readiness::Starting | Readiness::Stopping => (StatusCode::INTERNAL_SERVER_ERROR, "not ready"),
    };
    (status, text).into_response()
}

async fn livez() -> Response {
    #[derive(Serialize)]
    struct Alive {
        status: &'static str,
    }
    uncached(StatusCode::OK, Alive { status: "alive" })
}

async fn readyz(State((health, engine)): State<(Health, Engine)>) -> Response {
    let (status, report) = health.report(&engine);
    uncached(status, report)
}

/// Whether the server should receive traffic.
pub(crate) fn is_ready(health: &Health, engine: &Engine) -> bool {
    let limiter = engine.limiter();
    report(health.readiness(), limiter.store().health(), &limiter.rules()).0 == StatusCode::OK
}

fn report(readiness: Readiness, store: store::Health, rules: &RuleSet) -> (StatusCode, HealthReport) {
    let degraded = store != store::Health::Up;
    let is_down = matches!(store, store::Health::Down { .. });
    let (code, status) = match readiness {
        Readiness::Ready if is_down && rules.is_closed_without_store() => {
            (StatusCode::SERVICE_UNAVAILABLE, "unavailable")
        }
        Readiness::Ready => (StatusCode::OK, readiness.status()),
        Readiness::Starting | Readiness::Stopping => (StatusCode::SERVICE_UNAVAILABLE, readiness.status()),
    };
    (code, HealthReport { status: status.into(), degraded, ..HealthReport::default() })
}

/// Responses are not cacheable, because a cached response would report the state of the past.
fn uncached(status: StatusCode, report: impl Serialize) -> Response {
    let no_store = (header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    (status, [no_store], Json(report)).into_response()
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use serde_json::{Value, json};
    use sluicegate::rules::{OnStoreFailure, Rule, Unmatched};
    use sluicegate::store::ErrorClass;
    use tower::Service as _;

    use super::*;
    use crate::testing::{engine, hourly};

    async fn ask(health: &Health, path: &str) -> (u16, Value) {
        let request = Request::builder().uri(path).body(Body::empty()).expect("valid");
        let response = router(health.clone(), engine(Vec::new())).call(request).await.expect("infallible");
        let status = response.status().as_u16();
        let body = to_bytes(response.into_body(), 1_024).await.expect("buffered");
        (status, serde_json::from_slice(&body).expect("JSON"))
    }

    #[tokio::test]
    async fn each_readiness_has_its_response() {
        use Readiness::{Ready, Starting, Stopping};
        let health = Health::default();
        for (readiness, code, status) in
            [(Starting, 503, "starting"), (Ready, 200, "ready"), (Stopping, 503, "stopping")]
        {
            health.set(readiness);
            let expected = (code, json!({ "status": status, "degraded": false }));
            assert_eq!(ask(&health, "/readyz").await, expected, "{readiness:?}");
            assert_eq!(ask(&health, "/healthz").await, expected, "{readiness:?}");
        }
    }

    #[test]
    fn a_store_that_is_down_matters_only_where_nothing_can_answer_without_it() {
        let down = store::Health::Down { class: ErrorClass::Connection };
        let with = |policies: &[OnStoreFailure]| {
            let named = |(index, policy): (usize, &OnStoreFailure)| Rule {
                on_store_failure: *policy,
                ..hourly(&format!("rule-{index}"), 1)
            };
            let rules = policies.iter().enumerate().map(named).collect();
            RuleSet::new(rules, Vec::new(), Unmatched::Allow).expect("valid rules")
        };
        use OnStoreFailure::{Closed, Local, Open};
        let degraded = true;
        let ready = (StatusCode::OK, HealthReport { status: "ready".into(), degraded, ..HealthReport::default() });
        let unavailable = (
            StatusCode::SERVICE_UNAVAILABLE,
            HealthReport { status: "unavailable".into(), degraded, ..HealthReport::default() },
        );
        let stopping = (
            StatusCode::SERVICE_UNAVAILABLE,
            HealthReport { status: "stopping".into(), degraded, ..HealthReport::default() },
        );
        let partial = store::Health::Partial { class: ErrorClass::Connection };
        for rules in [&[][..], &[Open], &[Local], &[Closed, Open], &[Closed, Local]] {
            assert_eq!(report(Readiness::Ready, down, &with(rules)), ready, "{rules:?}");
            assert_eq!(report(Readiness::Ready, partial, &with(rules)), ready, "{rules:?}");
        }
        for rules in [&[Closed][..], &[Closed, Closed]] {
            assert_eq!(report(Readiness::Ready, down, &with(rules)), unavailable, "{rules:?}");
            assert_eq!(report(Readiness::Ready, partial, &with(rules)), ready, "{rules:?}");
            let up = (
                StatusCode::OK,
                HealthReport { status: "ready".into(), degraded: false, ..HealthReport::default() },
            );
            assert_eq!(report(Readiness::Ready, store::Health::Up, &with(rules)), up);
            assert_eq!(report(Readiness::Stopping, down, &with(rules)), stopping);
        }
    }

    #[tokio::test]
    async fn stopping_is_final_but_the_process_lives() {
        let health = Health::default();
        health.set(Readiness::Stopping);
        health.set(Readiness::Ready);
        assert_eq!(health.readiness(), Readiness::Stopping);
        assert_eq!(ask(&health, "/livez").await, (200, json!({ "status": "alive" })));
    }
}
