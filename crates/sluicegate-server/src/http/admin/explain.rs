//! `POST /admin/v1/explain`: which rules match a request and which do not, and why; by whose limits, under which keys; and
//! what it would get now. It charges nothing.
//!
//! The request is one as `/v1/check` takes it, with `resource` and `identifier`, or one as the gateway sees it, with
//! `path` and perhaps `method`, `address`, `host`, `headers` and `claims`.

mod fields;

use std::collections::BTreeMap;
use std::net::IpAddr;

use axum::Json;
use axum::extract::{Request as HttpRequest, State};
use axum::http::header::{self, HeaderValue};
use axum::response::{IntoResponse as _, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluicegate::answer::STORE_FAILED_RETRY_AFTER_SECS;
use sluicegate::clock::Clock as _;
use sluicegate::core::Cost;
use sluicegate::identity::{DEFAULT_TENANT, Target, Values};
use sluicegate::path::{EncodedSlashes, Path};
use sluicegate::{CheckError, Identity, Request};

use super::body;
use crate::app::App;
use crate::explain::{Report, Surroundings};
use crate::http::json_body;
use crate::problem::Problem;
use crate::store::ServerStore;
use crate::wire::answer::Answer;
use fields::{Claim, Fields, OneOrMany};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
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
struct Explanation {
    #[serde(flatten)]
    report: Report,
    /// What the request would get now, as a peek tells it.
    decision: Value,
}

/// Explains a request.
pub(super) async fn explain(State(app): State<App>, request: HttpRequest) -> Result<Response, Problem> {
    let (head, sent) = request.into_parts();
    app.admin_token().reader(&head)?;
    let bytes = json_body::read_parts(&head.headers, sent).await?;
    let question: Question = serde_json::from_slice(&bytes).map_err(|error| {
        body::bad(format!("the body is no question: {error}; send resource and identifier, or path"))
    })?;
    let path = question.path.as_deref().map(|path| Path::parse(path, EncodedSlashes::Refuse)).transpose();
    let path = path.map_err(|error| body::bad(format!("`path`: {error}")).field("path"))?;
    let resource = question.resource(path.as_ref())?;
    let fields = path.as_ref().map(|path| Fields::new(&question, path)).transpose()?.unwrap_or_default();
    let request = question.request(&resource, path.as_ref(), &fields)?;
    let report = report(&app, &request)?;
    let decision = match app.limiter().peek(&request).await {
        Ok(decision) => Answer::from(&decision).to_json(),
        Err(CheckError::Store(_)) => Answer::undecided(STORE_FAILED_RETRY_AFTER_SECS).to_json(),
        Err(error) => return Err(error.into()),
    };
    let decision = serde_json::from_slice(&decision).unwrap_or(Value::Null);
    let no_store = (header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(([no_store], Json(Explanation { report, decision })).into_response())
}

fn report(app: &App, request: &Request<'_>) -> Result<Report, Problem> {
    let limiter = app.limiter();
    let is_shared = matches!(limiter.store(), ServerStore::Redis(_));
    let in_force = limiter.rules();
    // A shared store charges ahead by limits that are a little smaller than those that were written.
    let rules = in_force.as_written();
    let instances = limiter.instances().count();
    let surroundings = Surroundings { rules, is_shared, instances, encoder: app.encoder() };
    Ok(Report::new(surroundings, request, app.limiter().clock().now())?)
}

impl Question {
    fn resource(&self, path: Option<&Path<'_>>) -> Result<String, Problem> {
        match (path, &self.resource) {
            (Some(path), None) => Ok(path.resource()),
            (None, Some(resource)) => Ok(resource.clone()),
            (Some(_), Some(_)) => Err(body::bad(
                "both `resource` and `path` are there; of an HTTP request the path says it, so give one",
            )
            .field("resource")),
            (None, None) => Err(body::bad("neither `resource` nor `path` is there; give one").field("resource")),
        }
    }

    /// What only an HTTP request has, if anything of it is there.
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
            (None, None) => return Err(body::bad("`identifier` is missing; say who asks").field("identifier")),
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
                ..Target::new(self.method.as_deref().unwrap_or("GET"), path.matched())
            }),
            ..Request::new(resource, "")
        })
    }
}
