//! What the tests of several crates share. Never shipped.
//!
//! [`model`] is a second opinion on every algorithm, [`mod@reference`] a store too simple to be wrong,
//! [`conformance`] what every store must do, [`faulty_store`] a store that fails when it is told to.
#![allow(clippy::panic, clippy::missing_panics_doc, reason = "a test kit reports by panicking")]

pub mod conformance;
pub mod faulty_store;
pub mod model;
pub mod reference;
