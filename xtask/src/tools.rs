//! Programs the tasks need and Cargo does not bring: fixed versions, installed once under `target/tools`.
//!
//! Nothing outside the target folder is touched, and what is installed is said before it happens.

use std::fs;
use std::path::Path;

use crate::command::Invocation;
use crate::failure::Failure;
use crate::workspace::Workspace;

const CARGO_DENY_VERSION: &str = "0.20.2";
const TYPOS_VERSION: &str = "1.51.1";
const REDIS_PY_VERSION: &str = "8.1.0";

/// The path of `cargo-deny`, which is compiled on its first use.
pub(crate) fn cargo_deny(workspace: &Workspace) -> Result<String, Failure> {
    let tools = workspace.tools();
    let program = printable(&tools.join("bin/cargo-deny"))?;
    if answers(&program, CARGO_DENY_VERSION) {
        return Ok(program);
    }
    println!("cargo-deny {CARGO_DENY_VERSION} is not there yet: compiling it, about a minute on two cores");
    let build = tools.join("build");
    // Unoptimised, because so it compiles in a third of the time and then runs for one second instead of half.
    Invocation::cargo()
        .words("install cargo-deny --locked --debug --force --version")
        .word(CARGO_DENY_VERSION)
        .word("--root")
        .word(printable(&tools)?)
        .word("--target-dir")
        .word(printable(&build)?)
        .variable("CARGO_PROFILE_DEV_DEBUG", "0")
        .run()?;
    fs::remove_dir_all(&build)
        .map_err(|error| Failure::step(format!("cannot remove {}: {error}", build.display())))?;
    installed(program, CARGO_DENY_VERSION)
}

/// The path of `typos`, a ready-made program that the Python package index distributes.
pub(crate) fn typos(workspace: &Workspace) -> Result<String, Failure> {
    let home = workspace.tools().join("typos");
    let program = printable(&home.join("bin/typos"))?;
    if answers(&program, TYPOS_VERSION) {
        return Ok(program);
    }
    println!("typos {TYPOS_VERSION} is not there yet: installing it with pip");
    Invocation::new("python3").words("-m venv --clear").word(printable(&home)?).run()?;
    Invocation::new(printable(&home.join("bin/python"))?)
        .words("-m pip install --quiet --no-deps --only-binary :all: --require-hashes --requirement")
        .word(printable(&workspace.root.join("xtask/typos-requirements.txt"))?)
        .run()?;
    installed(program, TYPOS_VERSION)
}

/// A Python that has redis-py, which the tests of the RESP listener look for under this very path.
pub(crate) fn redis_py(workspace: &Workspace) -> Result<String, Failure> {
    let home = workspace.tools().join("redis-py");
    let python = printable(&home.join("bin/python"))?;
    let is_there = || {
        let ask = || Invocation::new(&python).word("-c").word("import redis; print(redis.__version__)").ask();
        Path::new(&python).exists() && ask().is_ok_and(|answer| names(&answer, REDIS_PY_VERSION))
    };
    if !is_there() {
        println!("redis-py {REDIS_PY_VERSION} is not there yet: installing it with pip");
        Invocation::new("python3").words("-m venv --clear").word(printable(&home)?).run()?;
        Invocation::new(&python)
            .words("-m pip install --quiet --no-deps --only-binary :all: --require-hashes --requirement")
            .word(printable(&workspace.root.join("xtask/redis-py-requirements.txt"))?)
            .run()?;
    }
    if is_there() {
        return Ok(format!("redis-py {REDIS_PY_VERSION}"));
    }
    Err(Failure::step(format!("{python} was just given redis-py {REDIS_PY_VERSION} and does not find it")))
}

fn installed(program: String, version: &str) -> Result<String, Failure> {
    if answers(&program, version) {
        return Ok(program);
    }
    Err(Failure::step(format!("{program} was just installed and does not answer as version {version}")))
}

fn answers(program: &str, version: &str) -> bool {
    let ask = || Invocation::new(program).word("--version").ask();
    Path::new(program).exists() && ask().is_ok_and(|answer| names(&answer, version))
}

fn names(answer: &str, version: &str) -> bool {
    answer.split_whitespace().last() == Some(version)
}

fn printable(path: &Path) -> Result<String, Failure> {
    path.to_str()
        .map(str::to_owned)
        .ok_or_else(|| Failure::step(format!("the path {} is not UTF-8", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_pip_is_asked_for_is_the_version_expected() {
        let requirements = include_str!("../typos-requirements.txt");
        assert!(requirements.contains(&format!("\ntypos=={TYPOS_VERSION} \\\n")));
        let requirements = include_str!("../redis-py-requirements.txt");
        assert!(requirements.contains(&format!("\nredis=={REDIS_PY_VERSION} \\\n")));
    }

    #[test]
    fn another_version_or_no_program_does_not_answer() {
        assert!(names("cargo-deny 0.20.2\n", "0.20.2"));
        assert!(!names("cargo-deny 0.20.2\n", "0.20.3"));
        assert!(!names("", "0.20.2"));
        assert!(!answers("no-such-program", "0.20.2"));
    }
}
