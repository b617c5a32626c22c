//! A decision that is to be made, with everything it speaks of: nobody has to stay for it.

use super::key::KeyEncoder;
use crate::store::Charge;
use crate::store::key::Digest;
use sluicegate_core::decision::Group;
use sluicegate_core::{Cost, Quota};
use smallvec::SmallVec;

/// A decision over the limits of some keys.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) charges: SmallVec<[PlannedCharge; 1]>,
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
        Self { charges: charges.iter().map(planned).collect() }
    }

    /// True if these charges, whose digest is that of the plan, are under the limits of the plan: a rule may have changed.
    pub(super) fn has_limits_of(&self, charges: &[Charge<'_>]) -> bool {
        let is_same =
            |(planned, charge): (&PlannedCharge, &Charge<'_>)| planned.quotas.as_slice() == charge.quotas;
        self.charges.len() == charges.len() && self.charges.iter().zip(charges).all(is_same)
    }
}

/// What stands for a decision in this process: its keys, costs and groups, in order. Not its limits.
pub(super) fn digest(charges: &[Charge<'_>]) -> Digest {
    charges.iter().fold(Digest(0, 0), |sum, charge| {
        let group = match charge.group {
            Group::Enforced => 0,
            Group::Shadow(number) => u64::from(number) + 1,
        };
        sum.then(charge.key.digest()).then(Digest(charge.cost.units(), group))
    })
}
