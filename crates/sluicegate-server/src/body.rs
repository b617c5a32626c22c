//! Bounds on one request: its size and the time the client takes to send it.
//!
//! [`check_head`] and [`check_length`] check a request before its body is read. A URI, a header count or a `Content-Length`
//! above its bound is rejected before a byte of the body is read or a buffer of the claimed size is allocated. The body
//! itself becomes a [`LimitedBody`], which counts and times the bytes while they are read. So chunked and slow bodies have
//! the same bounds in every handler.
//!
//! A handler whose body exceeds a bound sees only a failed body. The body's fault selects the response (413 or 408), so the
//! response does not depend on how the handler reports the failure. If the handler owns the body, a [`BodyWatch`] keeps the
//! fault.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::BoxError;
use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, Request, StatusCode, header};
use bytes::{Bytes, BytesMut};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use sluicegate::response::ResponseClass;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::problem::Problem;

/// Bytes of a request body. A batch of 1,000 checks with identifiers of ordinary length is about
/// 200 kB; 1 MiB leaves room and bounds the memory of one request.
pub(crate) const MAX_BODY_BYTES: u64 = 1_048_576;

/// Bytes of a request's path and query. Proxies have similar limits.
const MAX_URI_BYTES: usize = 8_192;

/// Headers of one request. hyper's HTTP/1 parser enforces this number. Its HTTP/2 bound is in bytes, so this module counts
/// the headers.
pub(crate) const MAX_HEADERS: usize = 64;

/// The least rate, in bytes per second, at which a client must read responses that wait only for it. A client at that rate
/// may take any amount of time. A response to a slower client ends once the client's credit is used up.
const RESPONSE_RATE_MIN: u64 = 240;

/// The waiting time that a client earns by reading this many bytes of a response.
pub(crate) fn response_credit(bytes: u64) -> Duration {
    Duration::from_micros(bytes.saturating_mul(1_000_000) / RESPONSE_RATE_MIN)
}

/// The bounds on the size and the duration of one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestLimits {
    /// Bytes of body before 413.
    pub(crate) body_bytes_max: u64,
    /// The longest pause between two chunks of the body; then 408.
    pub(crate) body_idle: Duration,
    /// The longest pause after the response of a forwarded body has begun. 408 is impossible then, and bidirectional streams
    /// have long pauses.
    pub(crate) body_idle_answered: Duration,
    /// The minimum rate in bytes per second while the server waits for the client and the response has not begun; below it
    /// 408; 0 for none. The client starts with an allowance of `body_idle`: a pause uses it up, and each byte restores part
    /// of it.
    pub(crate) body_rate_min: u64,
    /// The longest time from the end of the head to the end of the body; then 408. It stops clients that send single bytes
    /// just often enough not to be idle.
    pub(crate) whole_request: Duration,
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self {
            body_bytes_max: MAX_BODY_BYTES,
            body_idle: Duration::from_secs(10),
            body_idle_answered: Duration::from_secs(10),
            body_rate_min: 0,
            whole_request: Duration::from_secs(30),
        }
    }
}

/// The reason why a body ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BodyFault {
    /// More bytes than `max`.
    #[error("the request body is longer than {max} bytes; send less, or several requests")]
    TooLarge {
        /// The exceeded bound.
        max: u64,
    },
    /// The client paused or trickled for too long.
    #[error("the request body did not arrive in time; send it faster and without pauses")]
    TooSlow,
    /// The unfinished bodies of the connection hold `max` bytes.
    #[error(
        "the unfinished request bodies of this connection hold {max} bytes, which is the most; \
         send fewer at a time, or over several connections"
    )]
    TooManyOfConnection {
        /// The exceeded bound.
        max: u64,
    },
    /// The unfinished bodies of the address hold `max` bytes.
    #[error(
        "the unfinished request bodies of this address hold {max} bytes, which is the most; \
         send fewer at a time, or each of them at once"
    )]
    TooManyOfAddress {
        /// The bound that was passed.
        max: u64,
    },
    /// The unfinished bodies of all connections hold `max` bytes.
    #[error("the unfinished request bodies of all clients hold {max} bytes, which is the most; try again")]
    TooManyOfListener {
        /// The exceeded bound.
        max: u64,
    },
    /// The connection ended within the body, or the body's framing is invalid.
    #[error("the request body ended early or is malformed; send it completely")]
    Malformed,
}

impl From<BodyFault> for Problem {
    fn from(fault: BodyFault) -> Self {
        let status = match fault {
            BodyFault::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            BodyFault::TooSlow => StatusCode::REQUEST_TIMEOUT,
            BodyFault::TooManyOfConnection { .. }
            | BodyFault::TooManyOfAddress { .. }
            | BodyFault::TooManyOfListener { .. } => {
                return ResponseClass::Unavailable.problem(fault.to_string());
            }
            BodyFault::Malformed => StatusCode::BAD_REQUEST,
        };
        Self::new(status, fault.to_string())
    }
}

/// Observes a body that a handler owns, and keeps the first fault of the body.
#[derive(Clone, Debug, Default)]
pub(crate) struct BodyWatch(Arc<Watched>);

#[derive(Debug, Default)]
struct Watched {
    fault: OnceLock<BodyFault>,
    /// Chunks read so far; the count may wrap around.
    pieces: AtomicU32,
    /// Bytes that were read.
    bytes: AtomicU64,
    is_waiting: AtomicBool,
    is_answered: AtomicBool,
    is_gone: AtomicBool,
}

impl BodyWatch {
    /// The first fault, if any.
    pub(crate) fn fault(&self) -> Option<BodyFault> {
        self.0.fault.get().copied()
    }

    /// A number that changes with every chunk.
    pub(crate) fn pieces(&self) -> u32 {
        self.0.pieces.load(Ordering::Relaxed)
    }

    /// The number of bytes that were read.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// Whether the reader waits for the client.
    pub(crate) fn is_waiting(&self) -> bool {
        self.0.is_waiting.load(Ordering::Relaxed)
    }

    /// Whether the reader has dropped the body.
    pub(crate) fn is_gone(&self) -> bool {
        self.0.is_gone.load(Ordering::Acquire)
    }

    /// Records that the response has begun.
    pub(crate) fn answered(&self) {
        self.0.is_answered.store(true, Ordering::Relaxed);
    }
}

/// The body of a request from a connection or from a test.
pub(crate) trait RequestBody:
    HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static
{
}

impl<B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static> RequestBody for B {}

/// Bounds the body of a request, and watches it for a handler that takes ownership.
pub(crate) fn watch<B: RequestBody>(request: Request<B>, limits: &RequestLimits) -> (Request<Body>, BodyWatch) {
    let (head, body) = request.into_parts();
    let (body, watch) = watch_body(body, limits);
    (Request::from_parts(head, body), watch.unwrap_or_default())
}

/// Bounds a body, and watches it for a reader that takes ownership. There is no watch without a body.
pub(crate) fn watch_body<B: RequestBody>(inner: B, limits: &RequestLimits) -> (Body, Option<BodyWatch>) {
    if inner.is_end_stream() {
        return (Body::empty(), None);
    }
    let watch = BodyWatch::default();
    let mut body = LimitedBody::new(inner, limits);
    body.watch = Some(watch.clone());
    (Body::new(body), Some(watch))
}

/// Reads a whole bounded body.
pub(crate) async fn read<B>(mut body: B) -> Result<Bytes, Problem>
where
    B: HttpBody<Data = Bytes, Error = axum::Error> + Unpin,
{
    // Most bodies are a single chunk, which is returned without a copy.
    let (mut first, mut more) = (Bytes::new(), BytesMut::new());
    while !body.is_end_stream()
        && let Some(frame) = body.frame().await
    {
        let Ok(piece) = frame.map_err(|error| unreadable(&error))?.into_data() else { continue };
        if first.is_empty() {
            first = piece;
            continue;
        }
        if more.is_empty() {
            more.extend_from_slice(&first);
        }
        more.extend_from_slice(&piece);
    }
    Ok(if more.is_empty() { first } else { more.freeze() })
}

fn unreadable(error: &axum::Error) -> Problem {
    fault_behind(error).unwrap_or(BodyFault::Malformed).into()
}

fn fault_behind(error: &(dyn std::error::Error + 'static)) -> Option<BodyFault> {
    std::iter::successors(Some(error), |error| error.source())
        .find_map(|error| error.downcast_ref::<BodyFault>().copied())
}

/// Rejects a request whose head exceeds a bound.
pub(crate) fn check_head<B>(request: &Request<B>) -> Result<(), Problem> {
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
    Ok(())
}

/// Rejects a request whose `Content-Length` exceeds the bound.
pub(crate) fn check_length(headers: &HeaderMap, limits: &RequestLimits) -> Result<(), Problem> {
    // hyper has already rejected lengths that are not numbers or contradict each other.
    let claimed = headers.get(header::CONTENT_LENGTH);
    let claimed = claimed.and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if claimed.is_some_and(|bytes| bytes > limits.body_bytes_max) {
        return Err(BodyFault::TooLarge { max: limits.body_bytes_max }.into());
    }
    Ok(())
}

/// A body that fails with a [`BodyFault`] if it is too long or too slow.
pub(crate) struct LimitedBody<B> {
    inner: B,
    bytes_left: u64,
    limits: RequestLimits,
    /// The remaining time allowance of the client, if there is a minimum rate.
    patience: Duration,
    /// The deadline of the whole body, set at the first wait, which is right after the head or never.
    whole_deadline: Option<Option<Instant>>,
    /// Created at the first wait for the client, then reused.
    timer: Option<Pin<Box<Sleep>>>,
    waiting_since: Option<Instant>,
    fault: Option<BodyFault>,
    watch: Option<BodyWatch>,
}

impl<B> LimitedBody<B> {
    pub(crate) fn new(inner: B, limits: &RequestLimits) -> Self {
        let bytes_left = limits.body_bytes_max;
        Self {
            inner,
            bytes_left,
            limits: *limits,
            patience: limits.body_idle,
            whole_deadline: None,
            timer: None,
            waiting_since: None,
            fault: None,
            watch: None,
        }
    }

    /// The first fault, if any.
    pub(crate) fn fault(&self) -> Option<BodyFault> {
        self.fault
    }

    fn fail(&mut self, fault: BodyFault) -> axum::Error {
        // Only the first fault counts, even if the reader continues.
        self.fault.get_or_insert(fault);
        if let Some(watch) = &self.watch {
            let _ = watch.0.fault.set(fault);
        }
        axum::Error::new(fault)
    }

    /// Completes at the deadline of the current wait.
    fn poll_too_slow(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let is_new = self.waiting_since.is_none();
            let since = *self.waiting_since.get_or_insert_with(Instant::now);
            // `None` only for a bound beyond the clock's range, which is no bound.
            let Some(deadline) = self.deadline(since) else { return Poll::Pending };
            let timer = match &mut self.timer {
                Some(timer) => {
                    if is_new || timer.deadline() != deadline {
                        timer.as_mut().reset(deadline);
                    }
                    timer
                }
                None => self.timer.insert(Box::pin(sleep_until(deadline))),
            };
            ready!(timer.as_mut().poll(cx));
            // The response may have begun meanwhile, which extends the deadline.
            if self.deadline(since) == Some(deadline) {
                return Poll::Ready(());
            }
        }
    }

    /// The deadline of a wait that began at `since`.
    fn deadline(&mut self, since: Instant) -> Option<Instant> {
        let whole = match self.whole_deadline {
            Some(whole) => whole,
            None => *self.whole_deadline.insert(since.checked_add(self.limits.whole_request)),
        };
        let is_answered = self.watch.as_ref().is_some_and(|watch| watch.0.is_answered.load(Ordering::Relaxed));
        let idle = match is_answered {
            true => self.limits.body_idle_answered,
            // `body_idle` if there is no minimum rate.
            false => self.patience,
        };
        [since.checked_add(idle), whole].into_iter().flatten().min()
    }

    /// Updates the allowance after the client has sent this many bytes. The allowance is bounded, so no amount of bytes pays
    /// for a long trickle.
    fn pay(&mut self, bytes: u64) {
        let waited = self.waiting_since.take().map(|since| since.elapsed());
        let rate = self.limits.body_rate_min;
        if rate == 0 {
            return;
        }
        let earned = Duration::from_micros(bytes.saturating_mul(1_000_000) / rate);
        let left = self.patience.saturating_sub(waited.unwrap_or_default());
        self.patience = left.saturating_add(earned).min(self.limits.body_idle);
    }

    /// Updates the watch: whether the reader waits for the client.
    fn tell(&self, is_waiting: bool) {
        let Some(BodyWatch(watched)) = &self.watch else { return };
        watched.is_waiting.store(is_waiting, Ordering::Relaxed);
        if !is_waiting {
            watched.pieces.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<B> Drop for LimitedBody<B> {
    fn drop(&mut self) {
        if let Some(BodyWatch(watched)) = &self.watch {
            watched.is_gone.store(true, Ordering::Release);
        }
    }
}

impl<B: RequestBody> HttpBody for LimitedBody<B> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Some(fault) = self.fault {
            return Poll::Ready(Some(Err(axum::Error::new(fault))));
        }
        let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(cx) else {
            self.tell(true);
            ready!(self.poll_too_slow(cx));
            return Poll::Ready(Some(Err(self.fail(BodyFault::TooSlow))));
        };
        self.tell(false);
        let frame = match frame {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => {
                let error: BoxError = error.into();
                let fault = error.downcast_ref::<BodyFault>().copied().unwrap_or(BodyFault::Malformed);
                return Poll::Ready(Some(Err(self.fail(fault))));
            }
            None => return Poll::Ready(None),
        };
        let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
        self.pay(bytes);
        if let Some(watch) = &self.watch {
            watch.0.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
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
