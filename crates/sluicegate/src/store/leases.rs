//! Permits that were paid for ahead: a hot decision asks the store for more of its kind at once, and spends here what is
//! left over.
//!
//! A permit is one whole decision over all its limits, charged everywhere it has to be, and is spent by one request. Who
//! knows where state is kept charges and gives back; here is only what may be asked for, held and spent:
//!
//! | module | what it holds |
//! |---|---|
//! | [`pot`] | the permits of one decision: a state machine without clock or store |
//! | [`pace`] | how many permits a decision may ask for, and when it had better ask for none |
//! | [`table`] | the pots of all decisions: bounded, and one at most for every key |
//!
//! What must stay true:
//! - A permit is spent at most once, before its time is over and never afterwards, however long the process slept.
//! - It is given back at most once, and then was not spent. What is not known for certain is lost, never gained.
//! - With all that it has asked for, a pot never holds more than [`Lease::most_held`](super::Lease::most_held) of any
//!   limit, and no two pots of one table hold permits of the same key.

#[cfg(all(test, sluicegate_loom))]
mod models;
pub mod pace;
pub mod pot;
pub mod table;

pub use pace::{Asking, Pace};
pub use pot::{Generation, Grant, Moment, Pot, Return, Tally};
pub use table::{Answered, Leases};
