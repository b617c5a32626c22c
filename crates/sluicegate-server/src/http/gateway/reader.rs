//! Answers to clients that stop reading.
//!
//! An HTTP/2 client can stop taking an answer, by its flow-control window, while its connection looks alive. Then nobody
//! asks for the next piece, and no timer of the answer runs: its connection to the upstream and its right to be under way
//! would be held for as long as the client likes, and a hundred streams of one connection would hold a hundred of them.
//! So somebody else looks. An answer of which nothing has been taken for too long is dropped, with all that it holds;
//! should the client come back to it, its stream breaks.
//!
//! HTTP/1 needs none of this: there a client that does not read stops the socket, which has a bound of its own.

use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::task::AbortHandle;
use tokio::time::sleep;

/// Why an answer broke off.
#[derive(Debug, thiserror::Error)]
#[error("the client did not take the answer in time")]
struct NotTaken;

/// An answer that somebody looks after.
struct Watched {
    shared: Arc<Shared>,
    watching: AbortHandle,
}

struct Shared {
    /// Gone if it was not taken in time.
    body: Mutex<Option<Body>>,
    /// Changes whenever the client asks for a piece.
    asked: AtomicU32,
    /// The value of `asked` for which there was no piece yet: then it is the upstream that is waited for.
    owed: AtomicU32,
}

/// The same body, which is dropped if the client takes nothing of it for `idle`, or at the latest twice that.
pub(super) fn watched(body: Body, idle: Duration) -> Body {
    if body.is_end_stream() {
        return body;
    }
    // What is asked first is 1, so nothing is owed before.
    let (asked, owed) = (AtomicU32::new(0), AtomicU32::new(u32::MAX));
    let shared = Arc::new(Shared { body: Mutex::new(Some(body)), asked, owed });
    let watching = tokio::spawn(watch(Arc::downgrade(&shared), idle)).abort_handle();
    Body::new(Watched { shared, watching })
}

async fn watch(shared: Weak<Shared>, idle: Duration) {
    let mut before = 0;
    loop {
        sleep(idle).await;
        let Some(shared) = shared.upgrade() else { return };
        let asked = shared.asked.load(Ordering::Relaxed);
        if asked == before && shared.owed.load(Ordering::Relaxed) != asked {
            // Nobody waits for this lock: who would is the client that does not ask.
            drop(shared.body.lock().unwrap_or_else(PoisonError::into_inner).take());
            return;
        }
        before = asked;
    }
}

impl Shared {
    fn with<T>(&self, look: impl FnOnce(Option<&mut Body>) -> T) -> T {
        // A body that panicked is not asked again, and a poisoned lock is as good as another.
        look(self.body.lock().unwrap_or_else(PoisonError::into_inner).as_mut())
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let asked = self.shared.asked.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        self.shared.with(|body| {
            let Some(body) = body else { return Poll::Ready(Some(Err(axum::Error::new(NotTaken)))) };
            let piece = Pin::new(body).poll_frame(cx);
            if piece.is_pending() {
                self.shared.owed.store(asked, Ordering::Relaxed);
            }
            piece
        })
    }

    fn is_end_stream(&self) -> bool {
        self.shared.with(|body| body.is_some_and(|body| body.is_end_stream()))
    }

    fn size_hint(&self) -> SizeHint {
        self.shared.with(|body| body.map(|body| body.size_hint()).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use tokio::sync::mpsc;

    use super::*;

    const IDLE: Duration = Duration::from_secs(10);

    /// Pieces that a test hands out.
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
        (sender, watched(Body::new(Pieces(receiver)), IDLE))
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_nobody_takes_is_dropped() {
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
}
