//! The evidence for the core: its one integration test binary.
//!
//! | module | what it shows |
//! |---|---|
//! | `clocks` | clocks that differ, step back or repeat a second: nobody gains, nobody waits for ever |
//! | `regressions` | what the other modules found, each as the smallest story that shows it |

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test may fail"
)]

mod clocks;
mod regressions;
