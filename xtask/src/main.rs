//! The project's tasks, run as `cargo xtask <task>`.
//!
//! Continuous integration runs the same commands as a developer: `lint` and `test`.
//! This file parses the command line and returns the exit code: 0 when all steps passed,
//! 1 when a step failed, 2 when the command line is invalid.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a task runner talks to the person who ran it")]

mod advisories;
mod bench;
mod clock;
mod command;
mod counts;
mod explore;
mod failure;
mod fuzz;
mod h2spec;
mod lint;
mod mutants;
mod oracle;
mod peers;
mod plan;
mod proto;
mod ratelimit;
mod servers;
mod test;
mod tidy;
mod tools;
mod workspace;

use std::process::ExitCode;

use failure::Failure;
use plan::Selection;
use workspace::Workspace;

const HELP: &str = "\
Usage: cargo xtask <task> [options]

Tasks:
  lint              everything that can be said about the code without running it
  test              every test against real servers, which it installs, then the loom models
  tidy              only the house rules, a part of `lint` that takes no time
  bench <name> ...  a benchmark, or `all`, or `plot`; further arguments go to it unchanged
  counts            instructions of the core paths beside the accepted ones, a part of `test`;
                    `--accept` accepts what is counted now
  advisories        known vulnerabilities in the dependencies, the last step of `lint`; says so where the
                    database cannot be fetched
  fuzz [target ...] mutated input for everything that reads what strangers send, `--seconds N` for each target;
                    `--replay FILE` tries one input again
  h2spec            the cases of h2spec on the HTTP listeners, a part of `test`; it needs Go
  ratelimit         random configurations and requests beside the real envoyproxy/ratelimit, which Go compiles;
                    `--seed S`
  proto             writes the code of the .proto files anew
  explore           every state of the model of leases, which takes hours and gigabytes
  mutants <target>  mutation testing of `core`, `library` or `script`, which takes hours;
                    `--shard K/N` runs a part, `--list` prints the mutants
  oracle            random rules, clients and operations on every store, held against the contract;
                    `--store memory|redis|denials|cluster|all`, `--seconds N`, `--seed S`; with `--door
                    http|rls|resp|gateway|all` the front doors of a server instead of the library

Options of lint and test:
  --list            print the numbered plan and run nothing
  --only <step>     run one step of the plan

  --help            this text
";

fn main() -> ExitCode {
    match arguments().and_then(|arguments| run(&arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("\nxtask: {failure}");
            failure.exit_code()
        }
    }
}

fn arguments() -> Result<Vec<String>, Failure> {
    std::env::args_os()
        .skip(1)
        .map(|word| word.into_string().map_err(|word| Failure::usage(format!("{} is not UTF-8", word.display()))))
        .collect()
}

fn run(arguments: &[String]) -> Result<(), Failure> {
    let Some((task, rest)) = arguments.split_first() else {
        return Err(Failure::usage(format!("which task?\n\n{HELP}")));
    };
    match task.as_str() {
        "lint" => plan::run("lint", lint::STEPS, &Selection::parse(rest)?, &Workspace::find()?),
        "test" => plan::run("test", test::STEPS, &Selection::parse(rest)?, &Workspace::find()?),
        "bench" => bench::run(rest),
        "advisories" => advisories::run(rest, &Workspace::find()?),
        "counts" => counts::run(rest, &Workspace::find()?),
        "fuzz" => fuzz::run(rest, &Workspace::find()?),
        "explore" => explore::run(rest),
        "mutants" => mutants::run(rest, &Workspace::find()?),
        "oracle" => oracle::run(rest, &Workspace::find()?),
        "proto" => proto::run(rest, &Workspace::find()?),
        "ratelimit" => ratelimit::run(rest, &Workspace::find()?),
        "h2spec" if rest.is_empty() => h2spec::check(&Workspace::find()?).map(|seen| println!("h2spec: {seen}")),
        "h2spec" => Err(Failure::usage(format!("`h2spec` takes no options, not `{}`", rest.join(" ")))),
        "tidy" if rest.is_empty() => tidy::run(&Workspace::find()?).map(|seen| println!("tidy: {seen}")),
        "tidy" => Err(Failure::usage(format!("`tidy` takes no options, not `{}`", rest.join(" ")))),
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            Ok(())
        }
        unknown => Err(Failure::usage(format!("there is no task `{unknown}`\n\n{HELP}"))),
    }
}
