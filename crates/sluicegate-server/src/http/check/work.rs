//! The bounds on the work and the response of a batch.
//!
//! A batch has up to a thousand checks, each of which may match against thousands of rules. Between its checks it yields to
//! other requests on the same thread, so that they wait for at most a few milliseconds of matching. The limits in its
//! response are counted before any charge, and a batch with too many is rejected as a whole.

use axum::http::StatusCode;
use sluicegate::clock::Clock as _;
use sluicegate::rules::{LIMITS_PER_RULE_MAX, RuleSet};

use crate::engine::Engine;
use crate::problem::Problem;
use crate::wire::request::Check;

/// The most limits in the response to a batch: about 3 MB, and 7 MB with the longest names and numbers. A thousand checks
/// under a single rule with the most limits have fewer.
pub(crate) const BATCH_LIMITS_MAX: usize = 20_000;

/// Rules per unit of the runtime's cooperative budget. A task yields after 128 units, which is at most 8,192 rules or one
/// check.
const RULES_PER_UNIT: usize = 64;

/// The rate at which a batch yields, from the number of rules that each check may match.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchYield {
    units: usize,
}

impl BatchYield {
    pub(super) fn of(rules: &RuleSet) -> Self {
        Self { units: 1 + rules.rules().len() / RULES_PER_UNIT }
    }

    /// Consumes the budget of one check, and yields if the budget is used up.
    pub(super) async fn next(self) {
        for _ in 0..self.units {
            tokio::task::coop::consume_budget().await;
        }
    }
}

/// Rejects a batch whose response would be too long.
pub(super) async fn bound_answer(
    engine: &Engine,
    rules: &RuleSet,
    checks: &[Check<'_>],
    batch_yield: BatchYield,
) -> Result<(), Problem> {
    let limits_max = rules.rules().len().saturating_mul(LIMITS_PER_RULE_MAX);
    if limits_max.saturating_mul(checks.len()) <= BATCH_LIMITS_MAX {
        return Ok(());
    }
    let (now, mut limits) = (engine.limiter().clock().time_of_day(), 0_usize);
    for check in checks {
        batch_yield.next().await;
        let matched = rules.charges(&check.request(), now);
        // An unknown tier was rejected before.
        let of_check = matched.map_or(0, |matched| matched.charges.iter().map(|charge| charge.quotas.len()).sum());
        limits = limits.saturating_add(of_check);
    }
    if limits <= BATCH_LIMITS_MAX {
        return Ok(());
    }
    let detail = format!(
        "the answer would list {limits} limits for {} `checks`: send several batches with at most {BATCH_LIMITS_MAX} limits \
         in all, or fewer rules that match the same checks",
        checks.len()
    );
    Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail).field("checks"))
}
