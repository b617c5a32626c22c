//! The calls to a shared store for the commands of one pipeline: concurrent, with replies in the order
//! of the commands.
//!
//! Redis may process different keys in any order, but of two commands on one key the first must be decided first. So a
//! call begins only when the previous one on the same key has ended.

use std::collections::HashMap;
use std::pin::Pin;

use futures_util::stream::{FuturesOrdered, StreamExt as _};
use sluicegate::store::StoreError;
use tokio::sync::oneshot;

use super::throttle::{Answer, KeyName};

/// The most calls in flight on all connections together, besides one each: half of the number at which a connection to the
/// store rejects calls, so that pipelines alone never reach it.
pub(super) const CALLS_MAX: usize = 256;

/// The result of a call.
pub(super) type Called = Result<Answer, StoreError>;

/// The calls in flight. Without any, as always with the embedded store, it uses no heap memory.
#[derive(Debug, Default)]
pub(super) struct Pipeline(Option<UnderWay>);

#[derive(Debug, Default)]
struct UnderWay {
    calls: FuturesOrdered<Pin<Box<dyn Future<Output = Called> + Send>>>,
    /// For each key the end of the last call on it.
    ends: HashMap<KeyName<'static>, oneshot::Receiver<()>>,
}

impl Pipeline {
    /// Whether no call is in flight.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Adds a call for `key`, which begins when [`Pipeline::next`] is polled.
    pub(super) fn push(&mut self, key: KeyName<'static>, call: impl Future<Output = Called> + Send + 'static) {
        let UnderWay { calls, ends } = self.0.get_or_insert_default();
        let (end, ended) = oneshot::channel();
        let before = ends.insert(key, ended);
        calls.push_back(Box::pin(async move {
            if let Some(before) = before {
                // Nothing is ever sent: the sender is dropped when the call ends.
                let _ = before.await;
            }
            let called = call.await;
            drop::<oneshot::Sender<()>>(end);
            called
        }));
    }

    /// The result of the oldest call, once it has ended; `None` if there is none.
    pub(super) async fn next(&mut self) -> Option<Called> {
        let under_way = self.0.as_mut()?;
        let called = under_way.calls.next().await;
        if under_way.calls.is_empty() {
            self.0 = None;
        }
        called
    }
}

#[cfg(test)]
mod tests;
