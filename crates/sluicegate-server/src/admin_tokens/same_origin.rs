//! Protection of the admin API against pages of other sites in a browser on this machine.
//!
//! A page whose domain name resolves to this machine (DNS rebinding) still sends that name as `Host`. So a client that is
//! trusted because it is local must address the server by an IP address, or by a name without a dot such as `localhost`,
//! which no other site can have. A page of another site that sends a request here (CSRF) carries `Origin` or
//! `Sec-Fetch-Site`, and may change nothing. There are no cookies and no CORS headers, so a browser adds no credentials and
//! lets no page read a response.

use std::net::{IpAddr, SocketAddr};

use axum::extract::ConnectInfo;
use axum::http::StatusCode;
use axum::http::header::{self, HeaderName};
use axum::http::request::Parts;
use sluicegate::authority::{bare_host, is_authority};

use crate::forwarding_headers::is_forwarding;
use crate::problem::Problem;

/// The header in which browsers state the origin of a request.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Whether the request comes from this machine, not through a proxy on it, and calls it by a name that no other site can
/// have.
pub(super) fn is_local(head: &Parts) -> bool {
    let peer = head.extensions.get::<ConnectInfo<SocketAddr>>();
    let is_here = peer.is_some_and(|ConnectInfo(peer)| peer.ip().to_canonical().is_loopback());
    is_here && is_called_locally(head) && !head.headers.keys().any(|name| is_forwarding(name.as_str()))
}

fn is_called_locally(head: &Parts) -> bool {
    // Browsers always send a host.
    let Some(host) = named_host(head) else { return !head.headers.contains_key(header::HOST) };
    bare_host(host).is_some_and(|name| name.parse::<IpAddr>().is_ok() || !name.contains('.'))
}

/// The authority that the client used for this server.
fn named_host(head: &Parts) -> Option<&str> {
    let field = || head.headers.get(header::HOST)?.to_str().ok();
    head.uri.authority().map(|authority| authority.as_str()).or_else(field)
}

/// Rejects requests of pages of other sites.
pub(super) fn own_page(head: &Parts) -> Result<(), Problem> {
    let site = head.headers.get(SEC_FETCH_SITE).map(|site| site.as_bytes());
    let is_elsewhere = site.is_some_and(|site| !matches!(site, b"same-origin" | b"none"));
    let mut origins = head.headers.get_all(header::ORIGIN).iter();
    if !is_elsewhere && origins.all(|origin| is_own(origin.as_bytes(), head)) {
        return Ok(());
    }
    let detail = "the request comes from a page of another site; such pages may change nothing here";
    Err(Problem::new(StatusCode::FORBIDDEN, detail).field("origin"))
}

/// Whether an origin is that of this server, as the client calls it.
fn is_own(origin: &[u8], head: &Parts) -> bool {
    let Some(host) = named_host(head).filter(|host| is_authority(host.as_bytes())) else { return false };
    let origin = origin.strip_prefix(b"http://").or_else(|| origin.strip_prefix(b"https://"));
    origin.is_some_and(|origin| origin.eq_ignore_ascii_case(host.as_bytes()))
}
