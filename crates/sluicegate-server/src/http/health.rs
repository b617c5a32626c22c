//! Health on the admin listener: `/livez`, `/readyz` and `/healthz`.
//!
//! `/livez` answers 200 as long as the process can answer at all; restarting helps only where it
//! does not. `/readyz` (and `/healthz`, the same) says whether traffic should be sent here: 200
//! with `{"status":"ready","degraded":false}`, or 503 while starting and from the moment a shutdown
//! begins. Stopping is final: nothing makes a stopping server ready again.
//!
//! `degraded` is true while the store, or a part of it, is down. The server is ready all the same as
//! long as a rule can answer without it; where every rule is closed and all of the store is down,
//! traffic is better sent elsewhere, and it says `{"status":"unavailable","degraded":true}` with 503.
//!
//! `"staleConfiguration":true` is there as well while the configuration file says something that cannot be used: what was
//! in force before still is, so the server is as ready as it was. `GET /admin/v1/reload` says what is wrong.

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

use crate::app::App;

/// Whether this server should be sent traffic, in the order in which it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Readiness {
    /// Not every listener accepts yet.
    Starting = 0,
    /// Decides as configured.
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

/// The server's readiness, shared by those who know it and those who ask.
#[derive(Clone, Debug, Default)]
pub(crate) struct Health(Arc<AtomicU8>);

impl Health {
    /// Takes note of a change. There is no way back: once [`Readiness::Stopping`], it stays so.
    pub(crate) fn set(&self, readiness: Readiness) {
        self.0.fetch_max(readiness as u8, Ordering::AcqRel);
    }

    /// Whether traffic should be sent here.
    pub(crate) fn report(&self, app: &App) -> (StatusCode, Report) {
        let limiter = app.limiter();
        let (status, report) = report(self.readiness(), limiter.store().health(), &limiter.rules());
        (status, Report { stale_configuration: !app.reload().status().successful, ..report })
    }

    /// What holds now.
    pub(crate) fn readiness(&self) -> Readiness {
        Readiness::from_code(self.0.load(Ordering::Acquire))
    }
}

/// The three health routes.
pub(crate) fn router(health: Health, app: App) -> Router {
    Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/healthz", get(readyz))
        .with_state((health, app))
}

/// `/healthcheck` as `envoyproxy/ratelimit` has it: 200 where [`router`] says ready, otherwise 500.
pub(crate) fn healthcheck(health: Health, app: App) -> Router {
    Router::new().route("/healthcheck", get(checked)).with_state((health, app))
}

async fn checked(state: State<(Health, App)>) -> Response {
    let (status, text) = match readyz(state).await.status() {
        StatusCode::OK => (StatusCode::OK, "OK"),
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "not ready"),
    };
    (status, text).into_response()
}

/// What `/readyz` says.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    status: &'static str,
    degraded: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stale_configuration: bool,
}

async fn livez() -> Response {
    #[derive(Serialize)]
    struct Alive {
        status: &'static str,
    }
    uncached(StatusCode::OK, Alive { status: "alive" })
}

async fn readyz(State((health, app)): State<(Health, App)>) -> Response {
    let (status, report) = health.report(&app);
    uncached(status, report)
}

/// True if traffic should be sent here.
pub(crate) fn is_ready(health: &Health, app: &App) -> bool {
    let limiter = app.limiter();
    report(health.readiness(), limiter.store().health(), &limiter.rules()).0 == StatusCode::OK
}

fn report(readiness: Readiness, store: store::Health, rules: &RuleSet) -> (StatusCode, Report) {
    let degraded = store != store::Health::Up;
    let is_down = matches!(store, store::Health::Down { .. });
    let (code, status) = match readiness {
        Readiness::Ready if is_down && rules.is_closed_without_store() => {
            (StatusCode::SERVICE_UNAVAILABLE, "unavailable")
        }
        Readiness::Ready => (StatusCode::OK, readiness.status()),
        Readiness::Starting | Readiness::Stopping => (StatusCode::SERVICE_UNAVAILABLE, readiness.status()),
    };
    (code, Report { status, degraded, stale_configuration: false })
}

/// A probe that is answered from a cache probes the cache.
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
    use crate::testing::{app, hourly};

    async fn ask(health: &Health, path: &str) -> (u16, Value) {
        let request = Request::builder().uri(path).body(Body::empty()).expect("valid");
        let response = router(health.clone(), app(Vec::new())).call(request).await.expect("infallible");
        let status = response.status().as_u16();
        let body = to_bytes(response.into_body(), 1_024).await.expect("buffered");
        (status, serde_json::from_slice(&body).expect("JSON"))
    }

    #[tokio::test]
    async fn each_readiness_has_its_answer() {
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
        let ready = (StatusCode::OK, Report { status: "ready", degraded, stale_configuration: false });
        let unavailable = (
            StatusCode::SERVICE_UNAVAILABLE,
            Report { status: "unavailable", degraded, stale_configuration: false },
        );
        let stopping =
            (StatusCode::SERVICE_UNAVAILABLE, Report { status: "stopping", degraded, stale_configuration: false });
        let partial = store::Health::Partial { class: ErrorClass::Connection };
        for rules in [&[][..], &[Open], &[Local], &[Closed, Open], &[Closed, Local]] {
            assert_eq!(report(Readiness::Ready, down, &with(rules)), ready, "{rules:?}");
            assert_eq!(report(Readiness::Ready, partial, &with(rules)), ready, "{rules:?}");
        }
        for rules in [&[Closed][..], &[Closed, Closed]] {
            assert_eq!(report(Readiness::Ready, down, &with(rules)), unavailable, "{rules:?}");
            assert_eq!(report(Readiness::Ready, partial, &with(rules)), ready, "{rules:?}");
            let up = (StatusCode::OK, Report { status: "ready", degraded: false, stale_configuration: false });
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
