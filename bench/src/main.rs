//! Benchmarks beside peers. Absolute numbers depend on the machine; the ratios within one run are what is
//! meant to be read. `cargo xtask bench core` is the way in; `bench/README.md` says how to read the result.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark prints what it measured")]
#![expect(clippy::float_arithmetic, reason = "statistics of measurements, not decisions")]

mod contender;
mod core_bench;
mod expiry;
mod redis_bench;
mod report;
mod workload;

use std::process::ExitCode;

const USAGE: &str = "usage: sluicegate-bench core|redis [--rounds N] [--quick] [--json FILE]

  core    nanoseconds per decision and bytes per key: our embedded store, governor, throttlecrab
  redis   decisions through Redis, what they cost and how long they take: our store and the usual scripts
  --rounds N   interleaved rounds, the median counts (default 5)
  --quick      a tenth of the work, for a first look
  --json FILE  also write the raw numbers";

/// What the command line asks for.
#[derive(Clone, Debug)]
struct Options {
    rounds: usize,
    quick: bool,
    json: Option<String>,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["core", rest @ ..] => parse(rest).and_then(|options| core_bench::run(&options)),
        ["redis", rest @ ..] => parse(rest).and_then(|options| redis_bench::run(&options)),
        // A fresh process per measurement, so that nobody inherits another's heap.
        ["core-bytes", name] => core_bench::print_bytes_per_key(name),
        _ => Err(USAGE.to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn parse(words: &[&str]) -> Result<Options, String> {
    let mut options = Options { rounds: 5, quick: false, json: None };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "--quick" => options.quick = true,
            "--rounds" => {
                let value = words.next().ok_or(USAGE)?;
                let parsed = value.parse().ok().filter(|rounds| (1..=100).contains(rounds));
                options.rounds = parsed.ok_or(format!("--rounds {value}: use a number from 1 to 100"))?;
            }
            "--json" => options.json = Some((*words.next().ok_or(USAGE)?).to_owned()),
            other => return Err(format!("unknown option {other}\n{USAGE}")),
        }
    }
    Ok(options)
}
