//! How long decisions take at half of the peak.
//!
//! Requests come when they are due, whether or not earlier ones were answered, and their time counts from when they
//! were due: a stall is felt by all who come meanwhile, and none of them is left out.

use super::load::{Caller, identity};
use super::ways::{self, Ways};
use super::{Cell, Workload, forget};
use crate::core_bench::now;
use hdrhistogram::Histogram;
use sluicegate_testkit::redis_server::RedisServer;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;

/// The ways of which it is asked.
const WAYS: [&str; 3] = [ways::HASH_CLIENT, ways::STORE, ways::LIMITER];
/// How often it is looked who is due. It counts for latency, as it would on a network.
const TICK: Duration = Duration::from_micros(50);
/// The share of the peak.
const LOAD: f64 = 0.5;

/// What was found of one way.
pub(crate) struct Latency {
    pub(crate) way: &'static str,
    pub(crate) per_second: f64,
    pub(crate) micros: Histogram<u64>,
    /// How many got no decision, for instance because too many waited already. They are not in the histogram.
    pub(crate) failed: u64,
}

/// Measures every way at half of its own peak over many keys, and our store also at half of the hash bucket's.
pub(super) fn measure(
    server: &RedisServer,
    ways: &Ways,
    cells: &[Cell],
    lasts: Duration,
) -> Result<Vec<Latency>, String> {
    let peak = |way: &str| {
        let many = cells.iter().filter(|cell| cell.workload.identities > 1);
        many.map(|cell| cell.median(way, |sample| sample.per_second)).fold(0.0, f64::max)
    };
    let workload = Workload { name: "", identities: 10_000, in_flight: 0 };
    let mut loads = WAYS.map(|way| (way, peak(way) * LOAD)).to_vec();
    loads.push((ways::STORE, peak(ways::HASH_CLIENT) * LOAD));
    let found = loads.into_iter().map(|(way, per_second)| {
        forget(server);
        let (micros, failed) = measure_at(ways, way, workload, per_second, lasts)?;
        Ok(Latency { way, per_second, micros, failed })
    });
    found.collect()
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
            let (caller, seen, index) = (Arc::clone(&ways.callers), Arc::clone(&seen), identity(sent, workload));
            tasks.spawn(async move {
                let is_answered = caller.ask(way, index).await.is_ok();
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
