//! Compares the library on every store with the contract: `cargo xtask oracle`.
//!
//! The arguments are the store, the time budget in seconds (shared by the kinds of cases) and the seed. The program
//! prints its progress. If an answer breaks the contract, it prints the smallest failing case and the command that
//! repeats it. The exit code reports the result.

#![expect(clippy::print_stdout, reason = "it talks to the person who ran it")]

use sluicegate_testkit::oracle::stores::{self, Layout, Redis};
use sluicegate_testkit::oracle::{Disagreement, Tally};
use sluicegate_testkit::redis_server::Program;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const USAGE: &str = "oracle memory|redis|denials|cluster SECONDS SEED";
/// The interval between progress reports.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// A failing case: a description of the failure, and the seed.
type Found = (String, u64);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [store, seconds, seed] = words.as_slice() else { return misunderstood() };
    let (Ok(seconds), Ok(seed)) = (seconds.parse(), seed.parse()) else { return misunderstood() };
    let lasts = Duration::from_secs(seconds);
    let found = match store.as_str() {
        "memory" => on_memory(lasts, seed),
        "redis" => on_redis(store, Layout::Single, lasts, seed),
        "denials" => on_redis(store, Layout::RememberingDenials, lasts, seed),
        "cluster" => on_redis(store, Layout::Cluster, lasts, seed),
        _ => return misunderstood(),
    };
    match found {
        Ok(()) => ExitCode::SUCCESS,
        Err((wrong, seed)) => {
            println!("\n{wrong}\nrepeat: cargo xtask oracle --store {store} --seconds 1 --seed {seed}");
            ExitCode::FAILURE
        }
    }
}

/// Sequential operations get half of the time. Concurrent requests and full stores get a quarter each.
fn on_memory(lasts: Duration, seed: u64) -> Result<(), Found> {
    let mut progress = Progress::start("memory", lasts / 2);
    let ran = stores::memory(&stores::on_memory(seed), |tally| progress.goes_on(tally));
    progress.end(ran)?;
    one_by_one("memory, at the same time", lasts / 4, seed, |seed| stores::memory_together(seed, 1))?;
    one_by_one("memory, without room", lasts / 4, seed, |seed| stores::memory_full(seed, 1))
}

/// Sequential operations get three quarters of the time, concurrent requests the rest.
fn on_redis(store: &str, layout: Layout, lasts: Duration, seed: u64) -> Result<(), Found> {
    let servers = Redis::start(layout, Program::Redis);
    let mut progress = Progress::start(store, lasts * 3 / 4);
    let ran = servers.run(&servers.campaign(seed), |tally| progress.goes_on(tally));
    progress.end(ran)?;
    one_by_one(&format!("{store}, at the same time"), lasts / 4, seed, |seed| servers.run_together(seed, 1))
}

/// Runs cases one after the other, starting with the case of `seed`.
fn one_by_one(
    name: &str,
    lasts: Duration,
    seed: u64,
    run: impl Fn(u64) -> Result<Tally, String>,
) -> Result<(), Found> {
    let mut progress = Progress::start(name, lasts);
    let mut tally = Tally::default();
    for number in 0.. {
        let seed = seed.wrapping_add(number);
        tally = tally.plus(run(seed).map_err(|wrong| (wrong, seed))?);
        if !progress.goes_on(tally) {
            break;
        }
    }
    progress.print(tally);
    Ok(())
}

fn misunderstood() -> ExitCode {
    println!("usage: {USAGE}");
    ExitCode::from(2)
}

struct Progress {
    store: String,
    started: Instant,
    printed: Instant,
    lasts: Duration,
    last: Tally,
}

impl Progress {
    #[expect(clippy::disallowed_methods, reason = "a campaign lasts as long as the person said who ran it")]
    fn start(store: &str, lasts: Duration) -> Self {
        let now = Instant::now();
        Self { store: store.to_owned(), started: now, printed: now, lasts, last: Tally::default() }
    }

    fn goes_on(&mut self, tally: Tally) -> bool {
        self.last = tally;
        if self.printed.elapsed() >= REPORT_EVERY {
            self.print(tally);
            self.printed += REPORT_EVERY;
        }
        self.started.elapsed() < self.lasts
    }

    /// Reports the result of the sequential cases.
    fn end(&self, ran: Result<Tally, Box<Disagreement>>) -> Result<(), Found> {
        self.print(*ran.as_ref().unwrap_or(&self.last));
        ran.map(|_| ()).map_err(|found| (found.to_string(), found.case.seed))
    }

    fn print(&self, tally: Tally) {
        let Tally { operations, allowed, denied } = tally;
        let seconds = self.started.elapsed().as_secs();
        println!("{}: {operations} operations ({allowed} allowed, {denied} denied) in {seconds} s", self.store);
    }
}
