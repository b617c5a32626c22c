//! Does expiry disturb decisions? The same decisions twice on one store: while nothing expires, and while
//! millions of keys expire and are swept beside them.

use crate::contender::{Contender, Ours};
use crate::core_bench::now;
use crate::workload;
use sluicegate::clock::Clock;
use sluicegate::core::{Micros, Rate, TokenBucket};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};

/// What was seen.
pub(crate) struct Expiry {
    pub(crate) idle_p999_nanos: u64,
    pub(crate) expiring_p999_nanos: u64,
}

const SAMPLES: usize = 2_000_000;

/// Measures with `count` keys.
pub(crate) fn measure(count: usize) -> Result<Expiry, String> {
    // Whole again one second after a request.
    let rate = Rate::new(1, Micros::from_secs(1)).map_err(|error| error.to_string())?;
    let ours = Ours::with_quota(TokenBucket::new(1, rate).map_err(|error| error.to_string())?)?;
    let live = workload::keys(100_000);
    let fill = |keys: &mut dyn Iterator<Item = usize>| {
        for index in keys {
            ours.is_allowed(&format!("gone:{index:019}"));
        }
    };
    fill(&mut (0..count));
    let idle_p999_nanos = p999(&ours, &live);
    let is_done = AtomicBool::new(false);
    let expiring_p999_nanos = std::thread::scope(|scope| {
        scope.spawn(|| {
            // The pace of the server's sweeper, without its pauses.
            while !is_done.load(Ordering::Relaxed) {
                ours.store.sweep(ours.clock.now(), 256);
                std::thread::yield_now();
            }
        });
        let p999 = p999(&ours, &live);
        is_done.store(true, Ordering::Relaxed);
        p999
    });
    Ok(Expiry { idle_p999_nanos, expiring_p999_nanos })
}

fn p999(ours: &Ours, keys: &[String]) -> u64 {
    let mut samples: Vec<u64> = (0..SAMPLES)
        .map(|step| {
            let started = now();
            black_box(ours.is_allowed(&keys[step * 7_919 % keys.len()]));
            u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX)
        })
        .collect();
    samples.sort_unstable();
    samples[SAMPLES - SAMPLES / 1_000]
}
