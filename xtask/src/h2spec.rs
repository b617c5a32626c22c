//! `cargo xtask h2spec`: runs the conformance tests of h2spec against the HTTP listeners.
//!
//! h2spec is written in Go, and Go compiles it once into `target/tools`. Without Go, or if Go cannot fetch h2spec, the step does
//! not run, and the summary reports that. Decision 0033 explains the exceptions.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::command::Invocation;
use crate::failure::Failure;
use crate::tools::printable;
use crate::workspace::Workspace;

const PACKAGE: &str = "github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible";

/// The expected number of cases, so that a run without cases does not pass.
const CASES_MIN: u64 = 146;

/// The number of runs. A case passes if it passes in one of them: h2spec sends its frames one after the other, and the response
/// may be complete before the next one.
const RUNS_MAX: usize = 6;

/// The case that fails in every run: a listener also speaks HTTP/1.1, so an invalid preface is a bad HTTP/1.1 request.
const EXCEPTIONS: [&str; 1] = ["Sends invalid connection preface"];

/// The listeners, each with a path that responds at once.
const LISTENERS: [(&str, &str); 3] = [("gateway", "/api/ping"), ("api", "/openapi.json"), ("admin", "/livez")];

/// Runs every case on every listener.
pub(crate) fn check(workspace: &Workspace) -> Result<String, Failure> {
    if Invocation::new("go").argument("version").output().is_err() {
        return Ok(did_not_run("h2spec is compiled by Go, and there is no `go` on this machine"));
    }
    let h2spec = match installed(workspace) {
        Ok(h2spec) => h2spec,
        Err(failure) => return Ok(did_not_run(&format!("Go could not compile h2spec: {failure}"))),
    };
    // The tests build the server, so its binary exists after them.
    Invocation::cargo().arguments("test --no-run --workspace --all-features --locked").run()?;
    let server = Server::start(&workspace.target.join("debug/sluicegate"))?;
    for (name, path) in LISTENERS {
        let failed = failures(&h2spec, server.address(name)?, path)?;
        println!(
            "h2spec on {name}: {} of {CASES_MIN} cases fail in each of {RUNS_MAX} runs or less",
            failed.len()
        );
        let unargued: Vec<&String> =
            failed.iter().filter(|case| !EXCEPTIONS.iter().any(|exception| case.contains(exception))).collect();
        if !unargued.is_empty() {
            return Err(Failure::step(format!("cases of h2spec that the {name} listener fails: {unargued:#?}")));
        }
    }
    Ok(format!("{CASES_MIN} cases on {} listeners, {} argued exception", LISTENERS.len(), EXCEPTIONS.len()))
}

fn did_not_run(reason: &str) -> String {
    let message = format!("did NOT run: {reason}");
    println!("{message}");
    message
}

/// The path of h2spec, which is compiled on its first use.
fn installed(workspace: &Workspace) -> Result<String, Failure> {
    let home = workspace.tools().join("h2spec");
    let program = printable(&home.join("h2spec"))?;
    if !Path::new(&program).exists() {
        println!("h2spec is not there yet: compiling it with Go");
        Invocation::new("go").arguments("install").argument(PACKAGE).variable("GOBIN", printable(&home)?).run()?;
    }
    Ok(program)
}

/// The cases that fail in every run; the runs end with the first in which only the exceptions fail.
fn failures(h2spec: &str, address: SocketAddr, path: &str) -> Result<BTreeSet<String>, Failure> {
    let mut failed: Option<BTreeSet<String>> = None;
    for _ in 0..RUNS_MAX {
        let output = Command::new(h2spec)
            .args(["--strict", "--timeout", "5", "--host", &address.ip().to_string()])
            .args(["--port", &address.port().to_string(), "--path", path])
            .output()
            .map_err(|error| Failure::step(format!("cannot run {h2spec}: {error}")))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let run = Run::read(&text).ok_or_else(|| Failure::step(format!("h2spec said no result: {text}")))?;
        if run.cases < CASES_MIN || run.skipped > 0 {
            let Run { cases, skipped, .. } = run;
            return Err(Failure::step(format!(
                "h2spec tried {cases} cases and skipped {skipped}, not {CASES_MIN}"
            )));
        }
        let still = match failed {
            Some(before) => before.intersection(&run.failed).cloned().collect(),
            None => run.failed,
        };
        let is_settled = still.len() <= EXCEPTIONS.len();
        failed = Some(still);
        if is_settled {
            break;
        }
    }
    Ok(failed.unwrap_or_default())
}

/// The result of one run.
#[derive(Debug, PartialEq, Eq)]
struct Run {
    cases: u64,
    skipped: u64,
    /// With their section, because cases of different sections share names.
    failed: BTreeSet<String>,
}

impl Run {
    fn read(text: &str) -> Option<Self> {
        let result = text.lines().rev().find(|line| line.contains(" tests, "))?;
        let number = |word: &str| {
            let part = result.split(", ").find(|part| part.ends_with(word))?;
            part.split(' ').next()?.parse().ok()
        };
        let mut section = "";
        let mut failed = BTreeSet::new();
        for line in text.split_once("Failures:").map_or("", |(_, failures)| failures).lines() {
            let line = line.trim();
            if let Some((_, case)) = line.split_once("× ") {
                failed.insert(format!("{section} / {case}"));
            } else if line.starts_with(|first: char| first.is_ascii_digit()) {
                section = line;
            }
        }
        Some(Self { cases: number("tests")?, skipped: number("skipped")?, failed })
    }
}

/// The server under test, ended with this value.
struct Server {
    child: Child,
    addresses: Vec<(String, SocketAddr)>,
}

impl Server {
    fn start(program: &Path) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::step(format!("cannot start {}: {error}", program.display()));
        let free = ["--gateway", "127.0.0.1:0", "--api", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        let mut command = Command::new(program);
        command.args(free).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let stderr = child.stderr.take();
        let mut server = Self { child, addresses: Vec::new() };
        let mut lines = BufReader::new(stderr.ok_or_else(|| Failure::step("the server has no stderr"))?).lines();
        for line in lines.by_ref() {
            let line = line.map_err(failed)?;
            if let ["listening", name, address] = line.split(' ').collect::<Vec<_>>()[..] {
                let address = address.parse().map_err(|_| Failure::step(format!("no address in `{line}`")))?;
                server.addresses.push((name.to_owned(), address));
            }
            if line == "ready" {
                // The log continues, and a full pipe would block the process.
                std::thread::spawn(move || lines.for_each(drop));
                return Ok(server);
            }
        }
        Err(Failure::step("the server ended before it was ready"))
    }

    fn address(&self, name: &str) -> Result<SocketAddr, Failure> {
        let found = self.addresses.iter().find(|(listener, _)| listener == name);
        found.map(|(_, address)| *address).ok_or_else(|| Failure::step(format!("{name} is not listening")))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail harmlessly when the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_cases_are_read_with_their_sections() {
        let text = "  8. HTTP\n      × 1: Told while it runs\n\nFailures: \n\nHypertext Transfer Protocol Version 2 (HTTP/2)\n  \
            3. Starting HTTP/2\n    3.5. HTTP/2 Connection Preface\n      × 2: Sends invalid connection preface\n        \
            -> The endpoint MUST terminate the TCP connection.\n\nFinished in 0.1606 seconds\n\
            146 tests, 145 passed, 0 skipped, 1 failed\n";
        let case = "3.5. HTTP/2 Connection Preface / 2: Sends invalid connection preface".to_owned();
        assert_eq!(Run::read(text), Some(Run { cases: 146, skipped: 0, failed: BTreeSet::from([case]) }));
        assert_eq!(Run::read("dial tcp: connection refused\n"), None);
    }
}
