//! `growth`: decisions per second and tail latency as keys and instances grow. `rules` measures the growth with rules.

mod fleet;

use crate::contender::{Contender, Ours};
use crate::core_bench::now;
use crate::redis_bench::workloads::{Kind, Workload, hot, many};
use crate::redis_bench::{self, load, ways};
use crate::run::Run;
use crate::sheet::Sheet;
use crate::{Options, cores, workload};
use fleet::Fleet;
use hdrhistogram::Histogram;
use sluicegate_testkit::redis_server::RedisServer;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

/// Keys in memory, keys in Redis, instances.
const KEYS_IN_MEMORY: [usize; 4] = [10_000, 100_000, 1_000_000, 10_000_000];
const KEYS_IN_REDIS: [usize; 3] = [10_000, 100_000, 1_000_000];
const INSTANCES: [usize; 4] = [1, 2, 4, 8];
/// Concurrent tasks on Redis: in all as keys grow, per instance as instances grow.
const CALLERS: usize = 256;
const CALLERS_EACH: usize = 64;
/// How long one measurement lasts.
const LASTS: Duration = Duration::from_secs(1);
/// Decisions per measurement in memory, and the number that is timed individually for the tail.
const DECISIONS: usize = 2_000_000;
const TIMED: usize = 500_000;

/// The columns of its tables; tail latency in memory is in nanoseconds.
pub(crate) use redis_bench::PER_SECOND;
pub(crate) const P99_MICROS: &str = redis_bench::P99;
pub(crate) const P99_NANOS: &str = "p99 ns";

/// Runs the benchmark and prints its tables.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let mut run = Run::new("growth", options);
    run.sheets.push(in_memory(options)?);
    run.sheets.push(in_redis(options)?);
    for (title, workload) in [("one hot key", hot(0)), ("10 k keys", many(0))] {
        run.sheets.push(of_instances(options, title, workload)?);
    }
    run.finish(options)
}

/// `10 k`, `1 M`.
fn short(number: usize) -> String {
    match number {
        1_000_000.. => format!("{} M", number / 1_000_000),
        _ => format!("{} k", number / 1_000),
    }
}

/// All stores stay alive, so that rounds can alternate between them.
fn in_memory(options: &Options) -> Result<Sheet, String> {
    let sizes = if options.quick { &KEYS_IN_MEMORY[..3] } else { &KEYS_IN_MEMORY[..] };
    let decisions = if options.quick { DECISIONS / 10 } else { DECISIONS };
    let mut sheet = Sheet::new("keys in memory, 1 thread", &short(sizes[0]));
    eprintln!("{}, {} rounds …", sheet.title, options.rounds);
    let mut subjects = Vec::new();
    for size in sizes {
        let ours = Ours::new()?;
        (0..*size).for_each(|index| {
            ours.is_allowed(&workload::key(index));
        });
        subjects.push((short(*size), ours, workload::spread_over(u32::try_from(*size).unwrap_or(u32::MAX))));
    }
    for _ in 0..options.rounds {
        for (row, ours, requests) in &subjects {
            let per_second = decisions_per_second(ours, requests, decisions)?;
            sheet.add(row, &[(PER_SECOND, per_second), (P99_NANOS, p99_nanos(ours, requests)?)]);
        }
    }
    Ok(sheet)
}

fn decisions_per_second(ours: &Ours, requests: &[String], decisions: usize) -> Result<f64, String> {
    let started = now();
    let allowed =
        (0..decisions).filter(|step| black_box(ours.is_allowed(&requests[step % requests.len()]))).count();
    let seconds = started.elapsed().as_secs_f64();
    if allowed == decisions { Ok(decisions as f64 / seconds) } else { Err("somebody was denied".to_owned()) }
}

/// Of decisions that are timed individually, which includes the time to read the clock.
fn p99_nanos(ours: &Ours, requests: &[String]) -> Result<f64, String> {
    let mut seen = Histogram::<u64>::new_with_bounds(1, 1_000_000_000, 3).map_err(|error| error.to_string())?;
    for step in 0..TIMED {
        let started = now();
        black_box(ours.is_allowed(&requests[step % requests.len()]));
        seen.saturating_record(started.elapsed().as_nanos() as u64);
    }
    Ok(seen.value_at_quantile(0.99) as f64)
}

/// A separate server for each number of keys.
fn in_redis(options: &Options) -> Result<Sheet, String> {
    let sizes = if options.quick { &KEYS_IN_REDIS[..2] } else { &KEYS_IN_REDIS[..] };
    let mut sheet = Sheet::new(format!("keys in Redis, {CALLERS} callers"), &short(sizes[0]));
    eprintln!("{}, {} rounds …", sheet.title, options.rounds);
    let runtime = ways::client_runtime()?;
    let mut subjects = Vec::new();
    for size in sizes {
        let server = cores::on_first(RedisServer::start);
        let fleet = Arc::new(runtime.block_on(Fleet::start(&server, 1, *size))?);
        runtime.block_on(fleet::fill(&fleet))?;
        subjects.push((short(*size), server, fleet, *size));
    }
    let lasts = if options.quick { LASTS / 10 } else { LASTS };
    for _ in 0..options.rounds {
        for (row, _, fleet, identities) in &subjects {
            let workload = Workload { identities: *identities, in_flight: CALLERS, kind: Kind::Even };
            let driven = load::drive(&runtime, fleet, ways::STORE, workload, lasts)?;
            sheet.add(row, &numbers(&driven));
        }
    }
    Ok(sheet)
}

fn of_instances(options: &Options, title: &str, workload: Workload) -> Result<Sheet, String> {
    let runtime = ways::client_runtime()?;
    let server = cores::on_first(RedisServer::start);
    let title = format!("instances on one Redis, {title}, {CALLERS_EACH} callers each");
    let mut sheet = Sheet::new(title, &INSTANCES[0].to_string());
    eprintln!("{}, {} rounds …", sheet.title, options.rounds);
    let lasts = if options.quick { LASTS / 10 } else { LASTS };
    let mut fleets = Vec::new();
    for instances in INSTANCES {
        fleets
            .push((instances, Arc::new(runtime.block_on(Fleet::start(&server, instances, workload.identities))?)));
    }
    for _ in 0..options.rounds {
        for (instances, fleet) in &fleets {
            let workload = Workload { in_flight: CALLERS_EACH * instances, ..workload };
            load::drive(&runtime, fleet, ways::STORE, workload, lasts / 10)?;
            let driven = load::drive(&runtime, fleet, ways::STORE, workload, lasts)?;
            sheet.add(&instances.to_string(), &numbers(&driven));
        }
    }
    Ok(sheet)
}

fn numbers(driven: &load::Driven) -> [(&'static str, f64); 2] {
    let p99 = driven.nanos.value_at_quantile(0.99) as f64 / 1_000.0;
    [(PER_SECOND, driven.answered as f64 / driven.wall.as_secs_f64()), (P99_MICROS, p99)]
}
