//! So many tasks that each ask again as soon as they are answered.

use super::Workload;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

/// The most identities that a workload may have.
pub(super) const IDENTITIES_MAX: usize = 10_000;
/// Identities are taken in this stride, so that neighbours are not asked for one after the other.
const STRIDE: usize = 7_919;

/// Somebody who asks for a decision and expects to be allowed.
pub(super) trait Caller: Send + Sync + 'static {
    /// Asks for the identity with this number.
    fn ask(&self, way: &'static str, index: usize) -> impl Future<Output = Result<(), String>> + Send;
}

/// Keeps so many callers asking for so long, and says how often they were answered.
pub(super) fn drive<C: Caller>(
    runtime: &Runtime,
    caller: &Arc<C>,
    way: &'static str,
    workload: Workload,
    lasts: Duration,
) -> Result<u64, String> {
    let is_over = Arc::new(AtomicBool::new(false));
    runtime.block_on(async {
        let mut tasks = JoinSet::new();
        for task in 0..workload.in_flight {
            let (caller, is_over) = (Arc::clone(caller), Arc::clone(&is_over));
            tasks.spawn(async move {
                let mut asked = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let step = task + asked * workload.in_flight;
                    caller.ask(way, identity(step, workload)).await?;
                    asked += 1;
                }
                Ok::<u64, String>(asked as u64)
            });
        }
        tokio::time::sleep(lasts).await;
        is_over.store(true, Ordering::Relaxed);
        let mut answered = 0;
        while let Some(task) = tasks.join_next().await {
            answered += task.map_err(|error| error.to_string())??;
        }
        Ok(answered)
    })
}

/// Who is asked for in this step.
pub(super) fn identity(step: usize, workload: Workload) -> usize {
    step * STRIDE % workload.identities
}
