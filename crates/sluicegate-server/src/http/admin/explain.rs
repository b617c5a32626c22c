//! `POST /admin/v1/explain`: the rules that match a request and those that do not, with the reasons, the limits,
//! their keys and the current decision. It charges nothing.
//!
//! The request is one for `/v1/check`, with `resource` and `identifier`, or one for the gateway, with `path` and
//! optionally `method`, `address`, `host`, `headers` and `claims`.

mod fields;

use std::collections::BTreeMap;
use std::net::IpAddr;

use axum::Json;
use axum::extract::{Request as HttpRequest, State};
use axum::http::header::{self, HeaderValue};
use axum::response::{IntoResponse as _, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluicegate::clock::Clock as _;
use sluicegate::core::Cost;
use sluicegate::identity::{DEFAULT_TENANT, Target, Values};
use sluicegate::path::Path;
use sluicegate::response::UNAVAILABLE_RETRY_AFTER_SECS;
use sluicegate::{CheckError, Identity, Request};

use super::body;
use crate::engine::Engine;
use crate::explain::{ExplainContext, ExplainReport};
use crate::http::json_body;
use crate::problem::Problem;
use crate::wire::decision::DecisionJson;
use fields::{Claim, Fields, OneOrMany};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExplainRequest {
    tenant: Option<String>,
    resource: Option<String>,
    identifier: Option<String>,
    cost: Option<u32>,
    tier: Option<String>,
    method: Option<String>,
    path: Option<String>,
    address: Option<IpAddr>,
    host: Option<String>,
    headers: Option<BTreeMap<String, OneOrMany>>,
    claims: Option<BTreeMap<String, Claim>>,
}

#[derive(Serialize)]
struct ExplainResponse {
    #[serde(flatten)]
    report: ExplainReport,
    /// The current decision, as a peek returns it.
    decision: Value,
}

/// Explains a request.
pub(super) async fn explain(State(engine): State<Engine>, request: HttpRequest) -> Result<Response, Problem> {
    let (head, sent) = request.into_parts();
    engine.admin_tokens().reader(&head).await?;
    let bytes = json_body::read_parts(&head.headers, sent).await?;
    let question: ExplainRequest = serde_json::from_slice(&bytes).map_err(|error| {
        body::bad(format!("the body is not a valid request: {error}; send resource and identifier, or path"))
    })?;
    let path = question.path.as_deref().map(|path| Path::parse(path, engine.slashes())).transpose();
    let path = path.map_err(|error| body::bad(format!("`path`: {error}")).field("path"))?;
    let resource = question.resource(path.as_ref())?;
    let fields = path.as_ref().map(|path| Fields::new(&question, path)).transpose()?.unwrap_or_default();
    let request = question.request(&resource, path.as_ref(), &fields)?;
    let report = report(&engine, &request)?;
    let decision = match engine.limiter().peek(&request).await {
        Ok(decision) => DecisionJson::from(&decision).to_json(),
        Err(CheckError::Store(_)) => DecisionJson::undecided(UNAVAILABLE_RETRY_AFTER_SECS).to_json(),
        Err(error) => return Err(error.into()),
    };
    let decision = serde_json::from_slice(&decision).unwrap_or(Value::Null);
    let no_store = (header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(([no_store], Json(ExplainResponse { report, decision })).into_response())
}

fn report(engine: &Engine, request: &Request<'_>) -> Result<ExplainReport, Problem> {
    let limiter = engine.limiter();
    let is_shared = limiter.store().is_shared();
    let in_force = limiter.rules();
    // With a shared store, leases charge limits that are a little smaller than the configured ones.
    let rules = in_force.as_written();
    let instances = limiter.instances().count();
    let context = ExplainContext { rules, is_shared, instances, encoder: engine.encoder() };
    Ok(ExplainReport::new(context, request, engine.limiter().clock().time_of_day())?)
}

impl ExplainRequest {
    fn resource(&self, path: Option<&Path<'_>>) -> Result<String, Problem> {
        match (path, &self.resource) {
            (Some(path), None) => Ok(path.resource()),
            (None, Some(resource)) => Ok(resource.clone()),
            (Some(_), Some(_)) => Err(body::bad(
                "both `resource` and `path` are given; the path of an HTTP request determines its resource, so give one",
            )
            .field("resource")),
            (None, None) => Err(body::bad("neither `resource` nor `path` is there; give one").field("resource")),
        }
    }

    /// The parts that only an HTTP request has, if any is present.
    fn of_http(&self) -> Option<&'static str> {
        let parts = [
            ("method", self.method.is_some()),
            ("address", self.address.is_some()),
            ("host", self.host.is_some()),
            ("headers", self.headers.is_some()),
            ("claims", self.claims.is_some()),
        ];
        parts.into_iter().find(|(_, is_there)| *is_there).map(|(name, _)| name)
    }

    fn request<'q>(
        &'q self,
        resource: &'q str,
        path: Option<&'q Path<'q>>,
        fields: &'q Fields,
    ) -> Result<Request<'q>, Problem> {
        if let (Some(part), None) = (self.of_http(), path) {
            let problem = format!("`{part}` is of an HTTP request; give its `path`, too");
            return Err(body::bad(problem).field("path"));
        }
        let identity = match (&self.identifier, self.address) {
            (Some(identifier), _) => Identity::Named(identifier),
            (None, Some(address)) => Identity::Address(address),
            (None, None) => {
                return Err(body::bad("`identifier` is missing; send the client's identifier").field("identifier"));
            }
        };
        Ok(Request {
            tenant: self.tenant.as_deref().unwrap_or(DEFAULT_TENANT),
            identity,
            address: self.address,
            tier: self.tier.as_deref(),
            cost: self.cost.map(Cost::new),
            target: path.map(|path| Target {
                host: fields.host.as_deref(),
                headers: Some(&fields.headers),
                claims: fields.claims.as_ref().map(|claims| claims as &dyn Values),
                ..Target::of(self.method.as_deref().unwrap_or("GET"), path)
            }),
            ..Request::new(resource, "")
        })
    }
}
