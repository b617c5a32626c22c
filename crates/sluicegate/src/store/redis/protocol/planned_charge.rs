//! An owned copy of a charge, for calls that outlive their request.

use super::key::KeyEncoder;
use crate::store::Charge;
use crate::store::key::{Digest, digest_of};
use sluicegate_core::decision::ChargeMode;
use sluicegate_core::{Cost, Quota};
use smallvec::SmallVec;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};

/// The content of a [`Charge`], owned and with its key encoded.
#[derive(Debug)]
pub(crate) struct PlannedCharge {
    pub(crate) digest: Digest,
    pub(crate) key: Vec<u8>,
    pub(crate) quotas: SmallVec<[Quota; 1]>,
    pub(crate) cost: Cost,
    /// The part of the cost that is charged in any case.
    pub(crate) usage: Cost,
    pub(crate) mode: ChargeMode,
}

impl PlannedCharge {
    pub(crate) fn new(encoder: &KeyEncoder, charge: &Charge<'_>) -> Self {
        Self {
            digest: charge.key.digest(),
            key: encoder.encode(&charge.key),
            quotas: charge.quotas.into(),
            cost: charge.cost,
            usage: charge.usage,
            mode: charge.mode,
        }
    }

    /// The part of the cost that is only charged if the request is allowed; `None` if there is none.
    pub(crate) fn without_usage(&self) -> Option<Self> {
        let Self { digest, ref key, ref quotas, cost, usage, mode } = *self;
        let cost = Cost::new(cost.get() - usage.get());
        let rest = || Self { digest, key: key.clone(), quotas: quotas.clone(), cost, usage: Cost::ZERO, mode };
        (!cost.is_zero()).then(rest)
    }

    /// A digest of the charge of this key alone, valid in this process: its key, limits, cost and mode.
    pub(crate) fn single_digest(&self) -> Digest {
        digest_of(|hasher| {
            self.digest.hash(hasher);
            self.quotas.hash(hasher);
            self.cost.hash(hasher);
            self.usage.hash(hasher);
            self.mode.hash(hasher);
        })
    }
}

/// A digest of a decision, valid in this process: its keys, limits, costs, modes and lease terms, in order.
pub(crate) fn decision_digest(charges: &[Charge<'_>]) -> Digest {
    // The digest writes its input into two hashes, so each key is first reduced to its own digest.
    let keys: SmallVec<[Digest; 4]> = charges.iter().map(|charge| charge.key.digest()).collect();
    digest_of(|hasher| {
        for (charge, key) in charges.iter().zip(&keys) {
            key.hash(hasher);
            charge.quotas.hash(hasher);
            charge.cost.hash(hasher);
            charge.usage.hash(hasher);
            charge.mode.hash(hasher);
            charge.lease.hash(hasher);
        }
    })
}

/// A digest that no other decision of this process has.
pub(crate) fn unique_digest() -> Digest {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    digest_of(|hasher| number.hash(hasher))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Key, KeySpace, Lease, LeaseMode, Subject};
    use sluicegate_core::Micros;

    /// A queued decision keeps the lease terms of its first waiter, and a hot decision stays queued without end. So
    /// after a change of the rules, requests with other terms must form another decision.
    #[test]
    fn other_lease_terms_are_another_decision() {
        let space = KeySpace::new("api");
        let of = |lease: Option<(u64, LeaseMode)>| {
            let lease = lease.map(|(millis, mode)| Lease { ttl: Micros::from_millis(millis), mode });
            let key = Key { space: &space, subject: Subject::default() };
            decision_digest(&[Charge {
                key,
                quotas: &[],
                cost: Cost::ONE,
                mode: ChargeMode::Enforced,
                lease,
                usage: Cost::ZERO,
            }])
        };
        let (long, short) = (of(Some((10_000, LeaseMode::Bounded))), of(Some((10, LeaseMode::Bounded))));
        assert_eq!(long, of(Some((10_000, LeaseMode::Bounded))));
        assert!(long != short && long != of(None) && short != of(None));
    }
}
