//! The body of an upstream's response on its way to the client.
//!
//! Nothing is buffered: the gateway requests a piece when the client can take one. If an upstream pauses too long or
//! ends its response early, the client's response ends in an error, which breaks its connection or stream, so it
//! never looks complete. A connection whose response was read to the end returns to its pool.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::BoxError;
use axum::body::{Body, HttpBody};
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep, sleep_until};

use super::upstream::{DriverTask, Http1, Permit, Upstream};

/// The driver that moves the bytes of a response.
#[derive(Debug)]
pub(super) enum Mover {
    /// The body itself drives its connection.
    Own(Box<Http1>),
    /// A task for this connection.
    Task(#[expect(dead_code, reason = "it ends the task when it is dropped")] DriverTask),
    /// A task for all requests of the connection.
    Shared,
}

/// Resources that a response holds while it is in flight.
#[derive(Debug)]
pub(super) struct Hold {
    pub(super) upstream: Arc<Upstream>,
    pub(super) mover: Mover,
    pub(super) _permit: Permit,
}

/// The upstream paused for too long.
#[derive(Debug, thiserror::Error)]
#[error("the upstream paused for too long in the middle of its answer")]
struct IdleTimeout;

pin_project_lite::pin_project! {
    /// A body in flight.
    struct Download {
        incoming: Incoming,
        hold: Option<Hold>,
        is_over: bool,
        idle: Duration,
        is_waiting: bool,
        #[pin]
        timer: Option<Sleep>,
    }

    impl PinnedDrop for Download {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            let is_whole = *this.is_over || this.incoming.is_end_stream();
            if let Some(hold) = this.hold.take().filter(|_| is_whole) {
                hold.release();
            }
        }
    }
}

impl Hold {
    /// The response was read to its end.
    fn release(self) {
        if let Mover::Own(http1) = self.mover {
            self.upstream.put(http1);
        }
    }
}

/// The rest of a response that may pause for `idle`.
pub(super) fn body(incoming: Incoming, hold: Hold, idle: Duration) -> Body {
    if incoming.is_end_stream() {
        hold.release();
        return Body::empty();
    }
    let (is_over, is_waiting, timer) = (false, false, None);
    Body::new(Download { incoming, hold: Some(hold), is_over, idle, is_waiting, timer })
}

impl HttpBody for Download {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut this = self.project();
        match poll_chunk(this.incoming, this.hold.as_mut(), cx) {
            Poll::Ready(piece) => {
                *this.is_waiting = false;
                *this.is_over = piece.is_none();
                Poll::Ready(piece.map(|piece| piece.map_err(BoxError::from)))
            }
            Poll::Pending => {
                if !*this.is_waiting {
                    *this.is_waiting = true;
                    // `None` only for a bound beyond the clock's range, which means no bound.
                    match (Instant::now().checked_add(*this.idle), this.timer.as_mut().as_pin_mut()) {
                        (Some(deadline), Some(timer)) => timer.reset(deadline),
                        (deadline, _) => this.timer.set(deadline.map(sleep_until)),
                    }
                }
                match this.timer.as_pin_mut().map(|timer| timer.poll(cx)) {
                    Some(Poll::Ready(())) => Poll::Ready(Some(Err(IdleTimeout.into()))),
                    _ => Poll::Pending,
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.is_over || self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

type ResponseChunk = Option<Result<Frame<Bytes>, hyper::Error>>;

/// The next piece. If the body drives the connection, it does so until a piece is there or it has to wait.
fn poll_chunk(incoming: &mut Incoming, hold: Option<&mut Hold>, cx: &mut Context<'_>) -> Poll<ResponseChunk> {
    let mut incoming = Pin::new(incoming);
    let Some(Hold { mover: Mover::Own(http1), .. }) = hold else { return incoming.poll_frame(cx) };
    // The connection is driven here, so no task needs to be woken for its pieces.
    let mut quiet = Context::from_waker(Waker::noop());
    if let Poll::Ready(piece) = incoming.as_mut().poll_frame(&mut quiet) {
        return Poll::Ready(piece);
    }
    let _is_over = http1.poll(cx);
    incoming.poll_frame(&mut quiet)
}
