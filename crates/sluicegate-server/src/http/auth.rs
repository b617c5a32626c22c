//! `/v1/auth`: the decision about a request that stands at another proxy's door.
//!
//! nginx, Traefik, Caddy and HAProxy ask here before they pass a request on, and tell of it in header fields
//! ([`original`]). Only trusted proxies may ask: from anybody else these fields are worth nothing, and the answer would
//! let strangers use up other people's quotas. The decision is the gateway's own.
//!
//! | outcome | answer |
//! |---|---|
//! | allowed | 204, the rate-limit headers, and who asks |
//! | denied | 429, a problem; with `?deny_status` that status, and `X-Sluicegate-Status: 429` |
//! | bad credentials, undecided | what the gateway answers |
//! | the peer is no trusted proxy | 403, a problem with the remedy |
//! | the question does not tell of one request | 400, a problem that names the field |
//!
//! Parameters of the query that are not known are passed over: some proxies send the client's query along.

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

use self::original::Original;
use crate::app::App;
use crate::problem::Problem;
use crate::{admit, respond};

/// The status that `deny_status` took the place of.
const STATUS: HeaderName = HeaderName::from_static("x-sluicegate-status");

/// The only parameter of the query.
const DENY_STATUS: &str = "deny_status";

/// The route of forward-auth.
pub(super) fn routes() -> [(&'static str, MethodRouter<App>); 1] {
    [("/v1/auth", get(auth).post(auth))]
}

async fn auth(
    State(app): State<App>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
) -> Result<Response, Problem> {
    let (question, _unread) = request.into_parts();
    let proxies = app.gate().identify().proxies();
    require_trusted(proxies, peer.ip())?;
    let deny_status = deny_status(question.uri.query().unwrap_or_default())?;
    let original = Original::read(question, proxies.trusted_header())?;
    let path = admit::path(original.target.path())?;
    // The proxy has said the host in the fields, and the authority of the question is our own.
    let asked =
        Head { method: original.method.as_str(), path: &path, authority: None, headers: &original.headers };
    admit::admit(&app, &asked, peer.ip())
        .await
        .map(|admission| allowed(&app, admission.as_ref()))
        .map_err(|problem| denied_as(deny_status, problem))
}

/// Nobody else's word about a client is worth anything.
fn require_trusted(proxies: &TrustedProxies, peer: IpAddr) -> Result<(), Problem> {
    if proxies.contains(peer) {
        return Ok(());
    }
    let peer = normalised(peer);
    let detail =
        format!("{peer} is no trusted proxy: if it is yours, add {peer} or its network to `trusted_proxies`");
    Err(Problem::new(StatusCode::FORBIDDEN, detail))
}

/// The status that a denial shall have instead of its own.
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

/// Only a denial changes its status: bad credentials and a failed store are told as they are.
fn denied_as(status: Option<StatusCode>, problem: Problem) -> Problem {
    match status {
        Some(status) if problem.status() == StatusCode::TOO_MANY_REQUESTS => {
            let own = problem.status().as_u16().into();
            problem.with_status(status).header(STATUS, own)
        }
        _ => problem,
    }
}

/// What is exempt has no decision, and nobody was asked who it is.
fn allowed(app: &App, admission: Option<&Admission>) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response.headers_mut().extend(admit::told(admission.map(|admission| &admission.caller)));
    match admission {
        Some(admission) => respond::allowed(response, &admission.decision, app.headers()),
        None => response,
    }
}

#[cfg(test)]
mod tests;
