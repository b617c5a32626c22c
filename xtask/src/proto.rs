//! `cargo xtask proto`: regenerates the code and the descriptor of the .proto files.
//!
//! A separate package does the work, so that other tasks need not build a protobuf compiler. Its
//! test compares the committed files with a new generation.

use crate::command::Invocation;
use crate::failure::Failure;
use crate::tools;
use crate::workspace::Workspace;

pub(crate) fn run(arguments: &[String], workspace: &Workspace) -> Result<(), Failure> {
    match arguments {
        [] => invocation(&tools::printable(&workspace.root)?).run(),
        arguments => Err(Failure::usage(format!("`proto` takes no options, not `{}`", arguments.join(" ")))),
    }
}

fn invocation(root: &str) -> Invocation {
    Invocation::cargo().arguments("run --locked --package sluicegate-proto --").argument(root)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_the_argument() {
        assert!(invocation("here").to_string().ends_with("--package sluicegate-proto -- here"));
    }
}
