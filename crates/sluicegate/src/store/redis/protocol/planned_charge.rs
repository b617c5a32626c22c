//! An owned copy of a charge, for calls that outlive their request.

use super::key::KeyEncoder;
use crate::store::Charge;
use crate::store::key::{Digest, digest_of};
use sluicegate_core::decision::ChargeMode;
use sluicegate_core::{Cost, Quota};
use smallvec::SmallVec;
use std::hash::Hash;

/// The content of a [`Charge`], owned and with its key encoded.
#[derive(Debug)]
pub(crate) struct PlannedCharge {
    pub(crate) digest: Digest,
    pub(crate) key: Vec<u8>,
    pub(crate) quotas: SmallVec<[Quota; 1]>,
    pub(crate) cost: Cost,
    pub(crate) mode: ChargeMode,
}

impl PlannedCharge {
    pub(crate) fn new(encoder: &KeyEncoder, charge: &Charge<'_>) -> Self {
        Self {
            digest: charge.key.digest(),
            key: encoder.encode(&charge.key),
            quotas: charge.quotas.into(),
            cost: charge.cost,
            mode: charge.mode,
        }
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
            charge.mode.hash(hasher);
            charge.lease.hash(hasher);
        }
    })
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
            decision_digest(&[Charge { key, quotas: &[], cost: Cost::ONE, mode: ChargeMode::Enforced, lease }])
        };
        let (long, short) = (of(Some((10_000, LeaseMode::Bounded))), of(Some((10, LeaseMode::Bounded))));
        assert_eq!(long, of(Some((10_000, LeaseMode::Bounded))));
        assert!(long != short && long != of(None) && short != of(None));
    }
}
