//! Aborts responses whose HTTP/2 client has stopped reading (its flow-control window stays closed).
//!
//! Such a client keeps its connection alive while nothing polls the body, so no timer of the response runs. The
//! upstream connection and its place under `concurrency` would be held for as long as the client likes, and a hundred
//! streams of one connection would hold a hundred of them. A task of its own therefore watches. It drops a response
//! of which nothing has been taken for too long, or which is taken below the [least rate](response_credit), with everything
//! that it holds. If the client reads again, its stream breaks. Each response counts alone: a stream that is read fast does not
//! pay for others of its connection. Time spent waiting for the upstream restores the credit of the client.
//!
//! HTTP/1 does not need this: a client that does not read blocks the socket, which has its own bound.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

use crate::body::response_credit;

/// The longest wait for a client beyond the time that its bytes pay for.
const CREDIT: Duration = Duration::from_secs(30);

/// The client did not read the response in time.
#[derive(Debug, thiserror::Error)]
#[error("the client did not take the answer in time")]
struct StalledClient;

/// A response body under watch.
struct WatchedBody {
    shared: Arc<WatchState>,
    watching: AbortHandle,
}

struct WatchState {
    /// The longest wait for the client to take one piece.
    piece_max: Duration,
    credit: Mutex<CreditedBody>,
}

/// A body and the credit of the client that reads it.
struct CreditedBody {
    /// `None` once the body was dropped.
    body: Option<Body>,
    /// The client's credit as of `since`.
    credit: Duration,
    /// The moment from which the same side is waited for.
    since: Instant,
    /// The time that the last piece pays for; `None` while the delay is the upstream's.
    piece: Option<Duration>,
}

/// The same body, dropped if the client takes no piece of it for twice `idle`, or takes it too slowly.
pub(super) fn abort_if_stalled(body: Body, idle: Duration) -> Body {
    if body.is_end_stream() {
        return body;
    }
    let (since, piece) = (Instant::now(), Some(Duration::ZERO));
    let credit = Mutex::new(CreditedBody { body: Some(body), credit: CREDIT, since, piece });
    let shared = Arc::new(WatchState { piece_max: idle.saturating_mul(2), credit });
    let watching = tokio::spawn(watch(Arc::downgrade(&shared))).abort_handle();
    Body::new(WatchedBody { shared, watching })
}

async fn watch(shared: Weak<WatchState>) {
    loop {
        let deadline = {
            let Some(shared) = shared.upgrade() else { return };
            let (mut state, now) = (shared.lock(), Instant::now());
            // While the delay is the upstream's, the earliest moment at which the client could be late.
            let since = if state.piece.is_some() { state.since } else { now };
            let deadline = since.checked_add(state.patience(shared.piece_max));
            match deadline {
                // A bound beyond the clock's range is no bound.
                None => return,
                Some(deadline) if deadline <= now => {
                    let late = state.body.take();
                    // Dropped outside the lock, because the body may take other locks.
                    drop(state);
                    drop(late);
                    return;
                }
                Some(deadline) => deadline,
            }
        };
        sleep_until(deadline).await;
    }
}

impl CreditedBody {
    /// The longest wait for the client from `since` on.
    fn patience(&self, piece_max: Duration) -> Duration {
        match self.piece {
            Some(paid) => self.credit.saturating_add(paid).min(piece_max),
            None => CREDIT.min(piece_max),
        }
    }

    /// Records that the client polls for a piece: the last wait has used credit, or restored it.
    fn polled(&mut self, now: Instant) {
        let waited = now.saturating_duration_since(self.since);
        let credit = match self.piece {
            Some(paid) => self.credit.saturating_add(paid).saturating_sub(waited),
            None => self.credit.saturating_add(waited),
        };
        (self.credit, self.since) = (credit.min(CREDIT), now);
    }
}

impl WatchState {
    fn lock(&self) -> MutexGuard<'_, CreditedBody> {
        // A body that panicked is not polled again, so a poisoned lock does no harm.
        self.credit.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WatchedBody {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

impl HttpBody for WatchedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let mut state = self.shared.lock();
        state.polled(Instant::now());
        let Some(body) = &mut state.body else { return Poll::Ready(Some(Err(axum::Error::new(StalledClient)))) };
        let piece = Pin::new(body).poll_frame(cx);
        state.piece = match &piece {
            Poll::Ready(Some(Ok(frame))) => {
                Some(response_credit(frame.data_ref().map_or(0, |data| data.len() as u64)))
            }
            Poll::Ready(_) => Some(Duration::ZERO),
            Poll::Pending => None,
        };
        piece
    }

    fn is_end_stream(&self) -> bool {
        self.shared.lock().body.as_ref().is_some_and(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.shared.lock().body.as_ref().map(HttpBody::size_hint).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use tokio::sync::mpsc;
    use tokio::time::sleep;

    use super::*;

    const IDLE: Duration = Duration::from_secs(10);

    /// Pieces that a test sends.
    struct Pieces(mpsc::UnboundedReceiver<&'static str>);

    impl HttpBody for Pieces {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            self.0
                .poll_recv(cx)
                .map(|piece| piece.map(|piece| Ok(Frame::data(Bytes::from_static(piece.as_bytes())))))
        }
    }

    fn pieces() -> (mpsc::UnboundedSender<&'static str>, Body) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (sender, abort_if_stalled(Body::new(Pieces(receiver)), IDLE))
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_that_the_client_does_not_read_is_dropped() {
        let (upstream, mut body) = pieces();
        upstream.send("one").expect("held");
        upstream.closed().await;
        assert!(body.frame().await.expect("an error").is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_of_which_only_the_first_piece_is_taken_is_dropped() {
        let (upstream, mut body) = pieces();
        upstream.send("one").expect("held");
        assert_eq!(body.frame().await.expect("a piece").expect("whole").into_data().expect("data"), "one");
        upstream.closed().await;
        assert!(body.frame().await.expect("an error").is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_waits_for_the_upstream_or_is_slow_is_left_alone() {
        let (upstream, mut body) = pieces();
        for _ in 0..5 {
            let piece = tokio::spawn(async move { (body.frame().await.expect("a piece").expect("whole"), body) });
            sleep(IDLE * 5).await;
            upstream.send("one").expect("held");
            body = piece.await.expect("no panic").1;
            sleep(IDLE - Duration::from_millis(1)).await;
        }
        drop(upstream);
        assert!(body.frame().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_that_the_client_reads_below_the_least_rate_is_dropped() {
        // 3 bytes in 9 s, and 2,700 in 9 s.
        for (piece, is_fast) in [("one", false), (&*"x".repeat(2_700).leak(), true)] {
            let (upstream, mut body) = pieces();
            (0..100).for_each(|_| upstream.send(piece).expect("held"));
            let began = Instant::now();
            let mut taken = 0;
            while taken < 50 && body.frame().await.expect("a piece or an error").is_ok() {
                taken += 1;
                sleep(Duration::from_secs(9)).await;
            }
            assert_eq!(taken == 50, is_fast, "{taken} pieces");
            assert!(is_fast || began.elapsed() < Duration::from_secs(40), "{:?}", began.elapsed());
            assert_eq!(upstream.is_closed(), !is_fast);
        }
    }
}
