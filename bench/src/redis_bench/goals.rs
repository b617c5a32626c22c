//! The goals of `redis`, each relative to one script call per decision.

use super::memory::{BUCKET, BYTES, EACH, HASH as HASH_KEY};
use super::ways::{HASH, HASH_CLIENT, OUR_SCRIPT, STORE};
use super::workloads::{Kind, Workload, hot, many};
use super::{CALLS, P99, PER_SECOND, SERVER_MICROS};
use crate::goal::Goal;
use crate::sheet::Sheet;

/// The goals with their measurements.
pub(super) fn of(sheets: &[Sheet]) -> Vec<Goal> {
    let find = |title: &str| sheets.iter().find(|sheet| sheet.title == title);
    let mut goals = Vec::new();
    for workload in [many(256), many(1_024)] {
        goals.extend(find(&workload.title()).map(|sheet| per_redis_core(workload, sheet)));
    }
    for workload in [hot(256), hot(1_024)] {
        goals.extend(find(&workload.title()).into_iter().flat_map(|sheet| of_a_hot_key(workload, sheet)));
    }
    let denied = Workload { identities: 1, in_flight: 256, kind: Kind::Denied };
    goals.extend(find(&denied.title()).into_iter().flat_map(of_a_denied_identity));
    goals.extend(find(EACH).map(|sheet| {
        Goal::at_most("a key in Redis, bytes", "a two-field hash", 0.65, sheet.ratios(BYTES, BUCKET, HASH_KEY))
    }));
    goals
}

/// Decisions per second and Redis core: the inverse of their cost.
fn per_redis_core(workload: Workload, sheet: &Sheet) -> Goal {
    let what = format!("{}, decisions per Redis core", workload.title());
    Goal::at_least(what, HASH, 3.0, sheet.ratios(SERVER_MICROS, HASH, STORE))
}

fn of_a_hot_key(workload: Workload, sheet: &Sheet) -> Vec<Goal> {
    let both = [OUR_SCRIPT, HASH_CLIENT].map(|way| {
        let title = workload.title();
        let throughput = sheet.ratios(PER_SECOND, STORE, way);
        let p99 = sheet.ratios(P99, STORE, way);
        [
            Goal::at_least(format!("{title}, decisions/s"), way, 12.0, throughput),
            Goal::at_most(format!("{title}, p99"), way, 0.125, p99),
        ]
    });
    both.into_iter().flatten().collect()
}

fn of_a_denied_identity(sheet: &Sheet) -> Vec<Goal> {
    let throughput = sheet.ratios(PER_SECOND, STORE, HASH_CLIENT);
    let calls = sheet.rounds(STORE, CALLS).to_vec();
    vec![
        Goal::at_least("a denied identity, decisions/s", HASH_CLIENT, 30.0, throughput),
        Goal::at_most("a denied identity", "", 0.0, calls).of("calls per decision"),
    ]
}
