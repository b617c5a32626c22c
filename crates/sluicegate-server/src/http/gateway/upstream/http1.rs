//! One HTTP/1.1 connection to an upstream, moved by whoever waits for its answer.
//!
//! hyper would have every connection live in a task of its own, and a request would go from one task to the other and
//! its answer back, with a wake-up each time and perhaps another processor. Here the task that serves the client moves
//! the connection too: [`Http1::exchange`] until the head of the answer is there, and then the answer's body
//! ([`super::super::download`]). Nothing else can happen on such a connection meanwhile, and between two requests nobody
//! needs to look at it: what happened to it shows when it is used again ([`Http1::is_usable`]).

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use axum::body::Body;
use axum::http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::task::AbortHandle;

use super::stream::Stream;

/// The most header fields of an answer.
const HEADERS_MAX: usize = 128;

/// Bytes of read buffer, which bounds an answer's head.
const BUFFER_BYTES_MAX: usize = 64 * 1_024;

/// A connection.
pub(crate) struct Http1 {
    sender: SendRequest<Body>,
    connection: Connection<TokioIo<Stream>, Body>,
    /// Whether it has carried a request.
    is_reused: bool,
}

impl std::fmt::Debug for Http1 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http1").field("is_reused", &self.is_reused).finish_non_exhaustive()
    }
}

impl Http1 {
    /// A connection on which nothing has been said yet.
    pub(super) async fn new(stream: Stream) -> hyper::Result<Box<Self>> {
        let mut builder = Builder::new();
        builder.max_headers(HEADERS_MAX).max_buf_size(BUFFER_BYTES_MAX);
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
        Ok(Box::new(Self { sender, connection, is_reused: false }))
    }

    /// Whether it has carried a request before, so that the upstream may be about to close it.
    pub(crate) fn is_reused(&self) -> bool {
        self.is_reused
    }

    /// Looks at what happened while nobody did, and says whether a request can be sent.
    pub(super) fn is_usable(&mut self) -> bool {
        // Nobody waits for this connection yet: the first who does moves it again.
        let is_open = self.poll(&mut Context::from_waker(Waker::noop())).is_pending();
        is_open && self.sender.is_ready()
    }

    /// Sends a request, and waits for the head of its answer.
    pub(crate) fn exchange(
        &mut self,
        request: Request<Body>,
    ) -> impl Future<Output = hyper::Result<Response<Incoming>>> {
        self.is_reused = true;
        let answer = self.sender.send_request(request);
        let connection = &mut self.connection;
        async move {
            let (mut answer, mut is_over) = (pin!(answer), false);
            poll_fn(|cx| {
                if !is_over {
                    // What ended the connection is what the answer is, if it is none yet.
                    is_over = Pin::new(&mut *connection).poll(cx).is_ready();
                }
                // The answer comes from the connection, which has just been moved: nobody needs to be woken for it.
                answer.as_mut().poll(&mut Context::from_waker(Waker::noop()))
            })
            .await
        }
    }

    /// Moves the connection. Ready when it is over.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.connection).poll(cx).map(drop)
    }

    /// Lets the connection move by itself until it is over or `OnTask` is dropped: its request is still being sent
    /// while the answer comes, and neither must wait for the other.
    pub(crate) fn onto_task(self: Box<Self>) -> OnTask {
        OnTask(tokio::spawn(async move { drop(self.connection.await) }).abort_handle())
    }
}

/// A connection that moves by itself.
#[derive(Debug)]
pub(crate) struct OnTask(pub(super) AbortHandle);

impl Drop for OnTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Opens a connection that may become a tunnel, which needs a task of its own from the start.
pub(super) async fn with_upgrades(stream: Stream) -> hyper::Result<(SendRequest<Body>, OnTask)> {
    let mut builder = Builder::new();
    builder.max_headers(HEADERS_MAX).max_buf_size(BUFFER_BYTES_MAX);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
    let task = tokio::spawn(async move { drop(connection.with_upgrades().await) });
    Ok((sender, OnTask(task.abort_handle())))
}
