//! `cargo xtask test`: all tests, the instruction counts of the hot paths, the fuzz targets, then the loom models of
//! the concurrent parts.
//!
//! The first steps install the programs that tests need.
//! A step fails when a test fails, when a test was skipped, and, for loom, when none ran.

use crate::command::Invocation;
use crate::counts;
use crate::failure::Failure;
use crate::fuzz;
use crate::h2spec;
use crate::plan::Step;
use crate::servers::{self, Servers};
use crate::tools;
use crate::workspace::Workspace;

pub(crate) const STEPS: &[Step] = &[
    Step { name: "redis", about: "Redis and Valkey for the tests: found, or installed", run: redis_and_valkey },
    Step { name: "clients", about: "the Redis clients that the tests drive are there", run: tools::redis_py },
    Step {
        name: "proxies",
        about: "nginx, HAProxy, Caddy, Traefik and Envoy for the tests: found, or installed",
        run: servers::front_proxies,
    },
    Step { name: "browser", about: "Chromium for the tests of pages: found, or installed", run: servers::browser },
    Step { name: "postgres", about: "PostgreSQL for the tests: found, or installed", run: servers::postgres },
    Step {
        name: "schemathesis",
        about: "what tries the admin API by its description is there",
        run: tools::schemathesis,
    },
    Step { name: "helm", about: "what renders the Helm chart is there", run: tools::helm },
    Step {
        name: "workspace",
        about: "unit, integration and documentation tests of every crate, all features on",
        run: workspace_tests,
    },
    Step {
        name: "h2spec",
        about: "the HTTP/2 of every HTTP listener, case by case; it needs Go",
        run: h2spec::check,
    },
    Step { name: "counts", about: "no core path takes notably more instructions than before", run: counts::check },
    Step { name: "fuzz", about: "mutated input for some seconds, and what must hold then", run: fuzz::check },
    Step { name: "loom", about: "every interleaving of the small concurrent parts", run: loom_tests },
];

/// The number of forced thread switches per loom execution: nearly all known races need at
/// most two, and each further one multiplies the time.
const LOOM_PREEMPTIONS: &str = "3";

fn redis_and_valkey(workspace: &Workspace) -> Result<String, Failure> {
    Servers::find_or_install(workspace)?.versions()
}

fn workspace_tests(workspace: &Workspace) -> Result<String, Failure> {
    let test = Invocation::cargo().arguments("test --workspace --all-features --locked");
    let printed = Servers::find_or_install(workspace)?.tell(test).run_and_keep()?;
    Counts::read(&printed).judge("is everything compiled?")
}

/// Uses a separate target folder, because the other flags would rebuild every dependency back and forth,
/// and no link-time optimisation, which takes longer than it saves. Only this project's crates see the flag: some dependencies have
/// models of their own behind `cfg(loom)` and do not compile with it.
fn loom_tests(workspace: &Workspace) -> Result<String, Failure> {
    let printed = Invocation::cargo()
        .arguments("test --package sluicegate --features redis --lib --release --locked --target-dir")
        .argument(workspace.target.join("loom").to_string_lossy())
        .argument("loom")
        .variable("RUSTFLAGS", "--cfg sluicegate_loom")
        .variable("CARGO_PROFILE_RELEASE_LTO", "off")
        .variable("LOOM_MAX_PREEMPTIONS", LOOM_PREEMPTIONS)
        .run_and_keep()?;
    Counts::read(&printed)
        .judge("loom tests are compiled under `cfg(sluicegate_loom)` and their names start with `loom_`")
}

/// The sums over all `test result:` lines of a run.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    passed: u64,
    ignored: u64,
}

impl Counts {
    fn read(output: &str) -> Self {
        let results = output.lines().filter(|line| line.starts_with("test result:"));
        results.fold(Self::default(), |sum, line| Self {
            passed: sum.passed + number_before(line, "passed"),
            ignored: sum.ignored + number_before(line, "ignored"),
        })
    }

    /// The summary of a run in which at least one test ran and none was skipped.
    fn judge(&self, hint: &str) -> Result<String, Failure> {
        match *self {
            Self { ignored: 1.., .. } => Err(Failure::step(format!(
                "tests were skipped ({} of them); repair them or remove them",
                self.ignored
            ))),
            Self { passed: 0, .. } => Err(Failure::step(format!("not one test ran: {hint}"))),
            Self { passed, .. } => Ok(format!("{passed} passed")),
        }
    }
}

fn number_before(line: &str, word: &str) -> u64 {
    let words: Vec<&str> = line.split([' ', ';']).filter(|part| !part.is_empty()).collect();
    words.windows(2).find(|pair| pair[1] == word).and_then(|pair| pair[0].parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_all_test_binaries_are_added_up() {
        let output = "running 3 tests\ntest a ... ok\n\
            test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 7 filtered out; finished in 0.00s\n\
            test result: ok. 30 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.10s\n";
        assert_eq!(Counts::read(output), Counts { passed: 42, ignored: 2 });
    }

    #[test]
    fn a_run_without_tests_or_with_skipped_ones_does_not_pass() {
        let judged = |passed, ignored| {
            let verdict = Counts { passed, ignored }.judge("why?");
            verdict.map_err(|failure| failure.to_string())
        };
        assert_eq!(judged(3, 0), Ok("3 passed".to_owned()));
        assert_eq!(judged(0, 0), Err("not one test ran: why?".to_owned()));
        let skipped = "tests were skipped (2 of them); repair them or remove them";
        assert_eq!(judged(3, 2), Err(skipped.to_owned()));
        assert_eq!(judged(0, 2), Err(skipped.to_owned()));
        let none = "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out\n";
        assert_eq!(Counts::read(none), Counts { passed: 0, ignored: 0 });
    }
}
