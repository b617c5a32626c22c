//! Calls each of the hot paths a fixed number of times, so that Callgrind can count
//! the instructions of one call. `cargo xtask counts` runs it and compares the counts with `bench/counts.txt`.
//!
//! Nothing here depends on time, randomness or the machine: clocks are manual, and every table holds
//! one key, so the position of its hash does not matter.

#![expect(clippy::print_stdout, reason = "what is counted, in which order, is what this program has to say")]

mod paths;

/// The server is a program, not a library: this compiles those of its files that a command passes through. Their
/// tests belong to the server.
#[cfg(not(test))]
#[path = "../../../crates/sluicegate-server/src/resp"]
mod resp {
    #[path = "../../../../bench/counts/src/answer.rs"]
    pub(crate) mod answer;
    #[expect(dead_code, reason = "whom a command is from is for the connection to say")]
    mod parse;
    #[expect(dead_code, reason = "the server uses the rest")]
    mod reply;
    #[expect(dead_code, reason = "the server uses the rest")]
    mod throttle;
}

/// The same for the files that count a decision.
#[cfg(not(test))]
#[path = "../../../crates/sluicegate-server/src/metrics"]
mod metrics {
    #[path = "../../../../bench/counts/src/counted.rs"]
    pub(crate) mod counted;
    #[expect(dead_code, reason = "the server counts more than decisions")]
    mod counters;
    mod histogram;
    #[expect(dead_code, reason = "the server reads what is counted")]
    mod thread_counters;
    mod thread_slot;
}

use std::error::Error;
use std::hint::black_box;

/// Warm-up calls, after which tables and buffers have their final size.
const CALLS_BEFORE: u32 = 100;
/// Counted calls.
const CALLS: u32 = 1_000;

fn main() -> Result<(), Box<dyn Error>> {
    println!("calls {CALLS}");
    for (name, mut call) in paths::all()?.into_iter().chain(of_the_server()?) {
        println!("path {name}");
        (0..CALLS_BEFORE).for_each(|_| call());
        counting_begins();
        (0..CALLS).for_each(|_| call());
        counting_ends();
    }
    Ok(())
}

#[cfg(not(test))]
fn of_the_server() -> Result<Vec<paths::Path>, Box<dyn Error>> {
    Ok(resp::answer::all()?.into_iter().chain(metrics::counted::all()?).collect())
}

#[cfg(test)]
fn of_the_server() -> Result<Vec<paths::Path>, Box<dyn Error>> {
    Ok(Vec::new())
}

/// Callgrind starts to count here …
#[inline(never)]
fn counting_begins() {
    black_box("begins");
}

/// … and stops here; it finds both functions by name. Their bodies differ, or the compiler would merge them.
#[inline(never)]
fn counting_ends() {
    black_box("ends here");
}
