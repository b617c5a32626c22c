//! `redis`: decisions per second through Redis, their cost for the server and the client, their latency, and the
//! memory of a key.
//!
//! A dedicated Redis server runs on one core, the client on the others. Rounds are interleaved: every round measures every
//! contender once, so that a noisy minute hits all of them, and the median counts.

mod goals;
mod latency;
pub(crate) mod load;
mod memory;
pub(crate) mod raw;
pub(crate) mod ways;
pub(crate) mod workloads;

use crate::run::Run;
use crate::sheet::Sheet;
use crate::{Options, cores};
use load::Driven;
use rustix::time::{ClockId, clock_gettime};
use sluicegate_testkit::redis_server::RedisServer;
use std::time::Duration;
use ways::Ways;
use workloads::Workload;

/// How long one measurement lasts.
const LASTS: Duration = Duration::from_secs(1);

/// The columns of its tables.
pub(crate) const PER_SECOND: &str = "decisions/s";
pub(crate) const SERVER_MICROS: &str = "Redis CPU µs";
pub(crate) const CLIENT_MICROS: &str = "client CPU µs";
pub(crate) const P50: &str = "p50 µs";
pub(crate) const P99: &str = "p99 µs";
/// Scripts per decision that Redis ran.
pub(crate) const CALLS: &str = "calls per decision";
/// The share of requests without a decision, because too many were queued.
pub(crate) const FAILED: &str = "undecided";

/// Runs the benchmark and prints its tables.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let lasts = if options.quick { LASTS / 10 } else { LASTS };
    let mut run = Run::new("redis", options);
    let server = cores::on_first(RedisServer::start);
    let ways = Ways::start(&server)?;
    for workload in workloads::ALL {
        let title = workload.title();
        eprintln!("{title}, {} rounds …", options.rounds);
        let mut sheet = Sheet::new(title, ways::HASH);
        for _ in 0..options.rounds {
            for way in workload.ways() {
                sheet.add(way, &measure(&server, &ways, way, workload, lasts)?);
            }
        }
        run.sheets.push(sheet);
    }
    eprintln!("latency at half of the peak …");
    let latencies = latency::measure(&server, &ways, &run.sheets, lasts * 5)?;
    eprintln!("bytes per key …");
    let memory = memory::measure(&server, &ways, if options.quick { 10_000 } else { 100_000 })?;
    run.sheets.push(latencies);
    run.sheets.extend(memory);
    run.goals = goals::of(&run.sheets);
    run.finish(options)
}

/// Measures one contender for the given time, after a warm-up that opens connections and creates the keys.
pub(crate) fn measure(
    server: &RedisServer,
    ways: &Ways,
    way: &'static str,
    workload: Workload,
    lasts: Duration,
) -> Result<[(&'static str, f64); 7], String> {
    if workload.is_denied() {
        // The denial cache may hold denials for an hour; flushing the server would only make them stale.
        ways.use_up(way)?;
    } else {
        forget(server);
    }
    ways.drive(way, workload, lasts / 10)?;
    let before = (server_seconds(server)?, client_seconds(), calls(server));
    let Driven { answered, failed, nanos, wall } = ways.drive(way, workload, lasts)?;
    if answered == 0 {
        return Err(format!("{way}: nobody got a decision, {}", workload.title()));
    }
    let decisions = answered as f64;
    let (calls, client) = (calls(server) - before.2, client_seconds() - before.1);
    let server = server_seconds(server)? - before.0;
    let quantile = |quantile| nanos.value_at_quantile(quantile) as f64 / 1_000.0;
    Ok([
        (PER_SECOND, decisions / wall.as_secs_f64()),
        (SERVER_MICROS, server * 1e6 / decisions),
        (CLIENT_MICROS, client * 1e6 / decisions),
        (P50, quantile(0.5)),
        (P99, quantile(0.99)),
        (CALLS, calls / decisions),
        (FAILED, failed as f64 / (decisions + failed as f64)),
    ])
}

pub(crate) fn forget(server: &RedisServer) {
    let _: String = server.command(&["FLUSHALL", "SYNC"]);
}

/// The number of scripts that the server has run.
fn calls(server: &RedisServer) -> f64 {
    let field = server.info("cmdstat_evalsha").unwrap_or_default();
    let calls = field.strip_prefix("calls=").and_then(|rest| rest.split(',').next());
    calls.and_then(|calls| calls.parse().ok()).unwrap_or_default()
}

/// Processor time of the server, which reports it in microseconds.
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
