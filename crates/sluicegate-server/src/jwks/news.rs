//! What the log hears of a key set: each change once, and not each attempt.

use std::sync::Mutex;

use sluicegate::core::Micros;
use sluicegate::identify::token::Fetched;

/// When a set that cannot be renewed becomes a matter for somebody to look at.
const ALARM_AGE: Micros = Micros::from_secs(3_600);

/// What the log has heard of one key set.
#[derive(Debug)]
pub(super) struct News {
    url: String,
    heard: Mutex<Heard>,
}

#[derive(Debug, Default)]
struct Heard {
    /// The trouble that was told last, while it lasts.
    trouble: Option<String>,
    is_alarmed: bool,
}

/// What is worth a line.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    /// There are other keys than before.
    Changed,
    /// The same keys as before can be fetched again.
    Recovered,
    /// They cannot be fetched, for a reason that was not told yet.
    Trouble,
    /// They could not be fetched for long.
    Alarm,
}

impl News {
    /// For the set at this URL.
    pub(super) fn new(url: String) -> Self {
        Self { url, heard: Mutex::default() }
    }

    /// Writes a line if there is anything new.
    pub(super) fn tell(&self, outcome: &Fetched) {
        let line = self.heard.lock().unwrap_or_else(std::sync::PoisonError::into_inner).line(outcome);
        let url = self.url.as_str();
        match (line, outcome) {
            (Some(Line::Changed), Fetched::Renewed { keys, skipped, .. }) => {
                let skipped = skipped.join("; ");
                tracing::info!(url, keys, skipped, "the issuer's keys were loaded");
            }
            (Some(Line::Trouble), Fetched::Failed { error, age }) => {
                let (reason, age_seconds) = (error.to_string(), age.map(Micros::ceil_secs));
                tracing::warn!(url, reason, age_seconds, "the issuer's keys cannot be fetched");
            }
            (Some(Line::Alarm), Fetched::Failed { error, age }) => {
                let (reason, age_seconds) = (error.to_string(), age.map(Micros::ceil_secs));
                tracing::error!(url, reason, age_seconds, "the issuer's keys have not been renewed for an hour");
            }
            (Some(_), _) => tracing::info!(url, "the issuer's keys can be fetched again"),
            (None, _) => {}
        }
    }
}

impl Heard {
    fn line(&mut self, outcome: &Fetched) -> Option<Line> {
        match outcome {
            Fetched::Failed { error, age } => {
                let is_old = age.is_some_and(|age| age >= ALARM_AGE);
                let reason = error.to_string();
                let is_told = self.trouble.as_ref() == Some(&reason);
                self.trouble = Some(reason);
                if is_old && !self.is_alarmed {
                    self.is_alarmed = true;
                    return Some(Line::Alarm);
                }
                (!is_told).then_some(Line::Trouble)
            }
            Fetched::Renewed { is_changed, .. } => {
                let is_recovered = self.trouble.is_some();
                *self = Self::default();
                match (is_changed, is_recovered) {
                    (true, _) => Some(Line::Changed),
                    (false, true) => Some(Line::Recovered),
                    (false, false) => None,
                }
            }
            // The library may come to tell of more; that is news, but not what this is about.
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use sluicegate::identify::token::KeysError;

    use super::*;

    #[test]
    fn each_change_is_told_once() {
        let renewed = |is_changed| Fetched::Renewed { keys: 1, skipped: Vec::new(), is_changed };
        let failed = |reason: &'static str, seconds: Option<u64>| Fetched::Failed {
            error: KeysError::new(reason),
            age: seconds.map(Micros::from_secs),
        };
        let mut heard = Heard::default();
        for (outcome, expected) in [
            (failed("refused", None), Some(Line::Trouble)),
            (failed("refused", None), None),
            (failed("timeout", None), Some(Line::Trouble)),
            (renewed(true), Some(Line::Changed)),
            (renewed(false), None),
            (failed("timeout", Some(300)), Some(Line::Trouble)),
            (failed("timeout", Some(3_599)), None),
            (failed("timeout", Some(3_600)), Some(Line::Alarm)),
            (failed("timeout", Some(7_200)), None),
            (renewed(false), Some(Line::Recovered)),
            (renewed(false), None),
            (renewed(true), Some(Line::Changed)),
        ] {
            assert_eq!(heard.line(&outcome), expected, "{outcome:?}");
        }
    }
}
