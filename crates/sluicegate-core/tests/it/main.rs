//! The evidence for the core: its one integration test binary.
//!
//! | module | what it shows |
//! |---|---|
//! | `properties` | over a million random operations a run against the exact model: the promises hold |
//! | `exhaustive` | every state of small limits, and a corpus of extreme numbers: nothing panics |
//! | `custom_algorithm` | the algorithm that the documentation adds, to the letter |
//! | `examples` | tables that anyone can check by hand |
//! | `clocks` | clocks that differ, step back or repeat a second: nobody gains, nobody waits for ever |
//! | `prepaid` | limits for what is charged ahead: nobody gains by the delay |
//! | `regressions` | what the other modules found, each as the smallest story that shows it |
//! | `shares` | what one of several enforces alone: exact, or on the strict side |
//! | `source_defects` | where the source documents go wrong, and what happens here instead |
//!
//! `harness` runs one identity through the core and the model side by side and checks every promise after
//! every step; `strategies` makes up the limits and the steps.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test may fail"
)]

mod clocks;
mod custom_algorithm;
mod examples;
mod exhaustive;
mod harness;
mod prepaid;
mod properties;
mod regressions;
mod shares;
mod source_defects;
mod strategies;
