//! Which decision it is: 128 bits, seeded anew at every start, over all that decides but what is kept anyway.

use crate::store::Charge;
use crate::store::key::{Digest, digest_of};
use sluicegate_core::Quota;
use std::hash::{Hash, Hasher};

/// Keys, quotas and groups, in their order. Under other rules it is another decision. The costs belong to it only where
/// a log is among the limits: all other states answer for any cost.
pub(super) fn of(charges: &[Charge<'_>]) -> Digest {
    let is_log = |quota: &Quota| matches!(quota, Quota::SlidingWindow(_));
    let with_costs = charges.iter().any(|charge| charge.quotas.iter().any(is_log));
    digest_of(|hasher| {
        for charge in charges {
            let Digest(left, right) = charge.key.digest();
            hasher.write_u64(left);
            hasher.write_u64(right);
            charge.group.hash(hasher);
            charge.quotas.hash(hasher);
            if with_costs {
                charge.cost.hash(hasher);
            }
        }
    })
}
