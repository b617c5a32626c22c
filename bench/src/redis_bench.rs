//! `redis`: decisions per second through Redis, what they cost the server and the client, how long they take, and what
//! a key weighs.
//!
//! A server of its own runs on one core, the client on the others. Rounds are interleaved: every round measures every
//! way once, so that a noisy minute hits all of them, and the median counts.

mod latency;
mod load;
mod memory;
mod raw;
mod report;
mod ways;

use crate::Options;
use crate::core_bench::now;
use core_affinity::CoreId;
use rustix::time::{ClockId, clock_gettime};
use sluicegate_testkit::redis_server::RedisServer;
use std::sync::LazyLock;
use std::time::Duration;
use ways::Ways;

/// Which callers there are: how many at once, over how many identities.
const WORKLOADS: [Workload; 5] = [
    Workload { name: "10 k keys", identities: 10_000, in_flight: 1 },
    Workload { name: "10 k keys", identities: 10_000, in_flight: 16 },
    Workload { name: "10 k keys", identities: 10_000, in_flight: 64 },
    Workload { name: "10 k keys", identities: 10_000, in_flight: 256 },
    Workload { name: "hot key", identities: 1, in_flight: 256 },
];
/// How long one measurement lasts.
const LASTS: Duration = Duration::from_secs(1);

/// The cores, as they were before any thread was put on one: a thread on one core sees only that one.
static CORES: LazyLock<Vec<CoreId>> = LazyLock::new(|| core_affinity::get_core_ids().unwrap_or_default());

/// Who asks, and for whom.
#[derive(Clone, Copy)]
pub(crate) struct Workload {
    name: &'static str,
    identities: usize,
    in_flight: usize,
}

/// What one measurement found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    per_second: f64,
    server_micros: f64,
    client_micros: f64,
}

/// All rounds of one workload.
pub(crate) struct Cell {
    workload: Workload,
    rounds: Vec<(&'static str, Sample)>,
}

impl Cell {
    /// What all rounds found of one way, from least to most.
    fn sorted(&self, way: &str, field: fn(&Sample) -> f64) -> Vec<f64> {
        let mut found: Vec<f64> =
            self.rounds.iter().filter(|each| each.0 == way).map(|each| field(&each.1)).collect();
        found.sort_by(f64::total_cmp);
        found
    }

    fn median(&self, way: &str, field: fn(&Sample) -> f64) -> f64 {
        let sorted = self.sorted(way, field);
        sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
    }
}

/// Runs the benchmark and prints its tables.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let (lasts, rounds) = (if options.quick { LASTS / 10 } else { LASTS }, options.rounds);
    let server = pinned_server();
    let ways = Ways::start(&server)?;
    let mut cells = Vec::new();
    for workload in WORKLOADS {
        eprintln!("{}, {} in flight, {rounds} rounds …", workload.name, workload.in_flight);
        let mut cell = Cell { workload, rounds: Vec::new() };
        for _ in 0..rounds {
            for way in ways::NAMES {
                cell.rounds.push((way, measure(&server, &ways, way, workload, lasts)?));
            }
        }
        cells.push(cell);
    }
    eprintln!("latency at half of the peak …");
    let latencies = latency::measure(&server, &ways, &cells, lasts * 5)?;
    eprintln!("bytes per key …");
    let memory = memory::measure(&server, &ways, if options.quick { 10_000 } else { 100_000 })?;
    let report = report::Report { cells, latencies, memory };
    report.print();
    options.json.as_ref().map_or(Ok(()), |path| report.write_json(path))
}

/// A server on the first core. What a thread starts runs where the thread runs, and the threads that this one starts
/// later run on the other cores.
fn pinned_server() -> RedisServer {
    if let Some(first) = CORES.first() {
        core_affinity::set_for_current(*first);
    }
    let server = RedisServer::start();
    pin_client(0);
    server
}

/// Puts the calling thread on a core that is not the server's.
fn pin_client(thread: usize) {
    if let [_, others @ ..] = CORES.as_slice()
        && !others.is_empty()
    {
        core_affinity::set_for_current(others[thread % others.len()]);
    }
}

fn measure(
    server: &RedisServer,
    ways: &Ways,
    way: &'static str,
    workload: Workload,
    lasts: Duration,
) -> Result<Sample, String> {
    forget(server);
    // The first calls open connections and make the keys.
    ways.drive(way, workload, lasts / 10)?;
    let before = (server_seconds(server)?, client_seconds(), now());
    let decisions = ways.drive(way, workload, lasts)? as f64;
    let wall = before.2.elapsed().as_secs_f64();
    let (client, server) = (client_seconds() - before.1, server_seconds(server)? - before.0);
    let micros = |seconds: f64| seconds * 1e6 / decisions;
    Ok(Sample { per_second: decisions / wall, server_micros: micros(server), client_micros: micros(client) })
}

fn forget(server: &RedisServer) {
    let _: String = server.command(&["FLUSHALL", "SYNC"]);
}

/// Processor time of the server, which it knows to the microsecond.
fn server_seconds(server: &RedisServer) -> Result<f64, String> {
    let seconds = |field: &str| {
        let text = server.info(field).ok_or_else(|| format!("INFO has no {field}"))?;
        text.parse::<f64>().map_err(|error| format!("{field} is {text:?}: {error}"))
    };
    Ok(seconds("used_cpu_user")? + seconds("used_cpu_sys")?)
}

/// Processor time of this process.
fn client_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
