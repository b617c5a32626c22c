//! One HTTP/1.1 connection to an upstream, driven by the task that waits for its response.
//!
//! hyper would run every connection in a task of its own: a request would go from one task to the other and its
//! response back, with a wake-up each time and perhaps another processor. Here the task that serves the client drives
//! the connection too: [`Http1::exchange`] until the head of the response is complete, and then the response's body
//! ([`super::super::download`]). Nothing else can happen on such a connection meanwhile. Between two requests nothing
//! polls it: changes show when it is used again ([`Http1::is_usable`]).

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

/// The most header fields of a response.
const HEADERS_MAX: usize = 128;

/// The size of the read buffer in bytes, which bounds a response's head.
const BUFFER_BYTES_MAX: usize = 64 * 1_024;

/// A connection.
pub(crate) struct Http1 {
    sender: SendRequest<Body>,
    connection: Connection<TokioIo<Stream>, Body>,
    /// True if it has carried a request.
    is_reused: bool,
}

impl std::fmt::Debug for Http1 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http1").field("is_reused", &self.is_reused).finish_non_exhaustive()
    }
}

impl Http1 {
    /// A new connection.
    pub(super) async fn new(stream: Stream) -> hyper::Result<Box<Self>> {
        let mut builder = Builder::new();
        builder.max_headers(HEADERS_MAX).max_buf_size(BUFFER_BYTES_MAX);
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
        Ok(Box::new(Self { sender, connection, is_reused: false }))
    }

    /// True if it has carried a request before, so that the upstream may be about to close it.
    pub(crate) fn is_reused(&self) -> bool {
        self.is_reused
    }

    /// Polls the connection for changes while it was idle, and returns whether it can carry a request.
    pub(super) fn is_usable(&mut self) -> bool {
        // No task waits for this connection yet: the next one to use it polls it again.
        let is_open = self.poll(&mut Context::from_waker(Waker::noop())).is_pending();
        is_open && self.sender.is_ready()
    }

    /// Sends a request, and waits for the head of its response.
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
                    // If there is no response yet, the error of the connection is the result.
                    is_over = Pin::new(&mut *connection).poll(cx).is_ready();
                }
                // The connection has just been driven here, so no task needs to be woken for the response.
                answer.as_mut().poll(&mut Context::from_waker(Waker::noop()))
            })
            .await
        }
    }

    /// Drives the connection. Ready when it has ended.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.connection).poll(cx).map(drop)
    }

    /// Spawns a task that drives the connection until it ends or `DriverTask` is dropped: the request is still being sent
    /// while the response arrives, and neither must wait for the other.
    pub(crate) fn onto_task(self: Box<Self>) -> DriverTask {
        DriverTask(tokio::spawn(async move { drop(self.connection.await) }).abort_handle())
    }
}

/// A connection that a task of its own drives.
#[derive(Debug)]
pub(crate) struct DriverTask(pub(super) AbortHandle);

impl Drop for DriverTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Opens a connection that may become a tunnel, which needs a task of its own from the start.
pub(super) async fn with_upgrades(stream: Stream) -> hyper::Result<(SendRequest<Body>, DriverTask)> {
    let mut builder = Builder::new();
    builder.max_headers(HEADERS_MAX).max_buf_size(BUFFER_BYTES_MAX);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
    let task = tokio::spawn(async move { drop(connection.with_upgrades().await) });
    Ok((sender, DriverTask(task.abort_handle())))
}
