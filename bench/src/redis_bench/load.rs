//! A closed loop: a number of tasks that each send the next request when the previous one completes.

use super::workloads::Workload;
use crate::core_bench::now;
use hdrhistogram::Histogram;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

/// The most identities of a workload for all contenders.
pub(super) const IDENTITIES_MAX: usize = 10_000;
/// One call in this many is timed, because reading the clock twice costs as much as some of the calls.
const TIMED: usize = 8;
/// A task yields after this many calls.
const TURN: usize = 64;
/// The highest latency that the histogram distinguishes.
const NANOS_MAX: u64 = 60_000_000_000;

/// A contender that decides, and is expected to allow, or to deny where the workload requires it.
pub(crate) trait Caller: Send + Sync + 'static {
    /// Requests a decision for the identity with this number. False if there was none, because too many are queued.
    fn ask(
        &self,
        way: &'static str,
        index: usize,
        workload: Workload,
    ) -> impl Future<Output = Result<bool, String>> + Send;
}

/// The result.
pub(crate) struct Driven {
    /// The number of decisions.
    pub(crate) answered: u64,
    /// The number of requests without a decision.
    pub(crate) failed: u64,
    /// The latency of decisions.
    pub(crate) nanos: Histogram<u64>,
    /// The total duration.
    pub(crate) wall: Duration,
}

/// The result of one task.
#[derive(Default)]
struct Asked {
    answered: u64,
    failed: u64,
    /// The latency of the timed calls.
    nanos: Vec<u64>,
}

impl Driven {
    pub(crate) fn nothing() -> Result<Self, String> {
        let nanos = Histogram::new_with_bounds(1, NANOS_MAX, 3).map_err(|error| error.to_string())?;
        Ok(Self { answered: 0, failed: 0, nanos, wall: Duration::ZERO })
    }

    /// Calls since the last one that was timed.
    pub(super) fn waited_since(&mut self, since: Instant, count: u64) {
        let nanos = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX).clamp(1, NANOS_MAX);
        // Within its bounds, a histogram accepts every value.
        let _ = self.nanos.record_n(nanos, count);
    }
}

/// Runs this many tasks for the given time.
pub(crate) fn drive<C: Caller>(
    runtime: &Runtime,
    caller: &Arc<C>,
    way: &'static str,
    workload: Workload,
    lasts: Duration,
) -> Result<Driven, String> {
    let is_over = Arc::new(AtomicBool::new(false));
    let started = now();
    runtime.block_on(async {
        let mut tasks = JoinSet::new();
        for task in 0..workload.in_flight {
            tasks.spawn(keep_asking(Arc::clone(caller), way, workload, task, Arc::clone(&is_over)));
        }
        tokio::time::sleep(lasts).await;
        is_over.store(true, Ordering::Relaxed);
        let mut driven = Driven::nothing()?;
        while let Some(task) = tasks.join_next().await {
            let asked = task.map_err(|error| error.to_string())??;
            driven.answered += asked.answered;
            driven.failed += asked.failed;
            asked.nanos.into_iter().for_each(|nanos| driven.nanos.saturating_record(nanos));
        }
        driven.wall = started.elapsed();
        Ok(driven)
    })
}

async fn keep_asking<C: Caller>(
    caller: Arc<C>,
    way: &'static str,
    workload: Workload,
    task: usize,
    is_over: Arc<AtomicBool>,
) -> Result<Asked, String> {
    let (mut seen, mut step) = (Asked::default(), 0_usize);
    while !is_over.load(Ordering::Relaxed) {
        let index = workload.identity(task + step * workload.in_flight);
        let started = step.is_multiple_of(TIMED).then(now);
        let is_decided = caller.ask(way, index, workload).await?;
        step += 1;
        if is_decided {
            seen.answered += 1;
            seen.nanos.extend(started.map(|started| started.elapsed().as_nanos() as u64));
        } else {
            seen.failed += 1;
        }
        // A task whose call completes at once must yield to the others.
        if !is_decided || step.is_multiple_of(TURN) {
            tokio::task::yield_now().await;
        }
    }
    Ok(seen)
}
