//! Integration tests of the core, in one binary.
//!
//! | module | subject |
//! |---|---|
//! | `properties` | over a million random operations per run against the exact model |
//! | `exhaustive` | every state of small limits, and a corpus of extreme numbers: nothing panics |
//! | `custom_algorithm` | the algorithm of the documentation, verbatim |
//! | `examples` | tables that can be checked by hand |
//! | `clocks` | clocks that differ, step back or repeat a second: no client gains, no client waits forever |
//! | `prepaid` | limits for charges in advance: no client gains by the delay |
//! | `regressions` | bugs that the other modules found, each as its smallest example |
//! | `shares` | the share of a limit: exact, or on the strict side |
//! | `source_defects` | the defects of the source documents, and the correct behaviour |
//!
//! `harness` runs one identity through the core and the model side by side and checks every invariant after every
//! step; `strategies` generates the limits and the steps.

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
