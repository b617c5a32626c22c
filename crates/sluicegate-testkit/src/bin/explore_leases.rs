//! Explores the lease model at sizes that take minutes to hours: `cargo xtask explore`.
//!
//! Prints the number of states of each setting, or the shortest sequence of actions that breaks a promise. The exit
//! code reports whether all promises hold.

#![expect(clippy::print_stdout, reason = "it talks to the person who ran it")]

use sluicegate_testkit::lease_model::Setting;
use std::process::ExitCode;

/// About as many states as fit into ten gigabytes of memory.
const MOST: usize = 200_000_000;

fn main() -> ExitCode {
    for setting in Setting::large() {
        println!("{setting:?}");
        match setting.explore(MOST) {
            Ok(explored) => println!("  {explored:?}"),
            Err(story) => {
                println!("  {story}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
