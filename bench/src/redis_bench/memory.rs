//! The memory of a key, compared with a two-field hash of the same name.

use super::forget;
use super::ways::{self, Callers, Ways};
use crate::sheet::Sheet;
use sluicegate::core::{Micros, Quota, Rate, SlidingWindow, TokenBucket};
use sluicegate_testkit::redis_server::RedisServer;
use std::sync::Arc;
use tokio::task::JoinSet;

/// The number of keys that are measured individually.
const WEIGHED: usize = 200;
/// How many entries the log has.
const LOG_ENTRIES: usize = 100;
/// How many tasks write at once.
const WRITERS: usize = 64;

pub(super) const BUCKET: &str = "our bucket";
const TWO: &str = "our two buckets";
const LOG: &str = "our log of 100";
pub(super) const HASH: &str = "two-field hash";
/// The title of the table that has the goal.
pub(super) const EACH: &str = "one key by MEMORY USAGE";
pub(super) const BYTES: &str = "bytes per key";

/// The memory of keys: by `MEMORY USAGE`, and by the growth of `used_memory` over many keys.
pub(super) fn measure(server: &RedisServer, ways: &Ways, growth_keys: usize) -> Result<[Sheet; 2], String> {
    let text = |error: sluicegate::core::QuotaError| error.to_string();
    let bucket = |capacity, seconds| {
        let rate = Rate::new(1, Micros::from_secs(seconds))?;
        TokenBucket::new(capacity, rate).map(Quota::from)
    };
    let shapes: [(&'static str, Vec<Quota>, usize); 3] = [
        (BUCKET, vec![bucket(100, 1).map_err(text)?], 1),
        (TWO, vec![bucket(100, 1).map_err(text)?, bucket(1_000, 10).map_err(text)?], 1),
        (LOG, vec![SlidingWindow::new(1_000, Micros::from_secs(3_600)).map_err(text)?.into()], LOG_ENTRIES),
    ];
    let mut each = Sheet::new(EACH, HASH);
    for (shape, quotas, charges) in &shapes {
        forget(server);
        (0..*charges).try_for_each(|_| fill(ways, quotas, WEIGHED))?;
        each.add(shape, &[(BYTES, weight(server)?)]);
    }
    forget(server);
    fill_hashes(server, &ways.callers, WEIGHED)?;
    each.add(HASH, &[(BYTES, weight(server)?)]);
    let ours = grown(server, growth_keys, || fill(ways, &shapes[0].1, growth_keys))?;
    let hash = grown(server, growth_keys, || fill_hashes(server, &ways.callers, growth_keys))?;
    let mut growth = Sheet::new(format!("growth of used_memory over {growth_keys} keys"), HASH);
    growth.add(BUCKET, &[(BYTES, ours)]);
    growth.add(HASH, &[(BYTES, hash)]);
    Ok([each, growth])
}

/// Charges this many names once each.
fn fill(ways: &Ways, quotas: &[Quota], count: usize) -> Result<(), String> {
    ways.runtime.block_on(async {
        let mut tasks = JoinSet::new();
        for writer in 0..WRITERS {
            let (callers, quotas) = (Arc::clone(&ways.callers), quotas.to_vec());
            tasks.spawn(async move {
                for index in (writer..count).step_by(WRITERS) {
                    callers.charge(&ways::name(index), &quotas).await?;
                }
                Ok::<(), String>(())
            });
        }
        while let Some(task) = tasks.join_next().await {
            task.map_err(|error| error.to_string())??;
        }
        Ok(())
    })
}

fn fill_hashes(server: &RedisServer, callers: &Callers, count: usize) -> Result<(), String> {
    let mut connection = server.connection().map_err(|error| error.to_string())?;
    for start in (0..count).step_by(1_000) {
        let mut pipeline = redis::pipe();
        for index in start..count.min(start + 1_000) {
            pipeline.add_command(callers.hash_call(&ways::key(index))).ignore();
        }
        pipeline.exec(&mut connection).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// The average of some keys.
fn weight(server: &RedisServer) -> Result<f64, String> {
    let mut connection = server.connection().map_err(|error| error.to_string())?;
    let mut pipeline = redis::pipe();
    for index in 0..WEIGHED {
        pipeline.cmd("MEMORY").arg("USAGE").arg(ways::key(index)).arg("SAMPLES").arg(0);
    }
    let bytes: Vec<u64> = pipeline.query(&mut connection).map_err(|error| format!("MEMORY USAGE: {error}"))?;
    Ok(bytes.iter().sum::<u64>() as f64 / WEIGHED as f64)
}

fn grown(server: &RedisServer, keys: usize, fill: impl FnOnce() -> Result<(), String>) -> Result<f64, String> {
    forget(server);
    let used =
        || server.info("used_memory").and_then(|text| text.parse::<f64>().ok()).ok_or("no used_memory in INFO");
    let before = used()?;
    fill()?;
    let bytes = used()? - before;
    Ok(bytes / keys as f64)
}
