//! Reads the beginning of a request's body before the request takes a place at an upstream.
//!
//! Places are for requests that have something to send. A body that is complete, or of which [`READ_AHEAD_BYTES`]
//! have arrived, takes one at once. A body that pauses before that is *slow*: its client may wait for a response to
//! the part that it has sent, or may send single bytes to keep the place from others, and the gateway cannot
//! distinguish these. It is forwarded, too, but only a share of the places is for such requests. A body of known
//! length is an upload, which is not forwarded before its first byte. A body of unknown length may be a stream in
//! which the upstream speaks first, so it counts as slow even without a byte.
//!
//! A body that becomes slow later, while its request has a place and no response, needs a part of that share as well
//! ([`Progress`]). Without one it keeps its place only until another request needs the place.
//!
//! The total time limit for the client is the body's own ([`crate::body::LimitedBody`]).

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::HeaderMap;
use bytes::{Bytes, BytesMut};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use tokio::time::timeout;

use crate::body::BodyWatch;

/// The bytes of a body that are read ahead, plus the piece that exceeds them. Few API calls have more.
const READ_AHEAD_BYTES: usize = 16 * 1_024;

/// The pause after which a body is slow: longer than a round trip to a client, and short enough to go unnoticed by a
/// client that waits.
pub(super) const PAUSE: Duration = Duration::from_millis(200);

/// A body that is being forwarded is slow below this many bytes per second of waiting for its client. A steady trickle is
/// as slow as a body with pauses.
const STEADY_BYTES_PER_SECOND: u64 = 16 * 1_024;

/// The longest wait that a fast part of a body pays for.
const CREDIT_MAX: Duration = Duration::from_secs(1);

/// The pace of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// The body is complete, or enough of it has arrived.
    Steady,
    /// The body pauses.
    Slow,
}

/// The pace of a body while it is forwarded.
#[derive(Debug)]
pub(super) struct Progress {
    bytes: u64,
    /// The remaining time of waiting for the client.
    credit: Duration,
}

impl Progress {
    /// The pace after the first `bytes`.
    pub(super) fn since(bytes: u64) -> Self {
        Self { bytes, credit: Duration::ZERO }
    }

    /// Whether the body is slow. Call it every [`PAUSE`].
    pub(super) fn is_slow(&mut self, watch: &BodyWatch) -> bool {
        let bytes = watch.bytes();
        let earned = (bytes - self.bytes).saturating_mul(1_000_000) / STEADY_BYTES_PER_SECOND;
        self.bytes = bytes;
        self.credit = self.credit.saturating_add(Duration::from_micros(earned)).min(CREDIT_MAX);
        if !watch.is_waiting() {
            return false;
        }
        let left = self.credit.checked_sub(PAUSE);
        self.credit = left.unwrap_or_default();
        left.is_none()
    }
}

/// Reads the beginning of `body`, and returns the body with it.
///
/// # Errors
/// If the body exceeds a bound. Its watch knows which.
pub(super) async fn begin(mut body: Body) -> Result<(Body, Pace), axum::Error> {
    let is_upload = body.size_hint().exact().is_some();
    let (mut piece, mut more) = (Bytes::new(), BytesMut::new());
    let (mut pace, mut end) = (Pace::Steady, None);
    while !body.is_end_stream() && piece.len().max(more.len()) < READ_AHEAD_BYTES {
        let frame = if piece.is_empty() && is_upload {
            body.frame().await
        } else if let Ok(frame) = timeout(PAUSE, body.frame()).await {
            frame
        } else {
            pace = Pace::Slow;
            break;
        };
        match frame.transpose()?.map(Frame::into_data) {
            None => end = Some(None),
            Some(Err(frame)) => end = Some(frame.into_trailers().ok()),
            Some(Ok(data)) if piece.is_empty() => piece = data,
            Some(Ok(data)) => {
                if more.is_empty() {
                    more.extend_from_slice(&piece);
                }
                more.extend_from_slice(&data);
            }
        }
        if end.is_some() {
            break;
        }
    }
    if !more.is_empty() {
        piece = more.freeze();
    }
    Ok((Body::new(PeekedBody { piece: Some(piece).filter(|piece| !piece.is_empty()), end, rest: body }), pace))
}

/// A body whose beginning has been read.
struct PeekedBody {
    piece: Option<Bytes>,
    /// The trailers, if any, once the end has been read.
    end: Option<Option<HeaderMap>>,
    rest: Body,
}

impl HttpBody for PeekedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Some(piece) = self.piece.take() {
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        match &mut self.end {
            Some(trailers) => Poll::Ready(trailers.take().map(|trailers| Ok(Frame::trailers(trailers)))),
            None => Pin::new(&mut self.rest).poll_frame(cx),
        }
    }

    /// An end that was read ahead must still be reported, as it would have been without reading ahead.
    fn is_end_stream(&self) -> bool {
        self.piece.is_none() && self.end.is_none() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (read, rest) = (self.piece.as_ref().map_or(0, |piece| piece.len() as u64), self.rest.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(read));
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(read));
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use tokio::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    type RequestChunk = Frame<Bytes>;

    /// A body that the test sends piece by piece. It ends when the sender is dropped.
    struct TestBody(Receiver<RequestChunk>, SizeHint);

    impl HttpBody for TestBody {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<RequestChunk, Infallible>>> {
            self.0.poll_recv(cx).map(|piece| piece.map(Ok))
        }

        fn size_hint(&self) -> SizeHint {
            self.1
        }
    }

    fn fed() -> (Sender<RequestChunk>, Body) {
        let (sender, pieces) = channel(64);
        (sender, Body::new(TestBody(pieces, SizeHint::new())))
    }

    fn data(text: &'static str) -> RequestChunk {
        Frame::data(Bytes::from_static(text.as_bytes()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_complete_body_is_steady_and_arrives_with_its_trailers() {
        let (sender, body) = fed();
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", axum::http::HeaderValue::from_static("7"));
        for piece in [data("one"), data(""), data("two"), Frame::trailers(trailers)] {
            sender.try_send(piece).expect("room");
        }
        let (body, pace) = begin(body).await.expect("whole");
        assert_eq!((pace, body.is_end_stream(), body.size_hint().lower()), (Pace::Steady, false, 6));
        let whole = body.collect().await.expect("whole");
        assert_eq!(whole.trailers().and_then(|trailers| trailers.get("x-sum")).expect("there"), "7");
        assert_eq!(whole.to_bytes(), "onetwo");
    }

    #[tokio::test(start_paused = true)]
    async fn a_length_that_is_known_stays_known() {
        let (body, pace) = begin(Body::from("hello")).await.expect("whole");
        assert_eq!((pace, body.size_hint().exact()), (Pace::Steady, Some(5)));
        assert_eq!(body.collect().await.expect("whole").to_bytes(), "hello");
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_pauses_is_slow_and_goes_on_later() {
        let (sender, body) = fed();
        sender.try_send(data("one")).expect("room");
        let (mut body, pace) = begin(body).await.expect("begun");
        assert_eq!(pace, Pace::Slow);
        let piece = body.frame().await.expect("a piece").expect("good").into_data().expect("data");
        assert_eq!(piece, "one");
        sender.try_send(data("two")).expect("room");
        drop(sender);
        assert_eq!(body.collect().await.expect("whole").to_bytes(), "two");
    }

    #[tokio::test(start_paused = true)]
    async fn of_an_upload_nothing_is_sent_on_before_there_is_something() {
        let (sender, pieces) = channel(64);
        let begun = tokio::spawn(begin(Body::new(TestBody(pieces, SizeHint::with_exact(8)))));
        tokio::time::sleep(PAUSE * 40).await;
        assert!(!begun.is_finished());
        sender.try_send(data("late")).expect("room");
        drop(sender);
        let (body, pace) = begun.await.expect("no panic").expect("whole");
        assert_eq!((pace, body.collect().await.expect("whole").to_bytes()), (Pace::Steady, "late".into()));
    }

    #[tokio::test(start_paused = true)]
    async fn the_upstream_may_be_the_first_to_speak_in_a_stream() {
        let (sender, body) = fed();
        let (body, pace) = begin(body).await.expect("begun");
        assert_eq!(pace, Pace::Slow);
        drop(sender);
        assert!(body.collect().await.expect("whole").to_bytes().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_forwarded_body_is_slow_when_it_pauses_or_trickles() {
        let (sender, pieces) = channel(64);
        let body = TestBody(pieces, SizeHint::with_exact(1_000_000));
        let (mut body, watch) = crate::body::watch_body(body, &crate::body::RequestLimits::default());
        let watch = watch.expect("a body");
        let mut send = |bytes: usize| {
            sender.try_send(Frame::data(Bytes::from(vec![b'x'; bytes]))).expect("room");
            // Reads the piece and waits for the next one.
            let mut context = Context::from_waker(std::task::Waker::noop());
            assert!(Pin::new(&mut body).poll_frame(&mut context).is_ready());
            assert!(Pin::new(&mut body).poll_frame(&mut context).is_pending());
        };
        send(20_000);
        let mut progress = Progress::since(watch.bytes());
        assert!(progress.is_slow(&watch), "it pauses right away");
        for _ in 0..20 {
            send(3_300);
            assert!(!progress.is_slow(&watch), "it is fast enough");
        }
        send(100_000);
        let pauses = (0..10).take_while(|_| !progress.is_slow(&watch)).count();
        assert_eq!(pauses, 5, "a fast part pays for a second");
        for _ in 0..20 {
            send(100);
            assert!(progress.is_slow(&watch), "it trickles");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_is_buffered_than_a_place_needs() {
        let (sender, body) = fed();
        for _ in 0..40 {
            sender.try_send(Frame::data(Bytes::from(vec![b'x'; 1_024]))).expect("room");
        }
        let (mut body, pace) = begin(body).await.expect("begun");
        assert_eq!(pace, Pace::Steady);
        let piece = body.frame().await.expect("a piece").expect("good").into_data().expect("data");
        assert_eq!(piece.len(), READ_AHEAD_BYTES);
        assert_eq!(sender.capacity(), 64 - 40 + 16);
    }
}
