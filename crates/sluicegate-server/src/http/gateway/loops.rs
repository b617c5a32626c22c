//! Requests that come back: an upstream of a route may lead to this gateway again, by a slip in a configuration or in DNS.
//!
//! Without this, one request of anybody would go round until all connections are used up. So each request that goes on
//! carries the name of this gateway in `CDN-Loop` (RFC 8586), which those in between leave as it is, and what carries it
//! already is refused. The name is made anew at every start: gateways in a row are no loop.

use axum::http::StatusCode;
use axum::http::header::{HeaderMap, HeaderName, HeaderValue};

use crate::problem::Problem;

const CDN_LOOP: HeaderName = HeaderName::from_static("cdn-loop");

/// The name of this gateway.
#[derive(Debug)]
pub(super) struct Mark(HeaderValue);

impl Mark {
    /// A name that nobody else has.
    pub(super) fn new() -> Self {
        let name = format!("sluicegate-{:016x}", fastrand::u64(..));
        // Letters, digits and a hyphen make a value; the default only keeps this total.
        Self(HeaderValue::from_str(&name).unwrap_or(HeaderValue::from_static("sluicegate")))
    }

    /// Refuses a request that has been here before.
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

    /// Marks a request that goes on.
    pub(super) fn put(&self, headers: &mut HeaderMap) {
        headers.append(CDN_LOOP, self.0.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_carries_this_name_has_been_here() {
        let (here, there) = (Mark::new(), Mark::new());
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
