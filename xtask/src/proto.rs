//! `cargo xtask proto`: the code and the description of the .proto files, written anew.
//!
//! The work is done by a package of its own, so that other tasks do not wait for a compiler of protobuf to be built. Its
//! test holds what is committed against the files.

use crate::command::Invocation;
use crate::failure::Failure;
use crate::tools;
use crate::workspace::Workspace;

pub(crate) fn run(words: &[String], workspace: &Workspace) -> Result<(), Failure> {
    match words {
        [] => invocation(&tools::printable(&workspace.root)?).run(),
        words => Err(Failure::usage(format!("`proto` takes no options, not `{}`", words.join(" ")))),
    }
}

fn invocation(root: &str) -> Invocation {
    Invocation::cargo().words("run --locked --package sluicegate-proto --").word(root)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_what_it_is_told() {
        assert!(invocation("here").to_string().ends_with("--package sluicegate-proto -- here"));
    }
}
