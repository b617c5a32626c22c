//! Bounds on one request: its size and the time the client takes to send it.
//!
//! [`limit`] looks at a request before it is routed. What already shows in the head (a URI, a
//! header count or a `Content-Length` over the bound) is refused at once, before a byte of the body
//! is read or a buffer sized by the client's claim. Otherwise the body is replaced by one that
//! counts and times itself while it is read, so that chunked and slow bodies meet the same bounds
//! whichever handler reads them.
//!
//! A handler that meets a broken bound sees only a failed body. What the client is told (413 or
//! 408) is decided by [`BodyWatch`], so the answer does not depend on how the handler reports the
//! failure.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::http::{StatusCode, header};
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::problem::Problem;

/// Bytes of a request body. A batch of 1,000 checks with identifiers of ordinary length is about
/// 200 kB; 1 MiB leaves room and bounds what one request can make us hold.
pub(crate) const MAX_BODY_BYTES: u64 = 1_048_576;

/// Bytes of a request's path and query. Longer ones are attacks or mistakes; proxies cut near here
/// too.
const MAX_URI_BYTES: usize = 8_192;

/// Headers of one request. HTTP/1 has its own parser bound; HTTP/2 knows only bytes, so it is
/// counted here.
pub(crate) const MAX_HEADERS: usize = 64;

/// How much one request may bring and how long it may take to bring it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestLimits {
    /// Bytes of body before 413.
    pub(crate) body_bytes_max: u64,
    /// Longest pause between two pieces of the body before 408.
    pub(crate) body_idle: Duration,
    /// Longest time from the end of the head to the end of the body before 408. It stops the client
    /// that sends one byte just often enough not to be idle.
    pub(crate) whole_request: Duration,
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self {
            body_bytes_max: MAX_BODY_BYTES,
            body_idle: Duration::from_secs(10),
            whole_request: Duration::from_secs(30),
        }
    }
}

/// Why a body stopped short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BodyFault {
    /// More bytes than `max`.
    #[error("the request body is longer than {max} bytes; send less, or several requests")]
    TooLarge {
        /// The bound that was passed.
        max: u64,
    },
    /// The client paused or trickled for too long.
    #[error("the request body did not arrive in time; send it without pauses")]
    TooSlow,
}

impl From<BodyFault> for Problem {
    fn from(fault: BodyFault) -> Self {
        let status = match fault {
            BodyFault::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            BodyFault::TooSlow => StatusCode::REQUEST_TIMEOUT,
        };
        Self::new(status, fault.to_string())
    }
}

/// Remembers the first bound that a request's body broke.
#[derive(Clone, Debug, Default)]
pub(crate) struct BodyWatch(Arc<OnceLock<BodyFault>>);

impl BodyWatch {
    /// The broken bound, if any so far.
    pub(crate) fn fault(&self) -> Option<BodyFault> {
        self.0.get().copied()
    }
}

/// Refuses a request whose head is over a bound, and puts its body under watch otherwise.
pub(crate) fn limit(request: Request, limits: &RequestLimits) -> Result<(Request, BodyWatch), Problem> {
    check_head(&request, limits)?;
    let watch = BodyWatch::default();
    if request.body().is_end_stream() {
        return Ok((request, watch));
    }
    let request = request.map(|inner| {
        Body::new(LimitedBody {
            inner,
            bytes_left: limits.body_bytes_max,
            limits: *limits,
            // `None` only for a bound beyond the clock's range, which means no bound.
            whole_deadline: Instant::now().checked_add(limits.whole_request),
            timer: None,
            is_waiting: false,
            watch: watch.clone(),
        })
    });
    Ok((request, watch))
}

/// The whole body of a request that went through [`limit`].
pub(crate) async fn read(body: Body) -> Result<Bytes, Problem> {
    match body.collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) => Err(fault_behind(&error).map_or_else(
            || {
                let detail = "the request body ended early or is malformed; send it completely";
                Problem::new(StatusCode::BAD_REQUEST, detail)
            },
            Problem::from,
        )),
    }
}

fn fault_behind(error: &(dyn std::error::Error + 'static)) -> Option<BodyFault> {
    std::iter::successors(Some(error), |error| error.source())
        .find_map(|error| error.downcast_ref::<BodyFault>().copied())
}

fn check_head(request: &Request, limits: &RequestLimits) -> Result<(), Problem> {
    let uri_bytes = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
    if uri_bytes > MAX_URI_BYTES {
        let detail = format!("the URI has {uri_bytes} bytes; at most {MAX_URI_BYTES} are taken");
        return Err(Problem::new(StatusCode::URI_TOO_LONG, detail));
    }
    let headers = request.headers().len();
    if headers > MAX_HEADERS {
        let detail = format!("the request has {headers} headers; at most {MAX_HEADERS} are taken");
        return Err(Problem::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, detail));
    }
    // hyper has already refused lengths that are not numbers or that contradict each other.
    let claimed = request.headers().get(header::CONTENT_LENGTH);
    let claimed = claimed.and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if claimed.is_some_and(|bytes| bytes > limits.body_bytes_max) {
        return Err(BodyFault::TooLarge { max: limits.body_bytes_max }.into());
    }
    Ok(())
}

/// A body that ends in a [`BodyFault`] when it is too long or too slow.
struct LimitedBody {
    inner: Body,
    bytes_left: u64,
    limits: RequestLimits,
    whole_deadline: Option<Instant>,
    /// Made when the client first lets us wait, then reused.
    timer: Option<Pin<Box<Sleep>>>,
    is_waiting: bool,
    watch: BodyWatch,
}

impl LimitedBody {
    fn fail(&self, fault: BodyFault) -> axum::Error {
        // Only the first fault counts; a reader that goes on after it changes nothing.
        let _ = self.watch.0.set(fault);
        axum::Error::new(fault)
    }

    /// Ready once the client has been waited for long enough.
    fn poll_too_slow(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.is_waiting {
            let idle_deadline = Instant::now().checked_add(self.limits.body_idle);
            let deadlines = [idle_deadline, self.whole_deadline];
            let Some(deadline) = deadlines.into_iter().flatten().min() else {
                return Poll::Pending;
            };
            match &mut self.timer {
                Some(timer) => timer.as_mut().reset(deadline),
                None => self.timer = Some(Box::pin(sleep_until(deadline))),
            }
            self.is_waiting = true;
        }
        match &mut self.timer {
            Some(timer) => timer.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }
}

impl HttpBody for LimitedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Some(fault) = self.watch.fault() {
            return Poll::Ready(Some(Err(axum::Error::new(fault))));
        }
        let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(cx) else {
            ready!(self.poll_too_slow(cx));
            return Poll::Ready(Some(Err(self.fail(BodyFault::TooSlow))));
        };
        self.is_waiting = false;
        let Some(Ok(frame)) = frame else {
            return Poll::Ready(frame);
        };
        let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
        match self.bytes_left.checked_sub(bytes) {
            Some(left) => self.bytes_left = left,
            None => {
                let max = self.limits.body_bytes_max;
                return Poll::Ready(Some(Err(self.fail(BodyFault::TooLarge { max }))));
            }
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests;
