//! What keeps pages of other sites out, however they make a browser on this machine ask.
//!
//! A page whose name leads to this machine (DNS rebinding) still sends its own name as `Host`, so whoever is let in for
//! being here must call the server by an address, or by a name without a dot, such as `localhost`, which nobody else can
//! have. A page elsewhere that sends a request here (CSRF) says
//! so in `Origin` or `Sec-Fetch-Site`, and may change nothing. There is no cookie and no CORS: nothing is sent along or
//! readable by itself.

use std::net::{IpAddr, SocketAddr};

use axum::extract::ConnectInfo;
use axum::http::StatusCode;
use axum::http::header::{self, HeaderName};
use axum::http::request::Parts;
use axum::http::uri::Authority;

use crate::problem::Problem;

/// What browsers tell about where a request comes from.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Whether the request comes from this machine, and calls it by a name that no other site can have.
pub(crate) fn is_local(head: &Parts) -> bool {
    let peer = head.extensions.get::<ConnectInfo<SocketAddr>>();
    peer.is_some_and(|ConnectInfo(peer)| peer.ip().to_canonical().is_loopback()) && is_called_locally(head)
}

fn is_called_locally(head: &Parts) -> bool {
    // Whoever sends none is no browser.
    let Some(host) = host(head) else { return !head.headers.contains_key(header::HOST) };
    let name = host.host().trim_start_matches('[').trim_end_matches(']');
    name.parse::<IpAddr>().is_ok() || !name.contains('.')
}

/// As which server the client asks.
fn host(head: &Parts) -> Option<Authority> {
    head.uri.authority().cloned().or_else(|| head.headers.get(header::HOST)?.to_str().ok()?.parse().ok())
}

/// Refuses requests that a page of another site makes.
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
    let Some(host) = host(head) else { return false };
    let origin = origin.strip_prefix(b"http://").or_else(|| origin.strip_prefix(b"https://"));
    origin.is_some_and(|origin| origin.eq_ignore_ascii_case(host.as_str().as_bytes()))
}
