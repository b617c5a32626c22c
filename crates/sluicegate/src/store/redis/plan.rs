//! A decision that is to be made, with everything it speaks of: nobody has to stay for it.

use super::key::KeyEncoder;
use super::leases::{Paid, Terms};
use crate::store::Charge;
use crate::store::key::{Digest, digest_of};
use sluicegate_core::decision::Group;
use sluicegate_core::{Cost, Quota};
use smallvec::SmallVec;
use std::hash::Hash;
use std::sync::Arc;

/// A decision over the limits of some keys.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) charges: SmallVec<[PlannedCharge; 1]>,
    /// On which terms it may be charged ahead, and what it takes to give that back.
    pub(super) ahead: Option<(Terms, Arc<Paid>)>,
}

/// What a [`Charge`] says, but not borrowed.
#[derive(Debug)]
pub(super) struct PlannedCharge {
    pub(super) digest: Digest,
    pub(super) key: Vec<u8>,
    pub(super) quotas: SmallVec<[Quota; 1]>,
    pub(super) cost: Cost,
    pub(super) group: Group,
}

impl Plan {
    /// The decision over these charges.
    pub(super) fn new(encoder: &KeyEncoder, charges: &[Charge<'_>]) -> Self {
        let planned = |charge: &Charge<'_>| PlannedCharge {
            digest: charge.key.digest(),
            key: encoder.encode(&charge.key),
            quotas: charge.quotas.into(),
            cost: charge.cost,
            group: charge.group,
        };
        let ahead = Terms::of(charges).map(|terms| (terms, Arc::new(Paid::of(encoder, charges))));
        Self { charges: charges.iter().map(planned).collect(), ahead }
    }
}

/// What stands for a decision in this process: its keys, limits, costs, groups and terms, in order.
pub(super) fn digest(charges: &[Charge<'_>]) -> Digest {
    // What is written is written twice, into two hashes; keys are hashed only once.
    let keys: SmallVec<[Digest; 4]> = charges.iter().map(|charge| charge.key.digest()).collect();
    digest_of(|hasher| {
        for (charge, key) in charges.iter().zip(&keys) {
            key.hash(hasher);
            charge.quotas.hash(hasher);
            charge.cost.hash(hasher);
            charge.group.hash(hasher);
            charge.lease.hash(hasher);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Key, KeySpace, Lease, LeaseMode, Subject};
    use sluicegate_core::Micros;

    /// A group keeps the terms of whoever opened it, and a hot one never ends. So after a change of the rules, those who
    /// come under other terms are another group.
    #[test]
    fn who_comes_under_other_terms_is_not_of_the_same_group() {
        let space = KeySpace::new("api");
        let of = |lease: Option<(u64, LeaseMode)>| {
            let lease = lease.map(|(millis, mode)| Lease { ttl: Micros::from_millis(millis), mode });
            let key = Key { space: &space, subject: Subject::default() };
            digest(&[Charge { key, quotas: &[], cost: Cost::ONE, group: Group::Enforced, lease }])
        };
        let (long, short) = (of(Some((10_000, LeaseMode::Bounded))), of(Some((10, LeaseMode::Bounded))));
        assert_eq!(long, of(Some((10_000, LeaseMode::Bounded))));
        assert!(long != short && long != of(None) && short != of(None));
    }
}
