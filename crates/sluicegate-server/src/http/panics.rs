//! Panics in handlers become 500 responses, so a panic costs only its own request.

use std::any::Any;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;

use axum::http::StatusCode;

use crate::problem::Problem;

/// A panic of a handler, without its payload, which may contain anything.
pub(super) struct HandlerPanic;

impl HandlerPanic {
    /// The problem to send. The panic hook has logged the location and the message; the client receives neither. The
    /// query may contain credentials, so only the path is logged.
    pub(super) fn problem(self, path: &str) -> Problem {
        tracing::error!(path, "a handler panicked; its request was answered 500");
        let detail = "the server had an internal error; its log has the location";
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, detail)
    }
}

impl From<Box<dyn Any + Send>> for HandlerPanic {
    fn from(_payload: Box<dyn Any + Send>) -> Self {
        Self
    }
}

/// Turns a panic while `future` runs into an error. It borrows the future, because owning it would store it twice.
pub(super) fn catch_panic<T, F>(mut future: Pin<&mut F>) -> impl Future<Output = Result<T, HandlerPanic>>
where
    F: Future<Output = Result<T, Infallible>>,
{
    poll_fn(move |cx| {
        // Unwind safety: after a panic the future is only dropped, never polled again.
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
            Ok(poll) => poll.map(|Ok(done)| Ok(done)),
            Err(payload) => std::task::Poll::Ready(Err(payload.into())),
        }
    })
}
