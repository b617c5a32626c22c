//! The fast path for plain checks over HTTP/1.1: from bytes to bytes, without hyper.
//!
//! Nearly all requests of the api listener are checks. For each request hyper builds a map of the request's headers and of
//! the response's, a channel for the body, and a future for the handler; a [`PlainCheck`] needs none of these. The fast
//! path does not replace hyper. It returns the bytes of any other or incomplete request, and from then on hyper serves the
//! connection. So every rejection comes from hyper and the slow path. A test sends the same bytes to both paths.
//!
//! The bytes come out of the connection's watched stream, so the framing guard sees them and the deadlines of [`Activity`]
//! apply.

mod request;
mod response;

use std::io;
use std::pin::pin;
use std::sync::Arc;

use bytes::BytesMut;
use futures_util::future::poll_immediate;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::engine::Engine;
use crate::net::{Activity, FastPathEnd};
use request::PlainCheck;
use response::ResponseBuffer;

/// Bytes of one read: a check with long names and a few dozen headers, or several short checks. hyper serves a request that
/// does not fit.
const READ_BYTES: usize = 4_096;

/// The fast path of one connection.
pub(super) struct FastCheck<'c> {
    engine: &'c Engine,
    activity: &'c Arc<Activity>,
    responses: ResponseBuffer,
}

impl<'c> FastCheck<'c> {
    /// A fast path to this engine.
    pub(super) fn new(engine: &'c Engine, activity: &'c Arc<Activity>) -> Self {
        Self { engine, activity, responses: ResponseBuffer::default() }
    }

    /// Serves plain checks until another request arrives or the connection ends.
    pub(super) async fn serve<I: AsyncRead + AsyncWrite + Unpin>(mut self, io: &mut I) -> io::Result<FastPathEnd> {
        let mut input = BytesMut::with_capacity(READ_BYTES);
        loop {
            input.clear();
            if io.read_buf(&mut input).await? == 0 {
                return Ok(FastPathEnd::Closed);
            }
            let (mut taken, mut is_last, mut in_flight) = (0, false, None);
            while !is_last && let Some(plain) = PlainCheck::parse(&input[taken..]) {
                let in_flight = in_flight.insert(self.activity.request_began());
                let mut deciding = pin!(plain.decide(self.engine));
                let decided = match poll_immediate(deciding.as_mut()).await {
                    Some(decided) => decided,
                    None => {
                        // The earlier responses do not wait for this decision.
                        self.responses.flush(io).await?;
                        deciding.await
                    }
                };
                decided.write(self.engine, &mut self.responses).await;
                is_last = self.activity.is_last_answer();
                self.responses.end(is_last);
                in_flight.answered(false);
                taken += plain.bytes();
            }
            self.responses.flush(io).await?;
            // A request is in flight until its response is handed over.
            drop(in_flight);
            if is_last {
                io.shutdown().await?;
                return Ok(FastPathEnd::Closed);
            }
            if taken < input.len() {
                return Ok(FastPathEnd::Unread(input.split_off(taken)));
            }
        }
    }
}
