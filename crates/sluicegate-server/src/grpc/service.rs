//! The rate limit service over gRPC.
//!
//! Envoy knows two outcomes: an answer with a code, or an error, to which it does what it is configured to do. So what
//! was not decided is always an error, and never an answer without a code.

use axum::Router;
use axum::body::Body;
use axum::extract::{Request as HttpRequest, State};
use axum::response::Response as HttpResponse;
use axum::routing::post;
use tonic::{Code, Request, Response, Status};
use tower::Service as _;

use super::decide::{self, Refused};
use super::messages::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use super::server::envoy::service::ratelimit::v3::rate_limit_service_server::{
    RateLimitService, RateLimitServiceServer,
};
use crate::app::App;
use crate::http::admin_token;

/// Where the service's methods are.
const PATHS: &str = "/envoy.service.ratelimit.v3.RateLimitService/{*method}";

/// Bytes of one message: sixty-four descriptors of ordinary size are a tenth of it.
const MESSAGE_BYTES_MAX: usize = 65_536;

/// The service.
#[derive(Debug)]
struct RateLimits {
    app: App,
}

/// The router of the service.
pub(super) fn router(app: App) -> Router {
    let server = RateLimitServiceServer::new(RateLimits { app }).max_decoding_message_size(MESSAGE_BYTES_MAX);
    Router::new().route(PATHS, post(serve)).with_state(server)
}

async fn serve(
    State(mut server): State<RateLimitServiceServer<RateLimits>>,
    request: HttpRequest,
) -> HttpResponse {
    let Ok(answered) = server.call(request).await;
    with_usual_code(answered.map(Body::new))
}

/// tonic calls a message that is too long out of range, which means something else; nothing else here does.
fn with_usual_code(mut answered: HttpResponse) -> HttpResponse {
    let (from, to) = (Code::OutOfRange as i32, Code::ResourceExhausted as i32);
    let code = answered.headers_mut().get_mut(Status::GRPC_STATUS);
    if let Some(code) = code.filter(|code| code.as_bytes() == from.to_string().as_bytes()) {
        *code = to.into();
    }
    answered
}

#[tonic::async_trait]
impl RateLimitService for RateLimits {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let (metadata, _, message) = request.into_parts();
        let may_change = || admin_token::require(self.app.admin_token(), metadata.as_ref()).is_ok();
        Ok(Response::new(decide::answer(&self.app, &message, may_change).await?))
    }
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
