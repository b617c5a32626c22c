//! The rate limit service over gRPC.
//!
//! Envoy distinguishes two outcomes: a response with a code, or an error, for which it has its own policy. A request without a
//! decision is therefore always an error, and never a response without a code.

use std::net::IpAddr;

use axum::body::HttpBody;
use axum::http::HeaderMap;
use axum::response::Response;
use bytes::Bytes;
use futures_util::FutureExt as _;
use sluicegate::response::ResponseClass;
use tonic::{Code, Status};

use super::call_options::CallOptions;
use super::decide::{self, RateLimitError};
use super::messages::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use super::unary;
use crate::admin_tokens;
use crate::engine::Engine;

/// The path of the service.
pub(crate) const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// The bound of a message: room for the most descriptors, each with entries of 4 kB in all.
pub(crate) const MESSAGE_BYTES_MAX: usize = 1_048_576;

/// The message over gRPC when the store cannot decide; the code is that of the response table.
const UNDECIDED: &str = "the store could not decide; try again";

/// Responds to `ShouldRateLimit`.
pub(crate) async fn should_rate_limit<B>(engine: &Engine, headers: &HeaderMap, body: B, peer: IpAddr) -> Response
where
    B: HttpBody<Data = Bytes, Error = axum::Error>,
{
    match answer(engine, headers, body, peer).await {
        Ok(message) => unary::answered(&message),
        Err(status) => status.into_http(),
    }
}

async fn answer<B>(
    engine: &Engine,
    headers: &HeaderMap,
    body: B,
    peer: IpAddr,
) -> Result<RateLimitResponse, Status>
where
    B: HttpBody<Data = Bytes, Error = axum::Error>,
{
    let message: RateLimitRequest = unary::read(headers, body, MESSAGE_BYTES_MAX).await?;
    let may_change =
        || admin_tokens::require(engine.admin_tokens(), headers, peer).map(|required| required.is_ok());
    let options = CallOptions::read(headers).map_err(RateLimitError::from)?;
    Ok(decide::respond(engine, &message, options, may_change).await?)
}

impl From<RateLimitError> for Status {
    fn from(error: RateLimitError) -> Self {
        let code = Code::from(i32::from(error.class.grpc_code()));
        match error.class {
            ResponseClass::Unavailable => Self::new(code, UNDECIDED),
            _ => Self::new(code, error.message),
        }
    }
}
