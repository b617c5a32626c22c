//! The rule that keeps the core pure: a crate without dependencies has no clock, socket or lock beside those
//! of the standard library, and clippy bans these.

use super::{Problem, Tree};

const CORE: &str = "sluicegate-core";
const CORE_MANIFEST: &str = "crates/sluicegate-core/Cargo.toml";

/// The core has no dependency, neither platform-specific nor optional nor of a build script.
pub(super) fn core_needs_nothing(tree: &Tree<'_>) -> Vec<Problem> {
    let problem = |message| Problem { path: CORE_MANIFEST.to_owned(), line: None, message };
    match tree.packages.iter().find(|package| package.name == CORE) {
        None => vec![problem(format!("there is no package `{CORE}` whose purity could be checked"))],
        Some(core) => core
            .needs
            .iter()
            .map(|name| {
                problem(format!("the core depends on `{name}`; its only proof of purity is to need nothing"))
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Package;

    fn found(name: &str, needs: &[&str]) -> Vec<String> {
        let needs = needs.iter().map(|&name| name.to_owned()).collect();
        let package = Package { name: name.to_owned(), features: Vec::new(), needs };
        let tree = Tree { files: Vec::new(), packages: &[package] };
        core_needs_nothing(&tree).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_dependency_of_the_core_is_found() {
        assert!(found(CORE, &[]).is_empty());
        assert_eq!(
            found(CORE, &["libm"]),
            ["crates/sluicegate-core/Cargo.toml: the core depends on `libm`; \
              its only proof of purity is to need nothing"]
        );
    }

    #[test]
    fn a_core_that_is_gone_is_not_a_pure_core() {
        assert_eq!(
            found("sluicegate", &[]),
            ["crates/sluicegate-core/Cargo.toml: there is no package `sluicegate-core` \
              whose purity could be checked"]
        );
    }
}
