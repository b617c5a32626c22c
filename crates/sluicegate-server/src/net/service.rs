//! The hyper service of one connection: from hyper's request to the handler's response.
//!
//! It passes on the peer's address, counts the request as in flight until the response has been handed over completely,
//! and sends `Connection: close` once the listener drains or if the response precedes the end of the request's body.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::BoxError;
use axum::body::{Body, HttpBody};
use axum::http::header::{self, HeaderValue};
use axum::http::{Request, Response, StatusCode, Version};
use axum::response::IntoResponse as _;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;

use super::bodies::{BodyBudgets, HeldBytes};
use super::deadlines::{Activity, InFlight};
use super::{HttpHandler, head};

/// An extension of requests that arrived over TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IsTls;

/// An extension of requests for a protocol upgrade: the permission to take over their connection.
#[derive(Clone)]
pub(crate) struct UpgradePermission(Arc<dyn Fn() -> bool + Send + Sync>);

impl UpgradePermission {
    fn new(grant: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(grant))
    }

    /// Grants the takeover. Call this before taking the connection: hyper hands it over even if the response is not 101.
    /// Returns false if the client sent bytes of the new protocol before the response; those bytes must be discarded.
    pub(crate) fn grant(&self) -> bool {
        (self.0)()
    }
}

/// The state that all requests of one connection share.
pub(super) struct ConnectionService<H> {
    pub(super) handler: Arc<H>,
    pub(super) peer: SocketAddr,
    pub(super) activity: Arc<Activity>,
    pub(super) bodies: BodyBudgets,
    pub(super) is_tls: bool,
}

impl<H: HttpHandler> ConnectionService<H> {
    /// Responds to one request.
    pub(super) async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<ResponseBody>, Infallible> {
        let mut in_flight = self.activity.request_began();
        let is_http1 = request.version() < Version::HTTP_2;
        let mut request = request.map(|incoming| {
            // On HTTP/2 an unread body is reset with its stream and blocks no other request.
            let has_body = !incoming.is_end_stream();
            let activity = (has_body && is_http1).then(|| Arc::clone(&self.activity));
            let holder = (has_body && self.handler.buffers_bodies()).then(|| Arc::clone(&self));
            TrackedBody { incoming, activity, holder, held: HeldBytes::default() }
        });

        if self.is_tls {
            request.extensions_mut().insert(IsTls);
        }
        if is_http1 && request.headers().contains_key(header::UPGRADE) {
            let activity = Arc::clone(&self.activity);
            request.extensions_mut().insert(UpgradePermission::new(move || activity.upgrade()));
        }
        let (mut response, is_refused) = match head::check(&request) {
            Ok(()) => (self.handler.respond(request, self.peer).await, false),
            Err(problem) => (problem.into_response(), true),
        };

        // Without this header hyper would close after some of these responses and not after others, depending on how much
        // of the body has arrived. A client that sends its next request meanwhile would lose it. After 101 there is no
        // next request, and `Connection` announces the new protocol.
        let is_upgrade = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        if is_http1 && !is_upgrade && (is_refused || self.activity.is_last_answer()) {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        in_flight.answered(!response.body().is_end_stream());
        Ok(response.map(|inner| ResponseBody { inner, in_flight }))
    }
}

/// The body of a request.
///
/// It reports to the connection if it is dropped before its end. If the handler buffers bodies, it also counts its bytes
/// against the [budgets](super::bodies) of its connection and its listener until it is dropped. Trailers are dropped: the
/// server does not read them, and an upstream that took them for headers would accept headers that nothing has checked.
struct TrackedBody<H> {
    incoming: Incoming,
    /// The connection to report to; `None` once the body has ended.
    activity: Option<Arc<Activity>>,
    /// The connection whose budgets count the bytes, if any.
    holder: Option<Arc<ConnectionService<H>>>,
    /// Bytes counted against the budgets.
    held: HeldBytes,
}

impl<H> TrackedBody<H> {
    /// Counts an arrived chunk against the budgets. The chunk that completes the body does not count: the server no longer
    /// waits for the client, and the size of a read is bounded.
    fn hold(&mut self, chunk: &Bytes) -> Result<(), BoxError> {
        if let Some(service) = &self.holder
            && !self.incoming.is_end_stream()
        {
            service.bodies.take(&mut self.held, chunk.len())?;
        }
        Ok(())
    }
}

impl<H> HttpBody for TrackedBody<H> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = ready!(Pin::new(&mut self.incoming).poll_frame(cx));
        let frame = frame.filter(|frame| !frame.as_ref().is_ok_and(Frame::is_trailers));
        if frame.is_none() {
            self.activity = None;
        }
        if let Some(Ok(frame)) = &frame
            && let Some(chunk) = frame.data_ref()
        {
            self.hold(chunk)?;
        }
        Poll::Ready(frame.map(|frame| frame.map_err(BoxError::from)))
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl<H> Drop for TrackedBody<H> {
    fn drop(&mut self) {
        if let Some(service) = &self.holder {
            service.bodies.give_back(&self.held);
        }
        if let Some(activity) = &self.activity
            && !self.incoming.is_end_stream()
        {
            activity.body_left_unread();
        }
    }
}

/// The body of a response. It keeps its request in flight, and reports whether it waits for the peer.
pub(super) struct ResponseBody {
    inner: Body,
    in_flight: InFlight,
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let chunk = Pin::new(&mut self.inner).poll_frame(cx);
        self.in_flight.chunk_requested(matches!(chunk, Poll::Ready(Some(_))));
        chunk
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
