//! The calls to a shared store that the commands of one pipeline have under way: many at a time, answered in the order
//! of the commands.
//!
//! Servers may answer different keys in any order, but of two commands on one key the first must be decided first. So a
//! call begins when the one before it on the same key has ended, and not earlier.

use std::collections::HashMap;
use std::pin::Pin;

use futures_util::stream::{FuturesOrdered, StreamExt as _};
use sluicegate::store::StoreError;
use tokio::sync::oneshot;

use super::throttle::{Answer, KeyName};

/// How many calls all connections together may have under way, besides one each: half of what one connection to the
/// store takes before it refuses calls, so that pipelines alone never bring that about.
pub(super) const CALLS_MAX: usize = 256;

/// What became of a call.
pub(super) type Called = Result<Answer, StoreError>;

/// The calls under way. Without any, as ever with the embedded store, it holds no memory.
#[derive(Debug, Default)]
pub(super) struct Pipeline(Option<UnderWay>);

#[derive(Debug, Default)]
struct UnderWay {
    calls: FuturesOrdered<Pin<Box<dyn Future<Output = Called> + Send>>>,
    /// For each key the end of the last call on it.
    ends: HashMap<KeyName<'static>, oneshot::Receiver<()>>,
}

impl Pipeline {
    /// Whether nothing is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Adds a call about `key`, which begins when [`Pipeline::next`] is awaited.
    pub(super) fn push(&mut self, key: KeyName<'static>, call: impl Future<Output = Called> + Send + 'static) {
        let UnderWay { calls, ends } = self.0.get_or_insert_default();
        let (end, ended) = oneshot::channel();
        let before = ends.insert(key, ended);
        calls.push_back(Box::pin(async move {
            if let Some(before) = before {
                // Nothing is ever sent: the end of the call is the end of its sender.
                let _ = before.await;
            }
            let called = call.await;
            drop::<oneshot::Sender<()>>(end);
            called
        }));
    }

    /// What became of the oldest call, once it has ended; nothing if there is none.
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
