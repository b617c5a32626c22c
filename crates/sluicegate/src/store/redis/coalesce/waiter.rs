//! A request that waits for a coalesced call, and the result that it receives.

use super::plan::Plan;
use super::queue::Queue;
use crate::store::{LateOutcome, Reply, StoreError};
use parking_lot::Mutex;
use sluicegate_core::Timestamp;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::time::Instant;

/// The queue of one route: its decisions and the requests that wait for them.
pub(crate) type WaitQueue = Mutex<Queue<Arc<Plan>, Waiter>>;

/// A request that waits.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) answer: oneshot::Sender<WaiterResult>,
    /// The caller's clock when the request arrived.
    pub(crate) now: Timestamp,
    pub(crate) deadline: Instant,
    /// The time from the request's arrival to its deadline.
    pub(crate) allowed: Duration,
}

/// The result that a waiter receives.
#[derive(Debug)]
pub(crate) enum WaiterResult {
    Reply(Reply),
    Error(StoreError),
    /// The server rejected the batch. It may accept this decision in a call of its own.
    RetryAlone,
}

impl WaiterResult {
    /// A function that returns the part of the charge that was made, once the result has arrived.
    pub(crate) fn fate(mut result: oneshot::Receiver<Self>) -> impl FnMut() -> Option<LateOutcome> {
        let is_allowed = |reply: &Reply| reply.verdicts.iter().all(|verdict| verdict.outcome.is_allowed());
        move || match result.try_recv() {
            Ok(Self::Reply(reply)) if is_allowed(&reply) => Some(LateOutcome::Charged),
            Ok(Self::Reply(_)) => Some(LateOutcome::Denied),
            Ok(Self::Error(_) | Self::RetryAlone) | Err(TryRecvError::Closed) => Some(LateOutcome::Failed),
            Err(TryRecvError::Empty) => None,
        }
    }

    /// The reply; `None` if the request has to be sent in a call of its own.
    pub(crate) fn read(self) -> Result<Option<Reply>, StoreError> {
        match self {
            Self::Reply(reply) => Ok(Some(reply)),
            Self::Error(error) => Err(error),
            Self::RetryAlone => Ok(None),
        }
    }
}
