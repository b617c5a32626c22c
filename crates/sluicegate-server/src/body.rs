//! Bounds on one request: its size and the time the client takes to send it.
//!
//! [`check_head`] and [`check_length`] look at a request before its body is read. What already shows in the head (a URI, a
//! header count or a `Content-Length` over the bound) is refused at once, before a byte of the body
//! is read or a buffer sized by the client's claim. Otherwise the body is replaced by a
//! [`LimitedBody`], which counts and times itself while it is read, so that chunked and slow bodies
//! meet the same bounds whichever handler reads them.
//!
//! A handler that meets a broken bound sees only a failed body. What the client is told (413 or
//! 408) is decided by the body's fault, so the answer does not depend on how the handler reports the
//! failure. Where the body is out of reach by then, a [`BodyWatch`] remembers it.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::BoxError;
use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, Request, StatusCode, header};
use bytes::{Bytes, BytesMut};
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
    /// The same once the answer has begun, where a body is passed on while its answer comes: then nobody can be
    /// told 408, and long pauses are the way of those who talk both ways.
    pub(crate) body_idle_answered: Duration,
    /// Longest time from the end of the head to the end of the body before 408. It stops the client
    /// that sends one byte just often enough not to be idle.
    pub(crate) whole_request: Duration,
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self {
            body_bytes_max: MAX_BODY_BYTES,
            body_idle: Duration::from_secs(10),
            body_idle_answered: Duration::from_secs(10),
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

/// Sees how a request's body fares that somebody else reads, and remembers the first bound that it broke.
#[derive(Clone, Debug, Default)]
pub(crate) struct BodyWatch(Arc<Watched>);

#[derive(Debug, Default)]
struct Watched {
    fault: OnceLock<BodyFault>,
    /// Pieces that were read, whichever their number overflows to.
    pieces: AtomicU32,
    is_waiting: AtomicBool,
    is_answered: AtomicBool,
    is_gone: AtomicBool,
}

impl BodyWatch {
    /// The broken bound, if any so far.
    pub(crate) fn fault(&self) -> Option<BodyFault> {
        self.0.fault.get().copied()
    }

    /// A number that changes whenever a piece has been read.
    pub(crate) fn pieces(&self) -> u32 {
        self.0.pieces.load(Ordering::Relaxed)
    }

    /// Whether its reader waits for the client.
    pub(crate) fn is_waiting(&self) -> bool {
        self.0.is_waiting.load(Ordering::Relaxed)
    }

    /// Whether its reader is done with it.
    pub(crate) fn is_gone(&self) -> bool {
        self.0.is_gone.load(Ordering::Acquire)
    }

    /// The answer has begun.
    pub(crate) fn answered(&self) {
        self.0.is_answered.store(true, Ordering::Relaxed);
    }
}

/// A request's body as it comes from a connection, or from a test.
pub(crate) trait RequestBody:
    HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static
{
}

impl<B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static> RequestBody for B {}

/// Puts the body of a request under watch, for a handler that takes it away.
pub(crate) fn watch<B: RequestBody>(request: Request<B>, limits: &RequestLimits) -> (Request<Body>, BodyWatch) {
    let (head, body) = request.into_parts();
    let (body, watch) = watch_body(body, limits);
    (Request::from_parts(head, body), watch.unwrap_or_default())
}

/// Puts a body under watch, for a reader that takes it away. Where there is no body there is nothing to watch.
pub(crate) fn watch_body<B: RequestBody>(inner: B, limits: &RequestLimits) -> (Body, Option<BodyWatch>) {
    if inner.is_end_stream() {
        return (Body::empty(), None);
    }
    let watch = BodyWatch::default();
    let mut body = LimitedBody::new(inner, limits);
    body.watch = Some(watch.clone());
    (Body::new(body), Some(watch))
}

/// The whole of a body under bounds.
pub(crate) async fn read<B>(mut body: B) -> Result<Bytes, Problem>
where
    B: HttpBody<Data = Bytes, Error = axum::Error> + Unpin,
{
    // Most bodies are in one piece, which is taken as it is.
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
    fault_behind(error).map_or_else(
        || {
            let detail = "the request body ended early or is malformed; send it completely";
            Problem::new(StatusCode::BAD_REQUEST, detail)
        },
        Problem::from,
    )
}

fn fault_behind(error: &(dyn std::error::Error + 'static)) -> Option<BodyFault> {
    std::iter::successors(Some(error), |error| error.source())
        .find_map(|error| error.downcast_ref::<BodyFault>().copied())
}

/// Refuses a request whose head is over a bound.
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

/// Refuses a request whose head says that its body is too long.
pub(crate) fn check_length(headers: &HeaderMap, limits: &RequestLimits) -> Result<(), Problem> {
    // hyper has already refused lengths that are not numbers or that contradict each other.
    let claimed = headers.get(header::CONTENT_LENGTH);
    let claimed = claimed.and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if claimed.is_some_and(|bytes| bytes > limits.body_bytes_max) {
        return Err(BodyFault::TooLarge { max: limits.body_bytes_max }.into());
    }
    Ok(())
}

/// A body that ends in a [`BodyFault`] when it is too long or too slow.
pub(crate) struct LimitedBody<B> {
    inner: B,
    bytes_left: u64,
    limits: RequestLimits,
    /// Set when the body is first waited for, which is right after the head or not at all.
    whole_deadline: Option<Option<Instant>>,
    /// Made when the client first lets us wait, then reused.
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
            whole_deadline: None,
            timer: None,
            waiting_since: None,
            fault: None,
            watch: None,
        }
    }

    /// The broken bound, if any so far.
    pub(crate) fn fault(&self) -> Option<BodyFault> {
        self.fault
    }

    fn fail(&mut self, fault: BodyFault) -> axum::Error {
        // Only the first fault counts; a reader that goes on after it changes nothing.
        self.fault.get_or_insert(fault);
        if let Some(watch) = &self.watch {
            let _ = watch.0.fault.set(fault);
        }
        axum::Error::new(fault)
    }

    /// Ready once the client has been waited for long enough.
    fn poll_too_slow(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let is_new = self.waiting_since.is_none();
            let since = *self.waiting_since.get_or_insert_with(Instant::now);
            // `None` only for a bound beyond the clock's range, which means no bound.
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
            // The answer may have begun meanwhile, and then there is more time.
            if self.deadline(since) == Some(deadline) {
                return Poll::Ready(());
            }
        }
    }

    /// Until when the client may be waited for that is waited for since then.
    fn deadline(&mut self, since: Instant) -> Option<Instant> {
        let whole = match self.whole_deadline {
            Some(whole) => whole,
            None => *self.whole_deadline.insert(since.checked_add(self.limits.whole_request)),
        };
        let is_answered = self.watch.as_ref().is_some_and(|watch| watch.0.is_answered.load(Ordering::Relaxed));
        let idle = if is_answered { self.limits.body_idle_answered } else { self.limits.body_idle };
        [since.checked_add(idle), whole].into_iter().flatten().min()
    }

    /// Tells whoever watches whether the client is waited for.
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
        self.waiting_since = None;
        self.tell(false);
        let frame = match frame {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => return Poll::Ready(Some(Err(axum::Error::new(error)))),
            None => return Poll::Ready(None),
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
