//! The evidence for the core: its one integration test binary.
//!
//! | module | what it shows |
//! |---|---|
//! | `regressions` | what the other modules found, each as the smallest story that shows it |

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test may fail"
)]

mod regressions;
