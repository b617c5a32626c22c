//! The rate limit service over gRPC.
//!
//! Envoy knows two outcomes: an answer with a code, or an error, to which it does what it is configured to do. So what
//! was not decided is always an error, and never an answer without a code.

use axum::Router;
use axum::body::HttpBody;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::post;
use bytes::Bytes;
use tonic::Status;

use super::decide::{self, Refused};
use super::messages::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use super::unary;
use crate::app::App;
use crate::http::admin_token;

/// Where the service is asked.
pub(crate) const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// Bytes of one message: sixty-four descriptors of ordinary size are a tenth of it.
const MESSAGE_BYTES_MAX: usize = 65_536;

/// The router of the service.
pub(super) fn router(app: App) -> Router {
    Router::new().route(PATH, post(serve)).with_state(app)
}

async fn serve(State(app): State<App>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    should_rate_limit(&app, &head.headers, body).await
}

/// Answers Envoy's question.
pub(crate) async fn should_rate_limit<B>(app: &App, headers: &HeaderMap, body: B) -> Response
where
    B: HttpBody<Data = Bytes, Error = axum::Error>,
{
    match answer(app, headers, body).await {
        Ok(message) => unary::answered(&message),
        Err(status) => status.into_http(),
    }
}

async fn answer<B>(app: &App, headers: &HeaderMap, body: B) -> Result<RateLimitResponse, Status>
where
    B: HttpBody<Data = Bytes, Error = axum::Error>,
{
    let message: RateLimitRequest = unary::read(headers, body, MESSAGE_BYTES_MAX).await?;
    let may_change = || admin_token::require(app.admin_token(), headers).is_ok();
    Ok(decide::answer(app, &message, may_change).await?)
}

impl From<Refused> for Status {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Malformed(malformed) => Self::invalid_argument(malformed.to_string()),
            Refused::Forbidden => Self::permission_denied(super::REFUND_REMEDY),
            // Nothing of the reason is told: it may name hosts.
            Refused::Undecided => Self::unavailable("the store could not decide; try again"),
        }
    }
}
