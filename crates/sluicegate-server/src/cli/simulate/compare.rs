//! `--compare`: a second configuration on the same log, and who changes sides.

use serde::Serialize;

use super::batch::Logged;
use super::judge::{Judge, JudgeError, Judged, Who};
use super::summary::RuleSummary;
use super::tally::people::People;
use super::tally::timeline::Timeline;
use super::tally::{Count, Tally};

/// How many of those who change sides are named.
const NAMED_MAX: usize = 20;

/// The other configuration, and how its decisions differ.
#[derive(Debug)]
pub(super) struct Comparison {
    judge: Judge,
    pub(super) tally: Tally,
    both: Count,
    /// What changes: newly allowed, and newly denied.
    changed: Count,
    people: People,
    pub(super) timeline: Timeline,
}

/// What a comparison says.
#[derive(Debug, Serialize)]
pub(super) struct Compared {
    /// The other configuration.
    pub(super) config: String,
    pub(super) requests: u64,
    pub(super) allowed: u64,
    pub(super) denied: u64,
    pub(super) both_allowed: u64,
    pub(super) both_denied: u64,
    /// Allowed by the first configuration, denied by the other.
    pub(super) newly_denied: u64,
    /// Denied by the first configuration, allowed by the other.
    pub(super) newly_allowed: u64,
    pub(super) rules: Vec<RuleSummary>,
    /// Those of whom most changes.
    pub(super) identities: Vec<Changed>,
}

/// Somebody of whom something changes.
#[derive(Debug, Serialize)]
pub(super) struct Changed {
    pub(super) identity: String,
    pub(super) newly_denied: u64,
    pub(super) newly_allowed: u64,
}

impl Comparison {
    pub(super) fn new(judge: Judge) -> Self {
        let tally = Tally::new(&judge.rules());
        let (both, changed) = (Count::default(), Count::default());
        Self { judge, tally, both, changed, people: People::default(), timeline: Timeline::default() }
    }

    /// Decides a request of which the first configuration said `first`; nothing if it was not decided.
    pub(super) fn decide(
        &mut self,
        logged: &Logged<'_>,
        first: Option<(Who<'_>, bool)>,
    ) -> Result<(), JudgeError> {
        let second = match self.judge.decide(logged)? {
            Judged::Decided(who, decision) => {
                self.tally.decided(logged, who, &decision);
                decision.is_allowed()
            }
            Judged::Exempt => {
                self.tally.exempt(logged);
                true
            }
            Judged::Unauthorized | Judged::Refused(_) => return Ok(()),
        };
        match first {
            Some((_, first)) if first == second => self.both.add(first),
            Some((who, _)) => {
                self.changed.add(second);
                self.timeline.add(logged.at_micros, second);
                if let Some(person) = self.people.of(who) {
                    person.count.add(second);
                }
            }
            None => {}
        }
        Ok(())
    }

    pub(super) fn compared(&self, config: String) -> Compared {
        let mut people: Vec<Changed> = self
            .people
            .known()
            .map(|person| Changed {
                identity: person.name.to_string(),
                newly_denied: person.count.denied,
                newly_allowed: person.count.allowed,
            })
            .collect();
        people.sort_by(|a, b| {
            let total = |changed: &Changed| changed.newly_denied + changed.newly_allowed;
            total(b).cmp(&total(a)).then_with(|| a.identity.cmp(&b.identity))
        });
        people.truncate(NAMED_MAX);
        Compared {
            config,
            requests: self.tally.requests.total(),
            allowed: self.tally.requests.allowed,
            denied: self.tally.requests.denied,
            both_allowed: self.both.allowed,
            both_denied: self.both.denied,
            newly_denied: self.changed.denied,
            newly_allowed: self.changed.allowed,
            rules: self.tally.rules.iter().map(RuleSummary::new).collect(),
            identities: people,
        }
    }
}
