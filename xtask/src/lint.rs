//! `cargo xtask lint`: all checks that do not run the code.
//!
//! The steps run in the order of their cost, so that a simple mistake is reported within seconds.

use crate::command::Invocation;
use crate::failure::Failure;
use crate::plan::Step;
use crate::workspace::Workspace;
use crate::{advisories, fuzz, tidy, tools};

pub(crate) const STEPS: &[Step] = &[
    Step { name: "tidy", about: "the house rules no other tool knows", run: tidy::run },
    Step { name: "format", about: "rustfmt would change nothing", run: format },
    Step { name: "clippy", about: "no warning in any target, all features on", run: clippy },
    Step { name: "features", about: "the library without and with each single feature", run: features },
    Step { name: "docs", about: "the documentation builds and its links lead somewhere", run: docs },
    Step { name: "typos", about: "no known misspelling", run: typos },
    Step { name: "deny", about: "licences, banned packages and sources of dependencies", run: deny },
    Step {
        name: "advisories",
        about: "no known vulnerability in a dependency, where the database can be fetched",
        run: advisories::check,
    },
];

/// The crate others embed, whose features must work in any combination.
const LIBRARY: &str = "sluicegate";
/// The package of the program, which is called as the library is.
const SERVER: &str = "sluicegate-server";

fn format(workspace: &Workspace) -> Result<String, Failure> {
    Invocation::cargo().arguments("fmt --all --check").run()?;
    Invocation::cargo().arguments("fmt --check --manifest-path fuzz/Cargo.toml").within(&workspace.root).run()?;
    Ok("nothing to change".to_owned())
}

/// The fuzz targets are a workspace of their own, compiled here as they are run, so that the tests find it done.
fn clippy(workspace: &Workspace) -> Result<String, Failure> {
    Invocation::cargo()
        .arguments("clippy --workspace --all-targets --all-features --locked -- -D warnings")
        .run()?;
    fuzz::cargo(workspace, "clippy")?.arguments("-- -D warnings").run()?;
    Ok("no warnings".to_owned())
}

/// Clippy rather than a plain check: code that only one feature uses is a warning, and here an error.
fn features(workspace: &Workspace) -> Result<String, Failure> {
    let features = &workspace.package(LIBRARY)?.features;
    alone(None).run()?;
    features.iter().try_for_each(|feature| alone(Some(feature)).run())?;
    Ok(match &features[..] {
        [] => "without features (there are none)".to_owned(),
        _ => format!("without features, and with only {}", features.join(", only ")),
    })
}

fn alone(feature: Option<&str>) -> Invocation {
    let start = Invocation::cargo().arguments("clippy --locked --no-default-features --package").argument(LIBRARY);
    let start = match feature {
        Some(feature) => start.argument("--features").argument(feature),
        None => start,
    };
    start.arguments("-- -D warnings")
}

/// In two runs, because the server's program and the library have the same name, which is also the name of the
/// folder their pages are written to. The library comes last: its pages are the ones worth keeping.
fn docs(_: &Workspace) -> Result<String, Failure> {
    documentation("--package").run()?;
    documentation("--workspace --exclude").run()?;
    Ok("no warnings".to_owned())
}

fn documentation(with_or_without_server: &str) -> Invocation {
    Invocation::cargo()
        .arguments("doc --no-deps --all-features --locked")
        .arguments(with_or_without_server)
        .argument(SERVER)
        .variable("RUSTDOCFLAGS", "-D warnings")
}

fn typos(workspace: &Workspace) -> Result<String, Failure> {
    Invocation::new(tools::typos(workspace)?).within(&workspace.root).run()?;
    Ok("none".to_owned())
}

/// Advisories are a step of their own, because their database cannot be fetched everywhere.
fn deny(workspace: &Workspace) -> Result<String, Failure> {
    let program = tools::cargo_deny(workspace)?;
    for manifest in ["Cargo.toml", "fuzz/Cargo.toml"] {
        Invocation::new(&program)
            .arguments("--locked --workspace --manifest-path")
            .argument(manifest)
            .arguments("--config deny.toml check bans licenses sources")
            .within(&workspace.root)
            .run()?;
    }
    Ok("every dependency is allowed".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_is_checked_without_the_others() {
        assert_eq!(
            alone(Some("redis")).to_string(),
            "cargo clippy --locked --no-default-features --package sluicegate --features redis -- -D warnings"
        );
        assert_eq!(
            alone(None).to_string(),
            "cargo clippy --locked --no-default-features --package sluicegate -- -D warnings"
        );
    }
}
