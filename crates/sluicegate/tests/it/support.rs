//! Helpers shared by these tests.

use sluicegate::core::{Micros, Quota, Rate, TokenBucket};
use sluicegate::identity::DEFAULT_TENANT;
use sluicegate::store::{Charge, Key, KeySpace, Reply, Subject};
use sluicegate::{Identity, core::Cost, core::decision::ChargeMode};

/// Runs a future to completion on this thread.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// A bucket of `capacity` that gains one token per hour: it does not refill within a test.
pub(crate) fn hourly(capacity: u64) -> Quota {
    TokenBucket::new(capacity, Rate::new(1, Micros::from_secs(3_600)).unwrap()).unwrap().into()
}

/// A charge of one unit.
pub(crate) fn unit<'a>(space: &'a KeySpace, identifier: &'a str, quotas: &'a [Quota]) -> Charge<'a> {
    let identity = Some(Identity::Named(identifier));
    let subject = Subject { tenant: Some(DEFAULT_TENANT), identity, address: None };
    Charge {
        key: Key { space, subject },
        quotas,
        cost: Cost::ONE,
        mode: ChargeMode::Enforced,
        lease: None,
        usage: Cost::ZERO,
    }
}

/// True if every limit has room.
pub(crate) fn passed(reply: &Reply) -> bool {
    reply.verdicts.iter().all(|verdict| verdict.outcome.is_allowed())
}
