//! The servers of other projects that benchmarks compare with: fixed versions, compiled once into `target/peers`. A failed
//! build is an error that names the peer.

use std::fs;
use std::path::PathBuf;

use crate::command::Invocation;
use crate::failure::Failure;
use crate::servers;
use crate::tools::printable;
use crate::workspace::Workspace;

const THROTTLECRAB: &str = "throttlecrab-server";
const THROTTLECRAB_VERSION: &str = "0.4.40";
/// The program that its build script needs, and the package that contains it.
const PROTOC: (&str, &str) = ("protoc", "protobuf-compiler");
const PROTOC_REMEDY: &str = "Install it yourself: throttlecrab-server is not compiled without it";
/// limitador's server is not in the registry: this is its library behind a minimal server, in a separate workspace.
const LIMITADOR: &str = "limitador-in-hyper";
const LIMITADOR_FOLDER: &str = "bench/peers/limitador";

/// The path of throttlecrab's own server.
pub(crate) fn throttlecrab(workspace: &Workspace) -> Result<String, Failure> {
    servers::of_debian(PROTOC.0, PROTOC.1, PROTOC_REMEDY)
        .map_err(|failure| not_to_be_had(THROTTLECRAB, &failure))?;
    let source = Invocation::cargo()
        .argument("install")
        .argument(THROTTLECRAB)
        .argument("--version")
        .argument(format!("={THROTTLECRAB_VERSION}"));
    installed(workspace, THROTTLECRAB, source)
}

/// The path of limitador's library behind hyper.
pub(crate) fn limitador(workspace: &Workspace) -> Result<String, Failure> {
    let folder = printable(&workspace.root.join(LIMITADOR_FOLDER))?;
    installed(workspace, LIMITADOR, Invocation::cargo().arguments("install --path").argument(folder))
}

/// Cargo decides whether a rebuild is necessary.
fn installed(workspace: &Workspace, name: &str, source: Invocation) -> Result<String, Failure> {
    let home = home(workspace);
    fs::create_dir_all(&home)
        .map_err(|error| Failure::step(format!("cannot make {}: {error}", home.display())))?;
    source
        .arguments("--locked --root")
        .argument(printable(&home)?)
        .argument("--target-dir")
        .argument(printable(&home.join("build"))?)
        .run()
        .map_err(|failure| not_to_be_had(name, &failure))?;
    printable(&home.join("bin").join(name))
}

fn home(workspace: &Workspace) -> PathBuf {
    workspace.target.join("peers")
}

fn not_to_be_had(name: &str, failure: &Failure) -> Failure {
    Failure::step(format!("the peer {name} could not be built, and nothing is compared without it: {failure}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_cannot_be_built_is_named() {
        let failure = not_to_be_had(THROTTLECRAB, &Failure::step("no network")).to_string();
        assert!(failure.starts_with("the peer throttlecrab-server could not be built"), "{failure}");
        assert!(failure.ends_with("no network"), "{failure}");
    }

    #[test]
    fn the_package_that_stands_for_limitador_is_called_as_it_is_looked_for() {
        let manifest = include_str!("../../bench/peers/limitador/Cargo.toml");
        assert!(manifest.contains(&format!("name = \"{LIMITADOR}\"")), "{manifest}");
    }
}
