//! The whole-system oracle: a slow and obvious implementation of the contract, compared with a whole system.
//!
//! A case is generated from a seed: rules with tiers, overrides and shadow mode, clients that share tenants and
//! addresses, and operations: check, peek, refund, reset, several requests with one decision, reloads, and a clock that
//! also steps back. [`run()`] executes the case on a [`System`] and on the contract, and compares every field of every
//! answer. A different answer is a [`Disagreement`], which prints the seed, the rules as a user writes them, and the
//! operations. [`shrink()`] removes the parts that do not matter.
//!
//! | module | content |
//! |---|---|
//! | [`limit`] | each algorithm, in integer arithmetic |
//! | [`rules`], `yaml` | the limits that apply to a request, and the rules as text |
//! | [`operation`], [`answer`] | the operations and their answers |
//! | `contract` | the all-or-nothing decision over several limits, and all state |
//! | [`draw`] | random cases |
//! | [`system`] | the system under test: any store under the library's limiter |
//! | [`between`], [`shown`] | the comparison in real time, with instants known approximately: front doors |
//! | [`campaign`], `together` | many cases in sequence; concurrent requests |
//! | `full` | a full embedded store |
//! | `stores` | the embedded store, real servers and a real Cluster (with the feature `servers`) |
//!
//! Nothing here calls the arithmetic of the product. A store may forget usage that no longer matters at any time. This
//! is visible after a reload that lengthens a window and after a backward step of the clock; there the contract follows
//! the system.

pub mod answer;
pub mod between;
pub mod campaign;
mod contract;
pub mod draw;
#[cfg(feature = "servers")]
mod full;
pub mod limit;
pub mod operation;
pub mod rules;
pub mod run;
pub mod shown;
mod shrink;
#[cfg(feature = "servers")]
pub mod stores;
pub mod system;
#[cfg(feature = "servers")]
mod together;
mod yaml;

pub use answer::Scope;
pub use between::{Answered, Between};
pub use draw::{Case, Options};
pub use run::{Disagreement, Tally, run};
pub use shrink::shrink;
pub use system::{Library, System};
