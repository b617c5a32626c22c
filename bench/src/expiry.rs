//! The effect of expiry on decisions: the same decisions twice on one store, while nothing expires, and while
//! millions of keys expire and are swept concurrently.

use crate::contender::Ours;
use crate::core_bench::now;
use crate::workload;
use sluicegate::clock::Clock;
use sluicegate::core::{Micros, Rate, Timestamp, TokenBucket};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};

/// The result.
pub(crate) struct Expiry {
    pub(crate) idle_p999_nanos: u64,
    pub(crate) expiring_p999_nanos: u64,
}

const SAMPLES: usize = 2_000_000;

/// Measures with `count` keys.
pub(crate) fn measure(count: usize) -> Result<Expiry, String> {
    // Full again one second after a request.
    let rate = Rate::new(1, Micros::from_secs(1)).map_err(|error| error.to_string())?;
    let ours = Ours::with_quota(TokenBucket::new(1, rate).map_err(|error| error.to_string())?)?;
    let (live, filled) = (workload::keys(100_000), ours.clock.now());
    // Time stands still while the store is filled and idle, so that nothing expires early.
    // The capacity also covers the keys that are requested below.
    for index in live.len()..count {
        ours.is_allowed_at(&format!("gone:{index:019}"), filled);
    }
    let idle_p999_nanos = p999(&ours, &live, filled);
    let expired = filled.plus(Micros::from_secs(60));
    let is_done = AtomicBool::new(false);
    let expiring_p999_nanos = std::thread::scope(|scope| {
        scope.spawn(|| {
            // The pace of the server's sweeper, without its pauses.
            while !is_done.load(Ordering::Relaxed) {
                ours.store.sweep(expired, 256);
                std::thread::yield_now();
            }
        });
        let p999 = p999(&ours, &live, expired);
        is_done.store(true, Ordering::Relaxed);
        p999
    });
    Ok(Expiry { idle_p999_nanos, expiring_p999_nanos })
}

fn p999(ours: &Ours, keys: &[String], at: Timestamp) -> u64 {
    let mut samples: Vec<u64> = (0..SAMPLES)
        .map(|step| {
            let started = now();
            black_box(ours.is_allowed_at(&keys[step * 7_919 % keys.len()], at));
            u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX)
        })
        .collect();
    samples.sort_unstable();
    samples[SAMPLES - SAMPLES / 1_000]
}
