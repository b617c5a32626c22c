//! `cargo xtask ratelimit`: the real envoyproxy/ratelimit and the server side by side, with random configurations and requests.
//!
//! That service is written in Go, and Go compiles it once into `target/tools`. Without Go, or if Go cannot fetch it, nothing is
//! compared, and the command reports that.

use std::path::Path;

use crate::command::Invocation;
use crate::failure::Failure;
use crate::servers::Servers;
use crate::tools::printable;
use crate::workspace::Workspace;

/// The newest version whose dependencies the module proxy has.
const PACKAGE: &str = "github.com/envoyproxy/ratelimit/src/service_cmd@v1.4.1-0.20260122083618-3fb702589d36";

const USAGE: &str =
    "`ratelimit` takes `--seed S`, the seed of the configurations; without one, another one each time";

/// `cargo xtask ratelimit [--seed S]`.
pub(crate) fn run(words: &[String], workspace: &Workspace) -> Result<(), Failure> {
    let seed = match words {
        [] => None,
        [option, seed] if option == "--seed" && seed.parse::<u64>().is_ok() => Some(seed.as_str()),
        _ => return Err(Failure::usage(USAGE)),
    };
    compare(workspace, seed).map(|seen| println!("ratelimit: {seen}"))
}

fn compare(workspace: &Workspace, seed: Option<&str>) -> Result<String, Failure> {
    if Invocation::new("go").argument("version").output().is_err() {
        return Ok(did_not_run("envoyproxy/ratelimit is compiled by Go, and there is no `go` on this machine"));
    }
    let program = match installed(workspace) {
        Ok(program) => program,
        Err(failure) => return Ok(did_not_run(&format!("Go could not compile envoyproxy/ratelimit: {failure}"))),
    };
    let test = Invocation::cargo()
        .arguments("test --quiet --locked --package sluicegate-server --all-features --test it -- --nocapture")
        .argument("envoy::differential")
        .variable("SLUICEGATE_TEST_RATELIMIT", program);
    let test = match seed {
        Some(seed) => test.variable("SLUICEGATE_TEST_RATELIMIT_SEED", seed),
        None => test,
    };
    Servers::find_or_install(workspace)?.tell(test).run()?;
    Ok("the answers to random requests are equal".to_owned())
}

fn did_not_run(reason: &str) -> String {
    let message = format!("did NOT run: {reason}");
    println!("{message}");
    message
}

/// The path of the service, which is compiled on its first use.
fn installed(workspace: &Workspace) -> Result<String, Failure> {
    let home = workspace.tools().join("ratelimit");
    let program = printable(&home.join("service_cmd"))?;
    if !Path::new(&program).exists() {
        println!("envoyproxy/ratelimit is not there yet: compiling it with Go");
        Invocation::new("go").arguments("install").argument(PACKAGE).variable("GOBIN", printable(&home)?).run()?;
    }
    Ok(program)
}
