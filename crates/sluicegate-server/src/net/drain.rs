//! A signal to all connections of a listener, raised once: finish, or close now.
//!
//! Every connection polls the signal each time it is polled, many times per request. The future of a
//! [`CancellationToken`] takes a lock that all connections share; this one reads a flag.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// A signal that is raised at most once. Clones share its state.
#[derive(Clone, Debug, Default)]
pub(crate) struct DrainSignal(Arc<SignalState>);

#[derive(Debug, Default)]
struct SignalState {
    is_raised: AtomicBool,
    token: CancellationToken,
}

impl DrainSignal {
    /// Raises the signal and wakes every waiter.
    pub(crate) fn raise(&self) {
        // The flag is set first, so a waiter that wakes up finds it set.
        self.0.is_raised.store(true, Ordering::Release);
        self.0.token.cancel();
    }

    /// A future that completes once the signal is raised.
    pub(crate) fn raised(&self) -> DrainSignalFuture {
        DrainSignalFuture {
            signal: self.clone(),
            token: Box::pin(self.0.token.clone().cancelled_owned()),
            waker: None,
        }
    }

    /// Raises the signal when the returned value is dropped.
    pub(super) fn raise_on_drop(&self) -> RaiseOnDrop {
        RaiseOnDrop(self.clone())
    }
}

/// See [`DrainSignal::raise_on_drop`].
pub(super) struct RaiseOnDrop(DrainSignal);

impl Drop for RaiseOnDrop {
    fn drop(&mut self) {
        self.0.raise();
    }
}

/// See [`DrainSignal::raised`].
#[derive(Debug)]
pub(crate) struct DrainSignalFuture {
    signal: DrainSignal,
    token: Pin<Box<WaitForCancellationFutureOwned>>,
    /// The waker that is registered with `token`.
    waker: Option<Waker>,
}

impl Future for DrainSignalFuture {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let is_registered = self.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker()));
        if is_registered && !self.signal.0.is_raised.load(Ordering::Acquire) {
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
    async fn a_raised_signal_wakes_earlier_and_later_waiters() {
        let signal = DrainSignal::default();
        let mut raised = signal.raised();
        let mut poll_once = async || std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut raised).poll(cx))).await;
        // The second poll has no new waker to register.
        assert!(poll_once().await.is_pending() && poll_once().await.is_pending());
        let waiting = tokio::spawn(raised);
        tokio::task::yield_now().await;
        signal.raise();
        waiting.await.expect("no panic");
        signal.raised().await;
    }

    #[tokio::test]
    async fn dropping_the_guard_raises_the_signal() {
        let signal = DrainSignal::default();
        drop(signal.raise_on_drop());
        signal.raised().await;
    }
}
