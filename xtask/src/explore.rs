//! `cargo xtask explore`: explores every state of the model of leases at sizes that take too long for a test.

use crate::command::Invocation;
use crate::failure::Failure;

pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    match arguments {
        [] => invocation().run(),
        arguments => Err(Failure::usage(format!("`explore` takes no options, not `{}`", arguments.join(" ")))),
    }
}

fn invocation() -> Invocation {
    Invocation::cargo().arguments("run --release --locked --package sluicegate-testkit --bin explore_leases")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_nothing_to_choose() {
        assert!(run(&["fast".to_owned()]).unwrap_err().to_string().contains("not `fast`"));
        assert!(invocation().to_string().ends_with("--bin explore_leases"));
    }
}
