//! axum integration: [`Client`] as an extractor for handlers, and [`Problem`] as a response.

use axum_core::body::Body;
use axum_core::extract::FromRequestParts;
use axum_core::response::{IntoResponse, Response};
use http::StatusCode;
use http::request::Parts;

use crate::identify::Client;
use crate::problem::Problem;

impl<S: Sync> FromRequestParts<S> for Client {
    type Rejection = Problem;

    async fn from_request_parts(head: &mut Parts, _state: &S) -> Result<Self, Problem> {
        let detail = "the client is not identified: put the rate limit layer in front of this handler";
        let unknown = || Problem::new(StatusCode::INTERNAL_SERVER_ERROR, detail);
        head.extensions.get::<Self>().cloned().ok_or_else(unknown)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        self.answer::<Body>(false)
    }
}
