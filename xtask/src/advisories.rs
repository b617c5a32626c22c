//! `cargo xtask advisories`: known vulnerabilities in the dependencies, from the RustSec advisory database.
//!
//! The database is a Git repository that is fetched on each run. If the fetch is impossible, the step reports that it did not run
//! and passes, so that `lint` works without a network. A known vulnerability is a failure.

use crate::command::Invocation;
use crate::failure::Failure;
use crate::tools;
use crate::workspace::Workspace;

/// The workspaces with their own lock file.
const MANIFESTS: [&str; 2] = ["Cargo.toml", "fuzz/Cargo.toml"];

/// `cargo xtask advisories`.
pub(crate) fn run(arguments: &[String], workspace: &Workspace) -> Result<(), Failure> {
    match arguments {
        [] => check(workspace).map(|remark| println!("advisories: {remark}")),
        _ => Err(Failure::usage(format!("`advisories` takes no options, not `{}`", arguments.join(" ")))),
    }
}

/// Fetches the database and searches it for every dependency.
pub(crate) fn check(workspace: &Workspace) -> Result<String, Failure> {
    let program = match tools::cargo_deny(workspace) {
        Ok(program) => program,
        Err(failure) => return Ok(did_not_run("cargo-deny could not be installed", &failure)),
    };
    if let Err(failure) = on(&program, MANIFESTS[0], "fetch db", workspace).run() {
        return Ok(did_not_run("the advisory database could not be fetched", &failure));
    }
    for manifest in MANIFESTS {
        on(&program, manifest, "check --disable-fetch advisories", workspace).run()?;
    }
    Ok("no known vulnerability in any dependency".to_owned())
}

fn on(program: &str, manifest: &str, what: &str, workspace: &Workspace) -> Invocation {
    let command = Invocation::new(program).arguments("--locked --workspace --manifest-path").argument(manifest);
    command.arguments("--config deny.toml").arguments(what).within(&workspace.root)
}

fn did_not_run(why: &str, failure: &Failure) -> String {
    let first = failure.to_string();
    format!("did not run: {why} ({}); no dependency was checked", first.lines().next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// An environment without a route to the network.
    #[test]
    fn without_the_database_the_step_reports_that_it_did_not_run() {
        let remark = did_not_run("the advisory database could not be fetched", &Failure::step("exit 1\nand more"));
        assert_eq!(
            remark,
            "did not run: the advisory database could not be fetched (exit 1); no dependency was checked"
        );
    }

    #[test]
    fn the_check_never_fetches_by_itself() {
        let workspace = Workspace { root: PathBuf::new(), target: PathBuf::new(), packages: Vec::new() };
        assert_eq!(
            on("deny", "fuzz/Cargo.toml", "check --disable-fetch advisories", &workspace).to_string(),
            "deny --locked --workspace --manifest-path fuzz/Cargo.toml --config deny.toml check --disable-fetch advisories"
        );
    }
}
