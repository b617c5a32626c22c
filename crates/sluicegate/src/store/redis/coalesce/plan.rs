//! A decision that owns its data, so that its call can outlive the requests that wait for it.

use crate::store::Charge;
use crate::store::redis::lease::grant::LeasePlan;
use crate::store::redis::protocol::key::KeyEncoder;
use crate::store::redis::protocol::planned_charge::PlannedCharge;
use smallvec::SmallVec;

/// A decision over the limits of one or more keys.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) charges: SmallVec<[PlannedCharge; 1]>,
    /// The terms on which permits may be charged in advance; none if the decision has no lease.
    pub(crate) lease: Option<LeasePlan>,
}

impl Plan {
    /// The decision over these charges.
    pub(crate) fn new(encoder: &KeyEncoder, charges: &[Charge<'_>]) -> Self {
        let lease = LeasePlan::of(encoder, charges);
        Self { charges: charges.iter().map(|charge| PlannedCharge::new(encoder, charge)).collect(), lease }
    }
}
