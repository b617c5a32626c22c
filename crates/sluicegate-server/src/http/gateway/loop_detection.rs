//! Loop detection: an upstream may lead back to this gateway, because of an error in the configuration or in DNS.
//!
//! Without it, one request would circulate until all connections are in use. Every forwarded request carries the
//! gateway's identifier in `CDN-Loop` (RFC 8586), which intermediaries keep. A request that already carries it is
//! rejected. The identifier is new at every start, so several gateways in a row are not a loop.

use axum::http::StatusCode;
use axum::http::header::{HeaderMap, HeaderName, HeaderValue};

use crate::problem::Problem;

const CDN_LOOP: HeaderName = HeaderName::from_static("cdn-loop");

/// The identifier of this gateway.
#[derive(Debug)]
pub(super) struct LoopMarker(HeaderValue);

impl LoopMarker {
    /// A random identifier.
    pub(super) fn new() -> Self {
        let name = format!("sluicegate-{:016x}", fastrand::u64(..));
        // Letters, digits and a hyphen are a valid value; the default only keeps this function total.
        Self(HeaderValue::from_str(&name).unwrap_or(HeaderValue::from_static("sluicegate")))
    }

    /// Rejects a request that has passed this gateway before.
    pub(super) fn check(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let lines = headers.get_all(CDN_LOOP).into_iter().map(HeaderValue::as_bytes);
        let mut names = lines.flat_map(|line| line.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
        if names.any(|name| name == self.0.as_bytes()) {
            let detail = "the request has come back to where it was sent on; the upstream of its route leads to this \
                          gateway again, and has to be corrected";
            return Err(Problem::new(StatusCode::LOOP_DETECTED, detail));
        }
        Ok(())
    }

    /// Adds the identifier to a request that is forwarded.
    pub(super) fn put(&self, headers: &mut HeaderMap) {
        headers.append(CDN_LOOP, self.0.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requests_with_this_identifier_are_loops() {
        let (here, there) = (LoopMarker::new(), LoopMarker::new());
        let mut headers = HeaderMap::new();
        headers.insert(CDN_LOOP, HeaderValue::from_static("sluicegate, other.example; x=1"));
        there.put(&mut headers);
        assert!(here.check(&headers).is_ok());
        assert!(there.check(&headers).is_err());
        let joined = format!("other, {}", here.0.to_str().expect("ASCII"));
        headers.insert(CDN_LOOP, joined.parse().expect("a value"));
        assert!(here.check(&headers).is_err() && there.check(&headers).is_ok());
    }
}
