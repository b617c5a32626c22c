//! Who could not be known, and tiers that nobody knows: counted, and told in the log without a flood of lines.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use sluicegate::identify::{Reason, Unauthorized};

/// How many unknown tiers are told apart. An issuer that names more than these has been told of often enough.
const TIERS_MAX: usize = 64;
/// How much of an unknown tier is told, in characters.
const TIER_CHARACTERS_MAX: usize = 64;

/// What is told of callers.
#[derive(Debug, Default)]
pub(crate) struct Callers {
    unauthorized: [AtomicU64; Reason::ALL.len()],
    tiers: Mutex<HashSet<Box<str>>>,
}

impl Callers {
    /// A request whose sender is not known was refused.
    pub(super) fn unauthorized(&self, error: &Unauthorized) {
        let index = Reason::ALL.iter().position(|reason| *reason == error.reason());
        if let Some(count) = index.and_then(|index| self.unauthorized.get(index)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        let (reason, why) = (error.reason().name(), error.why());
        // Anybody can cause these, so they are not for the usual log.
        tracing::debug!(reason, why, "the sender of a request is not known");
    }

    /// A credential named a tier that is not configured.
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

    /// How many were refused, by the reason.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let count = |(reason, count): (&Reason, &AtomicU64)| (reason.name(), count.load(Ordering::Relaxed));
        Reason::ALL.iter().zip(&self.unauthorized).map(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tier_is_told_once_and_no_more_than_some() {
        let callers = Callers::default();
        for number in 0..3 * TIERS_MAX {
            callers.unknown_tier(&number.to_string());
            callers.unknown_tier("0");
        }
        assert_eq!(callers.tiers.lock().unwrap().len(), TIERS_MAX);
    }
}
