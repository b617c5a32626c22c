//! Whether an HTTP request may pass: what the gateway and forward-auth ask before anything else.
//!
//! It is the library's [`Gate`](sluicegate::gate::Gate) and the one table of answers ([`crate::respond`]), so both
//! answer alike. A request that is not let through comes back as the problem that its sender is told.

use std::net::IpAddr;

use axum::http::{HeaderMap, StatusCode};
use sluicegate::gate::{Admission, Head, Refusal};
use sluicegate::path::{EncodedSlashes, Path};

use crate::app::App;
use crate::problem::Problem;
use crate::respond;

/// Reads the path of a request.
pub(crate) fn path(path: &str, slashes: EncodedSlashes) -> Result<Path<'_>, Problem> {
    Path::parse(path, slashes).map_err(|error| Problem::new(StatusCode::BAD_REQUEST, error.to_string()))
}

/// Decides about a request that came from `peer`; what may not pass is a problem.
pub(crate) async fn admit(
    app: &App,
    method: &str,
    path: &Path<'_>,
    headers: &HeaderMap,
    peer: IpAddr,
) -> Result<Admission, Problem> {
    match app.gate().decide(&Head { method, path, headers }, peer).await {
        Ok(admission) if admission.decision.is_allowed() => Ok(admission),
        Ok(admission) => Err(respond::denied(&admission.decision, app.headers())),
        Err(refusal) => {
            if let Refusal::Unauthorized(error) = &refusal {
                app.limiter().observer().unauthorized(error);
            }
            Err(respond::refused(refusal, app.headers()))
        }
    }
}
