//! From hyper's request to our answer, on one connection.
//!
//! Adds the peer's address, keeps the request counted as in flight until its answer is completely
//! handed over, and says `Connection: close` once the listener drains or when the answer came
//! before the request's body was read.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::{Body, HttpBody};
use axum::http::header::{self, HeaderValue};
use axum::http::{Request, Response, StatusCode, Version};
use axum::response::IntoResponse as _;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;

use super::activity::{Activity, InFlight};
use super::head;

use crate::http::{self, Handover, OverTls, Site};

/// What all requests of one connection share.
pub(super) struct Served {
    pub(super) site: Arc<Site>,
    pub(super) peer: SocketAddr,
    pub(super) activity: Arc<Activity>,
    pub(super) is_over_tls: bool,
}

impl Served {
    /// Answers one request.
    pub(super) async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<AnswerBody>, Infallible> {
        let mut in_flight = self.activity.request_began();
        let is_http1 = request.version() < Version::HTTP_2;
        let mut request = request.map(|incoming| {
            // On HTTP/2 an unread body is reset with its stream and stands in nobody's way.
            let is_tracked = is_http1 && !incoming.is_end_stream();
            TrackedBody { incoming, activity: is_tracked.then(|| Arc::clone(&self.activity)) }
        });

        if self.is_over_tls {
            request.extensions_mut().insert(OverTls);
        }
        if is_http1 && request.headers().contains_key(header::UPGRADE) {
            let activity = Arc::clone(&self.activity);
            request.extensions_mut().insert(Handover::new(move || activity.upgrade()));
        }
        let (mut response, is_refused) = match head::check(&request) {
            Ok(()) => (http::answer(&self.site, request, self.peer).await, false),
            Err(problem) => (problem.into_response(), true),
        };

        // Without the word hyper would close after some of these answers and not after others, depending on how much
        // of the body happens to have arrived; a client that sends its next request meanwhile would lose it.
        // After 101 there is no next request, and `Connection` says that the protocol changes.
        let is_upgrade = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        if is_http1 && !is_upgrade && (is_refused || self.activity.is_last_answer()) {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        in_flight.answered();
        Ok(response.map(|inner| AnswerBody { inner, _in_flight: in_flight }))
    }
}

/// A request's body that reports when it is dropped before its end. Trailers are dropped: nothing here reads them, and
/// whoever took them for headers, as upstreams have done, would take them from a client that nobody has checked.
struct TrackedBody {
    incoming: Incoming,
    /// Whom to tell; nobody once the body has ended.
    activity: Option<Arc<Activity>>,
}

impl HttpBody for TrackedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.incoming).poll_frame(cx));
        let frame = frame.filter(|frame| !frame.as_ref().is_ok_and(Frame::is_trailers));
        if frame.is_none() {
            self.activity = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl Drop for TrackedBody {
    fn drop(&mut self) {
        if let Some(activity) = &self.activity
            && !self.incoming.is_end_stream()
        {
            activity.body_left_unread();
        }
    }
}

/// An answer's body that keeps its request in flight.
pub(super) struct AnswerBody {
    inner: Body,
    _in_flight: InFlight,
}

impl HttpBody for AnswerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
