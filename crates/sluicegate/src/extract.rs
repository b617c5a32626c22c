//! What axum's handlers take and give: the [`Caller`] of a request as an argument, a [`Problem`] as an answer.

use axum_core::body::Body;
use axum_core::extract::FromRequestParts;
use axum_core::response::{IntoResponse, Response};
use http::StatusCode;
use http::request::Parts;

use crate::identify::Caller;
use crate::problem::Problem;

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(head: &mut Parts, _state: &S) -> Result<Self, Problem> {
        let detail = "who asks is not known: put the rate limit layer in front of this handler";
        let unknown = || Problem::new(StatusCode::INTERNAL_SERVER_ERROR, detail);
        head.extensions.get::<Self>().cloned().ok_or_else(unknown)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        self.answer::<Body>(false)
    }
}
