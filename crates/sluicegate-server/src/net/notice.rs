//! Something that all connections of a listener are told at once: to finish, or to stop.
//!
//! Every connection looks out for it whenever it is polled, many times per request, and nearly always in vain. The
//! future of a [`CancellationToken`] takes a lock for that, the same one for all connections; this one reads a flag.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// A notice that is given once. Clones are the same notice.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notice(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    is_given: AtomicBool,
    token: CancellationToken,
}

impl Notice {
    /// Tells everybody.
    pub(crate) fn give(&self) {
        // First, so that whoever is woken finds it set.
        self.0.is_given.store(true, Ordering::Release);
        self.0.token.cancel();
    }

    /// A future that is ready once the notice is given.
    pub(crate) fn given(&self) -> Given {
        Given { notice: self.clone(), token: Box::pin(self.0.token.clone().cancelled_owned()), waker: None }
    }

    /// Gives the notice when the returned value is dropped.
    pub(super) fn on_drop(&self) -> OnDrop {
        OnDrop(self.clone())
    }
}

/// See [`Notice::on_drop`].
pub(super) struct OnDrop(Notice);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.give();
    }
}

/// See [`Notice::given`].
#[derive(Debug)]
pub(crate) struct Given {
    notice: Notice,
    token: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Who is woken.
    waker: Option<Waker>,
}

impl Future for Given {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let is_awaited = self.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker()));
        if is_awaited && !self.notice.0.is_given.load(Ordering::Acquire) {
            return Poll::Pending;
        }
        self.waker = Some(cx.waker().clone());
        self.token.as_mut().poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_waits_is_told_and_who_comes_later_too() {
        let notice = Notice::default();
        let mut given = notice.given();
        let mut poll_once = async || std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut given).poll(cx))).await;
        // The second time there is nothing new to register.
        assert!(poll_once().await.is_pending() && poll_once().await.is_pending());
        let waiting = tokio::spawn(given);
        tokio::task::yield_now().await;
        notice.give();
        waiting.await.expect("no panic");
        notice.given().await;
    }

    #[tokio::test]
    async fn it_is_given_when_its_guard_is_gone() {
        let notice = Notice::default();
        drop(notice.on_drop());
        notice.given().await;
    }
}
