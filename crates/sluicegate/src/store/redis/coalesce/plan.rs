//! A decision that owns its data, so that its call can outlive the requests that wait for it.

use crate::store::Charge;
use crate::store::redis::lease::grant::LeasePlan;
use crate::store::redis::protocol::arguments::Operation;
use crate::store::redis::protocol::key::KeyEncoder;
use crate::store::redis::protocol::planned_charge::PlannedCharge;
use smallvec::SmallVec;

/// A decision over the limits of one or more keys.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) charges: SmallVec<[PlannedCharge; 1]>,
    /// [`Operation::Charge`] or [`Operation::Report`].
    pub(crate) operation: Operation,
    /// The terms on which permits may be charged in advance; none if the decision has no lease.
    pub(crate) lease: Option<LeasePlan>,
}

impl Plan {
    /// The decision over these charges.
    pub(crate) fn new(encoder: &KeyEncoder, operation: Operation, charges: &[Charge<'_>]) -> Self {
        let lease = LeasePlan::of(encoder, charges);
        let charges = charges.iter().map(|charge| PlannedCharge::new(encoder, charge)).collect();
        Self { charges, operation, lease }
    }

    /// Whether a part of the costs is charged in any case. Then exactly one request waits for the decision.
    pub(crate) fn has_usage(&self) -> bool {
        self.charges.iter().any(|charge| !charge.usage.is_zero())
    }
}
