//! Logs the fetches of a key set: one event per change of state, not one per attempt.

use std::sync::Mutex;

use sluicegate::core::Micros;
use sluicegate::identify::token::FetchOutcome;

/// The age at which a key set that cannot be renewed is logged as an error.
const STALE_AGE: Micros = Micros::from_secs(3_600);

/// Logs the fetches of one key set.
#[derive(Debug)]
pub(super) struct FetchLog {
    url: String,
    state: Mutex<FetchState>,
}

/// The state that the log reported last.
#[derive(Debug, Default)]
struct FetchState {
    /// The last error, until a fetch succeeds.
    error: Option<String>,
    is_stale: bool,
}

/// A change that is logged.
#[derive(Debug, PartialEq, Eq)]
enum FetchEvent {
    /// The keys differ from those before.
    Changed,
    /// Fetches succeed again, with the same keys as before.
    Recovered,
    /// A fetch failed for a reason that differs from the last logged one.
    Failed,
    /// The keys have reached [`STALE_AGE`].
    Stale,
}

impl FetchLog {
    /// A log for the set at this URL.
    pub(super) fn new(url: String) -> Self {
        Self { url, state: Mutex::default() }
    }

    /// Logs the outcome if it changes the state.
    pub(super) fn record(&self, outcome: &FetchOutcome) {
        let event = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner).advance(outcome);
        let url = self.url.as_str();
        match (event, outcome) {
            (Some(FetchEvent::Changed), FetchOutcome::Renewed { keys, skipped, .. }) => {
                let skipped = skipped.join("; ");
                tracing::info!(url, keys, skipped, "the issuer's keys were loaded");
            }
            (Some(FetchEvent::Failed), FetchOutcome::Failed { error, age }) => {
                let (reason, age_seconds) = (error.to_string(), age.map(Micros::ceil_secs));
                tracing::warn!(url, reason, age_seconds, "the issuer's keys cannot be fetched");
            }
            (Some(FetchEvent::Stale), FetchOutcome::Failed { error, age }) => {
                let (reason, age_seconds) = (error.to_string(), age.map(Micros::ceil_secs));
                tracing::error!(url, reason, age_seconds, "the issuer's keys have not been renewed for an hour");
            }
            (Some(_), _) => tracing::info!(url, "the issuer's keys can be fetched again"),
            (None, _) => {}
        }
    }
}

impl FetchState {
    fn advance(&mut self, outcome: &FetchOutcome) -> Option<FetchEvent> {
        match outcome {
            FetchOutcome::Failed { error, age } => {
                let is_old = age.is_some_and(|age| age >= STALE_AGE);
                let reason = error.to_string();
                let is_logged = self.error.as_ref() == Some(&reason);
                self.error = Some(reason);
                if is_old && !self.is_stale {
                    self.is_stale = true;
                    return Some(FetchEvent::Stale);
                }
                (!is_logged).then_some(FetchEvent::Failed)
            }
            FetchOutcome::Renewed { is_changed, .. } => {
                let is_recovered = self.error.is_some();
                *self = Self::default();
                match (is_changed, is_recovered) {
                    (true, _) => Some(FetchEvent::Changed),
                    (false, true) => Some(FetchEvent::Recovered),
                    (false, false) => None,
                }
            }
            // The library may add outcomes; this log ignores them.
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use sluicegate::identify::token::KeysError;

    use super::*;

    #[test]
    fn each_change_is_logged_once() {
        let renewed = |is_changed| FetchOutcome::Renewed { keys: 1, skipped: Vec::new(), is_changed };
        let failed = |reason: &'static str, seconds: Option<u64>| FetchOutcome::Failed {
            error: KeysError::new(reason),
            age: seconds.map(Micros::from_secs),
        };
        let mut state = FetchState::default();
        for (outcome, expected) in [
            (failed("refused", None), Some(FetchEvent::Failed)),
            (failed("refused", None), None),
            (failed("timeout", None), Some(FetchEvent::Failed)),
            (renewed(true), Some(FetchEvent::Changed)),
            (renewed(false), None),
            (failed("timeout", Some(300)), Some(FetchEvent::Failed)),
            (failed("timeout", Some(3_599)), None),
            (failed("timeout", Some(3_600)), Some(FetchEvent::Stale)),
            (failed("timeout", Some(7_200)), None),
            (renewed(false), Some(FetchEvent::Recovered)),
            (renewed(false), None),
            (renewed(true), Some(FetchEvent::Changed)),
        ] {
            assert_eq!(state.advance(&outcome), expected, "{outcome:?}");
        }
    }
}
