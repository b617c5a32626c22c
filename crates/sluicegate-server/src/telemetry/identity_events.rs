//! Requests without a valid identity, and unknown tiers: counters, and a bounded number of log lines.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use sluicegate::identify::{Reason, Unauthorized};

/// The most unknown tiers that are logged. Each is logged once.
const TIERS_MAX: usize = 64;
/// The most characters of an unknown tier in the log.
const TIER_CHARACTERS_MAX: usize = 64;

/// Counts and logs problems with identities.
#[derive(Debug, Default)]
pub(crate) struct IdentityEvents {
    unauthorized: [AtomicU64; Reason::ALL.len()],
    tiers: Mutex<HashSet<Box<str>>>,
}

impl IdentityEvents {
    /// Counts a request that was rejected without a valid identity.
    pub(super) fn unauthorized(&self, error: &Unauthorized) {
        let index = Reason::ALL.iter().position(|reason| *reason == error.reason());
        if let Some(count) = index.and_then(|index| self.unauthorized.get(index)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        let (reason, why) = (error.reason().name(), error.why());
        // Any client can cause these, so the default filter omits them.
        tracing::debug!(reason, why, "a request has no valid identity");
    }

    /// Logs a tier that a credential names and the configuration does not.
    pub(super) fn unknown_tier(&self, tier: &str) {
        let tier: String = tier.chars().take(TIER_CHARACTERS_MAX).collect();
        let mut tiers = self.tiers.lock().unwrap_or_else(PoisonError::into_inner);
        if tiers.len() < TIERS_MAX && tiers.insert(tier.as_str().into()) {
            drop(tiers);
            tracing::warn!(
                tier,
                "credentials name a tier that is not configured, so the rules' own limits apply; list it in `tiers`, \
                 or correct the key or the issuer"
            );
        }
    }

    /// The numbers of rejected requests by reason.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let count = |(reason, count): (&Reason, &AtomicU64)| (reason.name(), count.load(Ordering::Relaxed));
        Reason::ALL.iter().zip(&self.unauthorized).map(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unknown_tier_is_logged_once_up_to_the_bound() {
        let events = IdentityEvents::default();
        for number in 0..3 * TIERS_MAX {
            events.unknown_tier(&number.to_string());
            events.unknown_tier("0");
        }
        assert_eq!(events.tiers.lock().unwrap().len(), TIERS_MAX);
    }
}
