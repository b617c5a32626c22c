//! So many tasks that each ask again as soon as they are answered: a closed loop.

use super::workloads::Workload;
use crate::core_bench::now;
use hdrhistogram::Histogram;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

/// The most identities that a workload of every way may have.
pub(super) const IDENTITIES_MAX: usize = 10_000;
/// One call of so many is timed: reading the clock twice costs as much as some of the calls.
const TIMED: usize = 8;
/// After so many calls a caller steps back.
const TURN: usize = 64;
/// The longest time that is told apart from a longer one.
const NANOS_MAX: u64 = 60_000_000_000;

/// Somebody who asks for a decision and expects to be allowed, or denied where the workload says so.
pub(crate) trait Caller: Send + Sync + 'static {
    /// Asks for the identity with this number. False if there was no decision, because too many wait already.
    fn ask(
        &self,
        way: &'static str,
        index: usize,
        workload: Workload,
    ) -> impl Future<Output = Result<bool, String>> + Send;
}

/// What was seen.
pub(crate) struct Driven {
    /// How often somebody was answered.
    pub(crate) answered: u64,
    /// How often there was no decision.
    pub(crate) failed: u64,
    /// How long it took.
    pub(crate) nanos: Histogram<u64>,
    /// How long everything took.
    pub(crate) wall: Duration,
}

/// What one caller saw.
#[derive(Default)]
struct Asked {
    answered: u64,
    failed: u64,
    /// What some of its calls took.
    nanos: Vec<u64>,
}

impl Driven {
    pub(crate) fn nothing() -> Result<Self, String> {
        let nanos = Histogram::new_with_bounds(1, NANOS_MAX, 3).map_err(|error| error.to_string())?;
        Ok(Self { answered: 0, failed: 0, nanos, wall: Duration::ZERO })
    }

    /// So many waited since then.
    pub(super) fn waited_since(&mut self, since: Instant, count: u64) {
        let nanos = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX).clamp(1, NANOS_MAX);
        // Within its bounds a histogram takes everything.
        let _ = self.nanos.record_n(nanos, count);
    }
}

/// Keeps so many callers asking for so long.
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
        // A caller that is answered at once must let the others have their turn.
        if !is_decided || step.is_multiple_of(TURN) {
            tokio::task::yield_now().await;
        }
    }
    Ok(seen)
}
