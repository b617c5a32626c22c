//! Executes one case through the front doors.

use std::fmt::Write as _;
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sluicegate_testkit::oracle::draw::Random;
use sluicegate_testkit::oracle::operation::{Action, Ask, Operation};
use sluicegate_testkit::oracle::rules::Rules;
use sluicegate_testkit::oracle::shown::{Shown, ShownWait};
use sluicegate_testkit::oracle::{Answered, Between, Case, Options, Scope};

use super::doors::{self, Door};
use super::scene::Scene;

/// The largest difference between the clocks of two processes.
const CLOCKS_MICROS: u64 = 1_000;
/// Near the end of an override, the applicable limits are unknown.
const ENDING_MICROS: u64 = 100_000;
/// Longer pauses are skipped.
const PAUSE_MAX: Duration = Duration::from_millis(60);
/// Longer waits are skipped.
const WAIT_MAX: Duration = Duration::from_millis(250);

/// Counts of cases that satisfied the contract.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    operations: usize,
    allowed: usize,
    denied: usize,
    /// Checks with only one permitted decision.
    certain: usize,
    uncertain: usize,
    /// Cases that stopped early because an override ended.
    unfinished: usize,
}

impl Tally {
    pub(super) fn add(&mut self, other: &Self) {
        let Self { operations, allowed, denied, certain, uncertain, unfinished } = other;
        self.operations += operations;
        self.allowed += allowed;
        self.denied += denied;
        self.certain += certain;
        self.uncertain += uncertain;
        self.unfinished += unfinished;
    }

    /// The run compared enough operations, allowed and denied often, and had few uncertain decisions.
    #[track_caller]
    pub(super) fn assert_thorough(&self, operations: usize) {
        assert!(self.operations >= operations, "{self:?}");
        assert!(self.allowed > operations / 5 && self.denied > operations / 20, "{self:?}");
        assert!(self.uncertain < self.certain / 10, "{self:?}");
    }
}

/// A case in progress.
pub(super) struct Play<'s> {
    scene: &'s mut Scene,
    case: Case,
    random: Random,
    doors: &'s [Door],
    /// The prefix of the names of all rules of the case.
    prefix: String,
    between: Between,
    rules: Rules,
    /// The last wait in a response.
    wait: Duration,
    log: String,
    tally: Tally,
}

pub(super) fn now_micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after the epoch");
    since.as_micros().try_into().expect("a time before the end of all")
}

impl<'s> Play<'s> {
    pub(super) fn draw(
        scene: &'s mut Scene,
        seed: u64,
        options: &Options,
        scope: Scope,
        doors: &'s [Door],
    ) -> Self {
        let now = now_micros();
        let case = Case::draw(seed, options).beginning_at(now / 1_000_000);
        let rules = case.rules.clone();
        Self {
            scene,
            random: Random::new(seed ^ 1),
            doors,
            prefix: format!("c{seed}-"),
            between: Between::new(&rules, now - CLOCKS_MICROS, scope),
            rules,
            case,
            wait: Duration::ZERO,
            log: String::new(),
            tally: Tally::default(),
        }
    }

    /// Executes the case. An error describes the case up to the response that violates the contract.
    pub(super) fn run(mut self) -> Result<Tally, String> {
        self.reload();
        for operation in std::mem::take(&mut self.case.operations) {
            match operation {
                Operation::Advance(micros) => pause(Duration::from_micros(micros), 2 * WAIT_MAX),
                Operation::AdvanceByWait(_) => pause(self.wait, WAIT_MAX),
                Operation::StepBack(_) => {}
                Operation::Reload(rules) => {
                    self.rules = *rules;
                    self.between.reload(&self.rules);
                    self.reload();
                }
                Operation::Act(action, asks) => {
                    if self.act(action, &asks)? {
                        self.tally.unfinished = 1;
                        break;
                    }
                }
            }
        }
        [self.tally.certain, self.tally.uncertain] = self.between.certainty();
        Ok(self.tally)
    }

    fn reload(&mut self) {
        let text = self.rules.to_yaml_named(&self.prefix);
        self.scene.reload(&text);
        _ = writeln!(self.log, "rules:\n{text}");
    }

    /// True if an override has ended in the meantime, so the applicable limits are unknown.
    fn act(&mut self, action: Action, asks: &[Ask]) -> Result<bool, String> {
        let from = now_micros() - CLOCKS_MICROS;
        let (door, answered) = self.ask(action, asks);
        let to = now_micros() + CLOCKS_MICROS;
        if self.rules.end_between(from - ENDING_MICROS, to + ENDING_MICROS) {
            return Ok(true);
        }
        for Answered { action, asks, shown } in &answered {
            let asks: Vec<String> = asks.iter().map(ToString::to_string).collect();
            _ = writeln!(self.log, "{from} {door} {action:?} {}\n    {shown:?}", asks.join(" and "));
        }
        self.count(&answered);
        let found = self.between.compare(from, to, &answered);
        if found.is_empty() {
            return Ok(false);
        }
        let (seed, took) = (self.case.seed, to - from);
        let found = found.join("\n");
        Err(format!(
            "SLUICEGATE_ORACLE_SEED={seed}\n{}\nthe last answer, {took} µs after it was asked for, breaks the \
             contract:\n{found}",
            self.log
        ))
    }

    fn ask(&mut self, action: Action, asks: &[Ask]) -> (String, Vec<Answered>) {
        if action == Action::Check && asks.len() > 1 && self.random.percent(50) {
            let asks: Vec<Ask> = asks.iter().map(|ask| Ask { address: None, is_report: false, ..*ask }).collect();
            let shown = doors::batch(self.scene, &asks, &self.prefix);
            let answered = asks.iter().zip(shown).map(|(ask, shown)| Answered {
                action,
                asks: vec![*ask],
                shown: vec![shown],
            });
            return ("Batch".to_owned(), answered.collect());
        }
        let fitting: Vec<(Door, Vec<Ask>)> =
            self.doors.iter().filter_map(|door| Some((*door, door.fit(action, asks)?))).collect();
        let (door, asks) = fitting[self.random.below(fitting.len() as u64) as usize].clone();
        let shown = door.ask(self.scene, action, &asks, &self.prefix);
        (format!("{door:?}"), vec![Answered { action, asks, shown }])
    }

    fn count(&mut self, answered: &[Answered]) {
        self.tally.operations += answered.len();
        for Answered { shown, .. } in answered.iter().filter(|each| each.action == Action::Check) {
            self.tally.allowed += usize::from(shown[0].allowed);
            self.tally.denied += usize::from(!shown[0].allowed);
            if let Some(wait) = wait(&shown[0]) {
                self.wait = wait;
            }
        }
    }
}

fn wait(shown: &Shown) -> Option<Duration> {
    match shown.speaks.as_ref()?.as_ref()?.wait? {
        ShownWait::Units(units) => Some(Duration::from_micros(units * shown.unit)),
        ShownWait::None | ShownWait::Never => None,
    }
}

/// Sleeps if the time is short enough.
fn pause(pause: Duration, max: Duration) {
    if pause <= max {
        sleep(if max == WAIT_MAX { pause } else { pause.min(PAUSE_MAX) });
    }
}
