//! Explores the model of leases at sizes that take minutes to hours: `cargo xtask explore`.
//!
//! Prints how many states each setting has, or the shortest way to a broken promise; the exit code says which.

#![expect(clippy::print_stdout, reason = "it talks to the person who ran it")]

use sluicegate_testkit::lease_model::Setting;
use std::process::ExitCode;

/// About as many states as fit into ten gigabytes.
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
