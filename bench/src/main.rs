//! Benchmarks beside peers. Absolute numbers depend on the machine; only the ratios within one run are
//! meaningful. `cargo xtask bench` runs them; `docs/benchmarks.md` explains how to read the results.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark prints what it measured")]
#![expect(clippy::float_arithmetic, reason = "statistics of measurements, not decisions")]

mod bare_grpc;
mod bare_http;
mod contender;
mod core_bench;
mod cores;
mod counting;
mod dashboard_bench;
mod expiry;
mod gateway_bench;
mod goal;
mod growth;
mod plot;
mod processes;
mod redis_bench;
mod rules_bench;
mod run;
mod sheet;
mod simulate_bench;
mod socket_load;
mod statistics;
mod wire_bench;
mod workload;

use std::process::ExitCode;

const USAGE: &str = "usage: sluicegate-bench NAME [options]

  core       decisions of our embedded store beside governor and throttlecrab, bytes per key, and
             what the server's metrics add
  redis      decisions through Redis, what they cost and how long they take: our store and the usual scripts
  protocols  our whole server beside bare ones of hyper and tonic, Redis' own GET, and throttlecrab's server
  gateway    our gateway beside nginx with and without `limit_req`, and beside no proxy
  dashboard  what it costs the server to be watched, and not to be
  rules      what a decision costs as rules grow
  growth     decisions per second and their tail as keys and instances grow
  simulate   logs replayed: lines per second, and memory as a log grows
  peers      whole servers of others beside ours
  plot       draws the pictures and fills the tables of docs/ from the runs that were kept

  --rounds N           interleaved rounds, the median counts (default 5)
  --quick              a tenth of the work, for a first look
  --json FILE          also write the raw numbers
  --ours FILE          our server, for protocols, gateway, dashboard, simulate and peers
  --throttlecrab FILE  throttlecrab's server, for protocols and peers
  --limitador FILE     limitador's library behind hyper, for peers";

/// The parsed command line.
#[derive(Clone, Debug)]
struct Options {
    rounds: usize,
    quick: bool,
    json: Option<String>,
    programs: Programs,
}

/// The paths of the measured servers.
#[derive(Clone, Debug, Default)]
struct Programs {
    ours: Option<String>,
    throttlecrab: Option<String>,
    limitador: Option<String>,
}

impl Programs {
    fn ours(&self) -> Result<&str, String> {
        self.ours.as_deref().ok_or_else(|| missing("--ours"))
    }

    fn throttlecrab(&self) -> Result<&str, String> {
        self.throttlecrab.as_deref().ok_or_else(|| missing("--throttlecrab"))
    }

    fn limitador(&self) -> Result<&str, String> {
        self.limitador.as_deref().ok_or_else(|| missing("--limitador"))
    }
}

fn missing(option: &str) -> String {
    format!("{option} is missing; `cargo xtask bench` builds what is measured and says where it is")
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[&str]) -> Result<(), String> {
    let Some((name, rest)) = words.split_first() else { return Err(USAGE.to_owned()) };
    match (*name, rest) {
        ("core", _) => core_bench::run(&parse(rest)?),
        ("redis", _) => redis_bench::run(&parse(rest)?),
        ("protocols", _) => wire_bench::protocols::run(&parse(rest)?),
        ("gateway", _) => gateway_bench::run(&parse(rest)?),
        ("dashboard", _) => dashboard_bench::run(&parse(rest)?),
        ("rules", _) => rules_bench::run(&parse(rest)?),
        ("growth", _) => growth::run(&parse(rest)?),
        ("simulate", _) => simulate_bench::run(&parse(rest)?),
        ("peers", _) => wire_bench::peers::run(&parse(rest)?),
        ("plot", []) => plot::run(),
        // Separate processes: one so that no contender inherits another's heap, one to be measured from outside.
        ("core-bytes", [name]) => core_bench::print_bytes_per_key(name),
        ("bare-grpc", [answer]) => bare_grpc::serve(answer),
        ("bare-http", [answer]) => bare_http::serve(answer),
        _ => Err(USAGE.to_owned()),
    }
}

fn parse(words: &[&str]) -> Result<Options, String> {
    let mut options = Options { rounds: 5, quick: false, json: None, programs: Programs::default() };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().map(|value| (*value).to_owned()).ok_or(USAGE);
        match *word {
            "--quick" => options.quick = true,
            "--rounds" => options.rounds = rounds(&value()?)?,
            "--json" => options.json = Some(value()?),
            "--ours" => options.programs.ours = Some(value()?),
            "--throttlecrab" => options.programs.throttlecrab = Some(value()?),
            "--limitador" => options.programs.limitador = Some(value()?),
            other => return Err(format!("unknown option {other}\n{USAGE}")),
        }
    }
    Ok(options)
}

fn rounds(text: &str) -> Result<usize, String> {
    let rounds = text.parse().ok().filter(|rounds| (1..=100).contains(rounds));
    rounds.ok_or_else(|| format!("--rounds {text}: use a number from 1 to 100"))
}
