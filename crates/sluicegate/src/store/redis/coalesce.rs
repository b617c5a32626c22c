//! Coalescing: concurrent requests for the same decision share one script call.
//!
//! [`queue`] decides which waiters go with which call; it does no I/O. [`plan`] is a decision that owns its data,
//! [`waiter`] a request that waits for it. [`call`] is the task that sends a batch of decisions and distributes the
//! results.

pub(crate) mod call;
pub(crate) mod plan;
pub(crate) mod queue;
pub(crate) mod waiter;
