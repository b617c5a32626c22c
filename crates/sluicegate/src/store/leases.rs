//! Leases, without clock and I/O: a hot decision requests more admissions than its waiters need, and later requests
//! spend the surplus locally.
//!
//! A permit is one whole decision over all its limits, charged in the store, to be spent by one request. The store
//! implementation charges and gives back. This module decides how many permits may be requested, held and spent:
//!
//! | module | content |
//! |---|---|
//! | [`permits`] | the permits of one decision: a state machine without clock or store |
//! | [`demand`] | the request rate of a decision, and how many permits it may request |
//! | [`table`] | the permit pools of all decisions: bounded, and at most one for every key |
//!
//! Invariants:
//! - A permit is spent at most once, and only before it expires, however long the process was suspended.
//! - A permit is given back at most once, and only if it was not spent. In doubt, permits are lost and never gained.
//! - Including the permits it has requested, a pool never holds more than
//!   [`Lease::most_held`](super::Lease::most_held) of any limit, and no two pools of one table hold permits of the
//!   same key.

pub mod demand;
#[cfg(all(test, sluicegate_loom))]
mod models;
pub mod permits;
pub mod table;

pub use demand::{Demand, PermitRequest};
pub use permits::{Generation, Grant, PermitPool, PermitReturn, PermitTally, Uptime};
pub use table::{CallResult, LeaseTable};
