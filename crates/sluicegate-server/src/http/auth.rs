//! `/v1/auth`, forward-auth: decides on a request that another proxy has received.
//!
//! nginx, Traefik, Caddy and HAProxy send a subrequest here before they forward a request, and describe that request
//! in header fields ([`original`]). Only trusted proxies may do so: from any other peer these fields are worthless,
//! and the decisions would use up other clients' quotas. The decision is the gateway's own.
//!
//! | outcome | response |
//! |---|---|
//! | allowed | 204, the rate-limit headers, and the client's identity |
//! | denied | 429, a problem; with `?deny_status` that status, and `X-Sluicegate-Status: 429` |
//! | bad credentials, undecided | the gateway's response |
//! | the peer is not a trusted proxy | 403, a problem with the remedy |
//! | the fields do not describe one request | 400, a problem that names the field |
//!
//! Unknown parameters of the query are ignored: some proxies send the client's query along.

mod original;

use std::net::{IpAddr, SocketAddr};

use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::StatusCode;
use axum::http::header::HeaderName;
use axum::response::Response;
use axum::routing::{MethodRouter, get};
use sluicegate::gate::{Admission, Head};
use sluicegate::identify::address::{TrustedProxies, normalised};

use self::original::OriginalRequest;
use crate::engine::Engine;
use crate::problem::Problem;
use crate::{admit, api_response};

/// The status that `deny_status` replaced.
const STATUS: HeaderName = HeaderName::from_static("x-sluicegate-status");

/// The only parameter of the query.
const DENY_STATUS: &str = "deny_status";

/// The path of forward-auth.
pub(super) const PATH: &str = "/v1/auth";

/// The route of forward-auth.
pub(super) fn routes() -> [(&'static str, MethodRouter<Engine>); 1] {
    [(PATH, get(auth).post(auth))]
}

async fn auth(
    State(engine): State<Engine>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
) -> Result<Response, Problem> {
    let (question, _unread) = request.into_parts();
    let proxies = engine.gate().identify().proxies();
    require_trusted(proxies, peer.ip())?;
    let deny_status = deny_status(question.uri.query().unwrap_or_default())?;
    let original = OriginalRequest::read(question, proxies.trusted_header())?;
    let path = admit::path(original.target.path(), engine.slashes())?;
    // The fields contain the client's host; the authority of the subrequest is this server's.
    let request =
        Head { method: original.method.as_str(), path: &path, authority: None, headers: &original.headers };
    engine
        .admit(&request, peer.ip())
        .await
        .map(|admission| allowed(&engine, admission.as_ref()))
        .map_err(|problem| denied_as(deny_status, problem))
}

/// Other peers could describe any client.
fn require_trusted(proxies: &TrustedProxies, peer: IpAddr) -> Result<(), Problem> {
    if proxies.contains(peer) {
        return Ok(());
    }
    let peer = normalised(peer);
    let detail =
        format!("{peer} is not a trusted proxy: if it is yours, add {peer} or its network to `trusted_proxies`");
    Err(Problem::new(StatusCode::FORBIDDEN, detail))
}

/// The status for denials, if the query sets one.
fn deny_status(query: &str) -> Result<Option<StatusCode>, Problem> {
    let mut values = query.split('&').filter_map(|pair| match pair.split_once('=') {
        Some((DENY_STATUS, value)) => Some(value),
        None if pair == DENY_STATUS => Some(""),
        _ => None,
    });
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some("401"), None) => Ok(Some(StatusCode::UNAUTHORIZED)),
        (Some("403"), None) => Ok(Some(StatusCode::FORBIDDEN)),
        _ => {
            let detail = "`deny_status` is neither 401 nor 403: write one of them once, or leave it out for 429";
            Err(Problem::new(StatusCode::BAD_REQUEST, detail).field(DENY_STATUS))
        }
    }
}

/// Only a denial changes its status; bad credentials and a failed store keep theirs.
fn denied_as(status: Option<StatusCode>, problem: Problem) -> Problem {
    match status {
        Some(status) if problem.status() == StatusCode::TOO_MANY_REQUESTS => {
            let own = problem.status().as_u16().into();
            problem.with_status(status).header(STATUS, own)
        }
        _ => problem,
    }
}

/// An exempt request has no decision, and its client is not identified.
fn allowed(engine: &Engine, admission: Option<&Admission>) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response.headers_mut().extend(admit::identity_headers(admission.map(|admission| &admission.client)));
    match admission {
        Some(admission) => api_response::allowed(response, &admission.decision, engine.headers()),
        None => response,
    }
}

#[cfg(test)]
mod tests;
