//! Calls each of the core paths a fixed number of times, so that whoever runs this program under Callgrind can count
//! the instructions of one call. `cargo xtask counts` does, and holds the counts against `bench/counts.txt`.
//!
//! Nothing here depends on the time, on randomness or on the machine: clocks are set by hand, and every table holds
//! one key, so that it does not matter where its hash puts it.

#![expect(clippy::print_stdout, reason = "what is counted, in which order, is what this program has to say")]

mod paths;

/// The server is a program, not a library: of its own files those are compiled here that a command goes through. Their
/// tests belong to the server.
#[cfg(not(test))]
#[path = "../../../crates/sluicegate-server/src/resp"]
mod resp {
    #[path = "../../../../bench/counts/src/answer.rs"]
    pub(crate) mod answer;
    mod parse;
    #[expect(dead_code, reason = "the server uses the rest")]
    mod reply;
    #[expect(dead_code, reason = "the server uses the rest")]
    mod throttle;
}

/// The same for those that count a decision.
#[cfg(not(test))]
#[path = "../../../crates/sluicegate-server/src/metrics"]
mod metrics {
    #[expect(dead_code, reason = "the server reads what is counted")]
    mod cells;
    #[path = "../../../../bench/counts/src/counted.rs"]
    pub(crate) mod counted;
    #[expect(dead_code, reason = "the server counts more than decisions")]
    mod counters;
    mod histogram;
    mod place;
}

use std::error::Error;
use std::hint::black_box;

/// Calls before anything is counted: tables and buffers have found their size by then.
const CALLS_BEFORE: u32 = 100;
/// Calls that are counted.
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

/// Callgrind is told to count from here …
#[inline(never)]
fn counting_begins() {
    black_box("begins");
}

/// … to here, and finds both by their names. Their bodies differ, or the compiler would make one of them.
#[inline(never)]
fn counting_ends() {
    black_box("ends here");
}
