//! The latency of decisions at half of the peak rate.
//!
//! This is an open loop: requests start at their scheduled time, whether or not earlier ones have completed, and latency counts
//! from that time. A stall therefore affects all requests that are due meanwhile, and none is left out.

use super::load::Caller;
use super::ways::{self, Ways};
use super::workloads::{Workload, many};
use super::{P50, P99, PER_SECOND, forget};
use crate::core_bench::now;
use crate::sheet::Sheet;
use hdrhistogram::Histogram;
use sluicegate_testkit::redis_server::RedisServer;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;

/// The measured contenders.
const WAYS: [&str; 3] = [ways::HASH_CLIENT, ways::STORE, ways::LIMITER];
/// The interval at which due requests start. It counts as latency, as it would on a network.
const TICK: Duration = Duration::from_micros(50);
/// The share of the peak.
const LOAD: f64 = 0.5;

/// The columns of its table. Failed requests got no decision, for instance because too many were queued; the other columns
/// exclude them.
const DUE: &str = "due/s";
const P999: &str = "p99.9 µs";
const FAILED: &str = "failed";

/// Measures every contender at half of its own peak over many keys, and the store also at half of the hash bucket's.
pub(super) fn measure(
    server: &RedisServer,
    ways: &Ways,
    found: &[Sheet],
    lasts: Duration,
) -> Result<Sheet, String> {
    let peak = |way: &str| {
        let many =
            found.iter().filter(|sheet| sheet.title.starts_with("10 k keys, ") && !sheet.title.contains("Zipf"));
        many.map(|sheet| sheet.median(way, PER_SECOND)).fold(0.0, f64::max)
    };
    let mut loads: Vec<(String, &'static str, f64)> =
        WAYS.iter().map(|way| ((*way).to_owned(), *way, peak(way) * LOAD)).collect();
    let beside = format!("{}, load of {}", ways::STORE, ways::HASH_CLIENT);
    loads.push((beside, ways::STORE, peak(ways::HASH_CLIENT) * LOAD));
    let mut sheet =
        Sheet::new("open loop, 10 k keys, half of the peak, from when each was due", ways::HASH_CLIENT);
    for (row, way, per_second) in loads {
        forget(server);
        let (micros, failed) = measure_at(ways, way, many(0), per_second, lasts)?;
        let quantile = |quantile| micros.value_at_quantile(quantile) as f64;
        let quantiles = [(P50, quantile(0.5)), (P99, quantile(0.99)), (P999, quantile(0.999))];
        sheet.add(&row, &[(DUE, per_second)]);
        sheet.add(&row, &quantiles);
        sheet.add(&row, &[(FAILED, failed as f64)]);
    }
    Ok(sheet)
}

fn measure_at(
    ways: &Ways,
    way: &'static str,
    workload: Workload,
    per_second: f64,
    lasts: Duration,
) -> Result<(Histogram<u64>, u64), String> {
    let seen = Histogram::new_with_bounds(1, 60_000_000, 3).map_err(|error| error.to_string())?;
    let seen = Arc::new(Mutex::new(seen));
    let (_entered, mut tasks) = (ways.runtime.enter(), JoinSet::new());
    let (started, mut sent) = (now(), 0);
    while started.elapsed() < lasts {
        let due = (started.elapsed().as_secs_f64() * per_second) as usize;
        while sent < due {
            let due_at = started + Duration::from_secs_f64(sent as f64 / per_second);
            let (caller, seen, index) = (Arc::clone(&ways.callers), Arc::clone(&seen), workload.identity(sent));
            tasks.spawn(async move {
                let is_answered = caller.ask(way, index, workload).await == Ok(true);
                if is_answered {
                    let micros = u64::try_from(due_at.elapsed().as_micros()).unwrap_or(u64::MAX);
                    seen.lock().unwrap_or_else(PoisonError::into_inner).saturating_record(micros);
                }
                is_answered
            });
            sent += 1;
        }
        std::thread::sleep(TICK);
    }
    let answers = ways.runtime.block_on(tasks.join_all());
    let failed = answers.iter().filter(|is_answered| !**is_answered).count() as u64;
    let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    Ok((seen.clone(), failed))
}
